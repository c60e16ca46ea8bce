"""The index of a shelf: the words and vectors of all passages in one file beside the parts.

With it, a search opens only the parts of what it shows.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save_file
from scipy import sparse
from torch.nn import functional as F

from ..evaluation.words import search_words
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .shelf import Part

_BOOK_WORDS = 30
_SPANS = ("start", "end", "passage_start", "passage_end")
# The weight of a word that half of the passages hold, as a share of its weight by Lucene's formula.
_COMMON_SHARE = 0.1


class WordCounts(NamedTuple):
    """How often words are in passages.

    Args:
        matrix: the counts of V words in N passages, ``[N, V]``.
        starts: the first passage of each document, and N.
        vocabulary: the number of each word.
    """

    matrix: sparse.csr_array
    starts: list[int]
    vocabulary: dict[str, int]


def open_index(model: NextLevelBertModel, parts: list[Part]) -> Path:
    """Returns the index of a shelf, which is built if the parts have changed."""
    names = " ".join(part.path.name for part in parts)
    digest = hashlib.sha256(names.encode()).hexdigest()[:32]
    folder = parts[0].path.parent
    path = folder / f"index-{digest}.safetensors"
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        write_index(model, parts, temporary)
        for earlier in set(folder.glob("index-*")) - {temporary}:
            earlier.unlink()
        os.replace(temporary, path)
    return path


def passage_texts(table: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """Yields the text of each document of a part, and the texts of its passages.

    Args:
        table: the columns text, chunk, passage_start and passage_end of a part.
    """
    firsts = np.flatnonzero(table["chunk"].to_numpy() == 0).tolist()
    texts = table["text"].to_pylist()
    begins = table["passage_start"].to_pylist()
    ends = table["passage_end"].to_pylist()
    for first, last in pairwise([*firsts, len(table)]):
        document = "".join(texts[first:last])
        borders = zip(begins[first:last], ends[first:last], strict=True)
        yield document, [document[begin:end] for begin, end in borders]


def count_words(parts: list[Part]) -> WordCounts:
    """Counts the words of all passages.

    Raises:
        ValueError: if there is no passage.
    """
    vocabulary = dict[str, int]()
    words = array("i")  # arrays grow in place
    counts = array("I")
    borders = [0]
    starts = [0]
    for part in parts:
        table = part.read("text", "chunk", "passage_start", "passage_end")
        for _, passages in passage_texts(table):
            for passage in passages:
                found = Counter(search_words(passage))
                words.extend(vocabulary.setdefault(word, len(vocabulary)) for word in found)
                counts.extend(found.values())
                borders.append(len(words))
            starts.append(len(borders) - 1)
    if len(starts) == 1:
        raise ValueError("No document of the folder holds a word that the model can read.")
    index_type = np.int32 if len(words) < 2**31 else np.int64
    matrix = sparse.csr_array(
        (np.asarray(counts), np.asarray(words), np.array(borders, index_type)),
        shape=(starts[-1], len(vocabulary)),
    )
    return WordCounts(matrix, starts, vocabulary)


def book_words(counts: sparse.csr_array, starts: list[int]) -> sparse.csr_array:
    """Finds the first words of each document by TF-IDF over documents.

    Counted in each passage of the document, they let a question name the book and find a passage
    that does not name it: on such questions over twenty novels, MRR rises by a tenth, and it does
    not fall on others (docs/results.md). One document has none.

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
    spread = np.diff(books.tocsc().indptr)  # documents that hold each word
    rare = np.log(len(starts) / (1 + spread))
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


def weigh_words(counts: WordCounts) -> sparse.csc_array:
    """Weighs the words of all passages by BM25 (k1 1.5, b 0.75), with the words of their book.

    bm25s does it passage by passage, which takes twice as long and three times the memory.

    Returns:
        ``[N, V]`` in float32.
    """
    documents = np.repeat(np.arange(len(counts.starts) - 1), np.diff(counts.starts))
    added = book_words(counts.matrix, counts.starts)[documents]
    matrix = (counts.matrix + added).tocsc()
    lengths = counts.matrix.sum(axis=1) + np.diff(added.indptr)
    norms = 1.5 * (0.25 + 0.75 * lengths / max(lengths.mean(), 1))

    scores = norms.astype(np.float32)[matrix.indices]  # changed in place: there may be many
    scores += matrix.data
    np.divide(matrix.data, scores, out=scores)
    spread = np.diff(matrix.indptr)
    scores *= rarity(spread, len(lengths)).repeat(spread)
    return sparse.csc_array((scores, matrix.indices, matrix.indptr), shape=matrix.shape)


@torch.no_grad()
def comparable(model: NextLevelBertModel, plain: torch.Tensor) -> torch.Tensor:
    """Prepares chunk vectors ``[n, D]`` for comparison, on the CPU.

    They are whitened if the model whitens, and of length 1.
    """
    prepared = model.prepare_chunks(plain.to(model.device, model.dtype))
    return F.normalize(prepared.float().cpu(), dim=-1)


def write_index(model: NextLevelBertModel, parts: list[Part], path: Path) -> None:
    """Writes what `Library` needs of all parts into one file."""
    counts = count_words(parts)
    weights = weigh_words(counts)
    vectors = torch.empty(counts.starts[-1], model.config.chunk_hidden_size)
    spans = np.empty((len(vectors), len(_SPANS)), np.int64)
    numbers = dict[bytes, int]()  # of the different texts, by their hashes
    passage_numbers = list[int]()
    document_numbers = list[int]()
    owners = list[int]()
    rows = list[int]()
    ids = list[str]()
    document_vectors = list[list[float]]()
    notes = list[list[list[str]]]()

    def number_of(text: str) -> int:
        digest = hashlib.sha256(text.strip().encode()).digest()
        return numbers.setdefault(digest, len(numbers))

    for owner, part in enumerate(parts):
        table = part.read("document", "chunk", *_SPANS, "text", "vector", "document_vector")
        start = len(passage_numbers)
        end = start + len(table)
        plain = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        plain = torch.from_numpy(plain.astype(np.float32)).view(-1, vectors.shape[1])
        vectors[start:end] = comparable(model, plain)
        spans[start:end] = np.stack([table[name].to_numpy() for name in _SPANS], axis=1)
        for document, passages in passage_texts(table):
            document_numbers.append(number_of(document))
            passage_numbers.extend(number_of(passage) for passage in passages)

        first_rows = np.flatnonzero(table["chunk"].to_numpy() == 0)
        rows.extend(first_rows.tolist())
        owners.extend([owner] * len(first_rows))
        ids.extend(table["document"].take(first_rows).to_pylist())
        document_vectors.extend(table["document_vector"].take(first_rows).to_pylist())
        notes.append(json.loads(table.schema.metadata[b"notes"]))

    facts = json.dumps({"ids": ids, "notes": notes, "words": list(counts.vocabulary)})
    arrays = {
        "spans": spans,
        "starts": np.array(counts.starts),
        "owners": np.array(owners),
        "rows": np.array(rows),
        "document_vectors": np.array(document_vectors, np.float32),
        "passage_texts": np.array(passage_numbers),
        "document_texts": np.array(document_numbers),
        "word_weights": weights.data,
        "word_passages": weights.indices,
        "word_borders": weights.indptr,
        "facts": np.frombuffer(bytearray(facts.encode()), np.uint8),
    }
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    save_file({"vectors": vectors, **tensors}, path)
