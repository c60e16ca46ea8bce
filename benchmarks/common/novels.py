"""Retrieval tasks over novels and short stories, with names and without."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from nextlevelbert.data.rows import open_rows
from nextlevelbert.evaluation import RetrievalTask

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# The task, the score that counts in it, and whether names are deleted.
COLUMNS = {"books": "map", "neighbours": "recall@10", "excerpts": "map", "squality": "mrr"}


def key_of(word: str) -> str:
    return word.lower().replace("’", "'")


def mostly_capitalised(texts: Iterable[str]) -> set[str]:
    """Words with a capital in more than 60 % of their uses, in lower case."""
    uses: Counter[str] = Counter()
    capitals: Counter[str] = Counter()
    for text in texts:
        for word in WORD.findall(text):
            uses[key_of(word)] += 1
            capitals[key_of(word)] += word[0].isupper()
    return {word for word, count in uses.items() if capitals[word] > 0.6 * count}


def without(task: RetrievalTask, words: set[str]) -> RetrievalTask:
    """The same with those words deleted."""
    queries, documents = (
        {key: WORD.sub(lambda match: "" if key_of(match.group()) in words else match.group(), text)
         for key, text in texts.items()}
        for texts in (task.queries, task.documents)
    )  # fmt: skip
    return RetrievalTask(f"{task.name}, names masked", queries, documents, task.relevant)


def load_tasks(data: Path, masked: bool) -> list[RetrievalTask]:
    """Chapters that look for those of their book and for their neighbours, excerpts, and answers of SQuALITY.

    Args:
        data: folder with ``novels/``, ``retrieval/`` and ``squality/``.
        masked: whether names are deleted.
    """
    books = {row["id"]: row["text"] for _, row in open_rows(data / "novels/validation.jsonl.gz").rows}
    chapters = {
        row["doc_id"]: books[row["book"]][row["body_start"] : row["end"]]
        for _, row in open_rows(data / "retrieval/chapters.validation.jsonl.gz").rows
    }
    same: dict[str, dict[str, int]] = {}
    near: dict[str, dict[str, int]] = {}
    with gzip.open(data / "retrieval/chapters.validation.qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        for query, document, grade in map(str.split, lines):
            same.setdefault(query, {})[document] = 1
            if int(grade) == 2:  # the chapter before or after
                near.setdefault(query, {})[document] = 1
    parts = [row for _, row in open_rows(data / "retrieval/excerpts.validation.jsonl.gz").rows]
    excerpts = {row["doc_id"]: books[row["book"]][row["start"] : row["end"]] for row in parts}
    by_book = {
        row["doc_id"]: {other["doc_id"]: 1 for other in parts if other["book"] == row["book"] and other is not row}
        for row in parts
    }
    stories = {row["id"]: row for _, row in open_rows(data / "squality/validation.jsonl.gz").rows}
    answers, target = {}, {}
    for _, row in open_rows(data / "squality/retrieval.validation.jsonl.gz").rows:
        [question] = [q for q in stories[row["target"]]["questions"] if q["number"] == row["question_number"]]
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
    with gzip.open(data / "retrieval/capitalised.validation.txt.gz", "rt", encoding="utf-8") as file:
        names = set(file.read().split())
    return [without(task, mostly_capitalised(texts.values()) if task.name == "squality" else names) for task in tasks]
