"""What lies in a corpus folder: the manifest, the shards, and the hash that runs through all documents.

Layout of a corpus folder::

    manifest.json             how it was made: encoder, weight hash, chunking, versions; and what it holds
    shard-00000.safetensors   vectors [n, D] float16 · spans [n, 2] int64 · document_offsets [d + 1] int64

A document lies whole in one shard. A file has its own name only when it is complete, so a run that was killed
goes on with the first shard that is missing and ends with the same bytes.

Every bit is under a check sum: the head of a shard holds those of its tensors and its own, the manifest those of the
heads and its own. So nobody has to read a shard again to finish a corpus that other processes wrote. Version 2 of the
format had no check sums, and its chain did not cover the text.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ..models.chunk_encoder import same_fingerprint
from ..models.chunking import ChunkingRule, Splitter
from ..models.encoder_loading import LoadedChunkEncoder
from .files import write_atomically

MANIFEST = "manifest.json"
FORMAT_VERSION = 3
_WITHOUT_SUMS = 2  # is still read


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
    sentence_rule: NotRequired[int]
    splitter: NotRequired[str]


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
    shard_chains: NotRequired[list[str]]
    shard_sums: NotRequired[list[str]]
    sum: NotRequired[str]


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def splitter_name(splitter: Splitter | str) -> str:
    """Module and name of a function that finds sentences, of its class for an object; a name stays as it is.

    Raises:
        ValueError: for a lambda or a partial function, which nothing tells from others.
    """
    if isinstance(splitter, str):
        return splitter
    named = splitter if hasattr(splitter, "__qualname__") else type(splitter)
    if isinstance(splitter, partial) or named.__qualname__.endswith("<lambda>"):
        raise ValueError(
            f"splitter is {'a partial function' if isinstance(splitter, partial) else 'a lambda'}. A corpus notes its "
            "splitter's name; put it into a function: def sentences(text): return ..."
        )
    return f"{named.__module__}.{named.__qualname__}"


def chunking_facts(rule: ChunkingRule, splitter: Splitter | str | None = None) -> ChunkingFacts:
    """A chunking rule as a manifest describes it; sentence rule 1 is not named, as in manifests that know no other.

    Args:
        rule: how texts are cut.
        splitter: what finds their sentences instead, or its name.

    Raises:
        ValueError: for a splitter that has no name, or where chunks are not made of sentences.
    """
    facts: ChunkingFacts = {
        "mode": rule.mode,
        "chunk_size": rule.chunk_size,
        "prefix_ids": list(rule.prefix_ids),
        "suffix_ids": list(rule.suffix_ids),
        "sentence_token_ids": rule.sentence_token_ids,
    }
    if rule.sentence_rule != 1:
        facts["sentence_rule"] = rule.sentence_rule
    if splitter is not None:
        if rule.mode == "fixed":
            raise ValueError(
                "splitter needs a rule with mode='sentences' or 'packed_sentences'; this one has 'fixed'."
            )
        facts["splitter"] = splitter_name(splitter)
    return facts


def differing_fields(left: Mapping[str, object], right: Mapping[str, object], prefix: str = "") -> list[str]:
    """``name: left value, right value`` of every entry in which two nested dictionaries differ."""
    found = []
    for key in sorted(left.keys() | right.keys()):
        a, b = left.get(key), right.get(key)
        if key == "fingerprint" and same_fingerprint(str(a), str(b), str(left["pooling"]), bool(left["normalize"])):
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            found += differing_fields(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}: {a!r}, {b!r}")
    return found


def new_manifest(
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    characters_per_shard: int,
    precision: str,
    splitter: Splitter | None = None,
) -> Manifest:
    """The manifest of a new corpus: all that determines it, except for the order of sums in a micro-batch."""
    from .. import __version__

    return {
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "encoder": {
            "name": source.name,
            "fingerprint": source.fingerprint,
            "hidden_size": source.encoder.hidden_size,
            "pooling": source.encoder.pooling,
            "normalize": source.encoder.normalize,
            "dtype": precision,
        },
        "chunking": chunking_facts(rule, splitter),
        "vector_dtype": "float16",
        "characters_per_shard": characters_per_shard,
        "complete": False,
    }


def recipe(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What determines the vectors of given documents, and how they are divided.

    Not the encoder's name: the same weights may lie in another folder. Their hash decides.
    """
    encoder = {key: value for key, value in manifest["encoder"].items() if key != "name"}
    others = {key: manifest[key] for key in ("chunking", "vector_dtype", "characters_per_shard")}
    return {"encoder": encoder, **others}


def has_sums(manifest: Manifest) -> bool:
    """Whether the corpus has check sums."""
    return manifest["format_version"] > _WITHOUT_SUMS


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
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if (version := manifest["format_version"]) in (_WITHOUT_SUMS, FORMAT_VERSION):
            # One changed bit turns version 3 into 2, which had no sum of its own.
            if has_sums(manifest) or "sum" in manifest:
                check_seal(manifest)
            needed = {"encoder": dict, "chunking": dict, "characters_per_shard": int, "complete": bool}
            if manifest["complete"]:
                needed |= {"shards": int, "documents": int, "chunks": int}
            if wrong := [key for key, kind in needed.items() if not isinstance(manifest[key], kind)]:
                raise ValueError(f"{wrong[0]}: {manifest[wrong[0]]!r}")
            if missing := EncoderFacts.__annotations__.keys() - manifest["encoder"].keys():
                raise KeyError(f"encoder.{min(missing)}")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged ({error!r}). Copy it again, or delete it and run the same encoding again: shards that "
            "are whole are kept."
        ) from error
    if version not in (_WITHOUT_SUMS, FORMAT_VERSION):
        raise ValueError(
            f"{folder} has format_version {version!r}; this version of the package reads {_WITHOUT_SUMS} and "
            f"{FORMAT_VERSION}."
        )
    return manifest


def claim_folder(folder: Path, new: Manifest) -> Manifest:
    """The manifest in the folder, a new one if there is none; a ValueError if it is that of another corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    if not path.exists():
        write_atomically(path, manifest_bytes(new), only_if_missing=True)
    manifest = read_manifest(folder)
    if not manifest["complete"] and manifest["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"{folder} was begun by an earlier version of this package (format_version {manifest['format_version']}, "
            "without check sums), and this one cannot go on with it. Encode into another folder, or delete this one."
        )
    differences = differing_fields(recipe(manifest), recipe(new))
    if differences:
        raise ValueError(
            f"{folder} contains a corpus that was made differently (there, here): {'; '.join(differences)}. Write to "
            "another folder, or delete this one."
        )
    return manifest


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The content of ``manifest.json``, with the check sum of its own."""
    return (json.dumps(sealed(manifest), indent=1) + "\n").encode()


def check_sum(content: bytes | memoryview) -> str:
    """CRC-32: finds every change of up to 32 bits in a row, and others but for one in four billion."""
    return f"{zlib.crc32(content):08x}"


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with its check sum under ``"sum"``."""
    bare = {key: value for key, value in content.items() if key != "sum"}
    return {**bare, "sum": check_sum(json.dumps(bare, sort_keys=True).encode())}


def check_seal(content: Mapping[str, Any]) -> str:
    """The check sum of what `sealed` made.

    Raises:
        ValueError: if it does not fit the content, or is not there.
    """
    given, found = content.get("sum"), sealed(content)["sum"]
    if given != found:
        raise ValueError(f"its check sum is {given!r}, but should be {found!r}")
    return found


def mending(manifest: Manifest) -> str:
    """What to do about shards that are missing or damaged."""
    if not has_sums(manifest):
        return "Copy the whole corpus again, or encode the documents again into another folder."
    return (
        "Copy them again, or give the same documents to repair_corpus (or run_pretraining.py --repair_corpus), which "
        "encodes only these shards."
    )


def first_link(manifest: Manifest) -> str:
    """What the chain starts with: a hash of the recipe, so that shards of another one do not fit."""
    if not has_sums(manifest):
        return ""
    return hashlib.sha256(json.dumps(recipe(manifest), sort_keys=True).encode()).hexdigest()[:32]


def extend_chain(chain: str, document_id: str, characters: int, digest: str) -> str:
    """The hash of all documents so far, in order: processes that were given other documents get another hash.

    Args:
        chain: the hash until now.
        document_id, characters, digest: of the next document; no digest of its text in format version 2.
    """
    link = f"{chain} {document_id!r} {characters}" + (f" {digest}" if digest else "")
    return hashlib.sha256(link.encode()).hexdigest()[:32]
