"""Whitening and training on novels alone or on texts of eight kinds: what does each do for documents of every kind?

    python -m benchmarks.studies.mixture --data DATA --output_dir mixture
    python -m benchmarks.studies.mixture_judge --mixture mixture --encoder checkpoints/nextlevelbert-static \\
        --output_dir judged [--seeds 0 1 2]

In every kind of text, four excerpts of each held-out document look for the other three among those of all (MAP). An
excerpt is a sixth of its document, at most 4,000 characters, and they begin a fifth of the document apart.
Rows: the mean of the chunk vectors, that mean whitened by novels, by all kinds and by the kind of text that is judged,
the recipe of nextlevelbert-static trained on novels and on all kinds (one run a seed), that of nextlevelbert-hybrid
fitted to all kinds and to the kind that is judged, each --checkpoint as it stands, TF-IDF and BM25. Chunks have 64
tokens, because news are short; those of the hybrid have 256, as in its checkpoint.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import cast

import numpy as np
import torch

from benchmarks.common import measuring
from benchmarks.common.studies import run_script
from benchmarks.studies.last_look import difference, precision_by_book
from nextlevelbert import DocumentEmbedding, NextLevelBertModel, VectorCorpus, load_chunk_encoder
from nextlevelbert.commands.fit import PLACES, hybrid_encoder
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents
from nextlevelbert.evaluation.retrieval import Ranks
from nextlevelbert.models.pooling import fit_whitening
from nextlevelbert.tasks.retrieval import bm25_scores, tfidf_scores

PARTS, LONGEST, CHUNK_SIZE = 4, 4_000, 64
SOURCES = {
    "bbc_news": "news",
    "hyperpartisan": "news",
    "ecbplus": "news",
    "newsgroups20": "posts",
    "squality": "stories",
}
NOVELS, ALL = "novels", "all kinds"
OWN_HYBRID = "hybrid fitted to its own kind"


def excerpts_task(path: Path) -> RetrievalTask:
    texts: dict[str, str] = {}
    for row in file_rows(path):
        text, length = row["text"], min(len(row["text"]) // 6, LONGEST)
        for part in range(PARTS):
            start = part * len(text) // (PARTS + 1)
            texts[f"{row['id']}#{part}"] = text[start : start + length]
    relevant = {
        f"{name}#{part}": {f"{name}#{other}": 1 for other in range(PARTS) if other != part}
        for name in dict.fromkeys(key.rpartition("#")[0] for key in texts)
        for part in range(PARTS)
    }
    return RetrievalTask(path.stem, texts, texts, relevant)


def kind_of(name: str) -> str:
    source = name.partition("/")[0]
    return SOURCES.get(source, source)


def train(mixture: Path, encoder: str, folder: Path, seed: int | None) -> None:
    """Encodes a corpus, and with a seed trains on it as nextlevelbert-static was; what is finished is only read."""
    kind = folder.parent.name
    source = mixture / "train" if kind == ALL else mixture / "train/novels.jsonl"
    options = ["--train_file", source, "--chunk_encoder", encoder, "--chunk_size", CHUNK_SIZE]
    options += ["--corpus_dir", folder.parent / "corpus", "--output_dir", folder, "--disable_tqdm", "true"]
    if seed is not None:
        options += ["--do_train", "--objective", "contrastive", "--pooling", "residual", "--whiten_chunks"]
        options += ["--num_hidden_layers", 0, "--min_segment", 2, "--per_device_train_batch_size", 64, "--seed", seed]
        options += ["--max_steps", 300, "--learning_rate", 3e-4, "--save_strategy", "no", "--eval_strategy", "no"]
    run_script("run_pretraining.py", *options)


def fitted_hybrid(files: list[Path], encoder: str, folder: Path) -> NextLevelBertModel:
    """nextlevelbert-hybrid, fitted to the documents of some files."""
    texts = [str(row["text"]) for file in files for row in file_rows(file)]
    both = hybrid_encoder(load_chunk_encoder(encoder), texts, folder)
    return NextLevelBertModel.from_chunk_encoder(both, pooling="plain").eval()


def rows_of(task: RetrievalTask, models: dict[str, NextLevelBertModel], folder: Path) -> dict[str, Ranks]:
    texts = list(task.documents.values())
    books = {name: cast(list[DocumentEmbedding], model.encode(texts)) for name, model in models.items()}
    plain = [book.plain.float() for book in next(iter(books.values()))]
    vectors = {"mean of chunk vectors": [chunks.mean(dim=0) for chunks in plain]}
    corpora = {kind: VectorCorpus(folder / kind / "corpus") for kind in (NOVELS, ALL)}
    fitted = {kind: fit_whitening(book.vectors for book in corpus) for kind, corpus in corpora.items()}
    fitted["its own kind"] = fit_whitening(book.vectors for book in corpora[ALL] if kind_of(book.id) == task.name)
    for kind, (centre, root) in fitted.items():
        vectors[f"whitened mean, {kind}"] = [((chunks - centre) @ root).mean(dim=0) for chunks in plain]
    vectors |= {name: [book.document for book in found] for name, found in books.items()}
    words = [book.plain[:, -PLACES:].mean(dim=0) for book in books[OWN_HYBRID]]
    vectors["its word counts alone"] = [part / part.norm() for part in words]
    pools = {name: torch.stack(found).float() for name, found in vectors.items()}
    found = {name: rank_documents(task, pool, pool) for name, pool in pools.items()}
    lexical = {"TF-IDF": tfidf_scores, "BM25": bm25_scores}
    return found | {name: rank_by_scores(task, scores(texts, texts)) for name, scores in lexical.items()}


def over_seeds(by_row: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Rows that differ only in their seed become one, their mean for each document."""
    groups: dict[str, list[dict[str, float]]] = {}
    for name, documents in by_row.items():
        groups.setdefault(name.partition(", seed")[0], []).append(documents)
    return {
        name: {key: float(np.mean([row[key] for row in rows])) for key in rows[0]} for name, rows in groups.items()
    }


def judged(args: Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Kind of text -> row -> document -> mean average precision of its excerpts."""
    models = {}
    for kind in (NOVELS, ALL):
        train(args.mixture, args.encoder, args.output_dir / kind / "unused", None)
        for seed in args.seeds:
            folder = args.output_dir / kind / f"seed-{seed}"
            train(args.mixture, args.encoder, folder, seed)
            model = NextLevelBertModel.from_pretrained(folder).eval()
            if not model.config.include_chunk_encoder:
                model.attach_chunk_encoder(load_chunk_encoder(args.encoder))
            models[f"trained on {kind}, seed {seed}"] = model
    models |= {path.name: NextLevelBertModel.from_pretrained(path).eval() for path in args.checkpoint}
    found, files = {}, sorted((args.mixture / "train").glob("*.jsonl"))
    models[f"hybrid fitted to {ALL}"] = fitted_hybrid(files, args.encoder, args.output_dir / ALL / "hybrid")
    for path in sorted((args.mixture / "held_out").glob("*.jsonl")):
        task, folder = excerpts_task(path), args.output_dir / path.stem / "hybrid"
        own = fitted_hybrid([args.mixture / "train" / path.name], args.encoder, folder)
        ranks = rows_of(task, models | {OWN_HYBRID: own}, args.output_dir)
        found[task.name] = {name: precision_by_book(each) for name, each in ranks.items()}
    return found


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--mixture", type=Path, required=True, help="what mixture.py wrote")
    parser.add_argument("--encoder", required=True, help="folder of a static chunk encoder, or a checkpoint with one")
    parser.add_argument("--checkpoint", type=Path, nargs="+", default=[], help="further models, with their own chunks")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    found = judged(args)
    tables = {kind: over_seeds(rows) for kind, rows in found.items()}
    measuring.print_header("float32", "MAP, mean over the held-out documents of each kind, four excerpts each")
    kinds = [f"{kind} ({len(next(iter(rows.values())))})" for kind, rows in tables.items()]
    names = list(next(iter(tables.values())))
    measuring.print_table(
        ["", *kinds],
        [[name, *(f"{np.mean(list(rows[name].values())):.3f}" for rows in tables.values())] for name in names],
    )
    gaps: dict[str, dict[str, dict[str, str]]] = {}
    for ours in (f"trained on {ALL}", OWN_HYBRID):
        gaps[ours] = {
            name: {kind: difference(rows[ours], rows[name]) for kind, rows in tables.items()} for name in names
        }
        print(f"\n{ours} minus each row, 95 % over documents:\n")
        measuring.print_table(["", *kinds], [[name, *gaps[ours][name].values()] for name in names if name != ours])
    scores = {
        kind: {name: float(np.mean(list(row.values()))) for name, row in rows.items()} for kind, rows in found.items()
    }
    (args.output_dir / "judged.json").write_text(json.dumps({"map": scores, "differences": gaps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
