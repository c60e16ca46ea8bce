"""The record of a file on a shelf: the texts, spans, vectors and words of its documents, every bit under a check sum.

A record is a safetensors file (N chunks of all documents together, D size of a chunk vector, H of a document vector)::

    texts [bytes] uint8, UTF-8 · text_sizes [documents] · chunk_counts [documents]
    spans [N, 2] · plain [N, D] float32 · vectors [documents, H] float32
    words.words, words.starts, words.chunks, words.counts, words.lengths: see `WordCounts`
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from ..data.documents import Document
from ..models.modeling_nextlevelbert import DocumentEmbedding
from .words import WordCounts, count_words

logger = logging.getLogger(__name__)


def check_sum(content: bytes | memoryview) -> str:
    return f"{zlib.crc32(content):08x}"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in content.items() if key != "sum"}
    return {**bare, "sum": check_sum(json.dumps(bare, sort_keys=True).encode())}


def check_seal(content: Mapping[str, Any]) -> None:
    if content.get("sum") != sealed(content)["sum"]:
        raise ValueError("its check sum is another one")


_HEAD = "record"  # the one key of the file's metadata
_WORDS = "words."  # what the names of the counts begin with


def record_bytes(documents: list[Document], embeddings: list[DocumentEmbedding]) -> bytes:
    """The content of a record of these documents, at least one."""
    texts = [np.frombuffer(document.text.encode("utf-8", "surrogatepass"), np.uint8) for document in documents]
    tensors = {
        "texts": torch.from_numpy(np.concatenate(texts)),
        "text_sizes": torch.tensor([len(text) for text in texts]),
        "chunk_counts": torch.tensor([len(each.plain) for each in embeddings]),
        "spans": torch.from_numpy(np.concatenate([each.spans for each in embeddings])),
        "plain": torch.cat([each.plain for each in embeddings]),
        "vectors": torch.stack([each.document for each in embeddings]),
    }
    words = count_words(
        document.text[start:end]
        for document, embedding in zip(documents, embeddings, strict=True)
        for start, end in embedding.spans.tolist()
    )
    tensors |= {_WORDS + name: torch.from_numpy(counts) for name, counts in words._asdict().items()}
    rows = [{"id": document.id, "metadata": dict(document.metadata)} for document in documents]
    head = {"documents": json.loads(json.dumps(rows, default=str)), "sums": _sums(tensors)}
    return save(tensors, {_HEAD: json.dumps(sealed(head))})


def read_record(path: Path, words: bool | None = None) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """The ids and metadata of the documents of a record, and its tensors.

    Args:
        path: of the record.
        words: read the counts of words alone, or all but them; by default, everything.

    Raises:
        FileNotFoundError: if there is no such record.
        ValueError: if it is not what was written.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there any more: something removed it.")
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if words in (None, name.startswith(_WORDS))]
            tensors = {name: file.get_tensor(name) for name in names}
            head = json.loads(file.metadata()[_HEAD])
        check_seal(head)
        if {name: each for name, each in head["sums"].items() if words in (None, name.startswith(_WORDS))} != _sums(
            tensors
        ):
            raise ValueError("a tensor does not have its check sum")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}).") from error
    return head["documents"], tensors


def documents_of(
    rows: list[dict[str, Any]], tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[dict[str, Any], str, np.ndarray, torch.Tensor, torch.Tensor]]:
    """Of each document of a record: id and metadata, text, spans ``[n, 2]``, plain ``[n, D]``, vector ``[H]``."""
    counts = tensors["chunk_counts"].tolist()
    texts = tensors["texts"].split(tensors["text_sizes"].tolist())
    spans, plain = tensors["spans"].split(counts), tensors["plain"].split(counts)
    for number, row in enumerate(rows):
        text = texts[number].numpy().tobytes().decode("utf-8", "surrogatepass")
        yield row, text, spans[number].numpy(), plain[number], tensors["vectors"][number]


def words_of(tensors: Mapping[str, torch.Tensor]) -> WordCounts:
    """The counts of a record, copied: the file would be mapped into memory as long as a tensor of it is used."""
    return WordCounts(*(tensors[_WORDS + name].numpy().copy() for name in WordCounts._fields))


def is_whole(path: Path) -> bool:
    """Whether there is a record; one that is damaged is to be made anew, and the log says so."""
    try:
        read_record(path)
    except FileNotFoundError:
        return False
    except ValueError as error:
        logger.warning("%s Its file is encoded again.", error)
        return False
    return True


def _sums(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The kind, shape and check sum of each tensor."""
    return {
        name: f"{tensor.dtype} {list(tensor.shape)} {check_sum(tensor.contiguous().numpy().tobytes())}"
        for name, tensor in sorted(tensors.items())
    }
