"""The index of a shelf: the words and vectors of all passages in one file beside the parts.

With the index, a search opens only the parts that hold the shown passages.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ..corpus.parts import column_values, number_array, text_array
from ..data.words import search_words
from .cache_files import is_whole, name_by_checksum, writing
from .file_states import FileStates, state_of
from .index_file import column, map_arrays, stored_column, write_arrays
from .parts import Part
from .passages import first_rows, passage_texts
from .shelf import Shelf, part_notes, wait_for

if TYPE_CHECKING:
    from scipy import sparse

# Raised when an index has other contents than before, so that it is made anew.
_VERSION = 2
# See `book_words`. They raised the MRR of passages for SQuALITY's answers from .932 to .951, and on
# the everyday questions for choosing (benchmarks/studies/everyday_questions.py) by .006.
_BOOK_WORDS = 30
_LEAST_COUNT = 3
SPANS = ("start", "end", "passage_start", "passage_end")
# The weight of a word that half of the passages hold, as a share of its weight by Lucene's formula.
# With Lucene's weight for all words, the MRR on the everyday questions for choosing was .276, not
# .285. Stop words are kept: without them, the MRR of the words alone fell from .259 to .174.
_COMMON_SHARE = 0.1


class WordCounts(NamedTuple):
    """Counts of the words in each passage, and which texts are equal.

    Args:
        matrix: the counts of V words in N passages, ``[N, V]``.
        starts: the first passage of each document, and N.
        vocabulary: the column of each word.
        texts: a number for the text of each passage, ``[N]``; equal texts have equal numbers.
        document_texts: a number for the text of each document.
    """

    matrix: sparse.csr_array
    starts: list[int]
    vocabulary: dict[str, int]
    texts: list[int]
    document_texts: list[int]


def open_index(shelf: Shelf) -> dict[str, np.ndarray]:
    """Maps the index of a shelf, which is built if the parts have changed, or if it is damaged.

    Raises:
        CacheError: if the index cannot be written.
        ValueError: if there is no passage.
    """
    digest = _digest(shelf.parts)
    folder = shelf.folder
    with wait_for(shelf.lock):
        for path in folder.glob(f"index-{digest}-*.safetensors"):
            if _is_whole(path):
                return map_arrays(path)
            path.unlink()
        temporary = folder / f"index-{digest}.new"
        try:
            write_index(shelf, temporary)
            with writing(folder):
                path = name_by_checksum(temporary, f"index-{digest}", ".safetensors")
        finally:
            temporary.unlink(missing_ok=True)
        shelf.remove_files([other for other in folder.glob("index-*") if other != path])
        return map_arrays(path)


def _is_whole(path: Path) -> bool:
    """Returns whether an index has its checksum; it is read once, and again if it has changed."""
    states = FileStates(path.with_name("checked"))
    state = state_of([path])
    if states.content(path.name, state) is not None:
        return True
    if not is_whole(path):
        return False
    states.remember(path.name, state, content="whole")
    states.save([path.name])
    return True


def _digest(parts: list[Part]) -> str:
    """Hashes the names of the parts, which depend on their contents."""
    digest = hashlib.sha256(f"{_VERSION}".encode())
    for part in parts:
        digest.update(part.path.name.encode())
    return digest.hexdigest()[:32]


def count_words(shelf: Shelf) -> WordCounts:
    """Counts the words of all passages.

    Raises:
        ValueError: if there is no passage.
    """
    vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
    number_of: defaultdict[bytes, int] = defaultdict(count().__next__)  # of the hash of a text
    words = array("i")  # arrays grow in place
    counts = array("I")
    borders = array("q", [0])
    starts = [0]
    texts = []
    document_texts = []
    for part in shelf.parts:
        table = shelf.read(part, "text", "chunk", "passage_start", "passage_end")
        for document, passages in passage_texts(table):
            for passage in passages:
                counts_of_passage = Counter(search_words(passage))
                words.extend(vocabulary[word] for word in counts_of_passage)
                counts.extend(counts_of_passage.values())
                borders.append(len(words))
                texts.append(number_of[_hash(passage)])
            starts.append(len(texts))
            document_texts.append(number_of[_hash(document)])
    if not texts:
        raise ValueError("No document of the folder holds a word that the model can read.")

    from scipy import sparse  # half a second to import

    arrays = (np.asarray(counts), np.asarray(words), np.asarray(borders))
    return WordCounts(
        sparse.csr_array(arrays, shape=(len(texts), len(vocabulary))),
        starts=starts,
        vocabulary=dict(vocabulary),
        texts=texts,
        document_texts=document_texts,
    )


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.strip().encode()).digest()


def book_words(counts: sparse.csr_array, starts: list[int]) -> sparse.csr_array:
    """Finds the words of each document that tell it from others, by TF-IDF over documents.

    At most `_BOOK_WORDS` words are chosen, among those that the document has at least
    `_LEAST_COUNT` times: names and subjects are repeated, while a word that occurs once or twice is
    rare by chance. Counted in each passage of the document, they let a question name the book and
    find a passage that does not name it: on such questions over twenty novels, MRR rises by a
    tenth, and it does not fall on others (docs/results.md). If there is one document, it has none.

    Args:
        counts: number of times that each word occurs in each passage, from `count_words`.
        starts: the first passage of each document, from `count_words`.

    Returns:
        ``[n, V]``: 1 for the chosen words of each of n documents.
    """
    from scipy import sparse  # half a second to import

    # Passages of a document become one row, whose counts of the same word are added.
    borders = counts.indptr[starts]
    books = sparse.csr_array(
        (counts.data, counts.indices, borders),
        shape=(len(starts) - 1, counts.shape[1]),
        copy=True,
    )
    books.sum_duplicates()
    holders = np.diff(books.tocsc().indptr)  # documents that hold each word, [V]
    inverse_frequency = np.log(len(starts) / (1 + holders))  # 0 for a word of all documents
    weights = books.data * inverse_frequency[books.indices]
    weights[books.data < _LEAST_COUNT] = 0

    for start, end in pairwise(books.indptr.tolist()):
        order = np.argsort(-weights[start:end], kind="stable")
        weights[start + order[_BOOK_WORDS:]] = 0
    books.data = (weights > 0).astype(counts.dtype)
    books.eliminate_zeros()
    return books


def rarity(spread: np.ndarray, passages: int) -> np.ndarray:
    """Weighs words by how few passages hold them.

    The weight is Robertson's, which is 0 for a word that half of the passages hold, but at least a
    tenth of Lucene's: in a folder of two short texts, half of the passages hold every word.

    Args:
        spread: number of passages that hold each word, ``[V]``.
        passages: the number of all passages.

    Returns:
        The weights ``[V]``.
    """
    odds = (passages - spread + 0.5) / (spread + 0.5)
    robertson = np.log(np.maximum(odds, 1))
    return np.maximum(robertson, _COMMON_SHARE * np.log1p(odds)).astype(np.float32)


def weigh_words(counts: WordCounts) -> sparse.csc_array:
    """Weighs the words of all passages by BM25 (k1 1.5, b 0.75), with the words of their book.

    bm25s does it passage by passage, which takes twice as long and three times the memory.

    Returns:
        ``[N, V]`` in float32.
    """
    from scipy import sparse  # half a second to import

    documents = np.repeat(np.arange(len(counts.starts) - 1), np.diff(counts.starts))
    added = book_words(counts.matrix, counts.starts)[documents]
    matrix = (counts.matrix + added).tocsc()
    lengths = counts.matrix.sum(axis=1) + np.diff(added.indptr)
    norms = 1.5 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1))

    # count / (norm + count) * rarity, computed in place because there may be many weights
    weights = norms.astype(np.float32)[matrix.indices]
    weights += matrix.data
    np.divide(matrix.data, weights, out=weights)
    spread = np.diff(matrix.indptr)
    rarities = rarity(spread, len(lengths))
    weights *= rarities.repeat(spread)
    return sparse.csc_array((weights, matrix.indices, matrix.indptr), shape=matrix.shape)


def write_index(shelf: Shelf, path: Path) -> None:
    """Writes what `Library` needs of all parts into one file.

    Vectors wait in two unnamed files, because those of many passages do not fit into memory, and
    each part is opened only once more after `count_words`.
    """
    counts = count_words(shelf)
    weights = weigh_words(counts)
    words = list(counts.vocabulary)
    columns_of_words = sorted(range(len(words)), key=words.__getitem__)
    word_ends, word_bytes = _string_buffers(sorted(words))
    with (
        writing(path),
        TemporaryFile(dir=shelf.folder) as vectors,
        TemporaryFile(dir=shelf.folder) as document_vectors,
    ):
        spans = []
        ids: list[str] = []
        metadata = []
        for part in shelf.parts:
            table = shelf.read(part, "document", "chunk", *SPANS, "vector", "document_vector")
            documents = table.take(number_array(first_rows(table)))
            ids.extend(documents["document"].to_pylist())
            spans.append(np.stack([column_values(table[name]) for name in SPANS], axis=1))
            metadata.append(table.schema.metadata)
            size = table.schema.field("vector").type.list_size
            plain = column_values(table["vector"]).reshape(-1, size)
            vectors.write(np.ascontiguousarray(shelf.model.vectors.search_vectors(plain)).data)
            document_vectors.write(column_values(documents["document_vector"]).data)
        id_ends, id_bytes = _string_buffers(ids)
        facts = json.dumps({"notes": part_notes(shelf.parts, metadata)}).encode()

        document_size = document_vectors.tell() // (4 * len(ids))  # float32
        columns = {
            "spans": column(np.concatenate(spans)),
            "starts": column(np.array(counts.starts)),
            "part_starts": column(np.cumsum([0, *map(len, spans)])),
            "texts": column(np.array(counts.texts)),
            "document_texts": column(np.array(counts.document_texts)),
            "word_borders": column(weights.indptr.astype(np.int64)),
            "word_ends": column(word_ends),
            "id_ends": column(id_ends),
            "vectors": stored_column(vectors, len(counts.texts), size=size),
            "document_vectors": stored_column(document_vectors, len(ids), size=document_size),
            "word_weights": column(weights.data),
            "word_passages": column(weights.indices.astype(np.int32)),
            "word_columns": column(np.array(columns_of_words, np.int32)),
            "words": column(word_bytes),
            "ids": column(id_bytes),
            "facts": column(np.frombuffer(facts, np.uint8)),
        }
        write_arrays(path, columns)


def _string_buffers(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of texts, and before it where each text ends: ``[n + 1]``, from 0 on."""
    _, ends, values = text_array(texts).buffers()
    return np.frombuffer(ends, np.int64), np.frombuffer(values, np.uint8)


def mapped_strings(ends: np.ndarray, values: np.ndarray) -> pa.LargeStringArray:
    """Returns texts of an index without a copy.

    Args:
        ends: where each text ends, ``[n + 1]``.
        values: the bytes of all texts.
    """
    buffers = (pa.py_buffer(ends), pa.py_buffer(values))
    return pa.LargeStringArray.from_buffers(len(ends) - 1, *buffers)
