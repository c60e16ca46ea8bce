"""A Transformer's chunk vectors as a third part of the hybrid: how much should they count, and what do they add?

    python -m benchmarks.studies.third_part --data DATA --hybrid checkpoints/nextlevelbert-hybrid \\
        --whitening checkpoints/nextlevelbert-minilm-256 --train_file novels/development.jsonl --cache_dir vectors \\
        --output_dir third

A document vector is the hybrid's mean beside the mean of the Transformer's chunk vectors, whitened by the matrix that
the checkpoint --whitening was given before its training. The third part's squared weight is chosen on training texts:
stories of SQuALITY, and segments of training novels, which all parts were fitted to; names masked. It is then
judged on unseen stories and on the chapters of unseen novels, with each other row's difference as a 95 % interval
over stories or books. --books takes that many novels, those whose ids have the smallest SHA-256, where time does not
suffice for all. Prints Markdown tables and writes ``scores.json``.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.studies import study_parser
from benchmarks.studies.chunk_similarity import books_of
from benchmarks.studies.hybrid_vectors import Values, by_scores, by_vectors, by_words, print_rows
from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask
from nextlevelbert.tasks.retrieval import tfidf_scores

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
CHARACTERS = 15_000  # of a segment of a training novel
WITH_TFIDF = 0.2  # what cosines count beside TF-IDF, as chosen in beside_tfidf.py for the hybrid

Vectors = dict[str, torch.Tensor]  # by text


def book_of(key: str) -> str:
    """The book of a chapter's or segment's id."""
    return key.rsplit("#", 1)[0]


def chosen(books: set[str], count: int | None) -> set[str]:
    """Some of the books, those with the smallest SHA-256 of their ids."""
    return set(sorted(books, key=lambda book: hashlib.sha256(book.encode()).hexdigest())[:count])


def of_books(task: RetrievalTask, books: set[str]) -> RetrievalTask:
    """The same task among chapters of these books alone."""
    kept = {key for key in task.documents if book_of(key) in books}
    relevant = {query: task.relevant[query] for query in task.queries if query in kept}
    return RetrievalTask(task.name, retrieval.only(task.queries, kept), retrieval.only(task.documents, kept), relevant)


def training_tasks(args: Namespace) -> list[RetrievalTask]:
    """Answers look for training stories, names masked; segments of training novels for others, masked and not."""
    stories = {row["id"]: row for row in file_rows(args.data / "squality/train.jsonl.gz")}
    answers, relevant = {}, {}
    for key, row in stories.items():
        for question in row["questions"]:
            for number, text in enumerate(question["responses"]):
                answers[f"{key}-{question['number']}-{number}"] = text
                relevant[f"{key}-{question['number']}-{number}"] = {key: 1}
    texts = {key: row["text"] for key, row in stories.items()}
    squality = RetrievalTask("squality", answers, texts, relevant)
    found = [retrieval.masked(squality, retrieval.mostly_capitalised(texts.values()))]
    if not args.novels:
        return found
    novels = list(islice(file_rows(args.train_file), args.novels))
    cut = {
        f"{row['id']}#{number}": row["text"][start : start + CHARACTERS]
        for row in novels
        for number, start in enumerate(range(len(row["text"]) // 20, len(row["text"]) - CHARACTERS, CHARACTERS))
        if number < args.segments
    }
    same = {
        one: {
            other: 1 + (abs(int(one.rsplit("#", 1)[1]) - int(other.rsplit("#", 1)[1])) == 1)
            for other in cut
            if book_of(other) == book_of(one) and other != one
        }
        for one in cut
    }
    chapters = RetrievalTask("chapters", cut, cut, same)
    names = retrieval.mostly_capitalised(row["text"] for row in novels)
    return [*found, retrieval.masked(chapters, names), chapters]


def joined(one: torch.Tensor, other: torch.Tensor, share: float) -> torch.Tensor:
    """Vectors side by side, `share` the squared weight of the second."""
    return torch.cat([(1 - share) ** 0.5 * one, share**0.5 * other], dim=-1)


class Texts:
    """Document vectors of both encoders. A Transformer's chunks are two tokens shorter, for its special tokens."""

    def __init__(self, args: Namespace) -> None:
        self.hybrid: Any = NextLevelBertModel.from_pretrained(args.hybrid).eval()
        encoder = load_chunk_encoder(args.encoder, args.encoder_name)
        self.base: Any = NextLevelBertModel.from_chunk_encoder(
            encoder, chunk_size=retrieval.CHUNK_SIZE, num_hidden_layers=0
        )
        whitening = retrieval.trained(str(args.whitening), self.base).whitening
        self.whitening = (whitening.mean, whitening.weight)
        self.cache = args.cache_dir

    def chunks(self, texts: list[str]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The hybrid's, and the Transformer's whitened: ``[n, D]`` of each text."""
        words = [book.plain.float() for book in self.hybrid.encode(texts)]
        meaning = retrieval.chunk_vectors(self.base, texts, self.cache)
        return words, retrieval.whitened(*self.whitening, meaning)

    def documents(self, texts: list[str]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Means of both for each text, a few texts at a time."""
        found = {}
        for start in range(0, len(texts), retrieval.TEXTS_PER_PASS):
            part = texts[start : start + retrieval.TEXTS_PER_PASS]
            both = [retrieval.mean_of_chunks(side) for side in self.chunks(part)]
            found.update(dict(zip(part, zip(*both, strict=True), strict=True)))
        return found


def sum_of(share: float, cosines: np.ndarray, tfidf: np.ndarray) -> np.ndarray:
    """Scores ``[Q, N]``; rounded, so that equal texts tie in both."""
    return np.round(share * cosines + (1 - share) * tfidf, 7)


def cosines(task: RetrievalTask, vectors: Vectors) -> np.ndarray:
    """``[Q, N]``"""
    sides = [F.normalize(torch.stack([vectors[text] for text in side.values()]), dim=1)
             for side in (task.queries, task.documents)]  # fmt: skip
    return (sides[0] @ sides[1].T).numpy()


def tfidf(task: RetrievalTask) -> np.ndarray:
    """Cosines ``[Q, N]`` of TF-IDF vectors."""
    return np.asarray(tfidf_scores(list(task.queries.values()), list(task.documents.values())))


def vectors_of(task: RetrievalTask, texts: Texts, shares: tuple[float, ...]) -> dict[str, Vectors]:
    """The hybrid's document vectors, those of the third part alone, and both together at each share."""
    means = texts.documents(list(dict.fromkeys([*task.queries.values(), *task.documents.values()])))
    rows = {"hybrid": {text: pair[0] for text, pair in means.items()}}
    rows["third part alone"] = {text: pair[1] for text, pair in means.items()}
    return rows | {
        f"third part {share:g}": {text: joined(*pair, share) for text, pair in means.items()} for share in shares
    }


def gaps(task: RetrievalTask, rows: dict[str, Values], main: str) -> dict[str, dict[str, list[float]]]:
    """The main row minus each other one, with bounds of 95 %."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, values in rows.items():
        for column, scores in values.items():
            difference = rows[main][column] - scores
            known = ~np.isnan(difference)
            if name != main:
                interval = measuring.with_interval(difference[known], books_of(task)[known], 0)
                found.setdefault(name, {})[column] = [round(value, 4) for value in interval]
    return found


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--hybrid", type=Path, required=True)
    parser.add_argument("--whitening", type=Path, required=True, help="checkpoint with the Transformer's whitening")
    parser.add_argument("--train_file", type=Path, required=True, help="training novels, to choose the weight")
    parser.add_argument("--novels", type=int, default=10, help="of them that are read; 0: stories alone")
    parser.add_argument("--segments", type=int, default=15, help="of each of these")
    parser.add_argument("--books", type=int, help="unseen novels that judge; by default all")
    parser.add_argument("--tasks", nargs="+", default=["squality, names masked", "squality", "chapters, names masked"])
    parser.add_argument("--share", type=float, help="the third part's squared weight; by default it is chosen")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    texts = Texts(args)
    facts: dict[str, Any] = {"machine": measuring.processor(), "choice": {}, "rows": {}}
    share = args.share
    if share is None:
        tried = {
            task.name: {name: by_vectors([task], row) for name, row in vectors_of(task, texts, SHARES).items()}
            for task in training_tasks(args)[:2]
        }
        for rows in tried.values():
            print_rows(rows, list(rows["hybrid"]))
        sums = {s: sum(np.nanmean(v) for rows in tried.values() for v in rows[f"third part {s:g}"].values())
                for s in SHARES}  # fmt: skip
        share = max(sums, key=lambda value: sums[value])
        facts["choice"] = {name: means(rows) for name, rows in tried.items()}
    facts["share"] = share
    found = {task.name: task for task in retrieval.load_tasks(args.data)}
    for name in args.tasks:
        task = found[name]
        if name.startswith("chapters"):
            task = of_books(task, chosen({book_of(key) for key in task.documents}, args.books))
        vectors = vectors_of(task, texts, tuple(sorted({*SHARES, share})))
        rows = {name: by_vectors([task], row) for name, row in vectors.items()} | by_words([task])
        words = tfidf(task)
        for kind in ("third part alone", f"third part {share:g}"):
            scores = sum_of(WITH_TFIDF, cosines(task, vectors[kind]), words)
            rows[f"{kind}, {WITH_TFIDF:g} + TF-IDF"] = by_scores(task, scores)
        print_rows(rows, list(rows["hybrid"]))
        facts["rows"][name] = means(rows)
        for main_row in (f"third part {share:g}", f"third part {share:g}, {WITH_TFIDF:g} + TF-IDF"):
            facts.setdefault(f"{main_row} minus", {})[name] = gaps(task, rows, main_row)
        (args.output_dir / "scores.json").write_text(json.dumps(facts, indent=1) + "\n")


def means(rows: dict[str, Values]) -> dict[str, dict[str, float]]:
    return {name: {column: round(float(np.nanmean(v)), 4) for column, v in row.items()} for name, row in rows.items()}


if __name__ == "__main__":
    main()
