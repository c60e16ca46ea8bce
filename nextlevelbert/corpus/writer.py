"""Encodes documents into a corpus folder: as a stream, resumed where it was killed, on any number of processes.

Which documents make up a shard depends on their characters only, so every process knows the whole plan without
communication: process r of n writes the shards r, r + n, r + 2n, …
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from ..data.documents import Document
from ..models.chunking import ChunkingRule, Splitter
from ..models.encoder_loading import LoadedChunkEncoder
from ..models.vector_cache import CachedEncoder, VectorCache, opened
from .corpus import VectorCorpus
from .files import remove_leftovers, write_atomically
from .layout import (
    MANIFEST,
    Manifest,
    claim_folder,
    differing_fields,
    has_sums,
    manifest_bytes,
    mending,
    new_manifest,
    read_manifest,
    shard_name,
)
from .shard_files import check_chain, check_shards, shard_bytes
from .shards import ShardPlan, ShardTokenizer, TokenizedShard

logger = logging.getLogger(__name__)


def encode_corpus(
    documents: Iterable[Document],
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    characters_per_shard: int = 4_000_000,
    tokens_per_batch: int | None = None,
    num_workers: int | None = None,
    compile: bool = False,
    cache_dir: str | Path | VectorCache | None = None,
    progress: bool = True,
    splitter: Splitter | None = None,
) -> VectorCorpus:
    """Encodes documents into a corpus folder, or goes on where an earlier call was killed.

    Memory holds two shards, and two more for each worker. The micro-batches of a shard depend on its documents only.
    So a resumed run, or one on several processes (`write_shards`), writes the same bytes as an uninterrupted one: on
    the same kind of processor, and without cache, `compile` and int8, whose vectors differ in their last bits.

    Args:
        documents: read once, in order. A resumed run must give the same documents (ids and text hashes are compared).
        source: the encoder, from `load_chunk_encoder`.
        rule: how texts are cut.
        path: the folder to write. A finished corpus of the same documents is returned as it is.
        dtype: what the encoder computes in. float32 is the default because it is exact; bfloat16 is about
            twice as fast on processors that have it (MiniLM on novels: cosine to float32 at least 0.9999). An
            int8 encoder (`quantize_chunk_encoder`) keeps its own arithmetic.
        device: where the encoder runs.
        characters_per_shard: a shard is closed with the document that reaches this many characters (4
            million are some 4,000 chunks of 256 tokens). Also the most work that a kill can cost.
        tokens_per_batch: see `ChunkEncoder.encode`; resume with the same.
        num_workers: processes that tokenise ahead. By default none on a CPU, where tokenising takes a
            hundredth of the time, and up to eight for an accelerator, which would have to wait otherwise.
        compile: run the encoder through `torch.compile`: up to a minute to start, then some per cent
            faster on a CPU.
        cache_dir: a folder (or an open `VectorCache`) with vectors that need not be computed again.
        progress: show a bar.
        splitter: a function that finds the sentences instead of the rule, as in `DocumentEncodingModel.encode`. The
            manifest has its name. A resumed run cuts the first document of every shard again, to compare.

    Raises:
        TypeError, ValueError: for two documents of one id, no document at all, vectors that are not finite, a splitter
            that has no name or does not fit the rule or a text, or a folder that holds another corpus (the fields or
            the document that differ are named).
    """
    options = (dtype, device, characters_per_shard, tokens_per_batch, num_workers, compile, cache_dir, progress)
    return finish_corpus(path, write_shards(documents, source, rule, path, *options, splitter=splitter))


def repair_corpus(
    documents: Iterable[Document],
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    tokens_per_batch: int | None = None,
    num_workers: int | None = None,
    compile: bool = False,
    cache_dir: str | Path | VectorCache | None = None,
    progress: bool = True,
    splitter: Splitter | None = None,
) -> VectorCorpus:
    """Compares all shards of a corpus with their check sums, and encodes those again that are missing or damaged.

    They get the bytes that they had, under the conditions that `encode_corpus` names. Otherwise, their last bits may
    differ; the log then says so.

    Args:
        documents: the same as those of the corpus.
        path: the folder. The rest as in `encode_corpus`, as it was called for the corpus.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: for other documents, another encoder or another rule; or for a corpus without check sums (format
            version 2).
    """
    size = read_manifest(Path(path))["characters_per_shard"]
    options = (dtype, device, size, tokens_per_batch, num_workers, compile, cache_dir, progress)
    shards = write_shards(documents, source, rule, path, *options, repair=True, splitter=splitter)
    return finish_corpus(path, shards, repair=True)


def write_shards(
    documents: Iterable[Document],
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    characters_per_shard: int = 4_000_000,
    tokens_per_batch: int | None = None,
    num_workers: int | None = None,
    compile: bool = False,
    cache_dir: str | Path | VectorCache | None = None,
    progress: bool = True,
    process_index: int = 0,
    num_processes: int = 1,
    repair: bool = False,
    splitter: Splitter | None = None,
) -> int:
    """The share of one process in an `encode_corpus` on several; `finish_corpus` follows when all are done.

    Processes need the same documents and one folder that all of them see. They need not run at the same time.

    Args:
        process_index, num_processes: this process, from 0, and how many there are. The rest as in `encode_corpus`.
        repair: write shards again that are damaged, or missing from a finished corpus, as `repair_corpus` does.

    Returns:
        How many shards the whole corpus has, including those of the other processes.
    """
    if not 0 <= process_index < num_processes:
        raise ValueError(f"process_index must be from 0 to num_processes - 1 = {num_processes - 1}: {process_index}.")
    folder = Path(path)
    encoder = source.encoder.prepared(dtype, device, compile)
    manifest = claim_folder(folder, new_manifest(source, rule, characters_per_shard, encoder.precision, splitter))
    if repair and not has_sums(manifest):
        raise ValueError(f"{folder} has no check sums (format version 2) to repair it by. {mending(manifest)}")
    tokenizer = ShardTokenizer(source.tokenizer, rule, splitter)
    plan = ShardPlan(documents, folder, characters_per_shard, process_index, num_processes, repair, tokenizer)
    if num_workers is None:
        num_workers = 0 if encoder.device.type == "cpu" else min(8, max(1, (os.cpu_count() or 1) - 1))
    # A generator of its own: a DataLoader draws a seed, and encoding must not change the caller's random state.
    loader = DataLoader(
        tokenizer,
        batch_size=None,
        sampler=plan,
        num_workers=num_workers,
        generator=torch.Generator(),
    )
    shards = iter(loader)  # workers start here, before the cache is open: a database must not cross a fork
    waiting: Future[None] | None = None
    # A shard is written while the next one is encoded, so that an accelerator does not wait for the disk.
    with (
        tqdm(desc=f"encoding {folder.name}", unit="chunk", total=0, disable=not progress) as bar,
        ThreadPoolExecutor(max_workers=1) as writer,
        opened(cache_dir) as cache,
    ):
        encode = encoder.encode if cache is None else CachedEncoder(encoder, cache).encode
        for shard in shards:
            bar.total = bar.n + len(shard.boundaries) - 1
            bar.refresh()
            vectors = encode(shard.input_ids.numpy(), shard.boundaries.numpy(), rule, tokens_per_batch, bar)
            if waiting:
                waiting.result()
            waiting = writer.submit(_write_shard, folder / shard_name(shard.number), shard, vectors.half())
        if waiting:
            waiting.result()
    if plan.documents == 0:
        raise ValueError("No document was given; a corpus needs at least one.")
    if manifest["complete"] and manifest["documents"] != plan.documents:
        raise ValueError(
            f"{folder} holds {manifest['documents']} documents, but {plan.documents} are given. "
            "Encode into another folder, or delete this one."
        )
    return plan.shards


def finish_corpus(path: str | Path, shards: int, repair: bool = False) -> VectorCorpus:
    """Marks a corpus as complete, once every process has written its shards, and opens it.

    Args:
        path: the folder.
        shards: how many there must be: what `write_shards` returned.
        repair: whether it was told to repair the corpus; the corpus may be complete then.

    Raises:
        ValueError: if there are too few shards or too many, or processes were given different documents.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if manifest["complete"] and not repair:
        return VectorCorpus(folder)
    missing = [number for number in range(shards) if not (folder / shard_name(number)).exists()]
    if missing:
        raise ValueError(
            f"{folder} lacks {len(missing)} of {shards} shards, the first {shard_name(missing[0])}: the process that "
            "should have written it did not, or does not share the folder. Run the same encoding again to resume."
        )
    unfinished = manifest.copy()
    unfinished.pop("shard_sums", None)  # those of repaired shards may be others
    heads = check_shards(folder, unfinished, range(shards))
    if (folder / shard_name(shards)).exists():
        raise ValueError(
            f"{folder / shard_name(shards)} is left over after the last of {shards}. Delete {folder} and encode "
            "again, with the same documents for every process."
        )
    check_chain(folder, manifest, heads)
    entries = [entry for head in heads for entry in head.documents]
    finished: Manifest = {
        **unfinished,
        "complete": True,
        "shards": shards,
        "documents": len(entries),
        "chunks": sum(head.chunks for head in heads),
        "tokens": sum(entry["tokens"] for entry in entries),
        "shard_chains": [head.chain for head in heads],
        "shard_sums": [str(head.sum) for head in heads],
    }
    if manifest["complete"]:
        _report_repair(folder, manifest, finished)
    write_atomically(folder / MANIFEST, manifest_bytes(finished))
    remove_leftovers(folder)
    return VectorCorpus(folder)


def _report_repair(folder: Path, before: Manifest, after: Manifest) -> None:
    """Refuses shards that were cut otherwise than before, and says which hold other bits."""
    totals = ("documents", "chunks", "tokens", "shard_chains")
    there, here = ({key: side.get(key) for key in totals} for side in (before, after))
    if there != here:
        raise ValueError(
            f"{folder} cannot be repaired: the shards that were encoded again do not fit the others (before, after): "
            f"{'; '.join(differing_fields(there, here))}. Is the tokenizer another one?"
        )
    sums = enumerate(zip(before["shard_sums"], after["shard_sums"], strict=True))
    if changed := [shard_name(number) for number, (old, new) in sums if old != new]:
        reasons = "another kind of processor, or with a cache, compile or int8"
        logger.warning(
            "%s is repaired. The last bits of %s are new: it ran on %s.", folder, ", ".join(changed), reasons
        )


def _write_shard(path: Path, shard: TokenizedShard, vectors: torch.Tensor) -> None:
    """Checks the vectors ``[N, D]`` of a shard and writes it."""
    vectors = vectors.cpu()
    bad = torch.nonzero(~torch.isfinite(vectors).all(dim=1)).flatten()
    if len(bad):
        document = int(np.searchsorted(shard.document_offsets.numpy(), int(bad[0]), side="right")) - 1
        raise ValueError(
            f"The encoder gave {len(bad)} vectors that are not finite, the first in document "
            f"{shard.documents[document]['id']!r}."
        )
    tensors = {"vectors": vectors.contiguous(), "spans": shard.spans, "document_offsets": shard.document_offsets}
    write_atomically(path, shard_bytes(shard.chain, shard.documents, tensors))
