"""``nextlevelbert search``: finds the passages and documents that are nearest to a question."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shutil
import sys
import textwrap
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import sparse
from torch.nn import functional as F

from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.sentences import text_sentences
from .shelf import Part, open_model, open_shelf, open_splitter, report, unknown_share

# A document's score is the mean of its three best passages. On stories this beat the best passage
# alone and document vectors.
_BEST = 3
_BOOK_WORDS = 30
_ROWS_AT_ONCE = 65_536
# The weight of a word that half of the passages hold, as a share of its weight by Lucene's formula.
_COMMON_SHARE = 0.1
_LONGEST_SENTENCE = 1_000  # characters; a passage is widened to whole sentences up to this length
_LONGEST_PASSAGE = 2_000  # characters of a passage that are shown

_TENSORS = ("vectors", "spans", "texts", "first", "parts", "summaries")

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Kana, Thai, Lao, Burmese and Khmer, in which no space stands between words.
_UNSPACED = (
    "\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u0e01-\u0e3a\u0e40-\u0e4e"
    "\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109f\u1780-\u17d3\u17dc\u17dd"
)
# Vowel signs and points of Hebrew, Arabic and Indic scripts, which `\w` does not match.
_MARKS = "\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_OTHER = rf"[^\W_{_CHINESE}{_UNSPACED}]"
_WORD = re.compile(rf"[{_CHINESE}]|[{_UNSPACED}]+|{_OTHER}+(?:[{_MARKS}]+{_OTHER}*)*")
_PAIRED = re.compile(f"[{_UNSPACED}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
# Unicode's format characters: soft hyphens, joiners, zero-width spaces, byte order marks.
INVISIBLE = re.compile(
    "[\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]+"
)
# From an ASCII character to a space, if it is neither a letter nor a digit.
_BETWEEN = {code: " " for code in range(128) if not chr(code).isalnum()}


def split_words(text: str) -> list[str]:
    """Splits a text into words in lower case, without accents and invisible characters.

    A word is a run of letters and digits. A Chinese character is a word. In scripts without spaces
    between words, such as kana and Thai, each pair of neighbouring characters is a word.

    Example:
        >>> split_words("Don't read_Brontë in 2⁴ ﬁles"), split_words("フェリー")
        (['don', 't', 'read', 'bronte', 'in', '24', 'files'], ['フェ', 'ェリ', 'リー'])
    """
    for mark in "“”‘’—™":  # often all that is not ASCII
        text = text.replace(mark, " ")
    if text.isascii():
        return text.lower().translate(_BETWEEN).split()
    plain = unicodedata.normalize("NFKD", INVISIBLE.sub("", text))
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", plain)).lower()
    words = _WORD.findall(plain)
    if not _PAIRED.search(plain):
        return words

    pieces: list[str] = []
    for word in words:
        if len(word) > 2 and _PAIRED.match(word):
            pieces.extend(word[start : start + 2] for start in range(len(word) - 1))
        else:
            pieces.append(word)
    return pieces


def count_words(parts: list[Part]) -> tuple[sparse.csr_array, list[int], list[int], dict[str, int]]:
    """Counts the words of all passages.

    Returns:
        How often each of V words is in each of N passages ``[N, V]``; the lengths of the passages;
        the first passage of each document, and N; the numbers of the words.
    """
    vocabulary = {"": 0}
    starts = list[int]()
    lengths = list[int]()
    ends = [0]
    words = array("i")  # arrays grow in place
    times = array("I")
    for part in parts:
        table = part.read("text", "chunk")
        starts += (np.flatnonzero(table["chunk"].to_numpy() == 0) + len(lengths)).tolist()
        for text in table["text"].to_pylist():
            counts = Counter(split_words(text))
            words.fromlist([vocabulary.setdefault(word, len(vocabulary)) for word in counts])
            times.fromlist(list(counts.values()))
            ends.append(len(words))
            lengths.append(counts.total())
    if not lengths:
        raise ValueError("No document of the folder holds a word that the model can read.")
    index_type = np.int32 if len(words) < 2**31 else np.int64
    matrix = sparse.csr_array(
        (np.asarray(times), np.asarray(words), np.array(ends, index_type)),
        (len(lengths), len(vocabulary)),
    )
    return matrix, lengths, [*starts, len(lengths)], vocabulary


def book_words(counts: sparse.csr_array, starts: list[int]) -> sparse.csr_array:
    """Finds the first words of each document by TF-IDF over documents.

    Counted in each of its passages, they let a question name the book and a passage that names it
    nowhere be found: MRR .740 in place of .665 on such questions over twenty novels, and no loss on
    others. One document has none.

    Args:
        counts: how often each word is in each passage, from `count_words`.
        starts: the first passage of each document, from `count_words`.

    Returns:
        ``[n, V]``: 1 for the first words of each of n documents.
    """
    passages = np.arange(counts.shape[0], dtype=np.int32)
    ones = np.ones(len(passages), np.float32)
    membership = sparse.csr_array((ones, passages, np.array(starts, np.int32)))  # [n, N]
    books = membership @ counts  # [n, V]
    rare = np.log(len(starts) / (1 + np.diff(books.tocsc().indptr)))
    weights = np.where(books.data > 2, books.data * rare[books.indices], 0)
    best = []
    for start, end in pairwise(books.indptr.tolist()):
        first = start + np.argsort(-weights[start:end], kind="stable")[:_BOOK_WORDS]
        best.append(books.indices[first[weights[first] > 0]])
    borders = np.cumsum([0, *map(len, best)], dtype=np.int32)
    ones = np.ones(borders[-1], counts.dtype)
    return sparse.csr_array((ones, np.concatenate(best), borders), books.shape)


def rarity(spread: np.ndarray, passages: int) -> np.ndarray:
    """Weighs words by how many passages hold them.

    The weight is Robertson's, which is 0 for a word that half of the passages hold, but at least a
    tenth of Lucene's: in a folder of two short texts, half of the passages hold every word.

    Args:
        spread: how many passages hold each word, ``[V]``.
        passages: the number of all passages.

    Returns:
        The weights ``[V]``.
    """
    odds = (passages - spread + 0.5) / (spread + 0.5)
    robertson = np.log(np.maximum(odds, 1))
    return np.maximum(robertson, _COMMON_SHARE * np.log1p(odds)).astype(np.float32)


def open_index(model: NextLevelBertModel, parts: list[Part]) -> Path:
    """Opens the index of a shelf, which is built if the parts have changed.

    Returns:
        A folder beside the parts: the words of all passages as bm25s stores them, and
        ``passages.safetensors``, so that a search opens only the parts of what it shows.
    """
    names = " ".join(part.path.name for part in parts)
    folder = parts[0].path.parent / f"words-{hashlib.sha256(names.encode()).hexdigest()[:32]}"
    if not folder.is_dir():
        words, starts = index_words(parts)
        temporary = folder.with_name(f"{folder.name}.tmp")
        words.save(temporary)
        write_passages(model, parts, starts, temporary / "passages.safetensors")
        for earlier in set(folder.parent.glob("words-*")) - {temporary}:
            shutil.rmtree(earlier)
        temporary.rename(folder)
    return folder


def index_words(parts: list[Part]) -> tuple[bm25s.BM25, list[int]]:
    """Weighs the words of all passages by BM25 (k1 1.5, b 0.75), with their book's first words.

    bm25s stores and asks the index, but builds it passage by passage, which takes twice as long and
    three times the memory.

    Returns:
        The index, and the first passage of each document, and N.
    """
    counts, lengths, starts, vocabulary = count_words(parts)
    documents = np.repeat(np.arange(len(starts) - 1), np.diff(starts))  # of each passage
    added = book_words(counts, starts)[documents]
    sizes = lengths + np.diff(added.indptr)
    counts += added
    counts = counts.tocsc()
    spread = np.diff(counts.indptr)

    norms = 1.5 * (0.25 + 0.75 * sizes / max(sizes.mean(), 1))
    scores = norms.astype(np.float32)[counts.indices]  # changed in place: there may be many
    scores += counts.data
    np.divide(counts.data, scores, out=scores)
    scores *= rarity(spread, len(sizes)).repeat(spread)
    index = bm25s.BM25()
    index.scores = {
        "data": scores,
        "indices": counts.indices,
        "indptr": counts.indptr,
        "num_docs": len(sizes),
    }
    index.vocab_dict = vocabulary
    index.nonoccurrence_array = None
    return index, starts


def write_passages(
    model: NextLevelBertModel, parts: list[Part], starts: list[int], path: Path
) -> None:
    """Writes what `Library` needs of all parts into one file."""
    number = starts[-1]
    vectors = torch.empty(number, model.config.chunk_hidden_size)
    spans = np.empty((number, 2), np.int64)
    texts = np.empty(number, np.int64)
    known = dict[bytes, int]()  # the first passage with a text, by the text's hash
    owners = list[int]()
    ids = list[str]()
    summaries = []
    notes = list[list[str]]()
    row = 0
    for owner, part in enumerate(parts):
        table = part.read("document", "chunk", "start", "end", "text", "vector", "document_vector")
        rows = slice(row, row + len(table))
        plain = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        plain = torch.from_numpy(plain.astype(np.float32)).view(-1, vectors.shape[1])
        vectors[rows] = comparable(model, plain)
        spans[rows] = np.stack([table["start"].to_numpy(), table["end"].to_numpy()], axis=1)
        for text in table["text"].to_pylist():
            digest = hashlib.sha256(text.strip().encode()).digest()
            texts[row] = known.setdefault(digest, row)
            row += 1
        first = np.flatnonzero(table["chunk"].to_numpy() == 0)
        owners += [owner] * len(first)
        ids += table["document"].take(first).to_pylist()
        summaries += table["document_vector"].take(first).to_pylist()
        notes.append(json.loads(table.schema.metadata[b"notes"]))
    tensors = {
        "vectors": vectors,
        "spans": torch.from_numpy(spans),
        "texts": torch.from_numpy(texts),
        "first": torch.tensor(starts),
        "parts": torch.tensor(owners),
        "summaries": torch.tensor(summaries),
    }
    save_file(tensors, path, metadata={"ids": json.dumps(ids), "notes": json.dumps(notes)})


@torch.no_grad()
def comparable(model: NextLevelBertModel, plain: torch.Tensor) -> torch.Tensor:
    """Prepares chunk vectors ``[n, D]`` for comparison, on the CPU.

    They are whitened if the model whitens, and of length 1.
    """
    prepared = model.prepare_chunks(plain.to(model.device, model.dtype))
    return F.normalize(prepared.float().cpu(), dim=-1)


class Answer(NamedTuple):
    """The passages and documents that are nearest to a question.

    A passage's score is the mean of its cosine and of BM25 divided by the length of the question's
    vector of rarities, so that a few words of a long question count less. A document's score is the
    mean of its three best passages.

    Args:
        score, cosine, bm25: of each passage, ``[N]``.
        documents: the nearest documents, by number, with their scores.
        passages: the numbers of the nearest passages. Of equal texts there is one.
    """

    score: torch.Tensor
    cosine: torch.Tensor
    bm25: torch.Tensor
    documents: list[tuple[int, float]]
    passages: list[int]


class Passage(NamedTuple):
    """A passage as it is shown: whole sentences of a document, up to a length.

    Args:
        start, end: its first character in the document, and one past its last.
        text: its text, and a mark if the passage is longer.
        share: the share of the document that stands before it.
        pages: its first and last page in a PDF.
        page: the page that holds most of it.
    """

    start: int
    end: int
    text: str
    share: float
    pages: tuple[int, int] | None = None
    page: int | None = None

    def position(self) -> list[str]:
        """Says where the passage is: its characters, its pages, and how far down."""
        words = [f"characters {self.start:,} to {self.end:,}"]
        if self.pages is not None:
            first, last = self.pages
            words.append(f"page {first}" if first == last else f"pages {first} to {last}")
        return [*words, f"at {self.share:.0%}"]


def show_passage(text: str, start: int, end: int, page_starts: list[int] | None) -> Passage:
    """Widens a chunk to whole sentences, and shortens what is too long to be shown."""
    begin, _ = _sentence_at(text, start)
    _, stop = _sentence_at(text, end - 1)
    shown_to = stop
    mark = ""
    if stop - begin > _LONGEST_PASSAGE:
        border, _ = _sentence_at(text, begin + _LONGEST_PASSAGE)
        shown_to = begin + len(text[begin:border].rstrip())
        if shown_to <= begin:
            shown_to = begin + _LONGEST_PASSAGE
        mark = f" [… {stop - shown_to:,} more characters]"

    pages = page = None
    if page_starts is not None:
        borders = [*page_starts, len(text)]
        on_page = np.diff(np.clip(borders, begin, stop))  # characters
        touched = np.flatnonzero(on_page)
        if len(touched) > 0:
            pages = (int(touched[0]) + 1, int(touched[-1]) + 1)
            page = int(on_page.argmax()) + 1
    return Passage(
        start=begin,
        end=stop,
        text=text[begin:shown_to] + mark,
        share=begin / len(text),
        pages=pages,
        page=page,
    )


def _sentence_at(text: str, position: int) -> tuple[int, int]:
    """Finds the sentence that holds a character; of a long sentence, what is near the character."""
    first = max(0, position - _LONGEST_SENTENCE)
    window = text[first : position + _LONGEST_SENTENCE]
    for start, end in text_sentences(window):
        if first + end > position:
            begin = first + start
            if start == 0 and first > 0:  # the sentence began before the window
                begin = position
            stop = first + end
            if end == len(window) and first + end < len(text):  # it ends after the window
                stop = position + 1
            return min(begin, position), stop
    return position, position + 1


class StoredDocument(NamedTuple):
    """A document as its part holds it."""

    text: str
    metadata: dict[str, Any]
    page_starts: list[int] | None


class Library:
    """The n documents of a shelf that hold a token, with N passages in all.

    Args:
        model: the document model.
        parts: the shelf, from `open_shelf`.

    Attributes:
        places: the names of the documents.
        summaries: document vectors ``[n, H]``.
        first: the first passage of each document, and N: ``[n + 1]``.
        spans: the characters of each passage in its document, ``[N, 2]``.
        vectors: chunk vectors ``[N, D]``, as `comparable` prepares them.
        notes: what was not read: a place and a sentence each.
    """

    def __init__(self, model: NextLevelBertModel, parts: list[Part]) -> None:
        self.model = model
        folder = open_index(model, parts)
        self.words = bm25s.BM25.load(folder, mmap=True)
        self._rarity = rarity(np.diff(self.words.scores["indptr"]), self.words.scores["num_docs"])
        with safe_open(folder / "passages.safetensors", framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in _TENSORS}
            stored = {name: json.loads(value) for name, value in file.metadata().items()}
        self.vectors = tensors["vectors"]
        self.summaries = tensors["summaries"].numpy()
        self.spans = tensors["spans"].numpy()
        self.first = tensors["first"].numpy()
        self._texts = tensors["texts"].numpy()
        self._owners = tensors["parts"].tolist()
        self._parts = parts
        self.places = [
            parts[owner].place_of(name)
            for owner, name in zip(self._owners, stored["ids"], strict=True)
        ]
        self.notes = [
            (part.place, note)
            for part, notes in zip(parts, stored["notes"], strict=True)
            for note in notes
        ]
        self.document = lru_cache(maxsize=16)(self._read_document)

    def _read_document(self, number: int) -> StoredDocument:
        owner = self._owners[number]
        first = self.first[self._owners.index(owner)]  # passage of the part
        start, end = (self.first[number : number + 2] - first).tolist()
        table = self._parts[owner].read("text", "metadata", "pages").slice(start, end - start)
        return StoredDocument(
            text="".join(table["text"].to_pylist()),
            metadata=json.loads(table["metadata"][0].as_py()),
            page_starts=table["pages"][0].as_py(),
        )

    def text(self, number: int) -> str:
        """Reads the text of a document."""
        return self.document(number).text

    def locate(self, passage: int) -> tuple[int, int]:
        """Returns the document of a passage, and which chunk of it that is."""
        document = int(np.searchsorted(self.first, passage, side="right")) - 1
        return document, passage - int(self.first[document])

    def chunk(self, number: int) -> str:
        """Reads the text of a passage's chunk, which may begin and end within sentences."""
        start, end = self.spans[number].tolist()
        return self.text(self.locate(number)[0])[start:end]

    def passage(self, number: int) -> Passage:
        """Reads a passage as it is shown."""
        document = self.document(self.locate(number)[0])
        start, end = self.spans[number].tolist()
        return show_passage(document.text, start, end, document.page_starts)

    def copies_of_passage(self, number: int) -> list[str]:
        """Lists the other documents that hold the text of a passage."""
        own = self.locate(number)[0]
        equal = np.flatnonzero(self._texts == self._texts[number]).tolist()
        documents = dict.fromkeys(self.locate(passage)[0] for passage in equal)
        return [self.places[document] for document in documents if document != own]

    def copies_of_document(self, number: int) -> list[str]:
        """Lists the other documents that have the text of a document."""
        same_start = self._texts[self.first[:-1]] == self._texts[self.first[number]]
        key = self._text_key(number)
        return [
            self.places[other]
            for other in np.flatnonzero(same_start).tolist()
            if other != number and self._text_key(other) == key
        ]

    def _text_key(self, number: int) -> bytes:
        """What the texts of equal documents have in common."""
        return self._texts[self.first[number] : self.first[number + 1]].tobytes()

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
        mean = encoded.plain.mean(dim=0, keepdim=True)
        query = comparable(self.model, mean)[0]
        # Row by row, so that equal passages have equal scores.
        blocks = self.vectors.split(_ROWS_AT_ONCE)
        cosine = torch.cat([(block * query).sum(dim=1) for block in blocks])  # [N]

        words = self.words.get_tokens_ids(split_words(question))  # those that the folder has
        bm25 = torch.from_numpy(self.words.get_scores_from_ids(words))
        weights = [times * self._rarity[word] for word, times in Counter(words).items()]
        score = (cosine + bm25 / max(math.hypot(*weights), 1e-9)) / 2

        best = mean_of_best(score.numpy(), self.first).tolist()
        by_score = sorted(enumerate(best), key=lambda pair: -pair[1])
        ranked = first_of_each(by_score, lambda pair: self._text_key(pair[0]), documents)
        order = score.argsort(descending=True, stable=True).tolist()
        nearest = first_of_each(order, lambda passage: self._texts[passage], passages)
        return Answer(score, cosine, bm25, ranked, nearest)


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


def first_of_each(items: Iterable[Any], key: Callable[[Any], Any], count: int) -> list[Any]:
    """Returns the first `count` items that differ in their key."""
    found = dict[Any, Any]()
    for item in items:
        if len(found) >= count:
            break
        found.setdefault(key(item), item)
    return list(found.values())


def open_library(model: NextLevelBertModel, arguments: argparse.Namespace) -> Library:
    """Opens the library of a command's source, and says on stderr what was not read."""
    parts = open_shelf(
        model,
        arguments.source,
        cache_dir=arguments.cache_dir,
        column=arguments.text_column,
        splitter=open_splitter(model, arguments.splitter),
    )
    library = Library(model, parts)
    report(library.notes)
    return library


def run(arguments: argparse.Namespace) -> None:
    """Prints the passages and documents that are nearest to the question."""
    model = open_model(arguments)
    library = open_library(model, arguments)
    answer = library.ask(arguments.question, arguments.documents, arguments.passages)
    documents = []
    passages = []
    for number, score in answer.documents:
        document = library.document(number)
        documents.append(
            {
                "place": library.places[number],
                "also_in": library.copies_of_document(number),
                "score": score,
                "characters": len(document.text),
                "chunks": int(np.diff(library.first)[number]),
                "metadata": document.metadata,
            }
        )
    for number in answer.passages:
        passage = library.passage(number)
        passages.append(
            {
                "place": library.places[library.locate(number)[0]],
                "also_in": library.copies_of_passage(number),
                "score": answer.score[number].item(),
                "cosine": answer.cosine[number].item(),
                "bm25": answer.bm25[number].item(),
                "start": passage.start,
                "end": passage.end,
                "page": passage.page,
                "pages": passage.pages,
                "text": passage.text,
            }
        )
    if arguments.json:
        facts = {"question": arguments.question, "documents": documents, "passages": passages}
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return

    print("Nearest documents (scores are relative to the folder)")
    for row in documents:
        chunks = "1 chunk" if row["chunks"] == 1 else f"{row['chunks']:,} chunks"
        print(f"{row['score']:.3f}  {row['place']}  {row['characters']:,} characters in {chunks}")
        _print_copies(row["also_in"])
    print("\nNearest passages")
    width = 10**9  # in a pipe, a passage is one line
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    indent = "    "
    for number, row in zip(answer.passages, passages, strict=True):
        position = ", ".join(library.passage(number).position())
        print(f"{row['score']:.3f}  {row['place']}  {position}")
        _print_copies(row["also_in"])
        print(textwrap.fill(row["text"], width, initial_indent=indent, subsequent_indent=indent))
        print()


def _print_copies(places: list[str]) -> None:
    """Prints a line with the other places of the same text, the first five by name."""
    if places:
        named = ", ".join(places[:5])
        more = f" and {len(places) - 5:,} more" if len(places) > 5 else ""
        print(f"       also in: {named}{more}")
