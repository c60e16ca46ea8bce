"""Are documents found better by their chunks than by one vector, and what does it cost?

    python -m benchmarks.studies.chunk_similarity --data DATA --encoder all-MiniLM-L6-v2-static --output_dir chunks

Rows, for each chunk size: the mean of the whitened chunk vectors, which is one vector for a document; the mean of the
three nearest pairs of whitened chunks; MaxSim, the mean over the query's chunks of the nearest chunk; each of the two
added to the cosine of the means; and word counts. Nothing is trained; the whitening is fitted to the training novels.

An interval of 95 % is over the books, or the stories, that are looked for. Cost is the processor seconds of comparing
every query with every document (of word counts also of making them), and the size of the pool's vectors in float32.
Writes ``table.md`` and ``scores.json``, and keeps the vectors of the novels.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.corpora import kept_corpus
from benchmarks.common.studies import add_letters_option, study_parser
from nextlevelbert import NextLevelBertModel, chunk_similarity, load_chunk_encoder, read_documents
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, retrieval_scores
from nextlevelbert.evaluation.chunk_scores import ChunkScore
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.pooling import fit_whitening
from nextlevelbert.tasks.retrieval import tfidf_scores

TASKS = ["squality" + retrieval.MASKED, "chapters" + retrieval.MASKED]


ONE = "one vector"
BY_CHUNKS: dict[str, ChunkScore] = {"3 nearest chunks": "nearest", "MaxSim of chunks": "maxsim"}

Entry = dict[str, float | list[float]]


def values(task: RetrievalTask, scores: np.ndarray) -> np.ndarray:
    """The score in the task's first column for every query, ``[Q]``."""
    _, metric, grades = retrieval.columns(task)[0]
    ranks = rank_by_scores(task, scores, grades)
    return np.array([retrieval_scores({query: found})[metric] for query, found in ranks.items()])


def by_words(task: RetrievalTask) -> Entry:
    begin = time.process_time()
    scores = tfidf_scores(list(task.queries.values()), list(task.documents.values()))
    seconds = time.process_time() - begin
    return {"score": measuring.with_interval(values(task, scores), books_of(task), 0), "seconds": seconds}


def compared(queries: list[torch.Tensor], pool: list[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor, float]]:
    """For each row its scores ``[Q, N]``, and the seconds it takes."""
    begin = time.process_time()
    means = [F.normalize(retrieval.mean_of_chunks(side), dim=1) for side in (queries, pool)]
    one = means[0] @ means[1].T
    seconds = time.process_time() - begin
    yield ONE, one.round(decimals=6), seconds
    for name, score in BY_CHUNKS.items():
        begin = time.process_time()
        scores = chunk_similarity(queries, pool, score)
        spent = time.process_time() - begin
        yield name, scores, spent
        yield f"{name} + {ONE}", (scores + one).round(decimals=6), spent + seconds


def by_vectors(task: RetrievalTask, chunks: dict[str, torch.Tensor]) -> Iterator[tuple[str, Entry]]:
    """For each row its score, the difference to one vector, and the cost."""
    queries, pool = ([chunks[text] for text in side.values()] for side in (task.queries, task.documents))
    books = books_of(task)
    base = np.zeros(len(books))
    for name, scores, seconds in compared(queries, pool):
        found = values(task, scores.numpy())
        base = found if name == ONE else base
        rows = len(pool) if name == ONE else sum(map(len, pool))
        yield (
            name,
            {
                "score": measuring.with_interval(found, books, 0),
                "above one vector": measuring.with_interval(found - base, books, 0),
                "seconds": seconds,
                "megabytes": rows * pool[0].shape[1] * 4 / 1e6,
            },
        )


def books_of(task: RetrievalTask) -> np.ndarray:
    """The book or the story that each query looks for, ``[Q]``."""
    return np.array([next(iter(task.relevant[query])).split("#")[0] for query in task.queries])


def whitened_chunks(
    args: Namespace, source: LoadedChunkEncoder, size: int, texts: list[str]
) -> dict[str, torch.Tensor]:
    """Whitened chunk vectors ``[n, D]`` by text; the whitening comes from the training novels."""
    novels = read_documents(str(args.data / "novels/train.jsonl.gz"))
    corpus = kept_corpus(novels, source, size, "fixed", args.output_dir / f"novels_{size}")
    mean, weight = fit_whitening(document.vectors for document in corpus)
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=size, num_hidden_layers=0)
    chunks = retrieval.whitened(mean, weight, retrieval.chunk_vectors(model, texts, None))
    return dict(zip(texts, map(retrieval.filled, chunks), strict=True))


def row(name: str, entry: dict) -> list[str]:
    gap = entry.get("above one vector") if not name.endswith(f": {ONE}") else None
    return [
        name,
        "{:.3f} ({:.3f} to {:.3f})".format(*entry["score"]),
        "{:+.3f} ({:+.3f} to {:+.3f})".format(*gap) if gap else "",
        f"{entry['seconds']:.2f}",
        f"{entry['megabytes']:.1f}" if "megabytes" in entry else "",
    ]


def main() -> None:
    parser = study_parser(__doc__)
    add_letters_option(parser)
    parser.add_argument("--chunk_sizes", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--tasks", nargs="+", default=TASKS, help=f"names of the tasks; default: {'; '.join(TASKS)}")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    wanted = {*args.tasks, *(name + retrieval.LETTERS for name in args.tasks)}
    tasks = [task for task in retrieval.load_tasks(args.data, args.letters_only) if task.name in wanted]
    texts = list(dict.fromkeys(text for t in tasks for text in (*t.queries.values(), *t.documents.values())))
    source = load_chunk_encoder(args.encoder, args.encoder_name)
    found: dict[str, dict[str, Entry]] = {task.name: {"TF-IDF": by_words(task)} for task in tasks}
    for size in args.chunk_sizes:
        chunks = whitened_chunks(args, source, size, texts)
        for task in tasks:
            found[task.name] |= {f"{size} tokens: {name}": entry for name, entry in by_vectors(task, chunks)}
    text = StringIO()
    with redirect_stdout(text):
        for task in tasks:
            head = [task.name, retrieval.columns(task)[0][0], "above one vector", "CPU seconds", "MB"]
            measuring.print_table(head, [row(name, entry) for name, entry in found[task.name].items()])
            print()
    print(text.getvalue())
    (args.output_dir / "table.md").write_text(text.getvalue())
    facts = {"machine": measuring.processor(), "encoder": source.name, "fingerprint": source.fingerprint}
    (args.output_dir / "scores.json").write_text(json.dumps({**facts, "tasks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
