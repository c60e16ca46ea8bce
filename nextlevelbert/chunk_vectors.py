"""Documents to rows of a corpus, in this process or in those of any engine, and to padded batches.

Shapes: B documents, N chunks of all of them, n of one, L of the longest, D values.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from . import corpus
from .corpus import VectorCorpus, read_columns
from .data.documents import as_documents
from .models.chunk_encoder import LoadedChunkEncoder
from .models.chunking import ChunkingRule, Splitter, chunk_spans, flatten_chunks, tokenize_document
from .models.from_encoder import load_chunk_encoder

logger = logging.getLogger(__name__)
Group = dict[str, list[str]]  # ids and texts of some documents


def chunk_table(
    schema: pa.Schema, ids: Sequence[Any], spans: Sequence[np.ndarray], vectors: torch.Tensor
) -> pa.Table:
    """Rows of documents: their ids, the character spans ``[n, 2]`` of each, and the vectors ``[N,
    D]`` of all.
    """
    counts = [len(span) for span in spans]
    chunks = np.concatenate(
        [np.zeros(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)]
    )
    starts, ends = np.concatenate([np.zeros((0, 2), np.int64), *spans]).T
    names = pa.array([str(name) for name in ids], pa.string()).take(
        pa.array(np.repeat(np.arange(len(ids)), counts))
    )
    rows = pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.cpu().half().numpy().reshape(-1)), vectors.shape[1]
    )
    return pa.Table.from_arrays(
        [names, *map(pa.array, (chunks, starts, ends)), rows], schema=schema
    )


@dataclass
class ChunkVectors:
    """A function from a batch of documents to their rows, which travels to other processes.

    For `datasets.Dataset.map(batched=True)`, Ray Data's `map_batches`, Spark's `mapInArrow`, and
    `encode_corpus`.

    Args:
        encoder: from `load_chunk_encoder`, and travels along; or its name or path, and each process
            loads it.
        rule, splitter: how texts are cut, as in ``encode``; a corpus notes the splitter's name.
        tokens_per_batch: as in ``ChunkEncoder.encode``.
        device: where the encoder runs; by default where it is.
        bar: a progress bar in chunks.
    """

    encoder: LoadedChunkEncoder | str
    rule: ChunkingRule
    splitter: Splitter | None = None
    tokens_per_batch: int | None = None
    device: str | None = None
    bar: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "source"}

    @cached_property
    def source(self) -> LoadedChunkEncoder:
        """The encoder, loaded and in its place."""
        source = load_chunk_encoder(self.encoder) if isinstance(self.encoder, str) else self.encoder
        source.encoder.to(self.device or source.encoder.device)
        return source

    @property
    def recipe(self) -> dict[str, Any]:
        """What determines the vectors of a text."""
        encoder = self.source.encoder
        facts = {name: getattr(encoder, name) for name in ("hidden_size", "pooling", "normalize")}
        facts |= {
            "name": self.source.name,
            "fingerprint": self.source.fingerprint,
            "dtype": encoder.precision,
        }
        return {"encoder": facts, "chunking": corpus.chunking_recipe(self.rule, self.splitter)}

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with the recipe as metadata."""
        return corpus.corpus_schema(self.recipe)

    def __call__(self, batch: Any) -> pa.Table:
        """Rows of the documents ``{"id": […], "text": […]}``: lists, arrays or an Arrow table.

        A warning names a document without a token, which has no row; a ValueError one whose vectors
        are not finite.
        """
        ids, texts = (np.asarray(batch[key], object).tolist() for key in ("id", "text"))
        tokens = [tokenize_document(self.source.tokenizer, text) for text in texts]
        cuts = []
        for name, text, document in zip(ids, texts, tokens, strict=True):
            if len(document) == 0:
                logger.warning("Document %r holds no token, so it has no vectors.", name)
            try:
                cuts.append(self.rule.text_boundaries(text, document, self.splitter))
            except (TypeError, ValueError) as error:
                raise type(error)(f"Document {name!r}: {error}") from error
        flat_ids, boundaries, offsets = flatten_chunks(
            [document.input_ids for document in tokens], cuts
        )
        vectors = self.source.encoder.encode(
            flat_ids, boundaries, self.rule, self.tokens_per_batch, self.bar
        ).half()
        if bad := (~vectors.isfinite().all(dim=1)).nonzero().flatten().tolist():
            name = ids[int(np.searchsorted(offsets, bad[0], side="right")) - 1]
            raise ValueError(
                f"The encoder gave {len(bad)} vectors that are not finite, in document {name!r}"
                " first."
            )
        return chunk_table(self.schema, ids, list(map(chunk_spans, tokens, cuts)), vectors)


def encode_corpus(
    documents: Iterable[Any],
    encoder: LoadedChunkEncoder | str | Callable[[Group], pa.Table],
    rule: ChunkingRule | None,
    folder: str | Path,
    *,
    tokens_per_batch: int | None = None,
    splitter: Splitter | None = None,
    characters_per_part: int = 4_000_000,
    append: bool = False,
    progress: bool = True,
) -> VectorCorpus:
    """Encodes documents into a corpus folder, or goes on where an earlier call was killed.

    The micro-batches of a part depend on its documents only. So a run that goes on after a kill, or
    several processes (``RANK`` of ``WORLD_SIZE`` writes every n-th part), end with the bytes of a
    straight run on the same processor.

    Args:
        documents: texts, ``(id, text)``, dicts, a `datasets.Dataset`, `Document` objects: see
            `as_documents`.
        encoder, rule, tokens_per_batch, splitter: as in `ChunkVectors`; or what is called like it,
            and no rule.
        folder: where the parts go. A finished corpus of the same documents is returned as it is.
        characters_per_part: a part ends with the document that reaches this many; the most that a
            kill can cost.
        append: the documents come after those that are there, in further parts.

    Raises:
        ValueError: for documents or vectors that cannot be stored, and a folder of other documents
            or another recipe.
    """
    vectors: Any = ChunkVectors(encoder, rule, splitter, tokens_per_batch) if rule else encoder  # type: ignore[arg-type]
    folder, planned = Path(folder), dict[int, Path]()
    folder.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ.get("RANK", "0"))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    with (
        tqdm(desc=folder.name, unit="chunk", disable=not progress) as vectors.bar,
        ThreadPoolExecutor(1) as disk,
    ):
        writing: Any = disk.submit(int)  # a part is written while the next one is encoded
        for number, path, group in _plan(
            _groups(documents, characters_per_part), folder, vectors.schema, append
        ):
            planned[number] = path
            if number % processes == rank and not path.exists():
                (folder / corpus.DONE).unlink(missing_ok=True)
                table = vectors(group)
                if len(table) == 0:
                    raise ValueError(
                        f"A part, from {group['id'][0]!r} on, holds no token; leave out its"
                        " documents."
                    )
                empty = json.dumps(
                    sorted(set(group["id"]) - set(table["document"].unique().to_pylist()))
                )
                table = table.replace_schema_metadata({**table.schema.metadata, "empty": empty})
                writing.result()
                writing = disk.submit(corpus.write_part, path, table)
        writing.result()
    vectors.bar = None
    if not planned:
        raise ValueError("No document was given; a corpus needs at least one.")
    if further := [
        path.name for number, path in corpus.numbered_parts(folder).items() if number > max(planned)
    ]:
        raise ValueError(
            f"{folder} holds more documents than are given, in {further[0]}. Encode into another"
            " folder."
        )
    while not all(path.exists() for path in planned.values()) or (
        rank > 0 and not (folder / corpus.DONE).exists()
    ):
        time.sleep(0.2)  # until the other processes have written theirs
    if rank == 0 and not (folder / corpus.DONE).exists():
        for leftover in folder.glob("*.tmp"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        with corpus.whole_file(folder / corpus.DONE) as file:
            file.write(str(max(planned) + 1).encode())
    return VectorCorpus(folder)


def _plan(
    groups: Iterable[Group], folder: Path, schema: pa.Schema, append: bool
) -> Iterator[tuple[int, Path, Group]]:
    """Number, path and documents of each part; ValueError where the folder holds another one in its
    place.
    """
    present = corpus.numbered_parts(folder)
    seen = set[str]()
    first = 0
    recipe = json.loads(schema.metadata[b"recipe"])
    for path in present.values():
        read_columns(path, recipe=recipe)
    for count, group in enumerate(groups):
        digest = hashlib.sha256(
            json.dumps([corpus.recipe_facts(recipe), group]).encode()
        ).hexdigest()[:16]
        if (
            append and count == 0
        ):  # after all others, or where an earlier call appended the same documents
            first = next(
                (number for number, path in present.items() if digest in path.name), len(present)
            )
            seen.update(
                *(
                    read_columns(present[number], "document")[1].to_pylist()
                    for number in range(first)
                )
            )
        for name in group["id"]:
            if name in seen:
                raise ValueError(
                    f"Two documents have the id {name!r}; ids must be unique in {folder}."
                )
            seen.add(name)
        path = folder / f"part-{first + count:06d}-{digest}.parquet"
        if (other := present.get(first + count, path)) != path:
            raise ValueError(
                f"{other} holds other documents than are given (from {group['id'][0]!r} on), or was"
                " written with another characters_per_part. Encode into another folder, or delete"
                " this one."
            )
        yield first + count, path, group


def _groups(documents: Iterable[Any], characters: int) -> Iterator[Group]:
    """The documents of each part. None begins with a blank document."""
    size = 0
    group = Group(id=[], text=[])
    for document in as_documents(documents):
        if size >= characters and document.text.strip():
            yield group
            size = 0
            group = Group(id=[], text=[])
        group["id"].append(document.id)
        group["text"].append(document.text)
        size += len(document.text)
    if group["id"]:
        yield group


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask
    [B, L]``.
    """
    lengths = torch.tensor([len(vectors) for vectors in documents])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {
        "inputs_embeds": pad_sequence(list(documents), batch_first=True),
        "attention_mask": mask,
    }


class DataCollatorForDocumentChoice:
    """Batches for `AutoModelForMultipleChoice` of rows ``question, choices, label`` and ``text`` or
    ``inputs_embeds``.

    For any tokenizer, also one without token types. A text with several questions in a batch is
    read once. `Trainer` needs ``remove_unused_columns=False``, or drops the texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self.tokenizer(list(texts), padding=True, return_tensors="pt", verbose=False)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels`` [N], ``pair_input_ids`` [N, C, Q] with their mask, and the documents, of ids
        or vectors.
        """
        batch = (
            {"labels": torch.tensor([row["label"] for row in rows])} if "label" in rows[0] else {}
        )
        if "inputs_embeds" in rows[0]:  # stored chunk vectors [n, D]
            batch |= pad_vectors([torch.as_tensor(row["inputs_embeds"]).float() for row in rows])
        else:
            texts = list(dict.fromkeys(row["text"] for row in rows))
            documents = self._tokens(texts)
            batch |= {name: documents[name] for name in ("input_ids", "attention_mask")}
            batch["document_index"] = torch.tensor([texts.index(row["text"]) for row in rows])
        pairs = self._tokens(
            [f"{row['question']} {choice}" for row in rows for choice in row["choices"]]
        )
        return batch | {
            f"pair_{name}": pairs[name].unflatten(0, (len(rows), -1))
            for name in ("input_ids", "attention_mask")
        }


class DataCollatorForLabelledVectors:
    """Batches of rows with ``inputs_embeds`` ``[n, D]`` and perhaps ``label`` or ``labels``, for
    the classifiers.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels``, ``inputs_embeds`` [B, L, D] float32 and ``attention_mask`` [B, L]."""
        batch = pad_vectors([row["inputs_embeds"].float() for row in rows])
        name = "label"
        name = name if name in rows[0] else "labels"
        labels = {"labels": torch.tensor([row[name] for row in rows])} if name in rows[0] else {}
        return (
            labels | batch
        )  # in this order: `Trainer` takes the first one's length for the batch size
