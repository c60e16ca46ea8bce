"""How good are document vectors? Unseen novels and short stories find their own; the README's
table.

    python -m benchmarks.studies.document_vectors --data DATA --model nextlevelbert/static

Rows: each model, alone and with the cosine of TF-IDF added (0.2 to 0.8); the mean of its chunk
vectors, plain and as the model whitens them; its first chunk; TF-IDF and BM25. Columns: 761
chapters look for those of their book (MAP) and for their neighbours (recall@10), 168 excerpts for
those of their book (MAP), answers for their story (MRR), with the names deleted; and chapters look
for those of their book with the names (MAP). Further columns are each row minus others. Bounds are
of 95 % over books or stories. A run that was interrupted resumes from the vectors in `--cache`.
"""

from __future__ import annotations

import gzip
import itertools
import re
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.common import measuring
from benchmarks.studies.hold_out import held_out_ids
from nextlevelbert import CachedEncoder, NextLevelBertModel, load_chunk_encoder
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
    "books, with names": "map",
    "books, six chapters": "map",
    "books, letters only": "map",
    "excerpts, letters only": "map",
    "excerpts, with names": "map",
}  # what counts in each
SHORTEST = 200  # words of a chapter
FEWEST = 4  # chapters of a novel
SOME = 6  # chapters of a novel, in the column for slow encoders
PARTS = 8  # excerpts of a novel
CHARACTERS = 10_000  # of an excerpt


def key_of(word: str) -> str:
    return word.lower().replace("’", "'")


def mostly_capitalised(texts: Iterable[str]) -> set[str]:
    """Finds words with a capital in more than 60 % of their uses, in lower case."""
    uses = Counter[str]()
    capitals = Counter[str]()
    for text in texts:
        for word in WORD.findall(text):
            uses[key_of(word)] += 1
            capitals[key_of(word)] += word[0].isupper()
    return {word for word, count in uses.items() if capitals[word] > 0.6 * count}


def changed(task: RetrievalTask, name: str, change: Callable[[str], str]) -> RetrievalTask:
    """Changes all texts of a task by a function."""
    queries = {key: change(text) for key, text in task.queries.items()}
    documents = {key: change(text) for key, text in task.documents.items()}
    return RetrievalTask(name, queries, documents, task.relevant)


def without(task: RetrievalTask, words: set[str]) -> RetrievalTask:
    """Removes words from the texts of a task."""

    def kept(match: re.Match[str]) -> str:
        if key_of(match.group()) in words:
            return ""
        return match.group()

    return changed(task, task.name, partial(WORD.sub, kept))


def letters_only(task: RetrievalTask) -> RetrievalTask:
    """Removes digits and punctuation from the texts of a task."""
    return changed(task, f"{task.name}, letters only", partial(re.sub, "[^A-Za-z]+", " "))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in open_rows(path).rows]


def load_tasks(data: Path) -> list[RetrievalTask]:
    """Loads the tasks: chapters by book and by neighbours, excerpts, and answers of SQuALITY.

    Names are removed, except in the last task.

    Args:
        data: folder with ``novels/``, ``retrieval/`` and ``squality/``.
    """
    folder = data / "retrieval"
    books = {row["id"]: row["text"] for row in rows_of(data / "novels/validation.jsonl.gz")}
    chapters = {}
    for row in rows_of(folder / "chapters.validation.jsonl.gz"):
        chapters[row["doc_id"]] = books[row["book"]][row["body_start"] : row["end"]]
    same: dict[str, dict[str, int]] = {}
    near: dict[str, dict[str, int]] = {}
    with gzip.open(folder / "chapters.validation.qrels.tsv.gz", "rt", encoding="utf-8") as lines:
        for query, document, grade in map(str.split, lines):
            same.setdefault(query, {})[document] = 1
            if int(grade) == 2:  # the chapter before or after
                near.setdefault(query, {})[document] = 1

    tasks = [
        RetrievalTask("books", chapters, chapters, same),
        RetrievalTask("neighbours", {name: chapters[name] for name in near}, chapters, near),
        load_excerpts(folder / "excerpts.validation.jsonl.gz", books),
    ]
    with gzip.open(folder / "capitalised.validation.txt.gz", "rt", encoding="utf-8") as file:
        names = set(file.read().split())
    masked = [without(task, names) for task in tasks]
    books_with_names = RetrievalTask("books, with names", chapters, chapters, same)
    return [*masked, load_answers(data), books_with_names]


def load_excerpts(path: Path, books: Mapping[str, str]) -> RetrievalTask:
    """Loads the excerpts of books, each a query for the others of its book."""
    texts = {}
    names: dict[str, list[str]] = {}
    for row in rows_of(path):
        texts[row["doc_id"]] = books[row["book"]][row["start"] : row["end"]]
        names.setdefault(row["book"], []).append(row["doc_id"])
    relevant = {}
    for of_book in names.values():
        for name in of_book:
            relevant[name] = {other: 1 for other in of_book if other != name}
    return RetrievalTask("excerpts", texts, texts, {name: relevant[name] for name in texts})


def load_answers(data: Path) -> RetrievalTask:
    """Loads the answers of SQuALITY, whose stories are to be found; names are removed."""
    stories = {row["id"]: row for row in rows_of(data / "squality/validation.jsonl.gz")}
    answers = {}
    target = {}
    for row in rows_of(data / "squality/retrieval.validation.jsonl.gz"):
        questions = {
            question["number"]: question for question in stories[row["target"]]["questions"]
        }
        responses = questions[row["question_number"]]["responses"]
        _, number = row["qid"].rsplit("-", 1)
        answers[row["qid"]] = responses[int(number) - 1]
        target[row["qid"]] = {row["target"]: 1}
    texts = {name: row["text"] for name, row in stories.items()}
    task = RetrievalTask("squality", answers, texts, target)
    return without(task, mostly_capitalised(texts.values()))


def chapters_of(novel: Mapping[str, Any]) -> dict[str, str]:
    """Returns the chapters of a novel without their headings, by ids ``NOVEL#NUMBER``.

    Short chapters are left out, and so are all chapters of a novel that has few of them.
    """
    kept = []
    for chapter in novel["chapters"]:
        heading = r"\s+".join(map(re.escape, chapter["heading"].split()))
        text = novel["text"][chapter["start"] : chapter["end"]]
        body = re.sub(rf"\A{heading}\s*", "", text)
        if len(body.split()) >= SHORTEST:
            kept.append(body)
    if len(kept) < FEWEST:
        kept = []
    return {f"{novel['id']}#{number}": text for number, text in enumerate(kept, 1)}


def excerpts_of(novel: Mapping[str, Any]) -> dict[str, str]:
    """Returns excerpts from all over a novel, by ids ``NOVEL#NUMBER``."""
    excerpts = {}
    for part in range(1, PARTS + 1):
        start = part * len(novel["text"]) // (PARTS + 1)
        excerpts[f"{novel['id']}#{part}"] = novel["text"][start : start + CHARACTERS]
    return excerpts


def same_novel_task(
    name: str, texts: Mapping[str, str], furthest: int | None = None
) -> RetrievalTask:
    """Makes a task in which texts ``NOVEL#NUMBER`` are queries for others of their novel.

    Args:
        name: name of the task.
        texts: texts by id.
        furthest: largest difference of the numbers of a query and a relevant text (default: any).
    """
    relevant: dict[str, dict[str, int]] = {}
    for one, other in itertools.permutations(texts, 2):
        novel, number = one.split("#")
        other_novel, other_number = other.split("#")
        distance = abs(int(number) - int(other_number))
        if novel == other_novel and (furthest is None or distance <= furthest):
            relevant.setdefault(one, {})[other] = 1
    return RetrievalTask(name, dict(texts), dict(texts), relevant)


def load_held_out(data: Path) -> list[RetrievalTask]:
    """Loads tasks over the novels of `hold_out`; names are removed except if the task says so.

    Args:
        data: folder with ``novels/``.
    """
    novels = {row["id"]: row for row in rows_of(data / "novels/train.jsonl.gz")}
    held_out = sorted(held_out_ids(novels))
    chapters: dict[str, str] = {}
    excerpts: dict[str, str] = {}
    some = []
    for name in held_out:
        excerpts |= excerpts_of(novels[name])
        of_novel = chapters_of(novels[name])
        if of_novel:
            chapters |= of_novel
            ids = list(of_novel)
            some += [ids[part * len(ids) // SOME] for part in range(SOME)]

    names = mostly_capitalised(novels[name]["text"] for name in held_out)
    books = without(same_novel_task("books", chapters), names)
    parts = without(same_novel_task("excerpts", excerpts), names)
    return [
        books,
        same_novel_task("books, six chapters", {key: books.documents[key] for key in some}),
        same_novel_task("neighbours", books.documents, furthest=1),
        parts,
        same_novel_task("books, with names", chapters),
        same_novel_task("excerpts, with names", excerpts),
        letters_only(books),
        letters_only(parts),
    ]


class DocumentVectors:
    """Vectors of texts by several rows of the table; a text is read once for all tasks.

    Args:
        name: name of the model in the table.
        model: a NextLevelBERT.
        chunk_encoder: the model's chunk encoder, if the model does not hold it.
    """

    def __init__(self, name: str, model: Any, chunk_encoder: Any = None) -> None:
        self.rows = (
            name,
            f"{name}: mean of its chunk vectors",
            f"{name}: their whitened mean",
            f"{name}: first chunk",
        )
        self._model = model
        self._chunk_encoder = chunk_encoder
        self._vectors = dict[str, tuple[torch.Tensor, ...]]()

    def cosines(self, task: RetrievalTask) -> dict[str, np.ndarray]:
        """Computes scores ``[Q, N]`` by row."""
        queries = self._read(task.queries.values())
        documents = self._read(task.documents.values())
        scores = {}
        for row, first, second in zip(self.rows, queries, documents, strict=True):
            scores[row] = (first @ second.T).double().numpy().round(6)
        return scores

    def _read(self, texts: Iterable[str]) -> list[torch.Tensor]:
        """Returns vectors of length 1 ``[n, D]`` for each row."""
        texts = list(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        encoded = self._model.iter_encode(new, chunk_encoder=self._chunk_encoder)
        for text, read in zip(new, encoded, strict=True):
            plain = read.plain.float()
            whitened = self._model.prepare_chunks(plain).mean(dim=0)
            self._vectors[text] = (read.document.float(), plain.mean(dim=0), whitened, plain[0])
        columns = zip(*(self._vectors[text] for text in texts), strict=True)
        return [F.normalize(torch.stack(vectors), dim=1) for vectors in columns]


def by_query(rankings: Mapping[str, Ranking], metric: str) -> dict[str, float]:
    return {
        query: retrieval_scores({query: ranking})[metric] for query, ranking in rankings.items()
    }


def group_of(task: RetrievalTask, query: str) -> str:
    """Returns the book or story of a query, over which intervals are drawn anew."""
    if task.name == "squality":
        return next(iter(task.relevant[query]))
    return re.split("[#~]", query)[0]


def difference(
    task: RetrievalTask, row: Mapping[str, float], control: Mapping[str, float]
) -> list[float]:
    """Returns the mean of a row minus a control, with bounds of 95 % over books or stories."""
    values = np.array([row[query] - control[query] for query in row])
    groups = np.array([group_of(task, query) for query in row])
    return measuring.with_interval(values, groups, seed=0)


def score_task(task: RetrievalTask, models: Sequence[DocumentVectors]) -> dict[str, dict[str, Any]]:
    """Scores all rows of a task.

    Returns:
        By row and column of the table, its score; the difference to TF-IDF and to the first model;
        and that of models and first chunks to the whitened mean of the same chunk vectors.
    """
    texts = [*task.queries.values()], [*task.documents.values()]
    words = {"TF-IDF": tfidf_scores(*texts).astype(float), "BM25": bm25_scores(*texts)}
    scores = dict[str, np.ndarray]()
    for model in models:
        scores |= model.cosines(task)
        name = model.rows[0]
        scores[f"{name} + TF-IDF"] = SHARE * scores[name] + (1 - SHARE) * words["TF-IDF"]
    values = {}
    for row, part in (scores | words).items():
        values[row] = by_query(rank_by_scores(task, part), COLUMNS.get(task.name, "map"))

    figures: dict[str, dict[str, Any]] = {}
    for row, line in values.items():
        figures[row] = {
            task.name: difference(task, line, dict.fromkeys(line, 0.0)),
            f"{task.name}, minus TF-IDF": difference(task, line, values["TF-IDF"]),
            f"{task.name}, minus the first": difference(task, line, values[models[0].rows[0]]),
        }
    for model in models:
        for row in (model.rows[0], model.rows[3]):
            control = values[model.rows[2]]
            figures[row][f"{task.name}, minus whitened"] = difference(task, values[row], control)
    return figures


def open_models(args: Namespace) -> list[DocumentVectors]:
    chunk_encoder = None
    if args.chunk_encoder is not None:
        chunk_encoder = CachedEncoder(load_chunk_encoder(args.chunk_encoder).encoder, args.cache)
    models = []
    for path in args.model:
        model = NextLevelBertModel.from_pretrained(path).eval()
        encoder = chunk_encoder
        if model.chunk_encoder is not None:
            encoder = None
        models.append(DocumentVectors(Path(path).name, model, encoder))
    return models


@torch.inference_mode()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with novels/, retrieval/ and squality/"
    )
    parser.add_argument(
        "--model", nargs="+", required=True, help="folders of NextLevelBERT checkpoints"
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=COLUMNS, default=[*COLUMNS], help="columns of the table"
    )
    parser.add_argument(
        "--novels",
        choices=("validation", "held_out"),
        default="validation",
        help="novels to judge on; held_out: those of hold_out, of the file novels/train.jsonl.gz",
    )
    parser.add_argument("--chunk_encoder", help="folder or name, for models that do not hold it")
    parser.add_argument("--cache", type=Path, help="folder for the vectors of --chunk_encoder")
    measuring.add_json_option(parser)
    args = parser.parse_args()
    models = open_models(args)
    load = load_tasks
    if args.novels == "held_out":
        load = load_held_out
    tasks = [task for task in load(args.data) if task.name in args.tasks]
    figures: dict[str, dict[str, Any]] = {}
    for task in tasks:
        for row, cells in score_task(task, models).items():
            figures.setdefault(row, {}).update(cells)
    queries = {task.name: len(task.queries) for task in tasks}
    measuring.print_header("float32")
    measuring.write_figures(args.json, figures, queries=queries)


if __name__ == "__main__":
    main()
