"""Retrieval scores by the length of the document that was looked for, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from ...evaluation.retrieval import Ranking, RetrievalTask, retrieval_scores
from ...training.plots import save_figure


def scores_by_length(
    task: RetrievalTask, ranks: Mapping[str, Ranking], edges: Collection[int] | None = None, k: int = 10
) -> list[dict[str, float]]:
    """Scores of queries whose relevant document has about the same length (paper, figure 2).

    Length is counted in words between white space, not in tokens, so that models with different tokenizers
    and those without any share their buckets. With several relevant documents it is their mean length.

    Args:
        task: of the ranks.
        ranks: of `rank_documents` or `rank_by_scores`.
        edges: borders of the buckets in words; what is outside gets a bucket of its own at either end. By default
            128, 256, 512 and so on.
        k: as for `retrieval_scores`.

    Returns:
        For each bucket with a query, in rising order, ``from_words`` and ``below_words``, and its scores.
    """
    lengths = {document: len(text.split()) for document, text in task.documents.items()}
    words = np.asarray([np.mean([lengths[d] for d in task.relevant[query] if d != query]) for query in ranks])  # [Q]
    if edges is None:
        edges = [2**power for power in range(7, 7 + max(int(words.max()).bit_length() - 6, 1))]
    borders = [0, *sorted({edge for edge in edges if 0 < edge <= words.max()})]
    borders.append(min((edge for edge in edges if edge > words.max()), default=int(words.max()) + 1))
    bucket = np.searchsorted(borders, words, side="right") - 1  # [Q]
    rows = []
    for number in np.unique(bucket).tolist():
        inside = {query: ranks[query] for query, place in zip(ranks, bucket, strict=True) if place == number}
        rows.append(
            {
                "from_words": float(borders[number]),
                "below_words": float(borders[number + 1]),
                **retrieval_scores(inside, k),
            }
        )
    return rows


def plot_by_length(
    results: Mapping[str, list[dict[str, float]]], path: str | Path, metric: str = "mrr", title: str = ""
) -> None:
    """A score over document length, one line a model, as a PNG; bars are numbers of queries on a log scale.

    Args:
        results: for each model what `scores_by_length` gave, all for the same queries.
        path: where the picture goes.
        metric: the score to show.
        title: above the picture.

    Raises:
        ValueError: if the models have different buckets, or there is none.
    """
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    buckets = {
        name: [(row["from_words"], row["below_words"], row["queries"]) for row in rows]
        for name, rows in results.items()
    }
    shared = next(iter(buckets.values()), [])
    if not shared or any(rows != shared for rows in buckets.values()):
        raise ValueError(f"All models must have the same buckets and queries, and at least one; got {buckets}.")
    places = np.arange(len(shared))
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    scores = figure.subplots()
    numbers = scores.twinx()
    numbers.bar(places, [queries for _, _, queries in shared], color="tab:gray", alpha=0.25)
    numbers.set(yscale="log", ylabel="queries (bars, log scale)", ylim=(0.5, None))
    for name, rows in results.items():
        scores.plot(places, [row[metric] for row in rows], "o-", label=name, markersize=4)
    scores.set(xlabel="words of the relevant document", ylabel=metric.upper(), ylim=(0, 1.02), title=title)
    scores.set_xticks(places, [f"{low:,.0f}–{high - 1:,.0f}" for low, high, _ in shared], rotation=30)
    scores.set_zorder(numbers.get_zorder() + 1)  # lines in front of bars
    scores.patch.set_visible(False)
    scores.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    save_figure(figure, path)
