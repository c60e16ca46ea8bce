"""The judge of next_level_study.py: unseen novels, the scores of rows without training, and intervals."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import retrieval_tasks as retrieval
from nextlevelbert import NextLevelBertModel, VectorCorpus, load_chunk_encoder
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores
from nextlevelbert.models.pooling import fit_whitening, inverse_root
from nextlevelbert.tasks.retrieval import tfidf_scores

JUDGED = "chapters, names masked"


class Judge:
    """The retrieval tasks over stored chunk vectors of their texts."""

    def __init__(self, args: Namespace) -> None:
        tasks = retrieval.load_tasks(args.data, args.letters_only)
        wanted = {name + ending for name in args.tasks or () for ending in ("", retrieval.LETTERS)}
        self.tasks = [task for task in tasks if not wanted or task.name in wanted]
        torch.manual_seed(0)  # [CLS] and [SEP] of the untrained model
        self.base = NextLevelBertModel.from_chunk_encoder(
            load_chunk_encoder(args.encoder, args.encoder_name), chunk_size=args.chunk_size, chunking=args.chunking
        )
        self.texts = list(dict.fromkeys(t for task in self.tasks for t in (*task.queries.values(),
                                                                          *task.documents.values())))  # fmt: skip
        self.chunks = retrieval.chunk_vectors(self.base, self.texts, args.cache_dir)
        authors = {row["id"]: row["author"] for row in file_rows(args.data / "novels/validation.jsonl.gz")}
        seen = {row["author"] for row in file_rows(args.data / "novels/train.jsonl.gz")}
        self.new_books = {book for book, author in authors.items() if author not in seen}

    def vectors(self, encode: retrieval.Encode, only: set[str] | None = None) -> dict[str, torch.Tensor]:
        places = [number for number, text in enumerate(self.texts) if only is None or text in only]
        found = encode([self.chunks[number] for number in places])
        return dict(zip((self.texts[number] for number in places), found, strict=True))

    def scores(self, encode: retrieval.Encode) -> dict[str, Any]:
        documents = self.vectors(encode)
        return self.collect(retrieval.rankings(self.tasks, documents, centre=False))

    def collect(self, source: Iterable[tuple[RetrievalTask, retrieval.Rank]]) -> dict[str, Any]:
        """The scores of every task, and the average precision of every book of the judged one."""
        found: dict[str, Any] = {}
        for task, rank in source:
            for label, metric, grades in retrieval.columns(task):
                found[f"{task.name}: {label}"] = retrieval_scores(rank(task, grades))[metric]
            if task.name == JUDGED:
                found |= self.by_book(rank(task, None))
        return found

    def by_book(self, ranks: dict[str, np.ndarray]) -> dict[str, Any]:
        books: dict[str, list[str]] = {}
        for query in ranks:
            books.setdefault(query.split("#")[0], []).append(query)

        def over(queries: Iterable[str]) -> float:
            return retrieval_scores({query: ranks[query] for query in queries})["map"]

        return {
            "by book": {book: [over(queries), len(queries)] for book, queries in books.items()},
            "MAP, new authors": over(q for book, queries in books.items() if book in self.new_books for q in queries),
        }

    def masked_map(self, model: Any) -> float:
        [task] = [task for task in self.tasks if task.name == JUDGED]
        documents = self.vectors(retrieval.contextual(model, "judging"), set(task.documents.values()))
        pool = torch.stack([documents[text] for text in task.documents.values()])
        return retrieval_scores(rank_documents(task, pool, pool))["map"]


def vectors_of(corpus: VectorCorpus) -> Iterator[torch.Tensor]:
    return (document.vectors for document in corpus)


def closed_forms(judge: Judge, corpus: VectorCorpus) -> dict[str, dict[str, Any]]:
    """Rows without training: means of chunk vectors (plain, centred, whitened), documents compared by whitened chunks,
    the untrained model, and word counts.
    """
    vectors = torch.cat(list(vectors_of(corpus))).float()
    centre = vectors.mean(dim=0)
    total = inverse_root(torch.cov(vectors.T))
    mean, within = fit_whitening(vectors_of(corpus))

    rows: dict[str, retrieval.Encode] = {
        "first chunk (truncated SBERT)": retrieval.first_chunk,
        "mean of chunk vectors (Avg. SBERT)": retrieval.mean_of_chunks,
        "mean, centred": lambda chunks: retrieval.mean_of_chunks(chunks) - centre,
        "mean, whitened, all chunks": retrieval.whitened_mean(centre, total),
        "mean, whitened within documents": retrieval.whitened_mean(mean, within),
        **{
            f"the same, fitted to the first {books} novels": retrieval.whitened_mean(
                *fit_whitening(islice(vectors_of(corpus), books))
            )
            for books in (15, 60)
            if books < len(corpus)
        },
        "next level, untrained": retrieval.contextual(judge.base, "untrained"),
    }
    found = {name: judge.scores(encode) for name, encode in rows.items()}
    white = dict(zip(judge.texts, retrieval.whitened(mean, within, judge.chunks), strict=True))
    by_chunks = retrieval.rankings_by_chunks(judge.tasks, white)
    found |= {f"whitened, {name}": judge.collect(source) for name, source in by_chunks.items()}
    lexical = [
        (task, retrieval.ranking_by(tfidf_scores(list(task.queries.values()), list(task.documents.values()))))
        for task in judge.tasks
    ]
    return found | {"TF-IDF": judge.collect(lexical)}


def plot(curves: dict[str, list[list[float]]], marks: dict[str, float], path: Path) -> None:
    """MAP over steps, and lines where the rows without training lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=3)
    for (name, value), style in zip(marks.items(), ("--", "-.", ":"), strict=False):
        axes.axhline(value, linestyle=style, color="tab:gray", label=name)
    axes.set(xlabel="optimiser step", ylabel="MAP", title=f"{JUDGED}: finding the book", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def interval(row: dict[str, Any], other: dict[str, Any]) -> list[float]:
    """95 % of the difference of MAP to another row, by drawing books anew (10,000 times)."""
    books = sorted(row["by book"])
    (ours, counts), (theirs, _) = (np.array([r["by book"][book] for book in books]).T for r in (row, other))
    draws = np.random.default_rng(0).integers(len(books), size=(10_000, len(books)))
    difference = ((ours - theirs) * counts)[draws].sum(axis=1) / counts[draws].sum(axis=1)
    return np.percentile(difference, [2.5, 97.5]).round(4).tolist()


def average(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over seeds, of every book, too."""
    found = {key: float(np.mean([row[key] for row in rows])) for key, value in rows[0].items()
             if isinstance(value, float)}  # fmt: skip
    books = {book: np.mean([row["by book"][book] for row in rows], axis=0).tolist() for book in rows[0]["by book"]}
    return found | {"by book": books}
