"""Whitening of chunk vectors, fitted to documents in closed form.

Notation for shapes: B documents, n chunks of one, N of all, D size of a chunk vector.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Chunk vectors of many documents are multiplied at once, since each product takes D x D sums.
_ROWS_PER_PRODUCT = 4_096
# Squared differences between chunks of a document that are rounding errors, as a share of the
# squares of the vectors.
_ROUNDING = 1e-10


class WhiteningError(ValueError):
    """Says that no document has chunks that differ, so that there is nothing to whiten by."""


def fit_whitening(documents: Iterable[Tensor], shrinkage: float = 0.1) -> tuple[Tensor, Tensor]:
    """Fits the whitening of chunk vectors, in one pass over them and in closed form.

    W = (S + shrinkage * mean variance * I)^(-1/2), where S is the covariance of chunk vectors
    around the mean of their own document: within-class covariance normalisation (Hatch, Kajarekar
    and Stolcke 2006).

    Args:
        documents: chunk vectors ``[n, D]`` of each document, at least one of them with two chunks.
        shrinkage: share of the mean variance that is added to each direction.

    Returns:
        The mean ``[D]`` and the symmetric matrix W ``[D, D]``.

    Raises:
        WhiteningError: the vectors of no document differ.
    """
    chunks = 0
    total = torch.zeros((), dtype=torch.float64)
    scatter = total
    squares = total
    for block in _blocks(documents):
        counts = torch.tensor([len(vectors) for vectors in block], device=block[0].device)
        means = torch.stack([vectors.mean(dim=0) for vectors in block])  # [B, D]
        deviations = torch.cat(block) - means.repeat_interleave(counts, dim=0)  # [N, D]
        total = total + counts.double() @ means
        scatter = scatter + deviations.T @ deviations
        squares = squares + torch.cat(block).square().sum()
        chunks += int(counts.sum())

    has_variance = scatter.trace() > _ROUNDING * squares  # false for NaN, too
    if not has_variance:
        raise WhiteningError(
            f"Whitening needs chunks that differ within their document, but {chunks} chunk(s) do"
            " not. Give longer documents or a smaller chunk_size; `pretrain --loss smooth_l1` needs"
            " no whitening."
        )

    variances, axes = torch.linalg.eigh(scatter / chunks)
    scales = (variances + shrinkage * variances.mean()).rsqrt()
    weight = axes * scales @ axes.T
    mean = total / chunks
    return mean.float(), weight.float()


def _blocks(documents: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yields documents that have chunks, in float64, several at a time."""
    block = []
    rows = 0
    for vectors in documents:
        if len(vectors) > 0:
            block.append(vectors.double())
        rows += len(vectors)
        if rows >= _ROWS_PER_PRODUCT:
            yield block
            block = []
            rows = 0

    if block:
        yield block
