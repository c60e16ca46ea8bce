"""What every table has beside a model: the mean of the same chunk vectors, plain and whitened."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch

from ..fitting import fit_whitening
from ..models.pooling import ChunkWhitening

logger = logging.getLogger(__name__)

MEAN, WHITENED = "mean of the chunk vectors", "whitened mean"


def fitted_whitening(documents: Iterable[torch.Tensor]) -> ChunkWhitening | None:
    """Whitening within documents, fitted to their chunk vectors ``[n, D]``; None, with a line why, if it cannot be."""
    try:
        mean, weight = fit_whitening(documents)
    except ValueError as error:
        logger.warning("There is no row for the whitened mean: %s", error)
        return None
    whitening = ChunkWhitening(len(mean))
    whitening.mean.copy_(mean)
    whitening.weight.copy_(weight)
    return whitening
