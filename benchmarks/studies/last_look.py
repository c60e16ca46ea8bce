"""Twenty novels that were set aside before anything was chosen: do the excerpts of a book find each other?

    python -m benchmarks.studies.last_look --held_out novels/held_out.jsonl \\
        --checkpoint checkpoints/nextlevelbert-static

Eight excerpts of 10,000 characters from every book, a ninth of the book apart, look for the others of their book among
all; with all words, with names deleted, and with letters only, because punctuation gives editions away. Rows: the
checkpoint, the means of its plain and of its whitened chunk vectors, its first chunk, TF-IDF and BM25. The difference
of the checkpoint to each has an interval of 95 % over books.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import measuring
from benchmarks.common.retrieval_tasks import letters_only, masked, mostly_capitalised
from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation.retrieval import Ranks
from nextlevelbert.tasks.retrieval import bm25_scores, tfidf_scores

PARTS, CHARACTERS = 8, 10_000


def excerpts_task(path: Path) -> RetrievalTask:
    """Excerpts from all over each book; relevant are the others of the same book."""
    texts: dict[str, str] = {}
    for row in file_rows(path):
        text = row["text"]
        for part in range(1, PARTS + 1):
            start = part * len(text) // (PARTS + 1)
            texts[f"{row['id']}#{part}"] = text[start : start + CHARACTERS]
    relevant = {
        one: {other: 1 for other in texts if other != one and other.split("#")[0] == one.split("#")[0]}
        for one in texts
    }
    return RetrievalTask("excerpts", texts, texts, relevant)


def ranks_of(task: RetrievalTask, model: NextLevelBertModel, name: str) -> dict[str, Ranks]:
    texts = list(task.documents.values())
    books: Any = model.encode(texts)
    rows = {
        name: [book.document for book in books],
        "mean of whitened chunk vectors": [model.prepare_chunks(book.plain).mean(dim=0) for book in books],
        "mean of chunk vectors": [book.plain.mean(dim=0) for book in books],
        "first chunk": [book.plain[0] for book in books],
    }
    vectors = {label: torch.stack(found).float() for label, found in rows.items()}
    found = {label: rank_documents(task, rows, rows) for label, rows in vectors.items()}
    lexical = {"TF-IDF": tfidf_scores, "BM25": bm25_scores}
    return found | {label: rank_by_scores(task, scores(texts, texts)) for label, scores in lexical.items()}


def precision_by_book(ranks: Ranks) -> dict[str, float]:
    books = sorted({query.split("#")[0] for query in ranks})
    return {
        book: retrieval_scores({query: found for query, found in ranks.items() if query.split("#")[0] == book})["map"]
        for book in books
    }


def difference(ours: dict[str, float], theirs: dict[str, float]) -> str:
    gaps = np.array([ours[book] - theirs[book] for book in ours])
    draws = np.random.default_rng(0).integers(len(gaps), size=(10_000, len(gaps)))
    low, high = np.percentile(gaps[draws].mean(axis=1), [2.5, 97.5])
    return f"{low:+.3f} to {high:+.3f}"


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--held_out", type=Path, required=True, help="what hold_out.py wrote")
    parser.add_argument("--checkpoint", type=Path, required=True, help="a whitening NextLevelBERT")
    parser.add_argument("--chunk_encoder", help="folder of its chunk encoder, where it holds none")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    args = parser.parse_args()
    model = NextLevelBertModel.from_pretrained(args.checkpoint).eval()
    if args.chunk_encoder:
        model.attach_chunk_encoder(load_chunk_encoder(args.chunk_encoder))
    task = excerpts_task(args.held_out)
    without_names = masked(task, mostly_capitalised(task.documents.values()))
    tasks = [task, without_names, letters_only(without_names)]
    name = args.checkpoint.name
    table: dict[str, dict[str, float]] = {}
    gaps: dict[str, str] = {}
    for each in tasks:
        scores = {label: precision_by_book(ranks) for label, ranks in ranks_of(each, model, name).items()}
        for label, books in scores.items():
            table.setdefault(label, {})[each.name] = float(np.mean(list(books.values())))
            if each is without_names:
                gaps[label] = difference(scores[name], books)
    measuring.print_header("float32", f"MAP, mean over {len(task.documents) // PARTS} books of {PARTS} excerpts each")
    rows = [[label, *(f"{found[each.name]:.3f}" for each in tasks), gaps[label]] for label, found in table.items()]
    measuring.print_table(["", *(each.name for each in tasks), "checkpoint above it, names masked"], rows)
    if args.output:
        args.output.write_text(json.dumps({"map": table, "difference, names masked, 95 %": gaps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
