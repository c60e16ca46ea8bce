"""Encodes novels to train on, and the chapters, answers and stories that are searched afterwards.

    python -m benchmarks.studies.hold_out --data DATA --output_dir NOVELS
    python -m benchmarks.studies.novel_vectors --data DATA --novels NOVELS --encoder MINILM \
        --folder VECTORS

`trained_rows` trains models on ``VECTORS/train``, and judges their document vectors by `search`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

from benchmarks.studies.document_vectors import by_query, load_tasks
from nextlevelbert import (
    ChunkingRule,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores

# Names of the tasks, and of what is counted, by the names in `document_vectors`.
TASKS = {"books": "chapters", "squality": "squality"}
METRICS = {"chapters": "map", "squality": "mrr"}

# Chunk vectors [n, D] of documents to document vectors [N, D].
Pooling = Callable[[list[torch.Tensor]], torch.Tensor]


def encode(args: Namespace) -> None:
    """Encodes the training novels, and both sides of the tasks, in chunks of 256 tokens."""
    source = load_chunk_encoder(args.encoder)
    if args.bf16:
        source.encoder.to(torch.bfloat16)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 256)
    encode_corpus(read_documents(args.novels / "train.jsonl"), source, rule, args.folder / "train")
    tasks = {TASKS[task.name]: task for task in load_tasks(args.data) if task.name in TASKS}
    for name, task in tasks.items():
        for side, texts in (("documents", task.documents), ("queries", task.queries)):
            encode_corpus([*texts.items()], source, rule, args.folder / f"{name}-{side}")
    for name, task in tasks.items():
        relevant = json.dumps({query: dict(grades) for query, grades in task.relevant.items()})
        (args.folder / f"{name}.json").write_text(relevant, encoding="utf-8")


def relevant_documents(folder: Path, name: str) -> dict[str, dict[str, int]]:
    """Returns the relevant documents of each query of a task."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def search(folder: Path, name: str, pool: Pooling) -> dict[str, float]:
    """Searches by document vectors, and returns the score of each query.

    Args:
        folder: folder of the vectors.
        name: name of the task, ``chapters`` or ``squality``.
        pool: makes document vectors of chunk vectors.
    """
    queries = VectorCorpus(folder / f"{name}-queries")
    documents = VectorCorpus(folder / f"{name}-documents")
    task = RetrievalTask(
        name,
        dict.fromkeys(queries.document_ids, ""),
        dict.fromkeys(documents.document_ids, ""),
        relevant_documents(folder, name),
    )
    cosines = unit_vectors(pool, queries) @ unit_vectors(pool, documents).T  # [Q, N]
    rankings = rank_by_scores(task, cosines.double().numpy().round(6))
    return by_query(rankings, METRICS[name])


def unit_vectors(pool: Pooling, corpus: VectorCorpus) -> torch.Tensor:
    """Returns document vectors of length 1, ``[N, D]``."""
    vectors = pool([document.plain.float() for document in corpus])
    return F.normalize(vectors.float(), dim=-1)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/ and so on")
    parser.add_argument("--novels", type=Path, required=True, help="folder of hold_out")
    parser.add_argument("--encoder", required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--folder", type=Path, required=True, help="for the vectors")
    parser.add_argument("--bf16", action="store_true", help="encode in bfloat16")
    encode(parser.parse_args())


if __name__ == "__main__":
    main()
