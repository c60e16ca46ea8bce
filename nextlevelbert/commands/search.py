"""``nextlevelbert search``: finds the passages and documents that are nearest to a question."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from scipy import sparse

from ..evaluation.words import search_words
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.sentences import text_sentences
from .index import comparable, open_index, rarity
from .shelf import Part, open_shelf, open_splitter, report, unknown_share

# A document's score is the mean of its three best passages. On stories this beat the best passage
# alone and document vectors.
_BEST = 3
_ROWS_AT_ONCE = 65_536
_LONGEST_PASSAGE = 2_000  # characters of a passage that are shown
_KEPT_DOCUMENTS = 16


class Answer(NamedTuple):
    """The passages and documents that are nearest to a question.

    A passage's score is the mean of its cosine and of BM25 divided by the length of the question's
    vector of rarities, so that a few words of a long question count less. A document's score is the
    mean of its three best passages.

    Args:
        score: of each passage, ``[N]``.
        cosine: of each passage, ``[N]``.
        bm25: of each passage, ``[N]``.
        documents: the nearest documents, by number, with their scores.
        passages: the numbers of the nearest passages. Of equal texts there is one.
    """

    score: np.ndarray
    cosine: np.ndarray
    bm25: np.ndarray
    documents: list[tuple[int, float]]
    passages: list[int]


class Passage(NamedTuple):
    """A passage as it is shown: whole sentences of a document, up to a length.

    Args:
        start: its first character in the document.
        end: one past its last character.
        text: its text, and a mark if the passage is longer.
        share: the share of the document that comes before it.
        pages: its first and last page in a PDF.
        page: the page that holds most of it.
    """

    start: int
    end: int
    text: str
    share: float
    pages: tuple[int, int] | None = None
    page: int | None = None

    @property
    def characters(self) -> str:
        return f"characters {self.start:,} to {self.end:,}"

    @property
    def position(self) -> str:
        """Says on which pages and how far down the passage is."""
        share = f"at {self.share:.0%}"
        if self.pages is None:
            return share
        first, last = self.pages
        if first == last:
            return f"page {first}, {share}"
        return f"pages {first} to {last}, {share}"


def show_passage(text: str, start: int, end: int, page_starts: list[int] | None) -> Passage:
    """Finds the pages of a passage, and shortens a passage that is too long to be shown.

    Args:
        text: the document.
        start: the first character of the passage.
        end: one past its last character.
        page_starts: the character at which each page begins, if the document has pages.
    """
    passage = Passage(start, end, text=shorten(text[start:end]), share=start / len(text))
    if page_starts is None:
        return passage
    on_page = np.diff(np.clip([*page_starts, len(text)], start, end))  # characters
    touched = (np.flatnonzero(on_page) + 1).tolist()
    return passage._replace(
        pages=(touched[0], touched[-1]),
        page=int(on_page.argmax()) + 1,
    )


def shorten(passage: str) -> str:
    """Ends a long passage after a sentence, and says how many characters are left."""
    if len(passage) <= _LONGEST_PASSAGE:
        return passage
    shown = passage[:_LONGEST_PASSAGE]
    last_sentence, _ = text_sentences(shown)[-1]
    if last_sentence > 0:
        shown = shown[:last_sentence].rstrip()
    return f"{shown} [… {len(passage) - len(shown):,} more characters]"


class StoredDocument(NamedTuple):
    """A document as its part holds it."""

    text: str
    metadata: dict[str, Any]
    page_starts: list[int] | None


class Library:
    """The n documents of a shelf that hold a token, with N passages in all.

    A passage is a chunk, widened to whole sentences: its vector is the chunk's, and its words are
    those of the sentences.

    Args:
        model: the document model.
        parts: the shelf, from `open_shelf`.

    Attributes:
        places: the names of the documents.
        summaries: document vectors ``[n, H]``.
        first: the first passage of each document, and N: ``[n + 1]``.
        spans: the characters of each chunk in its document, ``[N, 2]``.
        vectors: chunk vectors ``[N, D]``, as `comparable` prepares them.
        notes: of each part, what was not read.
    """

    def __init__(self, model: NextLevelBertModel, parts: list[Part]) -> None:
        index = load_file(open_index(model, parts))
        facts = json.loads(index.pop("facts").numpy().tobytes())
        self.model = model
        self.vectors = index["vectors"]
        self._index = {name: tensor.numpy() for name, tensor in index.items()}
        self.summaries = self._index["document_vectors"]
        self.first = self._index["starts"]
        self.spans = self._index["spans"][:, :2]
        self._words = {word: number for number, word in enumerate(facts["words"])}
        columns = (self._index[f"word_{name}"] for name in ("weights", "passages", "borders"))
        self._weights = sparse.csc_array(tuple(columns), (len(self.vectors), len(self._words)))
        self._parts = parts
        self._documents = dict[int, StoredDocument]()
        owners = np.searchsorted(self._index["part_starts"], self.first[:-1], side="right") - 1
        self._owners = owners.tolist()
        self.places = [
            parts[owner].place_of(name)
            for owner, name in zip(self._owners, facts["ids"], strict=True)
        ]
        self.notes = facts["notes"]

    def document(self, number: int) -> StoredDocument:
        """Reads a document from its part; the last ones are kept."""
        if number in self._documents:
            return self._documents[number]
        owner = self._owners[number]
        table = self._parts[owner].read("text", "metadata", "pages")
        start, end = self.first[number : number + 2] - self._index["part_starts"][owner]
        rows = table[start:end]
        document = StoredDocument(
            text="".join(rows["text"].to_pylist()),
            metadata=json.loads(rows["metadata"][0].as_py()),
            page_starts=rows["pages"][0].as_py(),
        )
        if len(self._documents) == _KEPT_DOCUMENTS:
            self._documents.clear()
        self._documents[number] = document
        return document

    def text(self, number: int) -> str:
        """Reads the text of a document."""
        return self.document(number).text

    def locate(self, passage: int) -> tuple[int, int]:
        """Returns the document of a passage, and which chunk of it that is."""
        document = int(np.searchsorted(self.first, passage, side="right")) - 1
        return document, passage - int(self.first[document])

    def passage(self, number: int) -> Passage:
        """Reads a passage as it is shown."""
        document = self.document(self.locate(number)[0])
        start, end = self._index["spans"][number, 2:].tolist()
        return show_passage(document.text, start, end=end, page_starts=document.page_starts)

    def copies_of_passage(self, number: int) -> list[str]:
        """Lists the other documents that hold the text of a passage."""
        texts = self._index["texts"]
        equal = np.flatnonzero(texts == texts[number]).tolist()
        documents = dict.fromkeys(self.locate(passage)[0] for passage in equal)
        del documents[self.locate(number)[0]]
        return [self.places[document] for document in documents]

    def copies_of_document(self, number: int) -> list[str]:
        """Lists the other documents that have the text of a document."""
        texts = self._index["document_texts"]
        equal = np.flatnonzero(texts == texts[number])
        return [self.places[other] for other in equal[equal != number]]

    def ask(self, question: str, documents: int = 5, passages: int = 5) -> Answer:
        """Ranks all passages and documents by their nearness to a question.

        Of equal scores, the first in the folder is first. Of passages or documents with the same
        text, only the first is ranked.

        Args:
            question: a text.
            documents: how many documents are returned at most.
            passages: how many passages are returned at most.

        Raises:
            ValueError: if the question holds no token.
        """
        if unknown_share(self.model.tokenizer, question) is None:
            raise ValueError(f"The question {question!r} holds no word that the model can read.")
        [encoded] = self.model.iter_encode([question])
        query = comparable(self.model, encoded.plain.mean(dim=0, keepdim=True))[0]
        # Row by row, so that equal passages have equal scores.
        blocks = self.vectors.split(_ROWS_AT_ONCE)
        cosine = torch.cat([(block * query).sum(dim=1) for block in blocks])  # [N]
        bm25, length = self._bm25(question)
        score = (cosine.numpy() + bm25 / max(length, 1e-9)) / 2

        best = mean_of_best(score, self.first)
        nearest_documents = ranking(best, self._index["document_texts"])[:documents]
        return Answer(
            score,
            cosine=cosine.numpy(),
            bm25=bm25,
            documents=[(number, float(best[number])) for number in nearest_documents],
            passages=ranking(score, self._index["texts"])[:passages],
        )

    def _bm25(self, question: str) -> tuple[np.ndarray, float]:
        """Returns BM25 of all passages ``[N]``, and the length of the question's rarities."""
        known = Counter(word for word in search_words(question) if word in self._words)
        times = np.array(list(known.values()), np.float32)
        columns = self._weights[:, [self._words[word] for word in known]]
        rarities = rarity(np.diff(columns.indptr), len(self.vectors))
        return columns @ times, float(np.linalg.norm(times * rarities))


def mean_of_best(scores: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Averages the three best scores of each document.

    Args:
        scores: of all passages, ``[N]``.
        first: the first passage of each document, and N: ``[n + 1]``.

    Returns:
        The means ``[n]``.
    """
    counts = np.diff(first)
    documents = np.repeat(np.arange(len(counts)), counts)  # of each passage
    order = np.lexsort((-scores, documents))
    is_best = np.arange(len(scores)) - first[documents] < _BEST
    sums = np.bincount(documents[is_best], weights=scores[order][is_best])
    return sums / np.minimum(counts, _BEST)


def ranking(scores: np.ndarray, texts: np.ndarray) -> list[int]:
    """Orders passages or documents by their scores; of those with the same text, only one counts.

    Args:
        scores: of passages or documents.
        texts: the number of the text of each.

    Returns:
        Their numbers, the highest score first.
    """
    order = np.argsort(-scores, kind="stable")
    _, positions = np.unique(texts[order], return_index=True)
    return order[np.sort(positions)].tolist()


def open_library(
    source: str,
    model: NextLevelBertModel,
    *,
    text_column: str,
    splitter: str | None,
    cache_dir: Path,
) -> Library:
    """Opens the library of a command's source, and says on stderr what was not read.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.
        cache_dir: the folder of all shelves.
    """
    parts = open_shelf(
        model,
        source,
        cache_dir=cache_dir,
        column=text_column,
        splitter=open_splitter(model, splitter),
    )
    library = Library(model, parts)
    for part, notes in zip(parts, library.notes, strict=True):
        report(part.place, notes)
    return library


def run(
    source: str,
    model: NextLevelBertModel,
    question: str,
    *,
    documents: int,
    passages: int,
    as_json: bool,
    text_column: str,
    splitter: str | None,
    cache_dir: Path,
) -> None:
    """Prints the passages and documents that are nearest to a question.

    Args:
        source: a file, a folder or a pattern.
        model: the document model.
        question: a text.
        documents: how many documents are printed at most.
        passages: how many passages are printed at most.
        as_json: whether JSON is printed.
        text_column: the column of the text in tables.
        splitter: the name of a function that finds sentences.
        cache_dir: the folder of all shelves.
    """
    library = open_library(
        source, model, text_column=text_column, splitter=splitter, cache_dir=cache_dir
    )
    answer = library.ask(question, documents, passages)
    if as_json:
        rows = {
            "question": question,
            "documents": document_rows(library, answer),
            "passages": passage_rows(library, answer),
        }
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        print_answer(library, answer)


def document_rows(library: Library, answer: Answer) -> list[dict[str, Any]]:
    """Returns the nearest documents as they are printed in JSON."""
    rows = []
    for number, score in answer.documents:
        document = library.document(number)
        rows.append(
            {
                "place": library.places[number],
                "also_in": library.copies_of_document(number),
                "score": score,
                "characters": len(document.text),
                "chunks": int(library.first[number + 1] - library.first[number]),
                "metadata": document.metadata,
            }
        )
    return rows


def passage_rows(library: Library, answer: Answer) -> list[dict[str, Any]]:
    """Returns the nearest passages as they are printed in JSON."""
    rows = []
    for number in answer.passages:
        passage = library.passage(number)
        rows.append(
            {
                "place": library.places[library.locate(number)[0]],
                "also_in": library.copies_of_passage(number),
                "score": float(answer.score[number]),
                "cosine": float(answer.cosine[number]),
                "bm25": float(answer.bm25[number]),
                **passage._asdict(),
            }
        )
    return rows


def print_answer(library: Library, answer: Answer) -> None:
    """Prints the nearest documents and passages for a reader."""
    print("Nearest documents (scores are relative to the folder)")
    for row in document_rows(library, answer):
        chunks = f"{row['chunks']:,} chunks"
        if row["chunks"] == 1:
            chunks = "1 chunk"
        print(f"{row['score']:.3f}  {row['place']}  {row['characters']:,} characters in {chunks}")
        _print_copies(row["also_in"])

    print("\nNearest passages")
    width = 10**9  # in a pipe, a passage is one line
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    indent = "    "
    for number in answer.passages:
        passage = library.passage(number)
        place = library.places[library.locate(number)[0]]
        print(f"{answer.score[number]:.3f}  {place}  {passage.characters}, {passage.position}")
        _print_copies(library.copies_of_passage(number))
        print(textwrap.fill(passage.text, width, initial_indent=indent, subsequent_indent=indent))
        print()


def _print_copies(places: list[str]) -> None:
    """Prints a line with the other places of the same text, the first five by name."""
    if not places:
        return
    named = ", ".join(places[:5])
    if len(places) > 5:
        named = f"{named} and {len(places) - 5:,} more"
    print(f"       also in: {named}")
