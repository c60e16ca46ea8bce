"""The pass over chunk vectors: [CLS] v1 … vn [SEP], in overlapping windows where a document is long.

HATE has no [SEP]; `config.special_positions` tells (2, or 1 there).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from .chunk_encoder import micro_batches
from .chunking import windows
from .input_checks import check_lengths
from .masking import CLS, SEP
from .pooling import PoolingMode, pool

logger = logging.getLogger(__name__)

# Positions of one pass of the encoder over chunks: eight full windows keep its memory near 100 MB on a CPU.
_POSITIONS_PER_PASS = 4_096


class WindowedPassMixin:
    """`contextualize` for a model with an encoder over chunk vectors and a table of special vectors."""

    if TYPE_CHECKING:  # what the model class brings
        config: Any
        encoder: Any
        special_embeddings: Any  # a module with a table `weight` [4, D]
        residual_pooling: Any  # where `config.pooling` is "residual"
        device: torch.device
        dtype: torch.dtype

    def contextualize(
        self,
        documents: list[torch.Tensor],
        extras: dict[str, bool] | None = None,
        raw: dict[str, Any] | None = None,
        first: int = 0,
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Runs the encoder over each document's chunk vectors: [CLS] v1 … vn [SEP], in windows where n is large.

        Args:
            documents: chunk vectors ``[n, D]`` of each document, on any device and in any floating dtype.
            extras: further arguments of the encoder (hidden states, attentions), given for all documents at once.
            raw: receives what `extras` asked for.
            first: number of the first document, for messages.

        Returns:
            Contextual chunk vectors ``[n, D]`` of each document (fewer under truncation), and the document
            vectors ``[B, D]``.

        Raises:
            ValueError: for no document, vectors of another size, or a document too long for the configuration.
        """
        size, width = self.config.chunk_hidden_size, self.config.hidden_size
        if not documents or any(vectors.ndim != 2 or vectors.shape[1] != size for vectors in documents):
            raise ValueError(
                f"Give at least one document, each as chunk vectors [n, {size}]; "
                f"got {[tuple(vectors.shape) for vectors in documents]}."
            )
        (limit, overlap), policy = self.config.window(), self.config.long_documents
        long = check_lengths([len(vectors) for vectors in documents], limit, policy, first, one_window=bool(extras))
        if long and policy == "truncate":
            lost = sum(len(documents[index]) - limit for index in long)
            names = [first + index for index in long]
            logger.warning("long_documents='truncate': %d chunks of document(s) %s are cut off.", lost, names)
            documents = [vectors[:limit] for vectors in documents]
        documents = [self.prepare_chunks(vectors.to(self.device, self.dtype)) for vectors in documents]
        jobs = [
            (index, start, end)
            for index, vectors in enumerate(documents)
            for start, end in windows(len(vectors), limit, overlap)
        ]
        lengths = np.asarray([end - start + self.config.special_positions for _, start, end in jobs], np.int64)
        batches = [np.arange(len(jobs))] if extras and jobs else micro_batches(lengths, _POSITIONS_PER_PASS)
        before, after = self._special_rows()
        totals = [torch.zeros(len(vectors), width, device=self.device, dtype=self.dtype) for vectors in documents]
        counts = [torch.zeros(len(vectors), 1, device=self.device) for vectors in documents]
        summaries: list[list[torch.Tensor]] = [[] for _ in documents]  # [CLS] outputs, one a window
        for batch in batches:
            pieces = [documents[index][start:end] for index, start, end in (jobs[i] for i in batch)]
            embeds = pad_sequence(
                [torch.cat([before, piece, after]) for piece in pieces], batch_first=True
            )  # [B, S, D]
            reach = torch.from_numpy(lengths[batch]).to(self.device)
            mask = None
            if lengths[batch].min() < embeds.shape[1]:
                mask = (torch.arange(embeds.shape[1], device=self.device) < reach[:, None]).long()
            output = self.encoder(inputs_embeds=embeds, attention_mask=mask, **(extras or {}))
            if extras and raw is not None:
                raw.update({name: output[name] for name in ("hidden_states", "attentions") if output.get(name)})
            for hidden, (index, start, end) in zip(output.last_hidden_state, (jobs[i] for i in batch), strict=True):
                part = slice(start, end)
                totals[index][part] = totals[index][part] + hidden[1 : end - start + 1]
                counts[index][part] += 1
                summaries[index].append(hidden[0])
        contextual = [total / count.to(total.dtype) for total, count in zip(totals, counts, strict=True)]
        return contextual, self._pool_documents(documents, contextual, summaries)

    def prepare_chunks(self, vectors: torch.Tensor) -> torch.Tensor:
        """What the encoder over chunks reads in place of chunk vectors ``[..., D]``: by default the same."""
        return vectors

    def _special_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What stands before and behind the chunk vectors of a window, ``[1, D]`` or ``[0, D]`` each."""
        rows = self.special_embeddings.weight
        after = self.config.special_positions - 1
        return rows[CLS : CLS + 1].to(self.dtype), rows[SEP : SEP + after].to(self.dtype)

    def _pool_documents(
        self, documents: list[torch.Tensor], contextual: list[torch.Tensor], summaries: list[list[torch.Tensor]]
    ) -> torch.Tensor:
        """Document vectors ``[B, D]`` by the configured pooling; zero where a document has no chunk."""
        zero = torch.zeros(self.config.hidden_size, device=self.device, dtype=self.dtype)
        if self.config.pooling == "cls":
            return torch.stack([torch.stack(rows).mean(dim=0) if rows else zero for rows in summaries])
        residual = self.config.pooling == "residual"

        def pooled(vectors: list[torch.Tensor]) -> torch.Tensor:
            mode: PoolingMode = "mean" if residual else self.config.pooling
            return torch.stack(
                [pool(rows[None], torch.ones(1, len(rows), device=self.device), mode)[0] if len(rows) else zero
                 for rows in vectors]
            )  # fmt: skip

        return self.residual_pooling(pooled(documents), pooled(contextual)) if residual else pooled(contextual)
