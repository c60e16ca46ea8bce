"""Contrastive learning on text, down to the token vectors of a static chunk encoder (``--train_chunk_encoder``).

Such an encoder costs next to nothing, so nothing has to be stored: segments lie anywhere among the tokens of a
document, and chunk borders, segments and dropped tokens are new in every epoch.

Notation for shapes: N pairs of segments, S positions of a segment with [CLS] and [SEP], C tokens in a chunk, M chunks
of a batch, D hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ..corpus import VectorCorpus
from ..corpus.token_corpus import TokenCorpus
from ..encoders import LoadedChunkEncoder
from ..models.chunking import ChunkingRule
from ..models.configuration_nextlevelbert import NOT_SPECIAL
from ..models.modeling_nextlevelbert import SegmentPairOutput
from .segment_pairs import DataCollatorForSegmentPairs, SegmentPairDataset, SegmentPairItem, SegmentPairs

NO_TOKEN = -1


def vectors_of(
    corpus: VectorCorpus | TokenCorpus, documents: Iterable[int], source: LoadedChunkEncoder, rule: ChunkingRule
) -> Iterator[torch.Tensor]:
    """Chunk vectors ``[n, D]`` of documents, stored or made of their tokens."""
    for number in map(int, documents):
        if isinstance(corpus, VectorCorpus):
            yield corpus[number].vectors
        else:
            ids = corpus[number].numpy()
            yield source.encoder.encode(ids, rule.boundaries(ids), rule)


class TokenPairDataset(SegmentPairDataset):
    """As `SegmentPairDataset`, but with lengths and places counted in tokens; segments are token ids ``[W]``."""

    corpus: TokenCorpus
    unit = "tokens"

    def run(self, start: int, stop: int) -> torch.Tensor:
        return self.corpus.ids(start, stop)


@dataclass
class DataCollatorForTokenPairs(DataCollatorForSegmentPairs):
    """Cuts segments of token ids into chunks of `capacity` tokens, and these to one length, as its base class does.

    Returns (on call):
        ``special_ids [N, 2, S]``, ``token_ids [N, 2, S, C]`` (-1 after the last token of a shorter chunk) and
        ``document_ids [N]``.
    """

    capacity: int = 256

    def __call__(self, items: Sequence[SegmentPairItem]) -> dict[str, torch.Tensor]:
        rows = [
            {**item, "first": [self._chunks(ids) for ids in item["first"]],
             "second": [self._chunks(ids) for ids in item["second"]]}
            for item in items
        ]  # fmt: skip
        batch = super().__call__(rows)  # type: ignore[arg-type]
        # `Trainer` takes the size of the batch from what comes first.
        names = {"special_ids": "special_ids", "inputs_embeds": "token_ids", "document_ids": "document_ids"}
        return {ours: batch[theirs] for theirs, ours in names.items()}

    def _chunks(self, ids: torch.Tensor) -> torch.Tensor:
        """Chunks ``[n, C]`` of token ids ``[W]``."""
        return F.pad(ids, (0, -len(ids) % self.capacity), value=NO_TOKEN).reshape(-1, self.capacity)


class TokenPairs(SegmentPairs):
    """The contrastive objective over token ids.

    Args:
        objective: the same over chunk vectors.
        capacity: tokens in a chunk.
        described: what the card says of the token vectors.
    """

    def __init__(self, objective: SegmentPairs, capacity: int, described: str) -> None:
        ours = objective.collator
        super().__init__(
            DataCollatorForTokenPairs(ours.min_segment, ours.max_segment, capacity=capacity),
            objective.pairs_per_document,
        )
        self._capacity, self._described = capacity, described

    def dataset(self, corpus: Any, documents: np.ndarray | None, seed: int) -> TokenPairDataset:
        shortest, longest = (
            self._capacity * chunks for chunks in (self.collator.min_segment, self.collator.max_segment)
        )
        return TokenPairDataset(corpus, shortest, longest, "document", self.pairs_per_document, documents, seed)

    def facts(self, loss: str, items: int) -> dict[str, object]:
        return {**super().facts(loss, items), "token vectors": self._described}


class TokenTable(nn.Module):
    """A model with the token vectors of its chunk encoder as a parameter.

    Args:
        model: without its chunk encoder.
        source: the static chunk encoder to start from; it stays as it is.
        token_dropout: share of the tokens that is left out of its chunk in training.
    """

    def __init__(self, model: Any, source: LoadedChunkEncoder, token_dropout: float) -> None:
        super().__init__()
        self.model, self.source, self._token_dropout = model, source, token_dropout
        self.table = nn.Parameter(source.encoder.model.get_input_embeddings().weight.detach().clone())  # [V, D]

    @property
    def config(self) -> Any:
        """Configuration of the model."""
        return self.model.config

    def chunk_vectors(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Chunk vectors ``[M, D]`` of token ids ``[M, C]``, -1 where there is none; in training without some."""
        shares = F.dropout((token_ids != NO_TOKEN).float(), self._token_dropout, self.training)
        shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1)
        means = F.embedding_bag(token_ids.clamp(min=0), self.table, mode="sum", per_sample_weights=shares)
        return F.normalize(means, dim=-1) if self.source.encoder.normalize else means

    def chunk_encoder(self, name: str) -> LoadedChunkEncoder:
        """The chunk encoder with the table as it is now.

        Args:
            name: where others find it.
        """
        encoder = copy.deepcopy(self.source.encoder)
        encoder.model.get_input_embeddings().weight.data.copy_(self.table.detach())
        return LoadedChunkEncoder(encoder.cpu(), self.source.tokenizer, name, encoder.fingerprint())

    def finish(self, name: str) -> Any:
        """The model, holding the chunk encoder that was trained with it."""
        source = self.chunk_encoder(name)
        self.config.chunk_encoder_name, self.config.chunk_encoder_fingerprint = source.name, source.fingerprint
        self.model.base_model.attach_chunk_encoder(source)
        return self.model


class TrainedTokens(TokenTable):
    """A model for pairs of segments, and token vectors."""

    def forward(
        self, special_ids: torch.Tensor, token_ids: torch.Tensor, document_ids: torch.Tensor
    ) -> SegmentPairOutput:
        """One step over N pairs of segments, as `DataCollatorForTokenPairs` makes them."""
        vectors = self.chunk_vectors(token_ids[special_ids == NOT_SPECIAL])  # [M, D]
        embeds = vectors.new_zeros(*special_ids.shape, vectors.shape[-1])  # [N, 2, S, D]
        embeds = embeds.masked_scatter((special_ids == NOT_SPECIAL).unsqueeze(-1), vectors)
        return self.model(inputs_embeds=embeds, special_ids=special_ids, document_ids=document_ids)
