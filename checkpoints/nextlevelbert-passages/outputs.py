"""What the models return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from transformers.utils import ModelOutput


@dataclass
class DocumentModelOutput(ModelOutput):
    """All levels of a batch of documents (B documents, L chunks in the longest, D hidden size).

    Attributes:
        last_hidden_state: ``[B, L, D]`` contextual chunk vectors, zero where there is no chunk.
        pooler_output: ``[B, D]`` document vectors; zero for a document without chunks.
        chunk_vectors: ``[B, L, D]`` plain chunk vectors, before the encoder over chunks.
        chunk_mask: ``[B, L]`` bool, true where a chunk was read.
        hidden_states, attentions: of the encoder over chunks, on request, with the positions of
            [CLS] and [SEP]; for documents of at most `max_chunks` chunks.
    """

    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    chunk_vectors: torch.Tensor | None = None
    chunk_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class TokenFeaturesOutput(ModelOutput):
    """A feature for every token of a batch of whole documents (B documents, T token positions, D hidden size).

    Attributes:
        last_hidden_state: ``[B, T, D]`` token features, zero at padding.
        pooler_output: ``[B, D]`` their mean over each document.
        token_mask: ``[B, T]`` bool, true where a token was read.
        hidden_states: on request, every hidden state of the encoder, ``[B, T, D]`` each.
    """

    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    token_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


@dataclass
class ExtractiveSummarizationOutput(ModelOutput):
    """Scores of the sentences of a batch of documents (B documents, S sentences in the longest).

    Attributes:
        loss: scalar, if labels were given: the mean over documents of the mean over their sentences with a label.
        logits: ``[B, S]``, zero where there is no sentence; their sigmoid is a probability.
        sentence_mask: ``[B, S]`` bool, true where there is one.
        hidden_states: of all tokens, on request, ``[B, T, D]`` each.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    sentence_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


@dataclass
class MaskedVectorModelingOutput(ModelOutput):
    """Masked vector modelling of a batch with M selected positions, counted row by row.

    Attributes:
        loss: scalar, if labels were given.
        predictions: ``[M, D]`` what the head predicts at the selected positions.
        targets: ``[M, D]`` the true vectors there, if labels were given.
        hidden_states, attentions: on request.
    """

    loss: torch.Tensor | None = None
    predictions: torch.Tensor | None = None
    targets: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class SegmentPairOutput(ModelOutput):
    """Contrastive learning over N pairs of segments.

    Attributes:
        loss: scalar; with masked vectors, theirs is part of it.
        scores: ``[N, N]`` scaled cosines of first segments (rows) and second ones, minus infinity where two are not
            compared; the right ones are on the diagonal.
    """

    loss: torch.Tensor | None = None
    scores: torch.Tensor | None = None


@dataclass(frozen=True)
class DocumentEmbedding:
    """Everything one pass over a document gives (n chunks, D hidden size), on the CPU in float32.

    Attributes:
        document: ``[D]`` the document vector.
        chunks: ``[n, D]`` contextual chunk vectors; under truncation only the first `max_chunks`.
        plain: ``[n, D]`` chunk vectors as the chunk encoder made them.
        spans: ``[n, 2]`` int64, the characters of each chunk: ``text[start:end]``.
    """

    document: torch.Tensor
    chunks: torch.Tensor
    plain: torch.Tensor
    spans: np.ndarray

    def to_records(
        self,
        document_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        level: Literal["plain", "chunks", "document"] = "plain",
    ) -> list[dict[str, Any]]:
        """Records for a vector database, one for each chunk.

        Args:
            document_id: the chunks are ``"ID#0"``, ``"ID#1"``, and so on.
            text: the document; with it, each record holds the text of its chunk.
            metadata: of the document; each record holds a copy.
            level: ``"plain"`` or contextual vectors, ``"chunks"``; or ``"document"``, one record for the whole.

        Returns:
            Each with ``id``, ``document``, ``start`` and ``end`` (characters), ``metadata``, ``vector`` (a list of
            floats), and ``text`` if it was given.

        Raises:
            ValueError: for another level.

        Example:
            >>> found = DocumentEmbedding(torch.zeros(2), torch.ones(1, 2), torch.ones(1, 2), np.array([[0, 4]]))
            >>> found.to_records("ahab", "Call")[0]["id"], found.to_records("ahab", "Call")[0]["text"]
            ('ahab#0', 'Call')
        """
        if level not in ("plain", "chunks", "document"):
            raise ValueError(f"level must be 'plain', 'chunks' or 'document', got {level!r}.")
        if level == "document":
            end = int(self.spans[-1, 1]) if len(self.spans) else 0
            rows = [(document_id, 0, len(text) if text is not None else end, self.document)]
        else:
            # There are fewer contextual vectors than spans under truncation.
            spans = zip(self.spans.tolist(), getattr(self, level), strict=False)
            rows = [(f"{document_id}#{n}", *span, vector) for n, (span, vector) in enumerate(spans)]
        return [
            {
                "id": key,
                "document": document_id,
                "start": start,
                "end": end,
                **({} if text is None else {"text": text[start:end]}),
                "metadata": dict(metadata or {}),
                "vector": vector.tolist(),
            }
            for key, start, end, vector in rows
        ]

    def __repr__(self) -> str:
        """Shapes, not numbers."""
        shapes = [f"{each.name}={list(getattr(self, each.name).shape)}" for each in fields(self)]
        return f"{type(self).__name__}({', '.join(shapes)})"


@dataclass(frozen=True)
class BeyondFirstWindow:
    """What of a document comes after its first window; zero for a document that fits one."""

    chunks: int
    tokens: int
    characters: int


@dataclass(frozen=True)
class DocumentPlan:
    """What encoding one document would take.

    Attributes:
        tokens, chunks: of the whole document.
        windows: passes of the encoder over chunks.
        beyond_first_window: chunks, tokens and characters that further windows read. With
            ``long_documents="truncate"``, and only then, they are lost.
    """

    tokens: int
    chunks: int
    windows: int
    beyond_first_window: BeyondFirstWindow
