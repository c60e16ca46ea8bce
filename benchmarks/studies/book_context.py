"""Passages that need their book, judged by the functions of ``nextlevelbert search``, and by parts
of its score.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.book_context --novels novels/held_out.jsonl --output_dir RESULTS

A question is a sentence of a passage without names and without the passage's three rarest words,
and a cue that the passage lacks: a main character or a place of its book, a word of the title, or a
rare name. Forms: *kept*, *half* of the other words dropped, and *common*, without any word of the
passage's rarer half; on demand *own*, where the three rarest words are those of the sentence.
*Hard*: the passage is not among the first ten by Lucene's BM25. *Cut out*: a sentence is taken out
of its passage and looks for it.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from torch.nn import functional as F

from benchmarks.common.measuring import (
    add_json_option,
    print_table,
    with_interval,
    write_figures,
)
from nextlevelbert import text_sentences
from nextlevelbert.corpus import write_part
from nextlevelbert.data.tables import open_rows
from nextlevelbert.data.words import search_words
from nextlevelbert.search import index
from nextlevelbert.search.library import Library
from nextlevelbert.search.open_model import open_model
from nextlevelbert.search.passages import passage_texts
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.shelf import Shelf, open_shelf

COUNT, FORMS, CUES = 1_500, ("kept", "half", "common"), ("person", "place", "title", "rare")
NEIGHBOURS = 0.6
first_words = index.book_words
BORDERS = ("start", "end", "passage_start", "passage_end")
VARIANTS = {
    "without the book's words": lambda counts, starts: first_words(counts, starts) * 0,
    "with another book's words": lambda counts, starts: first_words(counts, starts)[
        np.arange(len(starts) - 1) - 1
    ],
    "with the book's words": first_words,
}
REFERENCE = "search, without the book's words"


class Question(NamedTuple):
    text: str
    right: int  # the passage that it was made from
    book: int
    form: str


def words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"\w+", text)]


def names_of(text: str) -> tuple[Counter[str], set[str]]:
    """Finds the words that are mostly capitalised, and those of them that are places.

    Only uses within sentences count. Places mostly follow "in", "at" and similar words.
    """
    capital = Counter(re.findall(r"(?<=[a-z,;] )[A-Z][a-z]{2,}", text))
    small = Counter(re.findall(r"\b[a-z]{3,}\b", text))
    after = Counter(re.findall(r"\b(?:in|at|from|to|near|towards) ([A-Z][a-z]{2,})", text))
    names = Counter(
        {word.lower(): n for word, n in capital.items() if n >= 3 and n > 9 * small[word.lower()]}
    )
    return names, {
        word.lower()
        for word, n in after.items()
        if n > 0.4 * capital[word] and word.lower() in names
    }


def with_a_cue(
    shelf: Shelf, novels: list[dict[str, str]], options: argparse.Namespace
) -> list[Question]:
    """Makes the same number of questions for each book, as far as the book has enough."""
    texts, draw, questions = _texts(shelf), np.random.default_rng(0), list[Question]()
    passages, (counts, starts, vocabulary, *_) = list(map(words, texts)), index.count_words(shelf)
    spread, chosen = (
        Counter(word for passage in passages for word in set(passage)),
        first_words(counts, starts),
    )
    kinds = [(form, cue) for cue in options.cues for form in options.forms]
    for book, novel in enumerate(novels):
        (names, places), made = names_of(novel["text"]), 0
        first_ones = {list(vocabulary)[word] for word in chosen[[book]].indices}
        cues = {
            "person": [name for name, _ in names.most_common(12) if name not in places][:5],
            "place": [name for name, _ in names.most_common(60) if name in places][:5],
            "title": [word for word in words(novel["title"]) if word not in ENGLISH_STOP_WORDS],
            "rare": [name for name, n in names.items() if n <= 12 and name not in first_ones],
        }
        for passage in starts[book] + draw.permutation(starts[book + 1] - starts[book]):
            (form, kind), inside = kinds[made % len(kinds)], set(passages[passage])
            missing = [word for word in cues[kind] if word not in inside and word in spread]
            if missing and (
                sentence := without_names(texts[passage], inside, names, spread, form, draw)
            ):
                cue = missing[draw.integers(len(missing))]
                questions.append(Question(" ".join([*sentence, cue]), int(passage), book, form))
                made += 1
            if made == COUNT // len(novels):
                break
    return questions


def without_names(
    text: str, inside: set[str], names: Any, spread: Any, form: str, draw: Any
) -> list[str]:
    """Returns the words of a sentence in the given form; none if no sentence has enough words."""
    kept = []
    for start, end in text_sentences(text):
        sentence = [word for word in words(text[start:end]) if word not in names]
        ranked = sorted(
            {*sentence} if form == "own" else inside, key=lambda word: (spread[word], word)
        )
        dropped = ranked[: len(ranked) // 2 if form == "common" else 3]
        kept.append([word for word in sentence if word not in dropped])
    if not (kept := [sentence for sentence in kept if len(set(sentence)) >= 8]):
        return []
    sentence, gone = kept[draw.integers(len(kept))][:40], set[str]()
    if form == "half":
        content = [word for word in dict.fromkeys(sentence) if word not in ENGLISH_STOP_WORDS]
        gone = set(draw.permutation(content)[: (len(content) + 1) // 2].tolist())
    return [word for word in sentence if word not in gone]


def cut_out(library: Library, shelf: Shelf) -> tuple[Shelf, list[Question]]:
    """Makes a copy of a shelf whose passages lack the sentences that serve as questions."""
    draw = np.random.default_rng(1)
    questions = list[Question]()
    cuts = dict[int, tuple[int, int]]()  # characters of a document, by passage
    altered = dict[int, str]()  # chunks without them
    for book, (first, last) in enumerate(pairwise(library.starts)):
        text = library.document(book).text
        for passage in first + draw.permutation(last - first)[: COUNT // len(library.names)]:
            start, end = library.spans[passage].tolist()
            sentences = text_sentences(text[start:end])
            long = [(start + one, start + other) for one, other in sentences if other - one > 60]
            if len(long) >= 3:
                before, after = long[draw.integers(len(long))]
                cuts[int(passage)] = (before, after)
                altered[int(passage)] = text[start:before] + text[after:end]
                questions.append(Question(text[before:after], int(passage), book, "cut out"))
    encoded = zip(altered, library.model.iter_encode(list(altered.values())), strict=True)
    vectors = {passage: one.plain.mean(dim=0).half().numpy() for passage, one in encoded}
    cut = copy(shelf)
    cut.folder = shelf.folder / "cut out"
    cut.folder.mkdir(exist_ok=True)
    cut.parts = [
        replace(part, path=cut.folder / part.path.name, is_checked=True) for part in shelf.parts
    ]
    row = 0
    for part, shorter in zip(shelf.parts, cut.parts, strict=True):
        table = pq.read_table(part.path)
        write_part(shorter.path, without(table, row, cuts=cuts, vectors=vectors))
        row += len(table)
    return cut, questions


def without(
    table: pa.Table, row: int, cuts: dict[int, tuple[int, int]], vectors: dict[int, np.ndarray]
) -> pa.Table:
    """Removes the cuts from the documents of a part, whose passages are numbered from `row` on."""
    columns = {name: table[name].to_pylist() for name in ("text", "vector", *BORDERS)}
    firsts = np.flatnonzero(table["chunk"].to_numpy() == 0).tolist()
    for first, last in pairwise([*firsts, len(table)]):
        pieces = columns["text"][first:last]
        text = "".join(pieces)
        kept = np.ones(len(text), np.int64)
        for place in range(first, last):
            if row + place in cuts:
                before, after = cuts[row + place]
                kept[before:after] = 0
                columns["vector"][place] = vectors[row + place]
        shorter = "".join(np.array(list(text))[kept == 1].tolist())
        moved = np.append(0, np.cumsum(kept))  # from a character to its new place
        for name in BORDERS:
            columns[name][first:last] = moved[columns[name][first:last]].tolist()
        borders = moved[np.cumsum([0, *map(len, pieces)])].tolist()
        columns["text"][first:last] = [shorter[start:end] for start, end in pairwise(borders)]
    for name, values in columns.items():
        field = table.schema.field(name)
        column = pa.array(values, field.type)
        table = table.set_column(table.schema.get_field_index(name), field, column)
    return table


def ranks(shelf: Shelf, questions: list[Question]) -> dict[str, np.ndarray]:
    """Ranks the right passage of each question by each row: ``[Q]``; ties count against it."""
    tokens, ranked = list(map(search_words, _texts(shelf))), dict[str, list[int]]()
    counts, starts, vocabulary, *_ = index.count_words(shelf)
    owner, names = (
        np.repeat(np.arange(len(starts) - 1), np.diff(starts)),
        np.array(list(vocabulary)),
    )
    same = torch.from_numpy(owner[1:] == owner[:-1])
    for variant, chosen in VARIANTS.items():
        for path in shelf.folder.glob("index-*"):
            path.unlink()
        with patch.object(index, "book_words", chosen):
            library, lucene = Library(shelf), bm25s.BM25()
        rows = chosen(counts, starts)
        added = [
            names[row.indices[row.data > 0]].tolist()
            for row in (rows[[book]] for book in range(rows.shape[0]))
        ]
        lucene.index(
            [words + added[book] for words, book in zip(tokens, owner, strict=True)],
            show_progress=False,
        )
        for question in questions:
            answer = library.ask(question.text, documents=0, passages=0)
            score, cosine, bm25 = map(torch.from_numpy, answer[:3])
            scores = {"search": score, "its BM25": bm25, "its vectors": cosine}
            scores["both, the lowest of each scaled to 0, the highest to 1"] = _scaled(
                cosine
            ) + _scaled(bm25)
            near = F.pad(score[1:] * same, (0, 1)) + F.pad(score[:-1] * same, (1, 0))
            scores[f"search and {NEIGHBOURS} of the neighbours"] = score + NEIGHBOURS * near
            scores["Lucene's BM25"] = torch.from_numpy(
                lucene.get_scores(search_words(question.text))
            )
            for name, row in scores.items():
                ranked.setdefault(f"{name}, {variant}", []).append(_rank(row, question.right))
    return {name: np.array(values) for name, values in ranked.items()}


def _texts(shelf: Shelf) -> list[str]:
    texts = list[str]()
    for part in shelf.parts:
        table = shelf.read(part, "text", "chunk", "passage_start", "passage_end")
        for _, passages in passage_texts(table):
            texts.extend(passages)
    return texts


def _scaled(scores: torch.Tensor) -> torch.Tensor:
    return (scores - scores.min()) / (scores.max() - scores.min()).clamp(min=1e-9)


def _rank(scores: torch.Tensor, right: int) -> int:
    return int((scores >= scores[right]).sum())


def report(
    title: str, table: dict[str, np.ndarray], questions: list[Question]
) -> dict[str, dict[str, Any]]:
    """Prints MRR (recall at 10) and its difference to the reference row.

    The reference is ``search`` without the book's words. The interval is over books.

    Returns:
        The figures of each row, by group of questions.
    """
    books, forms = (
        np.array([question.book for question in questions]),
        np.array([q.form for q in questions]),
    )
    hard = table["Lucene's BM25, without the book's words"] > 10
    groups = {
        "all": hard | ~hard,
        "hard": hard,
        "easy": ~hard,
        **{form: forms == form for form in sorted({*forms})},
    }
    rows, head = [], [f"{name}, {mask.sum()}" for name, mask in groups.items()]
    figures: dict[str, dict[str, Any]] = {}
    for name, ranked in table.items():
        gain, cells = 1 / ranked - 1 / table[REFERENCE], []
        figures[name] = {}
        for group, mask in groups.items():
            difference = with_interval(gain[mask], books[mask], 0)
            mrr, recall = float((1 / ranked[mask]).mean()), float((ranked[mask] <= 10).mean())
            _, low, high = difference
            cells.append(f"{mrr:.3f} ({recall:.3f}) {low:+.3f} to {high:+.3f}")
            figures[name][group] = {"mrr": mrr, "recall": recall, "difference": difference}
        rows.append([name, *cells])
    print(f"\n{title}")
    print_table([f"{len(hard)} questions", *head], rows)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--novels", type=Path, required=True, help="rows with title and text")
    parser.add_argument("--model", help="as of search, but its chunks have 256 tokens")
    parser.add_argument("--chunk_encoder", help="as of search, but it computes in bfloat16")
    parser.add_argument("--forms", nargs="+", default=FORMS, help="of the questions")
    parser.add_argument("--cues", nargs="+", choices=CUES, default=CUES)
    parser.add_argument("--output_dir", type=Path, required=True)
    add_json_option(parser)
    args = parser.parse_args()
    model = open_model(args.model, chunk_encoder=args.chunk_encoder)
    novels = [row for _, row in open_rows(args.novels).rows]
    model.config.chunk_size = (
        256 + len(model.config.chunk_prefix_ids) + len(model.config.chunk_suffix_ids)
    )
    if (encoder := model.get_chunk_encoder()).has_layers:
        encoder.to(torch.bfloat16)
    reading = ReadingOptions(cache_dir=args.output_dir / "cache")
    shelf = open_shelf(str(args.novels), model, reading)
    library = Library(shelf)
    judges = {
        "a cue from elsewhere": (shelf, with_a_cue(shelf, novels, args)),
        "cut out": cut_out(library, shelf),
    }
    figures: dict[str, dict[str, Any]] = {}
    counts = {}
    for title, (judge, questions) in judges.items():
        ranked = ranks(judge, questions)
        of_judge = report(f"{title}: {len(library.spans)} passages", ranked, questions)
        counts[title] = len(questions)
        if title != "cut out":
            hard = ranked["Lucene's BM25, without the book's words"] > 10
            counts["hard"] = int(hard.sum())
        for row, groups in of_judge.items():
            for group, cells in groups.items():
                column = group
                if title == "cut out":
                    column = f"cut out, {group}"
                figures.setdefault(row, {})[column] = cells
    write_figures(args.json, figures, questions=counts, passages=len(library.spans))


if __name__ == "__main__":
    main()
