"""From documents to the rows of a corpus, in any engine that maps a function over batches.

Notation for shapes: N chunks of all documents, n chunks of one, D hidden size.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from .encoders import LoadedChunkEncoder, load_chunk_encoder
from .models.chunking import ChunkingRule, Splitter, chunk_spans, flatten_chunks, tokenize_document

logger = logging.getLogger(__name__)


def chunking_recipe(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """How texts are cut, as JSON has it; ValueError for a splitter without a name, or beside fixed chunks."""
    if splitter is not None and not isinstance(splitter, str):
        named = splitter if hasattr(splitter, "__qualname__") else type(splitter)
        splitter = f"{named.__module__}.{named.__qualname__}"
        if splitter.endswith(("<lambda>", "functools.partial")):
            raise ValueError("A corpus notes its splitter's name, which a lambda or partial lacks; give a function.")
    if splitter and rule.mode == "fixed":
        raise ValueError("splitter needs a rule with mode='sentences' or 'packed_sentences'; this one has 'fixed'.")
    facts = {name: value for name, value in asdict(rule).items() if name != "max_chunk_size"}
    return json.loads(json.dumps({**facts, "splitter": splitter}))


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """The columns of a corpus, with the recipe as metadata; it needs ``recipe["encoder"]["hidden_size"]``."""
    vector = pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])
    columns = {"document": pa.string(), "chunk": pa.int32(), "start": pa.int64(), "end": pa.int64(), "vector": vector}
    return pa.schema(list(columns.items()), metadata={"recipe": json.dumps(recipe)})


def chunk_table(schema: pa.Schema, ids: Sequence[Any], spans: Sequence[np.ndarray], vectors: torch.Tensor) -> pa.Table:
    """Rows of documents: their ids, the character spans ``[n, 2]`` of each, and the vectors ``[N, D]`` of all."""
    counts = [len(span) for span in spans]
    chunks = np.concatenate([np.zeros(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)])
    starts, ends = np.concatenate([np.zeros((0, 2), np.int64), *spans]).T
    names = pa.array([str(name) for name in ids], pa.string()).take(pa.array(np.repeat(np.arange(len(ids)), counts)))
    values = pa.array(vectors.cpu().half().numpy().reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])
    return pa.Table.from_arrays([names, *map(pa.array, (chunks, starts, ends)), rows], schema=schema)


@dataclass
class ChunkVectors:
    """A function from a batch of documents to their rows, which travels to other processes.

    For `datasets.Dataset.map(batched=True)`, Ray Data's `map_batches`, Spark's `mapInArrow`, and `encode_corpus`.

    Args:
        encoder: from `load_chunk_encoder`, and travels along; or its name or path, and each process loads it.
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
        facts = {"name": self.source.name, "fingerprint": self.source.fingerprint, "hidden_size": encoder.hidden_size}
        facts |= {"pooling": encoder.pooling, "normalize": encoder.normalize, "dtype": encoder.precision}
        return {"encoder": facts, "chunking": chunking_recipe(self.rule, self.splitter)}

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with the recipe as metadata."""
        return corpus_schema(self.recipe)

    def __call__(self, batch: Any) -> pa.Table:
        """Rows of the documents ``{"id": […], "text": […]}``: lists, arrays or an Arrow table.

        A warning names a document without a token, which has no row; a ValueError one whose vectors are not finite.
        """
        ids, texts = (
            [getattr(item, "as_py", lambda item=item: item)() for item in batch[key]] for key in ("id", "text")
        )
        tokens, cuts = [tokenize_document(self.source.tokenizer, text) for text in texts], []
        for name, text, document in zip(ids, texts, tokens, strict=True):
            if len(document) == 0:
                logger.warning("Document %r holds no token, so it has no vectors.", name)
            try:
                cuts.append(self.rule.text_boundaries(text, document, self.splitter))
            except (TypeError, ValueError) as error:
                raise type(error)(f"Document {name!r}: {error}") from error
        flat_ids, boundaries, offsets = flatten_chunks([document.input_ids for document in tokens], cuts)
        vectors = self.source.encoder.encode(flat_ids, boundaries, self.rule, self.tokens_per_batch, self.bar).half()
        if bad := (~vectors.isfinite().all(dim=1)).nonzero().flatten().tolist():
            name = ids[int(np.searchsorted(offsets, bad[0], side="right")) - 1]
            raise ValueError(f"The encoder gave {len(bad)} vectors that are not finite, in document {name!r} first.")
        return chunk_table(self.schema, ids, list(map(chunk_spans, tokens, cuts)), vectors)
