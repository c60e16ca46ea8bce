"""How well does ``nextlevelbert search`` rank, by vectors, by words, and by both together? (docs/study.md)

    python -m benchmarks.studies.search_scores --data DATA --output_dir search --model nextlevelbert-static \\
        nextlevelbert-passages

A sentence is taken out of every 1,000 characters of the validation novels, and every eighth looks for the passage in
which it stood, among those of all novels and of its own (MRR). In SQuALITY, people's answers look for a passage of
their story among those of 25 stories, and for the story itself; names are deleted. The texts are put on a shelf, and
scored by the functions of the command. Other rows show what it does not do: BM25 with a share of the scores of both
neighbours of a passage, and Lucene's BM25 (package bm25s) with all words or without English stop words.

Intervals of 95 % are over books. Writes ``study.json`` and ``table.md``.
"""

from __future__ import annotations

import json
import random
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import bm25s
import numpy as np
import torch
from bm25s.stopwords import STOPWORDS_EN

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.studies import study_parser
from nextlevelbert import read_documents, text_sentences
from nextlevelbert.commands.app_library import Library
from nextlevelbert.commands.opening import open_model
from nextlevelbert.commands.search import chunk_scores, document_score, question_vector
from nextlevelbert.commands.shelf import open_shelf
from nextlevelbert.commands.words import bm25, split_words

STRETCH, EVERY, FEWEST_WORDS = 1_000, 8, 5  # characters, sentences for each question, words of a sentence
SHARES = (0.2, 0.4)
BOTH, WORDS, VECTORS = "vectors + BM25", "BM25", "vectors"
AGAINST = (VECTORS, WORDS, BOTH)
PASSAGES, STORIES = ("all novels", "own novel"), ("SQuALITY, passage", "SQuALITY, story")


@dataclass(frozen=True)
class Question:
    """What is asked, the name of the right document, and a character of the right passage (None: any)."""

    text: str
    document: str
    place: int | None


def removed_sentences(file: str, folder: Path) -> list[Question]:
    """Writes the novels without a sentence of each stretch."""
    chosen, questions = random.Random(0), []
    for document in read_documents(file):
        stretches: dict[int, list[tuple[int, int]]] = {}
        for start, end in text_sentences(document.text):
            if len(document.text[start:end].split()) >= FEWEST_WORDS:
                stretches.setdefault(start // STRETCH, []).append((start, end))
        kept, size, before = [], 0, 0
        for number, sentences in enumerate(stretches.values()):
            start, end = chosen.choice(sentences)
            kept.append(document.text[before:start])
            size += start - before
            before = end
            if number % EVERY == 0:
                questions.append(Question(document.text[start:end], document.id, size))
        (folder / f"{document.id}.txt").write_text("".join([*kept, document.text[before:]]), encoding="utf-8")
    return questions


def answers(data: Path, folder: Path) -> list[Question]:
    """Writes the stories without names."""
    _, every = retrieval.squality_tasks(data / "squality")
    task = retrieval.masked(every, retrieval.mostly_capitalised(every.documents.values()))
    for name, text in task.documents.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return [Question(text, next(iter(task.relevant[key])), None) for key, text in task.queries.items()]


def with_neighbours(scores: np.ndarray, first: np.ndarray, share: float) -> np.ndarray:
    """Scores ``[N]`` of chunks, to which a share of those of both neighbours in the document is added."""
    found = scores.copy()
    found[1:] += share * scores[:-1]
    found[:-1] += share * scores[1:]
    borders = first[1:-1]
    found[borders] -= share * scores[borders - 1]
    found[borders - 1] -= share * scores[borders]
    return found


def lucene(library: Library, left_out: frozenset[str]) -> Callable[[str], np.ndarray]:
    """Scores ``[N]`` by the words that are not left out."""

    def words(text: str) -> list[str]:
        return [word for word in split_words(text) if word not in left_out]

    documents = map(library.document, range(len(library.places)))
    index = bm25s.BM25()
    index.index(
        [words(each.text[start:end]) for each in documents for start, end in each.spans.tolist()], show_progress=False
    )
    return lambda question: index.get_scores(words(question))


def rows_of(
    library: Library, question: str, others: dict[str, Callable[[str], np.ndarray]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Scores ``[N]`` of all chunks; `BOTH` is what the command does."""
    scores = chunk_scores(library.vectors @ question_vector(library.model, question), bm25(library.words, question))
    yield from zip((BOTH, VECTORS, WORDS), scores, strict=True)
    words = {name: score(question) for name, score in others.items()}
    for share in SHARES:
        words[f"{WORDS}, and {share} of each neighbour"] = with_neighbours(scores.bm25.numpy(), library.first, share)
    for name, values in words.items():
        yield name, torch.from_numpy(values)
        yield f"{VECTORS} + {name}", chunk_scores(scores.cosine, values).both


def reciprocal(scores: torch.Tensor, right: float) -> float:
    """1 / rank; of equal scores none is above the other."""
    return 1 / (1 + int((scores > right).sum()))


def ranks(library: Library, number: int, starts: np.ndarray, place: int | None, scores: torch.Tensor) -> list[float]:
    """Reciprocal ranks of the passage of a document, among all and in the document; without a place, of its best
    passage, and of the document."""
    own = scores[library.chunks(number)]
    if place is None:
        documents = torch.tensor([document_score(each) for each in scores.split(np.diff(library.first).tolist())])
        return [reciprocal(scores, float(own.max())), reciprocal(documents, float(documents[number]))]
    target = float(own[max(0, int(np.searchsorted(starts, place, side="right")) - 1)])
    return [reciprocal(scores, target), reciprocal(own, target)]


def judged(model: str, folder: Path, questions: list[Question]) -> dict[str, np.ndarray]:
    """Reciprocal ranks ``[Q, 2]`` of each row."""
    opened = open_model(model)
    library = Library.open(opened, open_shelf(opened, str(folder), folder.parent / "cache"))
    starts = [library.document(number).spans[:, 0] for number in range(len(library.places))]
    others = {"Lucene's BM25": lucene(library, frozenset())}
    others["Lucene's BM25 without stop words"] = lucene(library, frozenset(STOPWORDS_EN))
    found: dict[str, list[list[float]]] = {}
    for question in questions:
        number = library.places.index(f"{question.document}.txt")
        for row, scores in rows_of(library, question.text, others):
            found.setdefault(row, []).append(ranks(library, number, starts[number], question.place, scores))
    return {row: np.array(values) for row, values in found.items()}


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    parser.add_argument("--model", nargs="+", required=True, help="folders of models, as for nextlevelbert search")
    parser.add_argument("--books", help="novels to judge by; default: those of validation in --data")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    novels, stories = args.output_dir / "novels", args.output_dir / "stories"
    for folder in (novels, stories):
        folder.mkdir(parents=True, exist_ok=True)
    books = args.books or str(args.data / "novels/validation.jsonl.gz")
    tasks = [(novels, PASSAGES, removed_sentences(books, novels)), (stories, STORIES, answers(args.data, stories))]
    columns = [column for _, names, _ in tasks for column in names]
    record, lines = {}, []
    for model in args.model:
        values: dict[str, dict[str, np.ndarray]] = {}
        groups: dict[str, np.ndarray] = {}
        for folder, names, questions in tasks:
            groups |= dict.fromkeys(names, np.array([question.document for question in questions]))
            for row, inverse_ranks in judged(model, folder, questions).items():
                values.setdefault(row, {}).update(zip(names, inverse_ranks.T, strict=True))
        for row, found in values.items():
            scores = {column: measuring.with_interval(found[column], groups[column], 0) for column in columns}
            above = {
                other: {
                    column: measuring.with_interval(found[column] - values[other][column], groups[column], 0)
                    for column in columns
                }
                for other in AGAINST
            }
            record[f"{Path(model).name}: {row}"] = {"scores": scores, "above": above}
            gaps = above[WORDS]
            cells = [
                f"{scores[column][0]:.4f} ({gaps[column][1]:+.4f} to {gaps[column][2]:+.4f})" for column in columns
            ]
            lines.append([f"{Path(model).name}: {row}", *cells])
    with redirect_stdout(StringIO()) as text:
        measuring.print_table(["", *columns], lines)
    (args.output_dir / "table.md").write_text(text.getvalue())
    counts = {names[0]: len(questions) for _, names, questions in tasks}
    facts = {"machine": measuring.processor(), "questions": counts, "rows": record}
    (args.output_dir / "study.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(text.getvalue())


if __name__ == "__main__":
    main()
