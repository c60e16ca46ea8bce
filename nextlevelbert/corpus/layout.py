"""What lies in a corpus folder: the manifest, the shards, and the hash that runs through all documents.

Layout of a corpus folder::

    manifest.json             how it was made: encoder, weight hash, chunking, versions; and what it holds
    shard-00000.safetensors   vectors [n, D] float16 · spans [n, 2] int64 · document_offsets [d + 1] int64

A document lies whole in one shard. A file has its own name only when it is complete, so a run that was killed
goes on with the first shard that is missing and ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
from safetensors import SafetensorError, safe_open

from ..models.chunking import ChunkingRule

MANIFEST = "manifest.json"
FORMAT_VERSION = 2


class EncoderFacts(TypedDict):
    """The chunk encoder as a manifest describes it."""

    name: str
    fingerprint: str
    hidden_size: int
    pooling: str
    normalize: bool
    dtype: str


class ChunkingFacts(TypedDict):
    """A `ChunkingRule` as a manifest describes it."""

    mode: str
    chunk_size: int
    prefix_ids: list[int]
    suffix_ids: list[int]
    sentence_token_ids: dict[str, list[int]]


class Manifest(TypedDict):
    """The content of ``manifest.json``; the totals are there once the corpus is complete."""

    format_version: int
    package_version: str
    encoder: EncoderFacts
    chunking: ChunkingFacts
    vector_dtype: str
    characters_per_shard: int
    complete: bool
    shards: NotRequired[int]
    documents: NotRequired[int]
    chunks: NotRequired[int]
    tokens: NotRequired[int]


class DocumentEntry(TypedDict):
    """A document as its shard describes it."""

    id: str
    sha256: str
    characters: int
    tokens: int


@dataclass(frozen=True)
class ShardHead:
    """A shard without its vectors.

    Attributes:
        documents: its documents, in order.
        chain: the hash of all documents up to the end of the shard, see `extend_chain`.
        offsets: ``[d + 1]`` int64, first chunk of each document.
    """

    documents: list[DocumentEntry]
    chain: str
    offsets: np.ndarray

    @property
    def chunks(self) -> int:
        return int(self.offsets[-1])


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def chunking_facts(rule: ChunkingRule) -> ChunkingFacts:
    """A chunking rule as a manifest describes it."""
    return {
        "mode": rule.mode,
        "chunk_size": rule.chunk_size,
        "prefix_ids": list(rule.prefix_ids),
        "suffix_ids": list(rule.suffix_ids),
        "sentence_token_ids": rule.sentence_token_ids,
    }


def differing_fields(left: Mapping[str, object], right: Mapping[str, object], prefix: str = "") -> list[str]:
    """``name: left value, right value`` of every entry in which two nested dictionaries differ."""
    found = []
    for key in sorted(left.keys() | right.keys()):
        a, b = left.get(key), right.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differing_fields(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}: {a!r}, {b!r}")
    return found


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus folder.

    Raises:
        FileNotFoundError: if there is no manifest.
        ValueError: if it is damaged or of an unknown version of the format.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise FileNotFoundError(
            f"No encoded corpus at {folder}: {MANIFEST} is missing. Make one with encode_corpus, or with "
            "run_pretraining.py --train_file ... --corpus_dir."
        )
    try:
        manifest = json.loads(path.read_text())
        version, _ = manifest["format_version"], manifest["complete"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}). Delete the folder and encode again.") from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{folder} has format_version {version!r}; this version of the package reads {FORMAT_VERSION}."
        )
    return manifest


def manifest_bytes(manifest: Manifest) -> bytes:
    return (json.dumps(manifest, indent=1) + "\n").encode()


def read_shard_head(path: Path) -> ShardHead:
    """Everything in a shard but its vectors and spans.

    Raises:
        ValueError: if the file is not a whole shard.
    """
    try:
        with safe_open(path, framework="pt") as file:
            offsets = file.get_tensor("document_offsets").numpy()
            return ShardHead(**json.loads(file.metadata()["shard"]), offsets=offsets)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a whole shard of an encoded corpus ({error}). Delete it and encode again."
        ) from error


def extend_chain(chain: str, document_id: str, characters: int) -> str:
    """The hash of all documents so far, in order: processes that were given other documents get another hash."""
    return hashlib.sha256(f"{chain} {document_id!r} {characters}".encode()).hexdigest()[:32]


def check_chain(folder: Path, heads: Sequence[ShardHead]) -> None:
    """Refuses shards written by processes that did not read the same documents in the same order."""
    advice = f"Delete {folder} and encode again, with the same documents for every process."
    if (folder / shard_name(len(heads))).exists():
        raise ValueError(f"{folder / shard_name(len(heads))} is left over after the last of {len(heads)}. {advice}")
    chain = ""
    for number, head in enumerate(heads):
        for entry in head.documents:
            chain = extend_chain(chain, entry["id"], entry["characters"])
        if head.chain != chain:
            raise ValueError(
                f"{folder / shard_name(number)} was written by a process that was given different documents, or a "
                f"different order, from those before it. {advice}"
            )
