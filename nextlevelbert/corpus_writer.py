"""Encodes documents into a corpus folder: streaming, atomic a shard, and resumed where it was killed."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tqdm.auto import tqdm

from .chunk_encoder import ChunkEncoder, LoadedChunkEncoder
from .chunking import ChunkingRule, check_texts, chunk_spans, flatten_chunks, tokenize_document
from .documents import Document
from .vector_corpus import (
    FORMAT_VERSION,
    MANIFEST,
    VectorCorpus,
    chunking_facts,
    differing_fields,
    read_finished_shards,
    read_manifest,
    shard_name,
)

# What a manifest will say of a document, its token ids, its chunk boundaries, and the characters of its chunks.
_TokenizedEntry = tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray]


def _write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls `write(temporary_path)` and renames: a file under its own name is always whole, even after a power cut."""
    temporary = path.with_name(path.name + ".tmp")
    write(temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def describe(
    source: LoadedChunkEncoder, rule: ChunkingRule, chunks_per_shard: int, dtype: torch.dtype
) -> dict[str, Any]:
    """The part of a manifest that fixes every byte of a corpus, given its documents."""
    from . import __version__

    return {
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "encoder": {
            "name": source.name,
            "fingerprint": source.fingerprint,
            "hidden_size": source.encoder.hidden_size,
            "pooling": source.encoder.pooling,
            "normalize": source.encoder.normalize,
            "dtype": str(dtype).removeprefix("torch."),
        },
        "chunking": chunking_facts(rule),
        "vector_dtype": "float16",
        "chunks_per_shard": chunks_per_shard,
    }


def encode_corpus(
    documents: Iterable[Document],
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    chunks_per_shard: int = 4_096,
    tokens_per_batch: int | None = None,
    progress: bool = True,
) -> VectorCorpus:
    """Encodes documents into a corpus folder, or goes on where an earlier call was killed.

    Memory holds one shard at a time. The micro-batches of a shard depend on its documents only, so a
    resumed run writes the bytes of a straight one (on the same processor and thread count).

    Args:
        documents: read once, in order; a resumed run must give the same ones (checked by id and text hash).
        source: the encoder, from `load_chunk_encoder`.
        rule: how texts are cut.
        path: the folder to write; a finished corpus of the same documents is checked and returned as it is.
        dtype: what the encoder computes in. float32 is the default because it is exact; bfloat16 is about
            twice as fast on processors that have it (MiniLM on novels: cosine to float32 at least 0.9999).
        device: where the encoder runs.
        chunks_per_shard: a shard is closed with the document that reaches this many chunks. Also the
            most work a kill can cost.
        tokens_per_batch: see `ChunkEncoder.encode`; resume with the same.
        progress: show a bar.

    Raises:
        ValueError: for two documents of one id, no document at all, vectors that are not finite, or a
            folder that holds a corpus made otherwise (the differing fields or document are named).
    """
    folder = Path(path)
    manifest = _claim_folder(folder, describe(source, rule, chunks_per_shard, dtype))
    encoder = copy.deepcopy(source.encoder).to(device=device, dtype=dtype)
    done = read_finished_shards(folder)
    written = [entry for head in done for entry in head["documents"]]
    number, waiting, index = len(done), 0, -1
    shard: list[_TokenizedEntry] = []
    seen: set[str] = set()
    with tqdm(desc=f"encoding {folder.name}", unit="chunk", total=0, disable=not progress) as bar:
        for index, document in enumerate(documents):
            [text] = check_texts([document.text], [document.id])
            digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]
            if document.id in seen:
                raise ValueError(f"Two documents have the id {document.id!r}; ids must be unique in a corpus.")
            seen.add(document.id)
            if index < len(written):
                _check_same_document(folder, index, written[index], document.id, digest)
                continue
            if manifest["complete"]:
                raise ValueError(
                    f"{folder} holds a finished corpus of {len(written)} documents, but more are given, the first "
                    f"{document.id!r}. Encode into another folder, or delete this one."
                )
            tokens = tokenize_document(source.tokenizer, text)
            boundaries = rule.boundaries(tokens.input_ids)
            if len(tokens) == 0:
                warnings.warn(f"Document {document.id!r} ({index}) contains no token: it has no vector.", stacklevel=2)
            entry = {"id": document.id, "sha256": digest, "tokens": len(tokens)}
            shard.append((entry, tokens.input_ids, boundaries, chunk_spans(tokens, boundaries)))
            waiting += len(boundaries) - 1
            if waiting >= chunks_per_shard:
                _encode_shard(folder / shard_name(number), shard, encoder, rule, tokens_per_batch, bar)
                shard, waiting, number = [], 0, number + 1
        if index + 1 < max(len(written), 1):
            raise ValueError(f"{folder} holds {len(written)} documents, but {index + 1} are given.")
        if shard:
            _encode_shard(folder / shard_name(number), shard, encoder, rule, tokens_per_batch, bar)
    if not manifest["complete"]:
        _finish_manifest(folder, manifest)
    return VectorCorpus(folder)


def _claim_folder(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The manifest to work under: a new one, or the one that is there if it says the same."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.tmp"):
        leftover.unlink()
    path = folder / MANIFEST
    if not path.exists():
        _write_manifest(path, {**facts, "complete": False})
    manifest = read_manifest(folder)
    compared = ("format_version", "encoder", "chunking", "vector_dtype", "chunks_per_shard")
    there, here = ({key: side.get(key) for key in compared} for side in (manifest, facts))
    # Not the encoder's name: the same weights may lie in another folder. The hash decides.
    differences = [field for field in differing_fields(there, here) if not field.startswith("encoder.name:")]
    if differences:
        raise ValueError(
            f"{folder} holds a corpus that was made otherwise (there, here): {'; '.join(differences)}. "
            "Write to another folder, or delete this one."
        )
    return manifest


def _check_same_document(folder: Path, index: int, written: dict[str, Any], name: str, digest: str) -> None:
    if written["id"] != name:
        raise ValueError(
            f"Cannot go on with {folder}: document {index} is {name!r}, but the corpus has {written['id']!r} there. "
            "Encode into another folder."
        )
    if written["sha256"] != digest:
        raise ValueError(
            f"Cannot go on with {folder}: the text of document {name!r} has changed. Encode into another folder."
        )


def _finish_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Marks a corpus as complete and writes what is in it."""
    heads = read_finished_shards(folder)
    entries = [entry for head in heads for entry in head["documents"]]
    totals = {
        "complete": True,
        "shards": len(heads),
        "documents": len(entries),
        "chunks": sum(head["chunks"] for head in heads),
        "tokens": sum(entry["tokens"] for entry in entries),
    }
    _write_manifest(folder / MANIFEST, {**manifest, **totals})


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    _write_atomically(path, lambda file: file.write_text(json.dumps(manifest, indent=1) + "\n"))


def _encode_shard(
    path: Path,
    shard: list[_TokenizedEntry],
    encoder: ChunkEncoder,
    rule: ChunkingRule,
    tokens_per_batch: int | None,
    bar: tqdm,
) -> None:
    """Encodes the documents of one shard together and writes it."""
    entries, ids, boundaries, spans = zip(*shard, strict=True)
    flat_ids, flat_boundaries, offsets = flatten_chunks(ids, boundaries)
    bar.total = bar.n + int(offsets[-1])
    bar.refresh()
    vectors = encoder.encode(flat_ids, flat_boundaries, rule, tokens_per_batch, bar).half().cpu()
    bad = torch.nonzero(~torch.isfinite(vectors).all(dim=1)).flatten()
    if len(bad):
        document = entries[int(np.searchsorted(offsets, int(bad[0]), side="right")) - 1]["id"]
        raise ValueError(
            f"The encoder gave {len(bad)} vectors that are not finite, the first in document {document!r}."
        )
    tensors = {
        "vectors": vectors.contiguous(),
        "spans": torch.from_numpy(np.concatenate(spans)),
        "document_offsets": torch.from_numpy(offsets.astype(np.int64)),
    }
    # One key only: safetensors writes several in no fixed order, and a corpus must be the same byte for byte.
    metadata = {"documents": json.dumps(entries)}
    _write_atomically(path, lambda file: save_file(tensors, file, metadata))
