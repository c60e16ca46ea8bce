"""How good are document vectors? Unseen novels and short stories find their own; the README's
table.

    python -m benchmarks.studies.document_vectors --data DATA --model nextlevelbert/static

Rows: each model, alone and with the cosine of TF-IDF added (0.2 to 0.8); the mean of its chunk
vectors, plain and as the model whitens them; its first chunk; TF-IDF and BM25. Columns: 761
chapters look for those of their book (MAP) and for their neighbours (recall@10), 168 excerpts for
those of their book (MAP), answers for their story (MRR); with the names deleted, or with `--names`,
as they are. The last column is the first model minus each row on books, 95 % over books.
"""

from __future__ import annotations

import gzip
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertModel
from nextlevelbert.data.tables import open_rows
from nextlevelbert.evaluation import (
    Ranking,
    RetrievalTask,
    bm25_scores,
    rank_by_scores,
    retrieval_scores,
    tfidf_scores,
)

SHARE = 0.2  # of the vectors beside TF-IDF; chosen on training novels and stories
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
COLUMNS = {
    "books": "map",
    "neighbours": "recall@10",
    "excerpts": "map",
    "squality": "mrr",
}  # what counts in each


def key_of(word: str) -> str:
    return word.lower().replace("’", "'")


def mostly_capitalised(texts: Iterable[str]) -> set[str]:
    """Finds words with a capital in more than 60 % of their uses, in lower case."""
    uses, capitals = Counter[str](), Counter[str]()
    for text in texts:
        for word in WORD.findall(text):
            uses[key_of(word)] += 1
            capitals[key_of(word)] += word[0].isupper()
    return {word for word, count in uses.items() if capitals[word] > 0.6 * count}


def without(task: RetrievalTask, words: set[str]) -> RetrievalTask:
    """Removes words from the texts of a task."""
    queries, documents = (
        {
            key: WORD.sub(
                lambda match: "" if key_of(match.group()) in words else match.group(), text
            )
            for key, text in texts.items()
        }
        for texts in (task.queries, task.documents)
    )
    return RetrievalTask(f"{task.name}, names masked", queries, documents, task.relevant)


def load_tasks(data: Path, masked: bool) -> list[RetrievalTask]:
    """Loads the tasks: chapters by book and by neighbours, excerpts, and answers of SQuALITY.

    Args:
        data: folder with ``novels/``, ``retrieval/`` and ``squality/``.
        masked: if true, removes names.
    """
    books = {
        row["id"]: row["text"] for _, row in open_rows(data / "novels/validation.jsonl.gz").rows
    }
    chapters = {
        row["doc_id"]: books[row["book"]][row["body_start"] : row["end"]]
        for _, row in open_rows(data / "retrieval/chapters.validation.jsonl.gz").rows
    }
    same: dict[str, dict[str, int]] = {}
    near: dict[str, dict[str, int]] = {}
    with gzip.open(
        data / "retrieval/chapters.validation.qrels.tsv.gz", "rt", encoding="utf-8"
    ) as lines:
        for query, document, grade in map(str.split, lines):
            same.setdefault(query, {})[document] = 1
            if int(grade) == 2:  # the chapter before or after
                near.setdefault(query, {})[document] = 1
    parts = [row for _, row in open_rows(data / "retrieval/excerpts.validation.jsonl.gz").rows]
    excerpts = {row["doc_id"]: books[row["book"]][row["start"] : row["end"]] for row in parts}
    by_book = {
        row["doc_id"]: {
            other["doc_id"]: 1
            for other in parts
            if other["book"] == row["book"] and other is not row
        }
        for row in parts
    }
    stories = {row["id"]: row for _, row in open_rows(data / "squality/validation.jsonl.gz").rows}
    answers, target = {}, {}
    for _, row in open_rows(data / "squality/retrieval.validation.jsonl.gz").rows:
        [question] = [
            q for q in stories[row["target"]]["questions"] if q["number"] == row["question_number"]
        ]
        answers[row["qid"]] = question["responses"][int(row["qid"].rsplit("-", 1)[1]) - 1]
        target[row["qid"]] = {row["target"]: 1}
    texts = {name: row["text"] for name, row in stories.items()}
    tasks = [
        RetrievalTask("books", chapters, chapters, same),
        RetrievalTask("neighbours", {name: chapters[name] for name in near}, chapters, near),
        RetrievalTask("excerpts", excerpts, excerpts, by_book),
        RetrievalTask("squality", answers, texts, target),
    ]
    if not masked:
        return tasks
    with gzip.open(
        data / "retrieval/capitalised.validation.txt.gz", "rt", encoding="utf-8"
    ) as file:
        names = set(file.read().split())
    return [
        without(task, mostly_capitalised(texts.values()) if task.name == "squality" else names)
        for task in tasks
    ]


def cosines(model: Any, name: str, task: RetrievalTask) -> dict[str, np.ndarray]:
    """Computes scores ``[Q, N]`` by row of the table."""
    sides = []
    for texts in (task.queries, task.documents):
        books = model.encode(list(texts.values()))
        plain = [book.plain.float() for book in books]
        rows = {name: [book.document.float() for book in books]}
        rows[f"{name}: mean of its chunk vectors"] = [vectors.mean(dim=0) for vectors in plain]
        rows[f"{name}: their whitened mean"] = [
            model.prepare_chunks(vectors).mean(dim=0) for vectors in plain
        ]
        rows[f"{name}: first chunk"] = [vectors[0] for vectors in plain]
        sides.append(
            {row: F.normalize(torch.stack(vectors), dim=1) for row, vectors in rows.items()}
        )
    return {row: (sides[0][row] @ sides[1][row].T).double().numpy().round(6) for row in sides[0]}


def by_query(rankings: Mapping[str, Ranking], metric: str) -> dict[str, float]:
    return {
        query: retrieval_scores({query: ranking})[metric] for query, ranking in rankings.items()
    }


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with novels/, retrieval/ and squality/"
    )
    parser.add_argument(
        "--model", nargs="+", required=True, help="folders of NextLevelBERT checkpoints"
    )
    parser.add_argument("--names", action="store_true", help="keep the names in the texts")
    args = parser.parse_args()
    models = {
        Path(path).name: NextLevelBertModel.from_pretrained(path).eval() for path in args.model
    }
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
        values = {
            row: by_query(rank_by_scores(task, part), COLUMNS[column])
            for row, part in (scores | words).items()
        }
        for row, line in values.items():
            cells.setdefault(row, {})[column] = f"{np.mean(list(line.values())):.3f}"
            if column == "books" and row != first:
                difference = np.array([values[first][query] - line[query] for query in line])
                books = np.array([query.split("#")[0] for query in line])
                gaps[row] = "{:+.3f} to {:+.3f}".format(
                    *measuring.with_interval(difference, books, 0)[1:]
                )
    measuring.print_header("float32", "as they are" if args.names else "names masked")
    rows = [
        [row, *(line[column] for column in COLUMNS), gaps.get(row, "")]
        for row, line in cells.items()
    ]
    measuring.print_table(["", *COLUMNS, f"{first} above it"], rows)


if __name__ == "__main__":
    main()
