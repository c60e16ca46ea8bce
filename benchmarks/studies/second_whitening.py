"""Does a second whitening, by the means of segments, make better document vectors?

    python -m benchmarks.studies.second_whitening --kinds KINDS
    python -m benchmarks.studies.second_whitening --data DATA --novels NOVELS

``nextlevelbert fit`` whitens chunk vectors by their spread within documents. A document vector is a
mean of many chunks, so that the spread of means of several chunks could matter more:

=====================  =============================================================================
row                    document vectors
=====================  =============================================================================
mean                   mean of static chunk vectors of 256 tokens
whitened               mean of chunk vectors, whitened and of length 1
whitened twice         whitened again by the spread of segments' means within documents
— shrunk               and each direction scaled by its variance between documents, as in
                       probabilistic linear discriminant analysis: √(λ / (2 λ + 1))
fit                    what ``nextlevelbert fit`` makes: whitened vectors and hashed TF-IDF
— whitened twice       the same, with the vectors of the third row
— chosen               the same, if held-out documents gain by the second whitening; else fit
=====================  =============================================================================

The length of a segment (5 or 15 chunks) and the shrinkage (0.3, 1 or 3) are chosen on every fifth
of the documents that are fitted to: four parts of each are queries for one another. All rows are
then fitted to all of these documents.

With ``--kinds`` (the folder that `kinds_of_text` makes), all rows are fitted to each kind, and four
excerpts of a held-out document are queries for one another. An excerpt is a sixth of the document,
of at most 4,000 characters. Otherwise all rows are fitted to the novels of `hold_out`, and the
tasks are those of `document_vectors`, names masked. Differences to `whitened` and to `fit` have
intervals of 95 % over documents, and the numbers of documents that gain and lose.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch.nn import functional as F

from benchmarks.common.measuring import (
    add_json_option,
    print_header,
    print_table,
    with_interval,
    write_figures,
)
from benchmarks.studies.document_vectors import COLUMNS, by_query, group_of, load_tasks
from nextlevelbert import (
    ChunkingRule,
    load_chunk_encoder,
    read_documents,
    static_checkpoint,
)
from nextlevelbert.evaluation import (
    RetrievalTask,
    bm25_scores,
    rank_by_scores,
    rank_documents,
    tfidf_scores,
)
from nextlevelbert.fitting import fit_tfidf_encoder, fit_whitening
from nextlevelbert.models.chunk_encoder import LoadedChunkEncoder
from nextlevelbert.models.chunking import groups_by_length, tokenize_documents
from nextlevelbert.search.fit import PLACES, STATIC_SHARE

PARTS = 4  # excerpts of a document
LONGEST = 4_000  # characters of an excerpt
SEGMENTS = (5, 15)  # chunks
SHRINKAGES = (0.3, 1.0, 3.0)
BETWEEN_SHRINKAGE = 0.3
HELD_OUT = 5  # every fifth document
CONTROLS = {"whitened twice": "whitened", "shrunk": "whitened"}  # other rows: fit

Map = Callable[[torch.Tensor], torch.Tensor]  # of chunk vectors [n, D] to a document vector [D]
Figures = dict[str, dict[str, Any]]


# --- The closed form


def mean_of_whitened(
    mean: torch.Tensor, weight: torch.Tensor, chunks: torch.Tensor
) -> torch.Tensor:
    return F.normalize((chunks - mean) @ weight, dim=1).mean(dim=0)


def segment_means(chunks: torch.Tensor, length: int) -> torch.Tensor:
    """Averages segments of about `length` chunks, two at least if there are two chunks."""
    count = min(max(round(len(chunks) / length), 2), len(chunks))
    return torch.stack([segment.mean(dim=0) for segment in chunks.tensor_split(count)])


def discriminant(segments: Sequence[torch.Tensor], shrinkage: float) -> torch.Tensor:
    """Scales directions by their variance between documents, if the variance within them is one.

    The cosine of two vectors then grows with the likelihood that both are of one document, as in
    probabilistic linear discriminant analysis.

    Args:
        segments: means of segments of each document, ``[k, D]``.
        shrinkage: share of the mean variance that is added to the covariance within documents.

    Returns:
        A matrix ``[D, D]`` that is multiplied from the right.
    """
    means = torch.stack([part.mean(dim=0) for part in segments]).double()
    deviations = torch.cat([part - part.mean(dim=0) for part in segments]).double()
    within = deviations.T @ deviations / len(deviations)
    between = torch.cov(means.T) - within * len(segments) / len(deviations)
    unit = torch.eye(len(within), dtype=torch.float64)
    within = within + shrinkage * within.trace() / len(within) * unit
    share = BETWEEN_SHRINKAGE
    between = (1 - share) * between + share * between.trace() / len(between) * unit
    variances, axes = scipy.linalg.eigh(between.numpy(), within.numpy())
    variances = variances.clip(min=0)
    return torch.from_numpy(axes * np.sqrt(variances / (2 * variances + 1))).float()


@dataclass(frozen=True)
class Form:
    """A closed form with its settings."""

    shrunk: bool
    length: int
    shrinkage: float

    def fit(self, documents: Sequence[torch.Tensor]) -> Map:
        """Fits the form to chunk vectors ``[n, D]`` of documents."""
        mean, weight = fit_whitening(documents)
        segments = []
        for chunks in documents:
            whitened = F.normalize((chunks - mean) @ weight, dim=1)
            if len(whitened) > 1:
                segments.append(segment_means(whitened, self.length))
        if self.shrunk:
            second = discriminant(segments, self.shrinkage)
        else:
            _, second = fit_whitening(segments, shrinkage=self.shrinkage)
        return partial(mean_of_whitened, mean, weight @ second)


def first_form(documents: Sequence[torch.Tensor]) -> Map:
    return partial(mean_of_whitened, *fit_whitening(documents))


def choose(documents: Sequence[torch.Tensor], shrunk: bool) -> tuple[Form, float, float]:
    """Chooses settings on held-out documents.

    Returns:
        The best form, and the MAP of held-out documents without it and with it.
    """
    long = [chunks for chunks in documents if len(chunks) > 1]
    fitted = [chunks for index, chunks in enumerate(long) if index % HELD_OUT]
    parts = {}
    for index, chunks in enumerate(long[::HELD_OUT]):
        for number, part in enumerate(chunks.tensor_split(min(PARTS, len(chunks)))):
            parts[f"{index}#{number}"] = part
    task = own_document_task("held out", dict.fromkeys(parts, ""))

    def score(fitted_map: Map) -> float:
        vectors = torch.stack([fitted_map(part) for part in parts.values()])
        return float(np.mean([*by_query(rank_documents(task, vectors, vectors), "map").values()]))

    scores = {}
    for length in SEGMENTS:
        for shrinkage in SHRINKAGES:
            form = Form(shrunk, length, shrinkage)
            scores[form] = score(form.fit(fitted))
    best = max(scores, key=scores.__getitem__)
    return best, score(first_form(fitted)), scores[best]


# --- Texts and tasks


def own_document_task(name: str, texts: dict[str, str]) -> RetrievalTask:
    """Makes a task in which texts ``DOCUMENT#PART`` are queries for others of their document."""
    documents: dict[str, list[str]] = {}
    for key in texts:
        documents.setdefault(key.rpartition("#")[0], []).append(key)
    relevant = {}
    for keys in documents.values():
        for key in keys:
            relevant[key] = {other: 1 for other in keys if other != key}
    return RetrievalTask(name, texts, texts, relevant)


def excerpts_task(path: Path) -> RetrievalTask:
    texts = {}
    for document in read_documents(path):
        length = min(len(document.text) // 6, LONGEST)
        for part in range(PARTS):
            start = part * len(document.text) // (PARTS + 1)
            texts[f"{document.id}#{part}"] = document.text[start : start + length]
    return own_document_task(path.stem, texts)


def encode(
    source: LoadedChunkEncoder, texts: Sequence[str], reduce: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor]:
    """Encodes texts in chunks of 256 tokens, and reduces the chunk vectors of each text."""
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 256)
    vectors = []
    for group in groups_by_length(texts):
        for document in tokenize_documents(source.tokenizer, group, rule):
            ids = document.input_ids
            vectors.append(reduce(source.encoder.encode(ids, rule.boundaries(ids), rule)))
    return vectors


class Fitted:
    """All rows, fitted to documents.

    Args:
        texts: the documents.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.source = load_chunk_encoder(static_checkpoint())
        documents = encode(self.source, texts, reduce=lambda chunks: chunks)
        self.whitened = first_form(documents)
        twice, self.before, self.after = choose(documents, shrunk=False)
        shrunk, _, _ = choose(documents, shrunk=True)
        self.chosen = {"whitened twice": twice, "shrunk": shrunk}
        self.maps = {"mean": lambda chunks: chunks.mean(dim=0), "whitened": self.whitened}
        self.maps |= {row: form.fit(documents) for row, form in self.chosen.items()}
        with tempfile.TemporaryDirectory() as folder:
            self.words = fit_tfidf_encoder(self.source, texts, folder, hidden_size=PLACES)
        counts = sum(map(len, documents))
        sums = encode(self.words, texts, reduce=lambda chunks: chunks.sum(dim=0))
        self.words_mean = torch.stack(sums).sum(dim=0) / counts

    def vectors(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns the document vectors ``[N, D]`` of each row."""
        chunks = encode(self.source, texts, reduce=lambda chunks: chunks)
        rows = {}
        for row, fitted_map in self.maps.items():
            rows[row] = torch.stack([fitted_map(part) for part in chunks])
        words = encode(self.words, texts, reduce=self.mean_of_words)
        counted = (1 - STATIC_SHARE) ** 0.5 * torch.stack(words)
        for row, vectors in (("fit", "whitened"), ("fit, whitened twice", "whitened twice")):
            rows[row] = torch.cat([STATIC_SHARE**0.5 * rows[vectors], counted], dim=1)
        rows["fit, chosen"] = rows["fit"]
        if self.after > self.before:
            rows["fit, chosen"] = rows["fit, whitened twice"]
        return rows

    def mean_of_words(self, chunks: torch.Tensor) -> torch.Tensor:
        return F.normalize(chunks - self.words_mean, dim=1).mean(dim=0)


# --- Scores


def scores_of(fitted: Fitted, task: RetrievalTask, metric: str) -> dict[str, dict[str, float]]:
    """Returns the score of each query, by row."""
    documents = fitted.vectors([*task.documents.values()])
    queries = documents
    if task.queries != task.documents:
        queries = fitted.vectors([*task.queries.values()])
    scores = {}
    for row, vectors in documents.items():
        scores[row] = by_query(rank_documents(task, queries[row], vectors), metric)
    texts = [*task.queries.values()], [*task.documents.values()]
    for row, compare in (("TF-IDF", tfidf_scores), ("BM25", bm25_scores)):
        scores[row] = by_query(rank_by_scores(task, compare(*texts)), metric)
    return scores


def add_figures(
    figures: Figures, column: str, scores: Mapping[str, Mapping[str, float]], groups: np.ndarray
) -> None:
    """Adds the means, and the differences to the control of a row with groups won and lost."""
    for row, of_queries in scores.items():
        values = np.array([*of_queries.values()])
        control = np.array([*scores[CONTROLS.get(row, "fit")].values()])
        difference = values - control
        _, index = np.unique(groups, return_inverse=True)
        by_group = np.bincount(index, difference).round(9)
        cells = figures.setdefault(row, {})
        cells[column] = float(values.mean())
        cells[f"{column}, difference"] = with_interval(difference, groups, seed=0)
        cells[f"{column}, won"] = int((by_group > 0).sum())
        cells[f"{column}, lost"] = int((by_group < 0).sum())


def print_figures(figures: Figures, columns: Sequence[str]) -> None:
    rows = []
    for row, cells in figures.items():
        line = [row]
        for column in columns:
            shown = f"{cells[column]:.3f}"
            if row in CONTROLS or row.startswith("fit,"):
                bounds = "{:+.4f} ({:+.4f} to {:+.4f})".format(*cells[f"{column}, difference"])
                shown += f" {bounds} {cells[f'{column}, won']}/{cells[f'{column}, lost']}"
            line.append(shown)
        rows.append(line)
    print_table(["", *columns], rows)


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", type=Path, help="folder of kinds_of_text")
    parser.add_argument("--data", type=Path, help="folder with novels/, retrieval/ and squality/")
    parser.add_argument("--novels", type=Path, help="folder of hold_out")
    add_json_option(parser)
    args = parser.parse_args()
    figures: Figures = {}
    chosen = {}
    queries = {}

    def measure(fitted: Fitted, task: RetrievalTask, column: str, metric: str) -> None:
        scores = scores_of(fitted, task, metric)
        groups = np.array([group_of(task, query) for query in task.queries])
        add_figures(figures, column, scores, groups)
        settings = {row: [form.length, form.shrinkage] for row, form in fitted.chosen.items()}
        chosen[column] = {**settings, "before": fitted.before, "after": fitted.after}
        queries[column] = len(task.queries)
        print(column, chosen[column], flush=True)

    if args.kinds:
        for path in sorted((args.kinds / "held_out").glob("*.jsonl")):
            texts = [document.text for document in read_documents(args.kinds / "train" / path.name)]
            measure(Fitted(texts), excerpts_task(path), path.stem, "map")
    else:
        texts = [document.text for document in read_documents(args.novels / "train.jsonl")]
        fitted = Fitted(texts)
        for task in load_tasks(args.data):
            if task.name != "books, with names":
                measure(fitted, task, task.name, COLUMNS[task.name])
    table = load_chunk_encoder(static_checkpoint()).encoder.fingerprint()
    write_figures(args.json, figures, table=table, queries=queries, chosen=chosen)
    print_header("float32", f"static table {table}")
    print_figures(figures, [*queries])


if __name__ == "__main__":
    main()
