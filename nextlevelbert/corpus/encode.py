"""Makes the rows of a corpus from documents, in this process or in the processes of any engine.

Shapes: N chunks of all documents, n of one, D values.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ..data.documents import FileDocuments
from ..models.chunk_encoder import LoadedChunkEncoder, chunk_bar, encode_documents
from ..models.chunking import ChunkingRule, chunk_spans
from ..models.from_encoder import load_chunk_encoder
from ..models.identity import tokenizer_fingerprint
from ..models.prompts import tokenize_documents
from ..models.sentences import Splitter
from ..models.tokenizing import TokenizedDocument, default_threads, prepare_ahead
from .folder import CorpusFolder
from .parts import DONE, chunk_table, corpus_schema, numbered_parts, part_content, read_part
from .recipe import chunking_recipe, recipe_facts
from .sharing import Group, SharedWork, document_groups, file_groups
from .store import VectorCorpus

logger = logging.getLogger(__name__)
_IMPORTED_BY = os.getpid()  # differs from the current process in one that was forked
_THREADS = 2  # at most, that tokenise parts; each of them has a part in memory
Batch = Mapping[str, Any]  # the same from any engine, such as an Arrow table
Part = tuple[str, Group]  # the name of a part of a corpus, and its documents


class SplitBatch(NamedTuple):
    """A batch of documents, with the tokens and the boundaries of the chunks of each."""

    ids: list[object]
    documents: list[TokenizedDocument]
    boundaries: list[np.ndarray]


@dataclass
class ChunkVectors:
    """Makes the rows of a batch of documents, and can be pickled.

    Use an object with `datasets.Dataset.map(batched=True)`, with Ray Data's `map_batches`, with
    Spark's `mapInArrow`, or in `encode_corpus`. It takes a batch with the columns ``id`` and
    ``text``, and returns the columns ``document``, ``chunk``, ``start``, ``end`` and ``vector``.

    In a process that was forked, as by `datasets` with ``num_proc``, torch computes in one thread,
    because it would wait for ever for OpenMP's threads, which a fork does not copy.

    Args:
        encoder: encoder from `load_chunk_encoder`, which is pickled with the function; or the name
            or path of one, which each process loads.
        rule: chunking rule that splits the texts.
        splitter: function that finds sentences, see the model's ``encode``; a corpus stores the
            name of the function.
        tokens_per_batch: most tokens in a batch of chunks, see ``ChunkEncoder.encode``.
        device: device of the encoder (default: the one that the encoder is on).
        bar: progress bar that counts chunks.
        prompt_name: name of a prompt of the encoder, which is put before every chunk (default:
            ``"document"``, ``"passage"`` or ``"corpus"`` if the encoder has one of them, or else
            its default prompt).
        prompt: text of a prompt, in place of `prompt_name`.
    """

    encoder: LoadedChunkEncoder | str
    rule: ChunkingRule
    splitter: Splitter | None = None
    tokens_per_batch: int | None = None
    device: str | None = None
    bar: Any = None
    prompt_name: str | None = None
    prompt: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(replace(self))  # without what this process has loaded

    @cached_property
    def prompted_rule(self) -> ChunkingRule:
        """Returns the rule with the prompt that every chunk begins with."""
        if self.rule.prompt:
            return self.rule
        prompt = self.loaded.prompts.text(self.prompt_name, self.prompt)
        if self.prompt is None and self.prompt_name is None:
            prompt = self.loaded.prompts.passage
        return self.loaded.with_prompt(self.rule, prompt)

    @cached_property
    def loaded(self) -> LoadedChunkEncoder:
        """Returns the encoder, loaded and on its device."""
        loaded = self.encoder
        if isinstance(loaded, str):
            loaded = load_chunk_encoder(loaded)
        if self.device is not None:
            loaded.encoder.to(self.device)
        return loaded

    @property
    def recipe(self) -> dict[str, Any]:
        """Returns what determines the vectors of a text: encoder and chunking."""
        encoder = self.loaded.encoder
        return {
            "encoder": {
                "hidden_size": encoder.hidden_size,
                "pooling": encoder.pooling,
                "normalize": encoder.normalize,
                "name": self.loaded.name,
                "fingerprint": self.loaded.fingerprint,
                "dtype": encoder.precision,
                "tokenizer": tokenizer_fingerprint(self.loaded.tokenizer),
            },
            "chunking": chunking_recipe(self.prompted_rule, self.splitter),
        }

    @property
    def schema(self) -> pa.Schema:
        """Returns the columns of the rows, with the recipe as metadata."""
        return corpus_schema(self.recipe)

    def __call__(self, batch: Batch) -> pa.Table:
        """Makes the rows of a batch of documents.

        A warning names a document without a token, which has no row.

        Args:
            batch: documents ``{"id": […], "text": […]}``, as lists, arrays or an Arrow table.

        Raises:
            ValueError: vectors of a document are not finite.
        """
        if os.getpid() != _IMPORTED_BY:
            torch.set_num_threads(1)
        tokenized = self.tokenize(batch)
        return self.table(tokenized, self.encode(tokenized))

    def tokenize(self, batch: Batch) -> SplitBatch:
        """Tokenises a batch of documents, and splits them into chunks."""
        ids = np.asarray(batch["id"], object).tolist()
        texts = np.asarray(batch["text"], object).tolist()
        rule = self.prompted_rule
        documents = tokenize_documents(self.loaded.tokenizer, texts, rule)
        boundaries = []
        for name, text, document in zip(ids, texts, documents, strict=True):
            if len(document) == 0:
                logger.warning("Document %r holds no token, so it has no vectors.", name)
            try:
                boundaries.append(rule.text_boundaries(text, document, self.splitter))
            except (TypeError, ValueError) as error:
                raise type(error)(f"Document {name!r}: {error}") from error
        return SplitBatch(ids, documents=documents, boundaries=boundaries)

    def encode(self, batch: SplitBatch) -> Tensor:
        """Encodes the chunks of a batch into ``[N, D]``, which stays on the encoder's device."""
        vectors = encode_documents(
            self.loaded.encoder,
            [document.input_ids for document in batch.documents],
            batch.boundaries,
            rule=self.prompted_rule,
            tokens_per_batch=self.tokens_per_batch,
            bar=self.bar,
        )
        return torch.cat(vectors)

    def table(self, batch: SplitBatch, vectors: Tensor) -> pa.Table:
        """Makes the rows of a batch, for which it waits for the encoder's device.

        Raises:
            ValueError: vectors of a document are not finite.
        """
        spans = list(map(chunk_spans, batch.documents, batch.boundaries))
        vectors = vectors.half().cpu()
        table = chunk_table(self.schema, batch.ids, spans=spans, vectors=vectors.numpy())
        rows = torch.nonzero(~vectors.isfinite().all(dim=1))
        if len(rows) > 0:
            name = table["document"][int(rows[0])].as_py()
            raise ValueError(
                f"Vectors of the encoder are not finite, first in document {name!r}. Compute"
                " in float32, or leave this document out."
            )
        return table


def encode_corpus(  # noqa: PLR0913  # options of a public call, by name
    documents: Iterable[Any],
    encoder: LoadedChunkEncoder | str,
    rule: ChunkingRule,
    folder: str | Path,
    *,
    tokens_per_batch: int | None = None,
    splitter: Splitter | None = None,
    characters_per_part: int = 4_000_000,
    append: bool = False,
    progress: bool = True,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> VectorCorpus:
    """Encodes documents into a corpus folder, or resumes an earlier call that was interrupted.

    Micro-batches never cross a part. A resumed run, or several processes (process ``RANK`` of
    ``WORLD_SIZE``, two variables of the environment), therefore produce the same bytes as one
    uninterrupted run on the same processor. If `read_documents` has found enough files, each
    process reads its share of them; otherwise it reads all documents, and writes every n-th part.

    Args:
        documents: texts, ``(id, text)`` pairs, dicts with ``id`` and ``text``, `Document` objects,
            or a `datasets.Dataset`. For files, pass `read_documents`.
        encoder: chunk encoder, see `ChunkVectors`.
        rule: chunking rule that splits the texts.
        folder: folder of the parts, or its address, such as ``s3://bucket/corpus`` (see
            `VectorCorpus`). If it holds a finished corpus of the same documents, that corpus is
            returned unchanged.
        tokens_per_batch: most tokens in a batch of chunks, see `ChunkVectors`.
        splitter: function that finds sentences, see `ChunkVectors`.
        characters_per_part: number of characters after which a part ends, with the document that
            reaches it. An interruption costs one part at most.
        append: if true, adds the documents to those in the folder, as further parts.
        progress: if true, shows a progress bar, if stderr is a terminal.
        prompt_name: name of a prompt of the encoder, see `ChunkVectors`.
        prompt: text of a prompt, see `ChunkVectors`.

    Raises:
        ValueError: for documents or vectors that cannot be stored, a folder of other documents or
            another recipe, and a folder that another run writes into.
        OSError: for an address that cannot be reached, and if another process has ended before it
            had written its parts.
    """
    target = CorpusFolder(folder)
    with (
        SharedWork(target) as work,
        chunk_bar(os.path.basename(str(target)), is_shown=progress) as bar,
        ThreadPoolExecutor(1) as disk,
    ):
        make_rows = ChunkVectors(
            encoder,
            rule=rule,
            splitter=splitter,
            tokens_per_batch=tokens_per_batch,
            bar=bar,
            prompt_name=prompt_name,
            prompt=prompt,
        )

        def prepare(part: Part) -> tuple[str, SplitBatch]:
            name, group = part
            return name, make_rows.tokenize(group)

        def write(name: str, batch: SplitBatch, vectors: Tensor) -> None:
            target.write(name, _part_content(batch, make_rows.table(batch, vectors)))

        if isinstance(documents, FileDocuments) and documents.files and not append:
            groups = file_groups(documents, characters_per_part, work)
        else:
            groups = work.divided(document_groups(documents, characters_per_part))
        missing = _missing_parts(groups, work, recipe=make_rows.recipe, append=append)
        threads = min(_THREADS, default_threads())
        if splitter is not None:
            threads = 1  # the function may not be made for several
        pending = None  # a part is written while the next one is encoded
        for name, batch in prepare_ahead(prepare, missing, threads=threads):
            vectors = make_rows.encode(batch)
            if pending is None:
                work.hold()
                target.remove(DONE)
            else:
                pending.result()
            pending = disk.submit(write, name, batch, vectors)
        if pending is not None:
            pending.result()
        _finish(work)

    return VectorCorpus(folder)


def _part_content(batch: SplitBatch, table: pa.Table) -> bytes:
    """Returns the file of a part, with the ids of documents without tokens in its metadata."""
    if len(table) == 0:
        raise ValueError(
            f"No document from {batch.ids[0]!r} to {batch.ids[-1]!r} has a token. Leave these"
            " documents out."
        )
    empty = set(batch.ids) - set(table["document"].unique().to_pylist())
    metadata = {**table.schema.metadata, "empty": json.dumps(sorted(empty))}
    return part_content(table.replace_schema_metadata(metadata))


def _finish(work: SharedWork) -> None:
    """Waits for the parts of other processes, and marks the corpus as complete."""
    if not work.writers:
        raise ValueError("No documents were given. A corpus needs at least one document.")
    folder = work.folder
    last = max(work.writers)
    for number, name in numbered_parts(folder.stamps()).items():
        if number > last:
            raise ValueError(
                f"{folder} holds more documents than were given ({name}). Encode into another"
                " folder."
            )

    work.wait_for({f"part-{number:06d}": rank for number, rank in work.writers.items()})
    if work.rank == 0 and DONE not in folder.stamps():
        work.hold()
        for leftover in Path(folder.path).glob(".tmp*"):  # of processes that were killed
            shutil.rmtree(leftover)
        folder.write(DONE, str(last + 1).encode())
    work.wait_for({DONE: 0})


def _missing_parts(
    groups: Iterable[tuple[int, Group | None]],
    work: SharedWork,
    recipe: Mapping[str, Any],
    append: bool,
) -> Iterator[Part]:
    """Yields the parts that this process has to write, and notes the process of each part.

    A ValueError says that the folder holds another part of that number, or that ids are not unique.
    """
    folder = work.folder
    present = numbered_parts(folder.stamps())
    for name in present.values():
        read_part(folder, name, recipe=recipe)

    ids = set()
    first = 0
    for offset, (rank, group) in enumerate(groups):
        content = json.dumps([recipe_facts(recipe), group])
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        if append and offset == 0:
            # After all others, unless an earlier call has appended these documents.
            earlier_call = [number for number, name in present.items() if digest in name]
            first = min(earlier_call, default=len(present))
            for earlier in range(first):
                table = read_part(folder, present[earlier], "document")
                ids.update(table["document"].to_pylist())

        number = first + offset
        work.writers[number] = rank
        if group is None:  # another process has read these documents
            continue

        for name in group["id"]:
            if name in ids:
                raise ValueError(
                    f"Two documents have the id {name!r}; ids must be unique in {folder}."
                )
            ids.add(name)

        name = f"part-{number:06d}-{digest}.parquet"
        if present.get(number, name) != name:
            raise ValueError(
                f"{folder}/{present[number]} holds other documents than were given (from"
                f" {group['id'][0]!r} on), or was written with another characters_per_part. Encode"
                " into another folder, or delete this one."
            )
        if rank == work.rank and number not in present:
            yield name, group
