"""A static chunk encoder: a table of token vectors, and a chunk's vector is the mean of its tokens' rows.

No network runs, so it is as fast as the tokenizer. Such tables are distilled from sentence encoders (model2vec: every
token once through the encoder, principal components, weights by frequency) or trained (sentence-transformers'
`StaticEmbedding`). Here the table stands where other chunk encoders have their transformer.

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


class StaticEmbeddingModel(PreTrainedModel):
    """Looks up the vector of every token; has the interface of a `transformers` encoder."""

    config_class = StaticEmbeddingConfig
    base_model_prefix = "static"

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
        table = self.embedding.weight
        ids = torch.from_numpy(np.ascontiguousarray(input_ids, np.int32)).to(table.device)
        offsets = torch.from_numpy(boundaries.astype(np.int32)).to(table.device)
        return F.embedding_bag(ids, table, offsets, mode="mean", include_last_offset=True).float()
