"""Configuration of NextLevelBERT."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_vector_document import VectorDocumentConfig

VectorLoss = Literal["smooth_l1", "l1", "l2", "cosine", "cross_entropy"]

# The convolution has 2 * neighbours + 1 square matrices.
MOST_NEIGHBOURS = 16


@strict
class NextLevelBertConfig(VectorDocumentConfig):
    """The parts and sizes of a NextLevelBERT (paper: Czinczoll et al., ACL 2024, arXiv 2402.17682).

    Args:
        pooling: the document vector: ``"mean"`` or ``"max"`` of the contextual chunk vectors, ``"cls"``,
            ``"residual"``: the sum of trained projections of two means, of the plain and of the contextual chunk
            vectors (see `nextlevelbert.models.pooling.ResidualPooling`), or ``"plain"``: the mean of the chunk vectors
            scaled to length 1. With the last there is no encoder over chunks and nothing to train.
        residual_start: with ``pooling="residual"``, the multiple of the identity from which the second projection
            starts. With 0 an untrained model gives the mean of the chunk vectors, with 1 the sum of both means.
        whiten_chunks: whether chunk vectors are whitened before anything else, see `pooling.ChunkWhitening`.
        neighbours: in place of layers, the chunks on either side that a contextual chunk vector sees through a
            convolution, beside the mean of the window; see `pooling.NeighbourContext`. With 0 it sees its own chunk
            alone, through a linear map.
        loss: the loss of masked vector modelling, see `losses`.
        The other fields are those of `VectorDocumentConfig`.

    Raises:
        ValueError: for values that do not fit each other; the message says which.
    """

    model_type = "nextlevelbert"
    _auto_class = "AutoConfig"

    pooling: Literal["mean", "max", "cls", "residual", "plain"] = "mean"
    residual_start: float = 0.0
    whiten_chunks: bool = False
    neighbours: int | None = None
    loss: VectorLoss = "smooth_l1"

    def check_sizes(self) -> None:
        """Checks that the hidden sizes of the two encoders are equal.

        Raises:
            ValueError: if they are not, or the encoder over chunks cannot read vectors.
        """
        if self.chunk_hidden_size != self.hidden_size:
            raise ValueError(
                f"The chunk encoder gives vectors of {self.chunk_hidden_size} dimensions, but the "
                f"encoder reads {self.hidden_size}; the two hidden sizes must be equal."
            )
        super().check_sizes()
        layers = getattr(self.encoder_config, "num_hidden_layers", 0)
        if self.pooling == "plain" and (layers or self.neighbours is not None):
            raise ValueError(
                f"pooling='plain' is the mean of chunk vectors that nothing reads, got {layers} layers and neighbours="
                f"{self.neighbours}; set num_hidden_layers to 0 and neighbours to None, or choose another pooling."
            )
        if self.neighbours is None:
            return
        if not 0 <= self.neighbours <= MOST_NEIGHBOURS:
            raise ValueError(f"neighbours must be from 0 to {MOST_NEIGHBOURS}, got {self.neighbours}.")
        if self.pooling == "cls":
            raise ValueError("There is no [CLS] vector without layers: with neighbours, set pooling to 'mean'.")
        if layers:
            raise ValueError(
                f"neighbours={self.neighbours} takes the place of the layers over chunks, and encoder_config has "
                f"{layers}; set num_hidden_layers to 0, or leave out neighbours."
            )
