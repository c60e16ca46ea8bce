"""Configuration of HATE."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_nextlevelbert import NextLevelBertConfig


@strict
class HateConfig(NextLevelBertConfig):
    """The parts and sizes of a HATE: sentence vectors, an optional bottleneck, and a document model.

    Args:
        encoder_config: the document model, with a table of positions, which sinusoids replace. If its hidden size H is
            below that of the sentence vectors, D, an autoencoder's encoder is put between them.
        chunking: `from_chunk_encoder` sets ``"sentences"``, one sentence per chunk.
        pooling: the document vector: ``"cls"``, or ``"mean"`` (the paper's MSR) or ``"sum"`` (its SSR) of the
            contextual sentence vectors.
        loss: ``"p_norm"``, the paper's, or ``"cross_entropy"``, its modern form; see `masked_vector_loss`.
        max_chunks: most sentences in a window; by default what `max_position_embeddings` allows, 511.
        vector_scale: factor of the sentence vectors before positions are added, so that both count. By default sqrt(D)
            (Vaswani et al. 2017, section 3.4) if the chunk encoder gives vectors of length 1, else 1.
        The other fields are those of `NextLevelBertConfig`.
    """

    model_type = "hate"
    special_positions = 1  # [CLS] alone

    pooling: Literal["cls", "mean", "sum"] = "mean"  # type: ignore[assignment]
    loss: Literal["p_norm", "cross_entropy"] = "p_norm"  # type: ignore[assignment]
    vector_scale: float | None = None

    def check_sizes(self) -> None:
        """Raises a ValueError for a document model wider than the sentence vectors; sets the default scale."""
        if self.hidden_size > self.chunk_hidden_size:
            raise ValueError(
                f"The document model has hidden size {self.hidden_size}, but the sentence vectors have "
                f"{self.chunk_hidden_size} dimensions; give a hidden_size or encoder_config of at most these."
            )
        if self.vector_scale is None:
            self.vector_scale = self.chunk_hidden_size**0.5 if self.chunk_encoder_normalize else 1.0

    def bottleneck_widths(self) -> list[int]:
        """Widths of the encoder of the autoencoder, from D to H; ``[D]`` alone where there is no bottleneck.

        With two hidden layers and step = floor((D - H) / 2): D, H + 2 step, H + step, H (paper: "Downscaling
        Representations via Autoencoding").
        """
        wide, narrow = self.chunk_hidden_size, self.hidden_size
        step = (wide - narrow) // 2
        return [wide] if wide == narrow else [wide, narrow + 2 * step, narrow + step, narrow]
