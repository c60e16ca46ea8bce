"""Ranks the passages and documents of a store by their nearness to a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.words import search_words
from ..messages import names_in_line, readable_name
from .encoders.choice import SearchModel
from .late_interaction import late_interaction
from .passages import Passage, StoredDocument, show_passage
from .reading import ReadingOptions, SourceFile
from .rerank import Reranker, scores_again
from .store import Store, open_store

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
# How many passages late interaction ranks again, and its weight in their scores. On the everyday
# questions for choosing, it raised the MRR from .289 to .398; with weights from .6 to 1, to .386 to
# .398.
_LATE_PASSAGES = 100
LATE_WEIGHT = 0.7
# The weight of a word that half of the passages hold, as a share of its weight by Lucene's formula.
# With Lucene's weight for all words, the MRR on the everyday questions for choosing was .276, not
# .285. Stop words are kept: without them, the MRR of the words alone fell from .259 to .174.
_COMMON_SHARE = 0.1
_NO_KNOWN_WORD = (
    "note: no passage holds a word of the question ({words}), so that only vectors are compared:"
    " the passages are near, and probably no answers. If the question is not in the language of the"
    " documents, give a multilingual encoder with --model."
)


class SearchResult(NamedTuple):
    """The passages and documents that are nearest to a question.

    A passage's score is the weighted mean of its cosine and of BM25 divided by the length of the
    question's vector of rarities, so that a few words of a long question count less. If the encoder
    has token vectors, the first hundred passages come before all others: three parts of their score
    are as above, and seven are late interaction. A document's score is the mean of its three best
    passages.

    Args:
        score: score of each passage, ``[N]``.
        cosine: cosine of each passage with the question, ``[N]``.
        bm25: BM25 score of each passage, ``[N]``.
        documents: the indices of the nearest documents, with their scores.
        passages: the indices of the nearest passages, one for each distinct text.
        late_interaction: how near each of the first hundred passages comes to the words of the
            question, see `late_interaction`, ``[N]``; NaN for the others. None without token
            vectors.
        rerank_cosine: cosine of each passage by the model of a `Reranker`, ``[N]``; NaN for
            passages that it has not read. None without such a model.
    """

    score: np.ndarray
    cosine: np.ndarray
    bm25: np.ndarray
    documents: list[tuple[int, float]]
    passages: list[int]
    late_interaction: np.ndarray | None = None
    rerank_cosine: np.ndarray | None = None


class Library:
    """The n documents of a store that hold a token, with N passages in all.

    A passage is a chunk, widened to whole sentences. It has the vector of the chunk and the words
    of the sentences. Texts and vectors are read when they are needed.

    Args:
        store: the store, from `open_store`.

    Attributes:
        starts: the first passage of each document, and N: ``[n + 1]``.
        document: function that reads a document by its index; the last documents are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        counts = [run.counts for run in store.runs]
        self.starts = np.cumsum([0, *np.concatenate(counts).tolist()])
        self._texts = np.concatenate([run.texts for run in store.runs])
        self._document_texts = np.concatenate([run.document_texts for run in store.runs])
        numbers = [run.first_passage + np.arange(len(run.texts)) for run in store.runs]
        self._numbers = np.concatenate(numbers)  # of the passages in the store
        self._files = [run.file for run in store.runs for _ in run.counts]  # of the documents
        # Not a method of this object, which would keep the store open in a circle of references.
        read = partial(_read_document, store, self._files, self._numbers[self.starts[:-1]])
        self.document = lru_cache(_KEPT_DOCUMENTS)(read)

    @property
    def reader(self) -> str:
        """Returns the name of the model whose vectors are compared."""
        return self._store.recipe["encoder"]["name"]

    @cached_property
    def cosine_weight(self) -> float:
        """Returns the weight of the cosine in the score of a passage; the words have the rest."""
        if self._store.model.vectors.is_whitened:
            return _WEIGHT_OF_WHITENED
        return _WEIGHT_OF_PLAIN

    @cached_property
    def names(self) -> list[str]:
        """Returns the printed names of the documents."""
        names = dict(self._store.query("SELECT first_passage, name FROM documents"))
        numbers = self._numbers[self.starts[:-1]].tolist()
        documents = zip(self._files, numbers, strict=True)
        return [file.name_of(names[number]) for file, number in documents]

    def name(self, index: int) -> str:
        """Returns the printed name of a document."""
        return self.document(index).name

    def document_of(self, passage: int) -> int:
        """Returns the document of a passage."""
        return int(np.searchsorted(self.starts, passage, side="right")) - 1

    @cached_property
    def spans(self) -> np.ndarray:
        """Returns the characters of all chunks and passages in their documents, ``[N, 4]``."""
        return np.concatenate([self._store.array("spans", run) for run in self._store.runs])

    def passage(self, index: int) -> Passage:
        """Reads a passage for display."""
        document = self.document(self.document_of(index))
        start, end = self.spans[index, 2:].tolist()
        return show_passage(document.text, start, end=end, page_starts=document.page_starts)

    def passage_text(self, index: int) -> str:
        """Reads the text of a passage, which `passage` shortens."""
        start, end = self.spans[index, 2:].tolist()
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
        query = self._store.model.vectors.question_vector(question)
        if query is None:
            raise ValueError(f"The question {question!r} holds no word that the model can read.")
        cosine = self._cosines(query)
        bm25, length = self._bm25(question)
        words = bm25 / max(length, 1e-9)
        weight = self.cosine_weight
        score = weight * cosine + (1 - weight) * words
        beside = words  # of the cosine of a second model
        nearness = None
        if self._store.model.vectors.has_token_vectors:
            nearness = self._measured(score, _LATE_PASSAGES, partial(self._nearness, question))
            ranked = LATE_WEIGHT * nearness + (1 - LATE_WEIGHT) * score
            score = scores_again(score, self._texts, ranked)
            beside = score
        rerank_cosine = None
        if rerank is not None:
            read = partial(rerank.cosines, question, store=self._store.path)
            rerank_cosine = self._measured(score, rerank.passages, read)
            ranked = rerank.weight * rerank_cosine + (1 - rerank.weight) * beside
            score = scores_again(score, self._texts, ranked)

        document_scores = mean_of_best(score, self.starts)
        nearest_documents = islice(ranking(document_scores, self._document_texts), documents)
        return SearchResult(
            score,
            cosine=cosine,
            bm25=bm25,
            documents=[(index, float(document_scores[index])) for index in nearest_documents],
            passages=list(islice(ranking(score, self._texts), passages)),
            late_interaction=nearness,
            rerank_cosine=rerank_cosine,
        )

    def question_note(self, question: str) -> str | None:
        """Returns a note on a question if no passage holds a word of it."""
        counts, spread = self._spread(question)
        if counts and not spread.any():
            return _NO_KNOWN_WORD.format(words=names_in_line([*counts]))
        return None

    def telling_words(self, question: str) -> set[str]:
        """Returns the words of a question that carry weight.

        At most a third of all passages hold such a word, and it is at least half as rare as the
        rarest word of the question.
        """
        counts, spread = self._spread(question)
        most = max(self._store.passages / 3, 1)
        weights = rarity(self._store.odds(spread))
        weights[(spread == 0) | (spread > most)] = 0
        least = max(weights.max(initial=0) / 2, 1e-9)
        return set(compress(counts, weights >= least))

    def _cosines(self, query: np.ndarray) -> np.ndarray:
        """Returns the cosine of each passage with a question's vector, ``[N]``."""
        cosines = np.zeros(self._store.end, np.float32)
        for first, vectors in self._store.vectors():
            # Row by row, so that equal passages have equal scores.
            values = np.einsum("nd,d->n", vectors.reshape(-1, len(query)), query)
            cosines[first : first + len(values)] = values
        return cosines[self._numbers]  # passages of equal files have one number

    def _measured(
        self, score: np.ndarray, count: int, measure: Callable[[list[str]], np.ndarray]
    ) -> np.ndarray:
        """Measures the texts of the first passages, and returns ``[N]``; NaN for the others."""
        first = sorted(islice(ranking(score, self._texts), count))  # document by document
        values = np.full(len(score), np.nan, np.float32)
        values[first] = measure([*map(self.passage_text, first)])
        return values

    def _nearness(self, question: str, texts: list[str]) -> np.ndarray:
        """Returns how near some passages come to the words of a question, ``[n]``."""
        counts, spread = self._spread(question)
        encoder: Any = self._store.model.vectors  # it has token vectors
        return late_interaction([*counts], np.log1p(self._store.odds(spread)), texts, encoder)

    def _spread(self, question: str) -> tuple[Counter[str], np.ndarray]:
        """Counts the V words of a question, and the passages that hold each, ``[V]``."""
        counts = Counter(search_words(question))
        return counts, np.array([*map(self._store.spread_of, counts)], np.int64)

    def _bm25(self, question: str) -> tuple[np.ndarray, float]:
        """Returns BM25 of all passages ``[N]``, and the length of the question's rarities.

        FTS5 computes it word by word, because a word that half of the passages hold has hardly any
        weight there. Words that more than half of them hold do not count beside others.
        """
        counts, spread = self._spread(question)
        weights = np.array([*counts.values()], np.float32) * rarity(self._store.odds(spread))
        does_count = (spread > 0) & (2 * spread <= self._store.passages)
        if not does_count.any():
            does_count = spread > 0
        scores = np.zeros(self._store.end, np.float32)
        for word, weight in compress(zip(counts, weights, strict=True), does_count):
            numbers, shares = self._store.passages_with(word)
            scores[numbers] += weight * shares
        return scores[self._numbers], float(np.linalg.norm(weights))


def rarity(odds: np.ndarray) -> np.ndarray:
    """Weighs words by how few passages hold them.

    The weight is Robertson's, which is 0 for a word that half of the passages hold, but at least a
    tenth of Lucene's: in a folder of two short texts, half of the passages hold every word.

    Args:
        odds: the odds of each word not to be in a passage, ``[V]``.

    Returns:
        The weights ``[V]``.
    """
    robertson = np.log(np.maximum(odds, 1))
    lucene = np.log1p(odds)
    weights = np.maximum(robertson, _COMMON_SHARE * lucene)
    return weights.astype(np.float32)


def _read_document(
    store: Store, files: Sequence[SourceFile], numbers: np.ndarray, index: int
) -> StoredDocument:
    """Reads a document by its index in the library."""
    [document] = store.documents(files[index], int(numbers[index]), count=1)
    return document


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
    order = np.lexsort((-scores, document))  # by document, the best passage first
    ranked = scores[order].astype(np.float64)
    firsts = starts[:-1]
    rank = np.arange(len(scores)) - np.repeat(firsts, counts)
    ranked[rank >= _BEST] = 0

    sums = np.add.reduceat(ranked, firsts)
    return sums / np.minimum(counts, _BEST)


def ranking(scores: np.ndarray, texts: np.ndarray) -> Iterator[int]:
    """Orders passages or documents by score, and keeps one of those with the same text.

    Args:
        scores: score of each passage or document.
        texts: a number for the text of each passage or document; equal texts have equal numbers.

    Yields:
        The indices of passages or documents, the highest score first.
    """
    seen = set[int]()
    for index in np.argsort(-scores, kind="stable"):
        text = int(texts[index])
        if text not in seen:
            seen.add(text)
            yield int(index)


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
    return Library(open_store(source, model, reading))
