"""Static chunk encoders: every token has a vector of its own, and a chunk's vector is the mean of them.

No network runs, so they are as fast as the tokenizer. Tables of token vectors are distilled from sentence encoders
(model2vec: every token once through the encoder, principal components, weights by frequency) or trained
(sentence-transformers' `StaticEmbedding`). Hashed TF-IDF vectors need no table: a token has one value in one place.
Here they stand where other chunk encoders have their transformer.

Notation for shapes: N chunks, C tokens in the longest chunk, T tokens in all, D hidden size.
"""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
import warnings
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


@strict
class StaticEmbeddingConfig(PreTrainedConfig):
    """Sizes of a table of token vectors.

    Args:
        vocab_size: rows, one for each id of the tokenizer.
        hidden_size: dimensions of a token's vector.
        unk_token_id: row of what the tokenizer does not know; None where it knows everything.
    """

    model_type = "static-embedding"

    vocab_size: int = 30_522
    hidden_size: int = 384
    num_hidden_layers: int = 0
    pad_token_id: int | None = 0
    unk_token_id: int | None = None


@strict
class HashedTfidfConfig(StaticEmbeddingConfig):
    """Sizes of hashed TF-IDF vectors.

    Args:
        hidden_size: the number of places that tokens are hashed to.
        sublinear_tf: a token that stands n times in a chunk counts 1 + ln n times, as in scikit-learn; otherwise n.
    """

    model_type = "hashed-tfidf"

    hidden_size: int = 2_048
    sublinear_tf: bool = False


class StaticModel(PreTrainedModel):
    """What both kinds share: the mean of the tokens' vectors, and a word about chunks of which nothing is known."""

    base_model_prefix = "static"

    def means(self, input_ids: np.ndarray, boundaries: np.ndarray) -> torch.Tensor:
        """Mean token vector of each chunk, ``[N, D]`` float32; zero for a chunk without tokens.

        Warns of chunks in which the tokenizer knows nothing: they all have the vector of its unknown token.

        Args:
            input_ids: ``[T]`` ids of all chunks, one after the other.
            boundaries: ``[N + 1]``; chunk k is ``input_ids[boundaries[k]:boundaries[k + 1]]``.
        """
        known = input_ids != self.config.unk_token_id
        if not known.all():
            before = np.append(0, np.cumsum(known))  # known tokens before each place
            if count := int((np.diff(before[boundaries]) == 0)[np.diff(boundaries) > 0].sum()):
                warnings.warn(
                    f"{count} chunk(s) consist of unknown tokens only, so their vectors are the same. Is the text in "
                    "a language that the static chunk encoder was not made for?",
                    stacklevel=2,
                )
        ids = torch.from_numpy(np.ascontiguousarray(input_ids, np.int32)).to(self.device)
        return self._means(ids, torch.from_numpy(boundaries.astype(np.int32)).to(self.device))

    def _means(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class StaticEmbeddingModel(StaticModel):
    """Looks up the vector of every token; has the interface of a `transformers` encoder."""

    config_class = StaticEmbeddingConfig

    def __init__(self, config: StaticEmbeddingConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Token vectors ``[N, C, D]`` of token ids ``[N, C]``; the mask is for those who pool."""
        return BaseModelOutput(last_hidden_state=self.embedding(input_ids))

    def _means(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(ids, self.embedding.weight, offsets, mode="mean", include_last_offset=True).float()


class HashedTfidfModel(StaticModel):
    """TF-IDF by feature hashing: every token has a place among D and a signed weight, the vector is zero elsewhere.

    The dot product of two vectors is that of the TF-IDF vectors plus noise with mean zero and variance about 1 / D
    (Weinberger and others 2009, Feature Hashing for Large Scale Multitask Learning, lemma 2).
    """

    config_class = HashedTfidfConfig
    places: torch.Tensor

    def __init__(self, config: HashedTfidfConfig) -> None:
        super().__init__(config)
        self.register_buffer("places", torch.zeros(config.vocab_size, dtype=torch.int32))
        self.weight = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: they are fitted, never trained."""

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        """Token vectors ``[N, C, D]`` of token ids ``[N, C]``; what the mask leaves out is in no count."""
        weights = self.weight[input_ids]  # [N, C]
        if self.config.sublinear_tf:
            same = input_ids.unsqueeze(-1) == input_ids.unsqueeze(-2)  # [N, C, C]
            if attention_mask is not None:
                same = same & attention_mask.bool().unsqueeze(-2)
            counts = same.sum(dim=-1).clamp(min=1).to(weights.dtype)
            weights = weights * (1 + counts.log()) / counts  # all n of them together: 1 + ln n
        vectors = self.weight.new_zeros(*input_ids.shape, self.config.hidden_size)
        vectors.scatter_(-1, self.places[input_ids].long().unsqueeze(-1), weights.unsqueeze(-1))
        return BaseModelOutput(last_hidden_state=vectors)

    def _means(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        lengths, size = offsets.diff(), self.config.hidden_size
        chunk = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths)  # [T]
        times = torch.ones(1, device=ids.device)
        if self.config.sublinear_tf:
            pairs, counts = torch.unique(chunk * self.config.vocab_size + ids, return_counts=True)
            chunk, ids = pairs // self.config.vocab_size, pairs % self.config.vocab_size  # each token once in a chunk
            times = 1 + counts.float().log()
        sums = torch.zeros(len(lengths) * size, device=lengths.device)
        sums.index_add_(0, chunk * size + self.places[ids], times * self.weight[ids].float())
        return sums.view(-1, size) / lengths.clamp(min=1)[:, None]  # [N, D]
