"""How good are document vectors? Unseen novels and short stories find their own; the README's table.

    python -m benchmarks.studies.document_vectors --data DATA --model nextlevelbert/static

Rows: each model, alone and with the cosine of TF-IDF added (0.2 to 0.8); the mean of its chunk vectors, plain and as
the model whitens them; its first chunk; TF-IDF and BM25. Columns: 761 chapters look for those of their book (MAP) and
for their neighbours (recall@10), 168 excerpts for those of their book (MAP), answers for their story (MRR); with the
names deleted, or with `--names`, as they are. The last column is the first model minus each row on books, 95 % over
books.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from benchmarks.common.novels import COLUMNS, load_tasks
from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import Ranking, RetrievalTask, rank_by_scores, retrieval_scores
from nextlevelbert.tasks.retrieval import bm25_scores, tfidf_scores

SHARE = 0.2  # of the vectors beside TF-IDF; chosen on training novels and stories


def cosines(model: Any, name: str, task: RetrievalTask) -> dict[str, np.ndarray]:
    """Scores ``[Q, N]`` by row of the table."""
    sides = []
    for texts in (task.queries, task.documents):
        books = model.encode(list(texts.values()))
        plain = [book.plain.float() for book in books]
        rows = {name: [book.document.float() for book in books]}
        rows[f"{name}: mean of its chunk vectors"] = [vectors.mean(dim=0) for vectors in plain]
        rows[f"{name}: their whitened mean"] = [model.prepare_chunks(vectors).mean(dim=0) for vectors in plain]
        rows[f"{name}: first chunk"] = [vectors[0] for vectors in plain]
        sides.append({row: F.normalize(torch.stack(vectors), dim=1) for row, vectors in rows.items()})
    return {row: (sides[0][row] @ sides[1][row].T).double().numpy().round(6) for row in sides[0]}


def by_query(rankings: Mapping[str, Ranking], metric: str) -> dict[str, float]:
    return {query: retrieval_scores({query: ranking})[metric] for query, ranking in rankings.items()}


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, retrieval/ and squality/")
    parser.add_argument("--model", nargs="+", required=True, help="folders of NextLevelBERT checkpoints")
    parser.add_argument("--names", action="store_true", help="keep the names in the texts")
    args = parser.parse_args()
    models = {Path(path).name: NextLevelBertModel.from_pretrained(path).eval() for path in args.model}
    first = next(iter(models))
    cells: dict[str, dict[str, str]] = {}
    gaps: dict[str, str] = {}
    for task in load_tasks(args.data, masked=not args.names):
        texts = [*task.queries.values()], [*task.documents.values()]
        words = {"TF-IDF": tfidf_scores(*texts).astype(float), "BM25": bm25_scores(*texts)}
        scores: dict[str, np.ndarray] = {}
        for name, model in models.items():
            scores |= cosines(model, name, task)
            scores[f"{name} + TF-IDF"] = SHARE * scores[name] + (1 - SHARE) * words["TF-IDF"]
        column = task.name.split(",")[0]
        values = {row: by_query(rank_by_scores(task, part), COLUMNS[column]) for row, part in (scores | words).items()}
        for row, line in values.items():
            cells.setdefault(row, {})[column] = f"{np.mean(list(line.values())):.3f}"
            if column == "books" and row != first:
                difference = np.array([values[first][query] - line[query] for query in line])
                books = np.array([query.split("#")[0] for query in line])
                gaps[row] = "{:+.3f} to {:+.3f}".format(*measuring.with_interval(difference, books, 0)[1:])
    measuring.print_header("float32", "as they are" if args.names else "names masked")
    rows = [[row, *(line[column] for column in COLUMNS), gaps.get(row, "")] for row, line in cells.items()]
    measuring.print_table(["", *COLUMNS, f"{first} above it"], rows)


if __name__ == "__main__":
    main()
