"""``nextlevelbert search``: finds the passages and documents that are nearest to a question."""

import json
import re
import shutil
import sys
import textwrap
from collections import Counter
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse

from ..data.files import readable_text
from ..data.words import search_words
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .index import comparable, open_index, rarity
from .notes import Notes
from .open_model import open_model
from .passages import Passage, show_passage
from .reading import ReadingOptions, unknown_share
from .rerank import Reranker, scores_again
from .shelf import Shelf, open_shelf

# A document's score is the mean of its three best passages. On stories this beat the best passage
# alone and document vectors.
_BEST = 3
_ROWS_AT_ONCE = 65_536
_KEPT_DOCUMENTS = 16
# Characters that a terminal would obey, and that `json` writes as they are.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u202d\u202e]")


class SearchResult(NamedTuple):
    """The passages and documents that are nearest to a question.

    A passage's score is the mean of its cosine and of BM25 divided by the length of the question's
    vector of rarities, so that a few words of a long question count less. A document's score is the
    mean of its three best passages.

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


def _read_document(
    shelf: Shelf, part_starts: np.ndarray, part_of: list[int], starts: np.ndarray, index: int
) -> StoredDocument:
    """Reads a document from its part.

    Args:
        shelf: the shelf.
        part_starts: the first passage of each part.
        part_of: the part of each document.
        starts: the first passage of each document.
        index: the document.
    """
    part_index = part_of[index]
    table = shelf.read(shelf.parts[part_index], "text", "metadata", "pages")
    start, end = starts[index : index + 2] - part_starts[part_index]
    rows = table[start:end]
    return StoredDocument(
        text="".join(rows["text"].to_pylist()),
        metadata=json.loads(rows["metadata"][0].as_py()),
        page_starts=rows["pages"][0].as_py(),
    )


class Library:
    """The n documents of a shelf that hold a token, with N passages in all.

    A passage is a chunk, widened to whole sentences. It has the vector of the chunk and the words
    of the sentences.

    Args:
        shelf: the shelf, from `open_shelf`.

    Attributes:
        model: the document model.
        names: printed names of the documents.
        document_vectors: vector of each document, ``[n, H]``.
        starts: the first passage of each document, and N: ``[n + 1]``.
        spans: the characters of each chunk in its document, ``[N, 2]``.
        vectors: chunk vectors ``[N, D]``, as `comparable` prepares them.
        notes: notes about what was not read, for each part.
        document: function that reads a document by its index; the last documents are kept.
    """

    def __init__(self, shelf: Shelf) -> None:
        tensors = open_index(shelf)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        facts = json.loads(arrays["facts"].tobytes())
        self.model = shelf.model
        self._folder = shelf.folder
        self.vectors = tensors["vectors"]
        self.document_vectors = arrays["document_vectors"]
        self.starts = arrays["starts"]
        self.spans = arrays["spans"][:, :2]
        self.notes = facts["notes"]

        self._passage_spans = arrays["spans"][:, 2:]
        self._texts = arrays["texts"]
        self._document_texts = arrays["document_texts"]
        self._word_index = {word: index for index, word in enumerate(facts["words"])}
        self._word_weights = sparse.csc_array(
            (arrays["word_weights"], arrays["word_passages"], arrays["word_borders"]),
            shape=(len(self.vectors), len(self._word_index)),
        )

        part_starts = arrays["part_starts"]
        part_of = np.searchsorted(part_starts[1:], self.starts[:-1], side="right").tolist()
        self.names = []
        for part_index, document_id in zip(part_of, facts["ids"], strict=True):
            self.names.append(shelf.parts[part_index].file.name_of(document_id))
        read = partial(_read_document, shelf, part_starts, part_of, self.starts)
        self.document = lru_cache(_KEPT_DOCUMENTS)(read)

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
        return [self.names[document] for document in documents]

    def copies_of_document(self, index: int) -> list[str]:
        """Lists the other documents that have the text of a document."""
        equal = np.flatnonzero(self._document_texts == self._document_texts[index])
        return [self.names[document] for document in equal if document != index]

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
            ValueError: if the question holds no token.
        """
        if unknown_share(self.model.tokenizer, question) is None:
            raise ValueError(f"The question {question!r} holds no word that the model can read.")
        prompt = self.model.config.encoder_prompts().query
        [encoded] = self.model.iter_encode([question], prompt=prompt)
        query = comparable(self.model, encoded.plain.mean(dim=0, keepdim=True))[0]
        # Row by row, so that equal passages have equal scores.
        blocks = self.vectors.split(_ROWS_AT_ONCE)
        cosine = torch.cat([(block * query).sum(dim=1) for block in blocks]).numpy()  # [N]
        bm25, length = self._bm25(question)
        words = bm25 / max(length, 1e-9)
        score = (cosine + words) / 2
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

    def telling_words(self, question: str) -> set[str]:
        """Returns the words of a question that at most a third of all passages hold."""
        telling = set()
        passages = np.diff(self._word_weights.indptr)
        for word in search_words(question):
            index = self._word_index.get(word)
            if index is not None and passages[index] <= max(len(self.vectors) / 3, 1):
                telling.add(word)
        return telling

    def _cosines_again(self, question: str, score: np.ndarray, rerank: Reranker) -> np.ndarray:
        """Returns the cosines ``[N]`` of the first passages by a second model, NaN for others."""
        first = sorted(ranking(score, self._texts)[: rerank.passages])  # document by document
        texts = list(map(self.passage_text, first))
        cosines = np.full(len(score), np.nan, np.float32)
        cosines[first] = rerank.cosines(question, texts, self._folder / "rerank")
        return cosines

    def _bm25(self, question: str) -> tuple[np.ndarray, float]:
        """Returns BM25 of all passages ``[N]``, and the length of the question's rarities."""
        words = [word for word in search_words(question) if word in self._word_index]
        counts = Counter(words)
        weights = self._word_weights[:, [self._word_index[word] for word in counts]]
        times = np.array(list(counts.values()), np.float32)
        rarities = rarity(np.diff(weights.indptr), len(self.vectors))
        return weights @ times, float(np.linalg.norm(times * rarities))


def mean_of_best(scores: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Averages the three best scores of each document.

    Args:
        scores: score of each passage, ``[N]``.
        starts: the first passage of each document, and N: ``[n + 1]``.

    Returns:
        The means ``[n]``.
    """
    means = []
    for start, end in pairwise(starts.tolist()):
        best = np.sort(scores[start:end])[-_BEST:]
        means.append(best.mean(dtype=np.float64))
    return np.array(means)


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
    model: NextLevelBertModel | None = None,
    reading: ReadingOptions | None = None,
) -> Library:
    """Opens the library of a command's source, and reports on stderr what could not be read.

    Args:
        source: a file, a folder or a pattern.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
    """
    shelf = open_shelf(source, model or open_model(), reading or ReadingOptions())
    library = Library(shelf)
    all_notes = Notes()
    for part, notes in zip(shelf.parts, library.notes, strict=True):
        all_notes.add(part.file.name, notes)
    all_notes.print()
    return library


def run(
    source: str,
    question: str,
    model: NextLevelBertModel | None = None,
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
            "place": library.names[index],
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
            "place": library.names[library.document_of(index)],
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
    for index in answer.passages:
        passage = library.passage(index)
        name = library.names[library.document_of(index)]
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
