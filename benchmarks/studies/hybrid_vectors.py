"""Do token vectors and word counts side by side beat either, and word counts as they are? In how many dimensions?

    python -m benchmarks.studies.hybrid_vectors --data DATA --checkpoint checkpoints/nextlevelbert-hybrid \\
        --other checkpoints/nextlevelbert-static --train_file novels/train.jsonl --output_dir hybrid

Unseen novels and stories, as in next_level_study.py, always also with names masked and with letters only. Rows: the
hybrid, the means of its two parts, the other checkpoint, TF-IDF and BM25; the hybrid minus each with 95 % over the
books or stories that are looked for; SQuALITY also by chunks. Then the vectors of both checkpoints in fewer
dimensions, by principal components of segments of the training novels, and with the rows of the token table in int8.
Prints Markdown tables and writes ``scores.json``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.studies import study_parser
from benchmarks.studies.chunk_similarity import books_of
from nextlevelbert import NextLevelBertModel
from nextlevelbert.data.rows import file_rows
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores
from nextlevelbert.evaluation.retrieval import Ranks
from nextlevelbert.tasks.retrieval import bm25_scores, tfidf_scores

TEXTS_PER_PASS = 32
CHARACTERS, SEGMENTS = 15_000, 16  # of a training novel, for principal components
FEW = ["chapters, names masked", "squality, names masked"]

Values = dict[str, np.ndarray]  # column -> the score of every query


def document_vectors(model: Any, texts: list[str], parts: bool = False) -> dict[str, torch.Tensor]:
    """Document vectors ``[B, D]``, and the means of a hybrid's parts if they are wanted."""
    found: dict[str, list[torch.Tensor]] = {}
    encoder = model.get_chunk_encoder()
    sizes = [part["size"] for part in encoder.model.config.parts] if parts else []
    for start in range(0, len(texts), TEXTS_PER_PASS):
        books = model.encode(texts[start : start + TEXTS_PER_PASS])
        found.setdefault("", []).extend(book.document.float() for book in books)
        means = retrieval.mean_of_chunks([book.plain.float() for book in books])
        for number, part in enumerate(means.split(sizes, dim=1) if parts else ()):
            found.setdefault(f", part {number + 1}", []).extend(part)
    return {name: torch.stack(rows) for name, rows in found.items()}


def per_query(task: RetrievalTask, ranks: Any) -> Iterator[tuple[str, np.ndarray]]:
    """For each column of a task its score for every query, ``[Q]``; `ranks` gives ranks for the grades that count."""
    for label, metric, grades in retrieval.columns(task):
        found: Ranks = ranks(grades)
        scores = [
            retrieval_scores({query: found[query]})[metric] if query in found else np.nan for query in task.queries
        ]
        yield f"{task.name}: {label}", np.array(scores)


def by_vectors(tasks: list[RetrievalTask], rows: dict[str, torch.Tensor]) -> Values:
    def ranked(task: RetrievalTask) -> Any:
        queries, pool = (torch.stack([rows[t] for t in side.values()]) for side in (task.queries, task.documents))
        return lambda grades: rank_documents(task, queries, pool, grades)

    return {name: scores for task in tasks for name, scores in per_query(task, ranked(task))}


def by_scores(task: RetrievalTask, scores: np.ndarray) -> Values:
    return dict(per_query(task, lambda grades: rank_by_scores(task, scores, grades)))


def by_words(tasks: list[RetrievalTask]) -> dict[str, Values]:
    methods = {"TF-IDF": tfidf_scores, "BM25": bm25_scores}
    return {
        name: {
            column: scores
            for task in tasks
            for column, scores in by_scores(task, method([*task.queries.values()], [*task.documents.values()])).items()
        }
        for name, method in methods.items()
    }


def by_chunks(model: Any, task: RetrievalTask) -> dict[str, Values]:
    """One task by the chunks of both sides, alone and with the cosine of the means."""
    texts = list(dict.fromkeys([*task.queries.values(), *task.documents.values()]))
    chunks = {text: model.prepare_chunks(model.encode(text).plain).float() for text in texts}
    found: dict[str, Values] = {}
    for name, kind in (("3 nearest chunks", "nearest"), ("MaxSim of chunks", "maxsim")):
        alone, both = retrieval.chunk_scores(task, chunks, kind)  # type: ignore[arg-type]
        found |= {name: by_scores(task, alone), f"{name} + mean": by_scores(task, both)}
    return found


def segments(path: Path, books: int) -> list[str]:
    texts = (str(row["text"]) for row in islice(file_rows(path), books))
    return [text[at : at + CHARACTERS] for text in texts
            for at in np.linspace(0, max(0, len(text) - CHARACTERS), SEGMENTS, dtype=int)]  # fmt: skip


def components(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean ``[D]`` and principal axes ``[D, min(B, D)]`` of document vectors ``[B, D]``, largest first."""
    mean = vectors.mean(dim=0)
    return mean, torch.linalg.svd(vectors - mean, full_matrices=False)[2].T


def in_int8(model: Any) -> Any:
    """A copy whose token table is rounded to 255 steps, with a scale for each row."""
    copied = copy.deepcopy(model)
    encoder = copied.get_chunk_encoder().model
    table = (encoder.parts[0].model if hasattr(encoder, "parts") else encoder).embedding.weight
    with torch.no_grad():
        scale = table.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        table.copy_((table / scale).round() * scale)
    return copied


def smaller(args: Any, name: str, model: Any, tasks: list[RetrievalTask], texts: list[str]) -> dict[str, Values]:
    """One checkpoint in fewer dimensions, and with a smaller table."""
    whole = document_vectors(model, texts)[""]
    mean, axes = components(document_vectors(model, segments(args.train_file, args.books))[""])
    rows = {f"{name}, {whole.shape[1]} dimensions": whole}
    for size in args.dimensions:
        if size < whole.shape[1]:
            rows[f"{name}, {size}"] = (whole - mean) @ axes[:, :size]
            rows[f"{name}, the first {size}"] = whole[:, :size]
    rows[f"{name}, int8 table"] = document_vectors(in_int8(model), texts)[""]
    return {row: by_vectors(tasks, dict(zip(texts, vectors, strict=True))) for row, vectors in rows.items()}


def print_rows(rows: dict[str, Values], columns: list[str]) -> None:
    means = {name: {column: np.nanmean(values[column]) for column in values} for name, values in rows.items()}
    measuring.print_table(
        ["", *columns],
        [[name, *(f"{found[column]:.3f}" if column in found else "" for column in columns)]
         for name, found in means.items()],
    )  # fmt: skip
    print()


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the hybrid")
    parser.add_argument("--other", type=Path, required=True, help="a checkpoint to compare with")
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels, for principal components")
    parser.add_argument("--books", type=int, default=100, help="of them that are read")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[64, 128, 256, 384, 1024])
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    tasks = [task for task in retrieval.load_tasks(args.data, True) if not task.name.startswith("squality plot")]
    few = [task for task in tasks if task.name in FEW]
    texts, few_texts = (
        list(dict.fromkeys(text for task in wanted for text in (*task.queries.values(), *task.documents.values())))
        for wanted in (tasks, few)
    )
    hybrid, other = (NextLevelBertModel.from_pretrained(path).eval() for path in (args.checkpoint, args.other))
    names = {"": "hybrid", ", part 1": "its token vectors", ", part 2": "its word counts"}
    rows = {
        names[name]: by_vectors(tasks, dict(zip(texts, vectors, strict=True)))
        for name, vectors in document_vectors(hybrid, texts, parts=True).items()
    }
    others = document_vectors(other, texts)[""]
    rows |= {args.other.name: by_vectors(tasks, dict(zip(texts, others, strict=True))), **by_words(tasks)}
    columns = list(rows["hybrid"])
    print_rows(rows, columns)
    books = {column: books_of(task) for task in tasks for column in columns if column.startswith(f"{task.name}: ")}
    gaps: dict[str, dict[str, list[float]]] = {}
    for name in list(rows)[1:]:
        for column in columns:
            difference = rows["hybrid"][column] - rows[name][column]
            known = ~np.isnan(difference)
            found = measuring.with_interval(difference[known], books[column][known], 0)
            gaps.setdefault(name, {})[column] = found
    measuring.print_table(
        ["hybrid minus", *columns],
        [[name, *("{:+.3f} to {:+.3f}".format(*found[column][1:]) for column in columns)]
         for name, found in gaps.items()],
    )  # fmt: skip
    print()
    chunks = by_chunks(hybrid, few[-1])
    print_rows(chunks, [column for column in columns if column.startswith(few[-1].name)])
    small = smaller(args, "hybrid", hybrid, few, few_texts) | smaller(args, args.other.name, other, few, few_texts)
    print_rows(small, [column for column in columns if column.split(": ")[0] in FEW])
    tables = {"rows": rows, "by chunks": chunks, "smaller": small}
    means = {
        table: {row: {column: round(float(np.nanmean(values)), 4) for column, values in found.items()}
                for row, found in named.items()}
        for table, named in tables.items()
    }  # fmt: skip
    facts = {"machine": measuring.processor(), **means, "hybrid minus": gaps}
    (args.output_dir / "scores.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
