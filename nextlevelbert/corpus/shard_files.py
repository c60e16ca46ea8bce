"""The file of a shard: written with check sums of its tensors and of its head, and compared with them when read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from .layout import (
    MANIFEST,
    Manifest,
    check_seal,
    check_sum,
    extend_chain,
    first_link,
    has_sums,
    mending,
    sealed,
    shard_name,
)


class DocumentEntry(TypedDict):
    """A document as its shard describes it."""

    id: str
    sha256: str
    characters: int
    tokens: int


@dataclass(frozen=True)
class ShardHead:
    """A shard without its vectors and spans.

    Attributes:
        documents: its documents, in order.
        chain: the hash of all documents up to the end of the shard, see `extend_chain`.
        offsets: ``[d + 1]`` int64, first chunk of each document.
        hidden_size: D of its vectors.
        sums: check sums of its tensors by name; None in format version 2.
        sum: the check sum of the head; None in format version 2.
    """

    documents: list[DocumentEntry]
    chain: str
    offsets: np.ndarray
    hidden_size: int
    sums: dict[str, str] | None
    sum: str | None

    @property
    def chunks(self) -> int:
        return int(self.offsets[-1])


def shard_bytes(chain: str, documents: Sequence[DocumentEntry], tensors: dict[str, torch.Tensor]) -> bytes:
    """The content of a shard.

    Args:
        chain: the hash of all documents up to its end.
        documents: what is stored of each document.
        tensors: ``vectors``, ``spans`` and ``document_offsets``.
    """
    sums = {name: check_sum(tensor.numpy().data) for name, tensor in sorted(tensors.items())}
    # One key only: safetensors writes several in no fixed order, and a corpus must be reproducible byte by byte.
    head = sealed({"chain": chain, "documents": documents, "sums": sums})
    return save(tensors, {"shard": json.dumps(head)})


def read_shard_head(path: Path, with_sums: bool = True) -> ShardHead:
    """Everything in a shard but its vectors and spans, whose shapes are checked.

    Args:
        path: the file.
        with_sums: whether it has check sums, see `has_sums`.

    Raises:
        ValueError: if the file is not a whole shard.
    """
    try:
        with safe_open(path, framework="pt") as file:
            described = json.loads(file.metadata()["shard"])
            own_sum = check_seal(described) if with_sums else None
            sums = described["sums"] if with_sums else None
            documents: list[DocumentEntry] = described["documents"]
            offsets = file.get_tensor("document_offsets").numpy()
            vectors, spans = (file.get_slice(name) for name in ("vectors", "spans"))
            if sums and check_sum(offsets.data) != sums["document_offsets"]:
                raise ValueError("document_offsets do not have their check sum")
            kinds = (vectors.get_dtype(), spans.get_dtype(), str(offsets.dtype))
            (chunks, hidden_size), span_shape = vectors.get_shape(), spans.get_shape()
            if kinds != ("F16", "I64", "int64") or offsets.shape != (len(documents) + 1,) or span_shape != [chunks, 2]:
                raise ValueError(
                    f"{len(documents)} documents, but vectors {[chunks, hidden_size]} {kinds[0]}, spans {span_shape} "
                    f"{kinds[1]}, document_offsets {list(offsets.shape)} {kinds[2]}"
                )
            if offsets[0] != 0 or offsets[-1] != chunks or (np.diff(offsets) < 0).any():
                raise ValueError(f"document_offsets do not rise from 0 to {chunks}")
            if any(entry.keys() != DocumentEntry.__annotations__.keys() for entry in documents):
                raise ValueError("a document is described by other fields")
            return ShardHead(documents, described["chain"], offsets, hidden_size, sums, own_sum)
    except (SafetensorError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is not a whole shard of an encoded corpus ({error})") from error


def open_shard(path: Path, sums: Mapping[str, str] | None) -> Any:
    """A shard to read from, once all its tensors were compared with their check sums.

    Where there are none, vectors that are not finite and spans that run backwards are refused.

    Raises:
        ValueError: if a tensor is not what was written.
    """
    try:
        file = safe_open(path, framework="pt")
        tensors = {name: file.get_tensor(name).numpy() for name in ("vectors", "spans")}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    if sums is None:
        if not np.isfinite(tensors["vectors"]).all():
            raise ValueError(f"{path.name} has vectors that are not finite")
        if (tensors["spans"] < 0).any() or (np.diff(tensors["spans"]) < 0).any():
            raise ValueError(f"{path.name} has spans that run backwards")
    elif wrong := [name for name, tensor in tensors.items() if check_sum(tensor.data) != sums.get(name)]:
        raise ValueError(f"{path.name} is damaged: its {' and '.join(wrong)} do not have their check sum")
    return file


def check_shards(folder: Path, manifest: Manifest, numbers: Iterable[int], tensors: bool = False) -> list[ShardHead]:
    """The heads of shards, compared with the manifest.

    Args:
        folder, manifest: of the corpus.
        numbers: of the shards.
        tensors: whether the files are read whole.

    Raises:
        ValueError: naming each that is missing, damaged or the shard of another corpus.
    """
    heads, bad = [], []
    for number in numbers:
        try:
            heads.append(_check_shard(folder, manifest, number, tensors))
        except ValueError as error:
            bad.append(str(error))
    if bad:
        raise ValueError(
            f"{len(bad)} shard(s) of the corpus at {folder} cannot be used: {'; '.join(bad)}. {mending(manifest)}"
        )
    return heads


def _check_shard(folder: Path, manifest: Manifest, number: int, tensors: bool) -> ShardHead:
    path = folder / shard_name(number)
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    head = read_shard_head(path, has_sums(manifest))
    expected = manifest["encoder"]["hidden_size"]
    if head.hidden_size != expected:
        raise ValueError(f"{path.name} has vectors of {head.hidden_size} values where {expected} are expected")
    if "shard_sums" in manifest and head.sum != manifest["shard_sums"][number]:
        raise ValueError(f"{path.name} is not the shard that {MANIFEST} names")
    if tensors:
        open_shard(path, head.sums)
    return head


def check_chain(folder: Path, manifest: Manifest, heads: Sequence[ShardHead]) -> None:
    """Refuses shards written by processes that did not read the same documents in the same order."""
    chain = first_link(manifest)
    for number, head in enumerate(heads):
        for entry in head.documents:
            digest = entry["sha256"] if has_sums(manifest) else ""
            chain = extend_chain(chain, entry["id"], entry["characters"], digest)
        if head.chain != chain:
            raise ValueError(
                f"{folder / shard_name(number)} was written by a process that was given different documents, or a "
                "different order, from those before it, or it is the shard of another corpus. Copy the whole corpus "
                f"again, or delete {folder} and encode again, with the same documents for every process."
            )
