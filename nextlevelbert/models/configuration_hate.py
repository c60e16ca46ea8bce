"""Configuration of HATE."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_nextlevelbert import NextLevelBertConfig


@strict
class HateConfig(NextLevelBertConfig):
    """Configures a HATE: sentence vectors, an optional bottleneck, and a document model.

    Args:
        encoder_config: the document model, with a table of positions, which sinusoids replace. If
            its hidden size H is below D, the size of the sentence vectors, an autoencoder's encoder
            is put between them.
        pooling: the document vector: ``"cls"``, or ``"mean"`` (MSR) or ``"sum"`` (SSR) of the
            sentence vectors in context.
        loss: ``"p_norm"``, the paper's: the norm of softmax(Ŝ Lᵀ) − I over the masked sentences of
            the batch; or ``"cross_entropy"``, its modern form.
        vector_scale: factor of the sentence vectors before positions are added, so that both count
            (default: sqrt(D) as in Vaswani et al., 2017, section 3.4, if the chunk encoder gives
            vectors of length 1; otherwise 1).
    """

    model_type = "hate"
    special_positions = 1  # [CLS] alone

    pooling: Literal["cls", "mean", "sum"] = "mean"  # type: ignore[assignment]
    loss: Literal["p_norm", "cross_entropy"] = "p_norm"  # type: ignore[assignment]
    vector_scale: float | None = None

    def check_sizes(self) -> None:
        """Checks that the document model is no wider than the vectors; sets the default scale."""
        if self.hidden_size > self.chunk_hidden_size:
            raise ValueError(
                f"hidden_size is {self.hidden_size}. Give at most the size of the sentence vectors,"
                f" {self.chunk_hidden_size}."
            )
        if self.vector_scale is None:
            self.vector_scale = 1.0
            if self.chunk_encoder_normalize:
                self.vector_scale = self.chunk_hidden_size**0.5
