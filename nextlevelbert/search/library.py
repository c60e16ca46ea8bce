"""``nextlevelbert search``: finds the passages and documents that are nearest to a question."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from bisect import bisect_left
from collections import Counter
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.documents import names_in_line
from ..data.files import readable_name, readable_text
from ..data.words import search_words
from .index import mapped_strings, open_index, rarity
from .notes import Notes
from .passages import Passage, show_passage
from .reading import ReadingOptions
from .rerank import Reranker, scores_again
from .search_model import SearchModel
from .shelf import Shelf, open_shelf

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

# A document's score is the mean of its three best passages. On stories this beat the best passage
# alone and document vectors.
_BEST = 3
_KEPT_DOCUMENTS = 16
# The weight of the cosine in a passage's score; the words have the rest. Chosen on the half of the
# everyday questions that is for choosing (benchmarks/studies/everyday_questions.py): with MiniLM's
# plain vectors, .6 instead of .5 raised the MRR from .56 to .60; with whitened static vectors, .67
# lowered it from .28 to .27.
_WEIGHT_OF_PLAIN = 0.6
_WEIGHT_OF_WHITENED = 0.5
# Characters that a terminal would obey, and that `json` writes as they are.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202d\u202e]")

_NO_KNOWN_WORD = (
    "note: no passage holds a word of the question ({words}), so that only vectors are compared:"
    " the passages are near, and probably no answers. If the question is not in the language of the"
    " documents, give a multilingual encoder with --model."
)


class SearchResult(NamedTuple):
    """The passages and documents that are nearest to a question.

    A passage's score is the weighted mean of its cosine and of BM25 divided by the length of the
    question's vector of rarities, so that a few words of a long question count less. A document's
    score is the mean of its three best passages.

    Args:
        score: score of each passage, ``[N]``.
        cosine: cosine of each passage with the question, ``[N]``.
        bm25: BM25 score of each passage, ``[N]``.
        documents: the indices of the nearest documents, with their scores.
        passages: the indices of the nearest passages, one for each distinct text.
        rerank_cosine: cosine of each passage by the model of a `Reranker`, ``[N]``; NaN for
            passages that it has not read. None without such a model.
    """

    score: np.ndarray
    cosine: np.ndarray
    bm25: np.ndarray
    documents: list[tuple[int, float]]
    passages: list[int]
    rerank_cosine: np.ndarray | None = None


class StoredDocument(NamedTuple):
    """A document as a part of the shelf holds it."""

    text: str
    metadata: dict[str, Any]
    page_starts: list[int] | None


def _part_of(document: int, starts: np.ndarray, part_starts: np.ndarray) -> int:
    """Returns the index of the part that holds a document."""
    return int(np.searchsorted(part_starts[1:], starts[document], side="right"))


def _read_document(
    shelf: Shelf, part_starts: np.ndarray, starts: np.ndarray, index: int
) -> StoredDocument:
    """Reads a document from its part.

    Args:
        shelf: the shelf.
        part_starts: the first passage of each part.
        starts: the first passage of each document.
        index: the document.
    """
    part_index = _part_of(index, starts, part_starts)
    table = shelf.read(shelf.parts[part_index], "text", "metadata", "pages")
    start, end = starts[index : index + 2] - part_starts[part_index]
    rows = table[start:end]
    return StoredDocument(
        text="".join(rows["text"].to_pylist()),
        metadata=json.loads(rows["metadata"][0].as_py()),
        page_starts=rows["pages"][0].as_py() or None,
    )


class Library:
    """The n documents of a shelf that hold a token, with N passages in all.

    A passage is a chunk, widened to whole sentences. It has the vector of the chunk and the words
    of the sentences. Arrays are mapped into memory: what a question does not need is not read.

    Args:
        shelf: the shelf, from `open_shelf`.

    Attributes:
        document_vectors: vector of each document, ``[n, H]``.
        starts: the first passage of each document, and N: ``[n + 1]``.
        spans: the characters of each chunk in its document, ``[N, 2]``.
        vectors: chunk vectors ``[N, D]``, as `ModelVectors.search_vectors` prepares them.
        notes: notes about what was not read, for each part.
        document: function that reads a document by its index; the last documents are kept.
    """

    def __init__(self, shelf: Shelf) -> None:
        arrays = open_index(shelf)
        self._shelf = shelf
        self.vectors = arrays["vectors"]
        self.document_vectors = arrays["document_vectors"]
        self.starts = arrays["starts"]
        self.spans = arrays["spans"][:, :2]
        self.notes = json.loads(arrays["facts"].tobytes())["notes"]

        self._passage_spans = arrays["spans"][:, 2:]
        self._part_starts = arrays["part_starts"]
        self._ids = mapped_strings(arrays["id_ends"], arrays["ids"])
        self._texts = arrays["texts"]
        self._document_texts = arrays["document_texts"]
        self._words = mapped_strings(arrays["word_ends"], arrays["words"])  # in order
        self._word_columns = arrays["word_columns"]
        self._word_borders = arrays["word_borders"]
        self._word_passages = arrays["word_passages"]
        self._word_weights = arrays["word_weights"]
        # Not a method of this object, which would keep the shelf open in a circle of references.
        read = partial(_read_document, shelf, self._part_starts, self.starts)
        self.document = lru_cache(_KEPT_DOCUMENTS)(read)

    @property
    def model(self) -> NextLevelBertModel:
        """Returns the document model."""
        return self._shelf.model.model

    @cached_property
    def cosine_weight(self) -> float:
        """Returns the weight of the cosine in the score of a passage; the words have the rest."""
        if self._shelf.model.vectors.is_whitened:
            return _WEIGHT_OF_WHITENED
        return _WEIGHT_OF_PLAIN

    @cached_property
    def names(self) -> list[str]:
        """Returns the printed names of the documents."""
        return list(map(self.name, range(len(self._ids))))

    def name(self, index: int) -> str:
        """Returns the printed name of a document."""
        part = self._shelf.parts[_part_of(index, self.starts, self._part_starts)]
        return part.file.name_of(self._ids[index].as_py())

    def document_of(self, passage: int) -> int:
        """Returns the document of a passage."""
        return int(np.searchsorted(self.starts, passage, side="right")) - 1

    def passage(self, index: int) -> Passage:
        """Reads a passage for display."""
        document = self.document(self.document_of(index))
        start, end = self._passage_spans[index].tolist()
        return show_passage(document.text, start, end=end, page_starts=document.page_starts)

    def passage_text(self, index: int) -> str:
        """Reads the text of a passage, which `passage` shortens."""
        start, end = self._passage_spans[index].tolist()
        return self.document(self.document_of(index)).text[start:end]

    def copies_of_passage(self, index: int) -> list[str]:
        """Lists the other documents that hold the text of a passage."""
        equal = np.flatnonzero(self._texts == self._texts[index]).tolist()
        documents = dict.fromkeys(map(self.document_of, equal))
        del documents[self.document_of(index)]
        return list(map(self.name, documents))

    def copies_of_document(self, index: int) -> list[str]:
        """Lists the other documents that have the text of a document."""
        equal = np.flatnonzero(self._document_texts == self._document_texts[index])
        return [self.name(document) for document in equal.tolist() if document != index]

    def ask(
        self,
        question: str,
        documents: int = 5,
        passages: int = 5,
        *,
        rerank: Reranker | None = None,
    ) -> SearchResult:
        """Ranks all passages and documents by their nearness to a question.

        Of equal scores, the first in the folder is first. Of passages or documents with the same
        text, only the first is ranked.

        Args:
            question: text of the question.
            documents: largest number of documents to return.
            passages: largest number of passages to return.
            rerank: ranks the first passages again, by a second model.

        Raises:
            ValueError: if the question holds no token, or half a surrogate pair.
        """
        _check_unicode(question)
        query = self._shelf.model.vectors.question_vector(question)
        if query is None:
            raise ValueError(f"The question {question!r} holds no word that the model can read.")
        # Row by row, so that equal passages have equal scores.
        cosine = np.einsum("nd,d->n", self.vectors, query)
        bm25, length = self._bm25(question)
        words = bm25 / max(length, 1e-9)
        score = self.cosine_weight * cosine + (1 - self.cosine_weight) * words
        rerank_cosine = None
        if rerank is not None:
            rerank_cosine = self._cosines_again(question, score, rerank)
            ranked = rerank.weight * rerank_cosine + (1 - rerank.weight) * words
            score = scores_again(score, self._texts, ranked)

        document_scores = mean_of_best(score, self.starts)
        nearest_documents = ranking(document_scores, self._document_texts)[:documents]
        return SearchResult(
            score,
            cosine=cosine,
            bm25=bm25,
            documents=[(index, float(document_scores[index])) for index in nearest_documents],
            passages=ranking(score, self._texts)[:passages],
            rerank_cosine=rerank_cosine,
        )

    def unknown_words(self, question: str) -> list[str]:
        """Returns the words of a question that no passage holds."""
        unknown = []
        for word in dict.fromkeys(search_words(question)):
            start, end = self._postings(word)
            if start == end:
                unknown.append(word)
        return unknown

    def question_note(self, question: str) -> str | None:
        """Returns a note on a question if no passage holds a word of it."""
        unknown = self.unknown_words(question)
        if unknown and len(unknown) == len(set(search_words(question))):
            return _NO_KNOWN_WORD.format(words=names_in_line(unknown))
        return None

    def telling_words(self, question: str) -> set[str]:
        """Returns the words of a question that at most a third of all passages hold."""
        telling = set()
        for word in search_words(question):
            start, end = self._postings(word)
            if 0 < end - start <= max(len(self.vectors) / 3, 1):
                telling.add(word)
        return telling

    def _cosines_again(self, question: str, score: np.ndarray, rerank: Reranker) -> np.ndarray:
        """Returns the cosines ``[N]`` of the first passages by a second model, NaN for others."""
        first = sorted(ranking(score, self._texts)[: rerank.passages])  # document by document
        texts = list(map(self.passage_text, first))
        cosines = np.full(len(score), np.nan, np.float32)
        cosines[first] = rerank.cosines(question, texts, self._shelf.folder / "rerank")
        return cosines

    def _bm25(self, question: str) -> tuple[np.ndarray, float]:
        """Returns BM25 of all passages ``[N]``, and the length of the question's rarities."""
        scores = np.zeros(len(self.vectors), np.float32)
        times = []
        spread = []
        for word, count in Counter(search_words(question)).items():
            start, end = self._postings(word)
            scores[self._word_passages[start:end]] += count * self._word_weights[start:end]
            times.append(count)
            spread.append(end - start)
        rarities = rarity(np.array(spread, np.int64), len(self.vectors))
        return scores, float(np.linalg.norm(np.array(times, np.float32) * rarities))

    def _postings(self, word: str) -> tuple[int, int]:
        """Returns where the passages of a word begin and end in the index."""
        words = self._words
        position = bisect_left(range(len(words)), word, key=lambda index: words[index].as_py())
        if position == len(words) or words[position].as_py() != word:
            return 0, 0
        column = self._word_columns[position]
        start, end = self._word_borders[column : column + 2].tolist()
        return start, end


def _check_unicode(question: str) -> None:
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"The question '{readable_name(question)}' is not valid Unicode. Check character"
            f" {error.start + 1}."
        ) from error


def mean_of_best(scores: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Averages the three best scores of each document.

    Args:
        scores: score of each passage, ``[N]``.
        starts: the first passage of each document, and N: ``[n + 1]``.

    Returns:
        The means ``[n]``.
    """
    counts = np.diff(starts)
    document = np.repeat(np.arange(len(counts)), counts)  # [N]
    ranked = scores[np.lexsort((-scores, document))].astype(np.float64)
    rank = np.arange(len(scores)) - np.repeat(starts[:-1], counts)
    ranked[rank >= _BEST] = 0
    return np.add.reduceat(ranked, starts[:-1]) / np.minimum(counts, _BEST)


def ranking(scores: np.ndarray, texts: np.ndarray) -> list[int]:
    """Orders passages or documents by score, and keeps one of those with the same text.

    Args:
        scores: score of each passage or document.
        texts: a number for the text of each passage or document; equal texts have equal numbers.

    Returns:
        The indices of passages or documents, the highest score first.
    """
    order = np.argsort(-scores, kind="stable")
    _, positions = np.unique(texts[order], return_index=True)
    return order[np.sort(positions)].tolist()


def open_library(
    source: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
) -> Library:
    """Opens the library of a command's source, and reports on stderr what could not be read.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
    """
    shelf = open_shelf(source, model, reading or ReadingOptions())
    library = Library(shelf)
    all_notes = Notes()
    for part, notes in zip(shelf.parts, library.notes, strict=True):
        all_notes.add(part.file.name, notes)
    all_notes.print()
    return library


def run(
    source: str,
    question: str,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    documents: int = 5,
    passages: int = 5,
    as_json: bool = False,
    rerank: NextLevelBertModel | None = None,
) -> None:
    """Prints the passages and documents that are nearest to a question.

    Args:
        source: a file, a folder or a pattern.
        question: text of the question.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        documents: largest number of documents to print.
        passages: largest number of passages to print.
        as_json: if true, prints JSON.
        rerank: model that reads the first passages again, see `Reranker`.
    """
    library = open_library(source, model, reading)
    note = library.question_note(question)
    if note is not None:
        print(note, file=sys.stderr)
    reranker = None
    if rerank is not None:
        reranker = Reranker(rerank)
    answer = library.ask(question, documents, passages, rerank=reranker)
    if as_json:
        rows = {
            "question": question,
            "documents": document_rows(library, answer),
            "passages": passage_rows(library, answer),
        }
        text = json.dumps(rows, ensure_ascii=False, indent=2)
        print(_CONTROLS_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    else:
        print_answer(library, answer)


def document_rows(library: Library, answer: SearchResult) -> list[dict[str, Any]]:
    """Returns the nearest documents in the form that is printed as JSON."""
    chunks = np.diff(library.starts).tolist()
    rows = []
    for index, score in answer.documents:
        document = library.document(index)
        row = {
            "place": library.name(index),
            "also_in": library.copies_of_document(index),
            "score": score,
            "characters": len(document.text),
            "chunks": chunks[index],
            "metadata": document.metadata,
        }
        rows.append(row)
    return rows


def passage_rows(library: Library, answer: SearchResult) -> list[dict[str, Any]]:
    """Returns the nearest passages in the form that is printed as JSON."""
    rows = []
    for index in answer.passages:
        row = {
            "place": library.name(library.document_of(index)),
            "also_in": library.copies_of_passage(index),
            "score": float(answer.score[index]),
            "cosine": float(answer.cosine[index]),
            "bm25": float(answer.bm25[index]),
            **library.passage(index)._asdict(),
        }
        if answer.rerank_cosine is not None:
            row["rerank_cosine"] = _number_or_none(answer.rerank_cosine[index])
        rows.append(row)
    return rows


def _number_or_none(value: float) -> float | None:
    """Returns a number that JSON can hold: None for NaN."""
    if np.isnan(value):
        return None
    return float(value)


def print_answer(library: Library, answer: SearchResult) -> None:
    """Prints the nearest documents and passages for a reader."""
    documents = document_rows(library, answer)
    if documents:
        print("Nearest documents (scores are relative to the folder)")
    for row in documents:
        chunks = f"{row['chunks']:,} chunks"
        if row["chunks"] == 1:
            chunks = "1 chunk"
        print(f"{row['score']:.3f}  {row['place']}  {row['characters']:,} characters in {chunks}")
        _print_copies(row["also_in"])
    if documents and answer.passages:
        print()

    if answer.passages:
        print("Nearest passages")
    width = 10**9  # in a pipe, a passage is one line
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    indent = "    "
    for index in answer.passages:
        passage = library.passage(index)
        name = library.name(library.document_of(index))
        print(f"{answer.score[index]:.3f}  {name}  {passage.characters}, {passage.position}")
        _print_copies(library.copies_of_passage(index))
        text = readable_text(passage.text)
        print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent))
        print()


def _print_copies(documents: list[str]) -> None:
    """Prints a line with the other documents of the same text, the first five by name."""
    if not documents:
        return
    named = ", ".join(documents[:5])
    if len(documents) > 5:
        named = f"{named} and {len(documents) - 5:,} more"
    print(f"       also in: {named}")
