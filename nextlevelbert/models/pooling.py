"""Pooling: from many vectors to one; whitening: chunk vectors without what all of them share; and neighbours.

Pooling is masked and over the second-to-last axis, as sentence-transformers defines it.

Whitening centres chunk vectors and scales them down where chunks of one document differ most. Sentence encoders leave
a large common direction in every vector, and what varies most from chunk to chunk of a book (dialogue or narration,
indoors or out) says little about which book it is. Dividing by the within-document spread is within-class covariance
normalisation (Hatch, Kajarekar and Stolcke 2006) with the document as the class; with the total spread it would be
whitening as Su et al. (2021, arXiv 2103.15316) use it on sentence vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import activation as _activations

_ROWS_PER_PRODUCT = 4_096  # of chunk vectors, when whitening is fitted

PoolingMode = Literal["mean", "sum", "max", "cls", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


def masked_mean(hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Mean of the rows that a mask keeps (all by default): ``[B, L, D]`` to ``[B, D]`` float32, zero without rows."""
    if mask is None:
        return hidden.mean(dim=1, dtype=torch.float32)
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    total = hidden.masked_fill(~keep, 0.0).sum(dim=1, dtype=torch.float32)  # [B, D]
    return total / keep.sum(dim=1).clamp(min=1)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows scaled to length 1, zero rows unchanged; in float32, since the epsilon against zero vanishes in float16."""
    return F.normalize(vectors.float(), dim=-1).to(vectors.dtype)


class ResidualProjection(nn.Linear):
    """A square matrix that starts as a multiple of the identity."""

    def __init__(self, hidden_size: int, start: float) -> None:
        super().__init__(hidden_size, hidden_size, bias=False)
        self.start = start


class NeighbourConvolution(nn.Conv1d):
    """Over rows of vectors, each dimension by itself; it starts as the identity plus `SHARE` / k of what is k away.

    From a small share, training does not reach what neighbours give without any (docs/results.md).
    """

    SHARE = 0.8

    def __init__(self, hidden_size: int, reach: int) -> None:
        super().__init__(hidden_size, hidden_size, 2 * reach + 1, padding=reach, groups=hidden_size, bias=False)

    def start(self) -> torch.Tensor:
        """The weights ``[D, 1, 2 * reach + 1]`` that training starts from."""
        distances = (torch.arange(self.kernel_size[0]) - self.kernel_size[0] // 2).abs()
        shares = torch.where(distances == 0, 1.0, self.SHARE / distances.clamp(min=1))
        return shares.expand(self.in_channels, 1, -1)


class NeighbourContext(nn.Module):
    """Chunk vectors ``[B, S, D]`` to vectors of length 1 that know what is near: normalise(A Σ w_k v_{i+k} + M m).

    k runs from -reach to reach, w_k are vectors that multiply each dimension, and m is the mean of the chunks in the
    window. All parts are there from the start, so every weight has a gradient in the first step. A reach of 0 leaves
    out the mean: a linear map.
    """

    MEAN = 0.1  # of the identity, where M starts

    def __init__(self, hidden_size: int, reach: int) -> None:
        super().__init__()
        self.convolution = NeighbourConvolution(hidden_size, reach)
        self.map = ResidualProjection(hidden_size, start=1.0)
        self.mean = ResidualProjection(hidden_size, self.MEAN) if reach else None

    def forward(self, vectors: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The same places, and zero where the mask ``[B, S]`` has no chunk."""
        keep = mask.bool().unsqueeze(-1)  # [B, S, 1]
        chunks = vectors.masked_fill(~keep, 0.0)
        found = self.map(self.convolution(chunks.transpose(1, 2)).transpose(1, 2))
        if self.mean is not None:
            found = found + self.mean(masked_mean(chunks, mask).to(chunks.dtype)).unsqueeze(1)
        return _unit(found).masked_fill(~keep, 0.0)


class ResidualPooling(nn.Module):
    """Document vectors ``[B, D]`` of length 1 that keep the plain mean: normalise(A p + C c).

    p is the mean of the chunk vectors and c that of the contextual ones, both ``[B, D]`` and normalised. A starts as
    the identity and C at zero, so that training starts no worse than the mean of the chunk vectors.
    """

    def __init__(self, hidden_size: int, contextual_start: float = 0.0) -> None:
        super().__init__()
        self.plain = ResidualProjection(hidden_size, start=1.0)
        self.contextual = ResidualProjection(hidden_size, start=contextual_start)

    def forward(self, plain: torch.Tensor, contextual: torch.Tensor) -> torch.Tensor:
        return _unit(self.plain(_unit(plain)) + self.contextual(_unit(contextual)))


class PlainPooling(nn.Module):
    """Document vectors ``[B, D]`` of length 1: the mean of the chunk vectors. Stands where `ResidualPooling` does."""

    def forward(self, plain: torch.Tensor, contextual: torch.Tensor) -> torch.Tensor:
        return _unit(plain)


def pool(hidden: torch.Tensor, mask: torch.Tensor, mode: PoolingMode = "mean") -> torch.Tensor:
    """Pools the rows that the mask keeps; a batch entry without such rows gives the zero vector.

    Args:
        hidden: ``[B, L, D]`` vectors.
        mask: ``[B, L]``, nonzero where a vector counts.
        mode: ``"mean"``, ``"sum"``, ``"max"``, ``"cls"`` (the first counting row), ``"lasttoken"`` (the last one), or
            ``"mean_sqrt_len_tokens"`` (sum over the square root of the count), or ``"weightedmean"`` (the k-th
            counting row weighs k).

    Returns:
        ``[B, D]`` in the dtype of `hidden`; means are summed in float32.

    Raises:
        ValueError: for an unknown mode.
    """
    keep = mask.bool().unsqueeze(-1)  # [B, L, 1]
    if mode == "mean":
        return masked_mean(hidden, mask).to(hidden.dtype)
    if mode == "sum":
        return (masked_mean(hidden, mask) * keep.sum(dim=1)).to(hidden.dtype)
    if mode == "mean_sqrt_len_tokens":
        return (masked_mean(hidden, mask) * keep.sum(dim=1).sqrt()).to(hidden.dtype)
    if mode == "weightedmean":
        weights = mask.bool().cumsum(dim=1).masked_fill(~mask.bool(), 0).float()  # [B, L]
        total = torch.einsum("bl,bld->bd", weights, hidden.masked_fill(~keep, 0.0).float())
        return (total / weights.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden.dtype)
    if mode == "max":
        largest = hidden.masked_fill(~keep, torch.finfo(hidden.dtype).min).amax(dim=1)  # [B, D]
        return largest.masked_fill(~keep.any(dim=1), 0.0)
    if mode in ("cls", "lasttoken"):
        flags = keep.squeeze(-1).long()  # [B, L]
        position = flags.argmax(dim=1) if mode == "cls" else flags.shape[1] - 1 - flags.flip(1).argmax(dim=1)
        row = hidden[torch.arange(len(hidden), device=hidden.device), position]  # [B, D]
        return row.masked_fill(~keep.any(dim=1), 0.0)
    raise ValueError(f"Unknown pooling {mode!r}; choose one of {', '.join(get_args(PoolingMode))}.")


class DenseLayer(nn.Module):
    """sentence-transformers' `Dense`: a linear layer with an activation over a pooled vector; same names of weights.

    Args:
        in_features, out_features: sizes of the vector before and after.
        bias: whether there is a bias.
        activation: a class of `torch.nn` that needs no arguments, such as ``"Tanh"`` or ``"Identity"``.

    Raises:
        ValueError: for an activation that is none.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool, activation: str) -> None:
        super().__init__()
        try:
            if activation not in (*_activations.__all__, "Identity"):
                raise TypeError
            self.activation_function = getattr(nn, activation)()
        except TypeError as error:  # or it needs arguments
            message = f"{activation!r} is no activation of torch.nn; 'Tanh' and 'Identity' are the usual ones."
            raise ValueError(message) from error
        self.linear = nn.Linear(in_features, out_features, bias)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """``[N, D]`` float32 to ``[N, K]`` float32, computed in the dtype of the weights."""
        return self.activation_function(self.linear(vectors.to(self.linear.weight.dtype))).float()


class ChunkWhitening(nn.Module):
    """``[..., D]`` chunk vectors to whitened ones of length 1, ``[..., K]``: normalise(W (v - m)).

    Mean and weight are buffers, not parameters: saved with the model, but out of reach of optimisers and of
    unfreezing. Before `fit_whitening` they are zero and the identity.
    """

    mean: torch.Tensor
    weight: torch.Tensor

    def __init__(self, hidden_size: int, size: int | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("weight", torch.eye(size or hidden_size, hidden_size))  # [K, D]

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        centred = vectors.to(self.weight.dtype) - self.mean
        return F.normalize((centred @ self.weight.T).float(), dim=-1).to(self.weight.dtype)


class ChunkCentring(nn.Module):
    """``[..., D]`` chunk vectors to centred ones of length 1: normalise(v - m). The mean m is a buffer."""

    mean: torch.Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return F.normalize((vectors.to(self.mean.dtype) - self.mean).float(), dim=-1).to(self.mean.dtype)


def fit_whitening(
    documents: Iterable[torch.Tensor], shrinkage: float = 0.1, size: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean m ``[D]`` and symmetric matrix W ``[D, D]`` of chunk vectors, in one pass over them and closed form.

    W = (S + shrinkage * mean variance * I)^(-1/2), where S is the covariance of chunk vectors around the mean of
    their own document.

    With a `size` K, W is ``[K, D]``: turned so that its rows are the directions in which whitened documents differ
    most, and cut to the first K. That is linear discriminant analysis with the document as the class (Fisher 1936),
    and any first k of its rows are the best k. N documents differ in N - 1 directions; further rows are arbitrary.

    Args:
        documents: the chunk vectors ``[n, D]`` of each document, in any floating dtype; at least two documents, one of
            them with two chunks.
        shrinkage: added to the variances, as a share of their mean; it limits how far directions with little spread
            are scaled up.
        size: rows of W; by default D, not turned.

    Raises:
        ValueError: for a size above D, too few documents or chunks, chunks that do not differ, or a shrinkage that is
            not positive.
    """
    if not shrinkage > 0:
        raise ValueError(f"shrinkage must be positive, got {shrinkage}.")
    chunks = filled = waiting = 0
    total = scatter = between = torch.zeros((), dtype=torch.float64)
    few: torch.Tensor | None = None
    around: list[torch.Tensor] = []  # [n, D] each; many documents in one product, since each takes D x D sums
    means: list[torch.Tensor] = []  # [1, D] each
    for document in documents:
        if len(document) == 0:
            continue
        vectors = document.double()
        own = vectors.mean(dim=0, keepdim=True)
        around.append(vectors - own)
        means.append(own * len(vectors) ** 0.5)
        total = total + vectors.sum(dim=0)
        chunks, filled, waiting = chunks + len(vectors), filled + 1, waiting + len(vectors)
        if waiting >= _ROWS_PER_PRODUCT:
            scatter, between = scatter + _products(around), between + (_products(means) if size else 0)
            around, means, waiting = [], [], 0
    if around and size is None and chunks == waiting and chunks < len(total):
        few = torch.cat(around)  # [n, D] with n < D: no D x D decomposition is needed
        scatter = few.pow(2).sum().reshape(1, 1)
    elif around:
        scatter, between = scatter + _products(around), between + (_products(means) if size else 0)
    if filled < 2 or chunks == filled:
        raise ValueError(
            f"Whitening is fitted to the spread of chunks within documents; got {chunks} chunk(s) in {filled} "
            "document(s). Give at least two documents, of more than one chunk."
        )
    if not scatter.trace() > 0:  # NaN, too
        raise ValueError(
            f"The {chunks} chunks do not differ within their documents, or contain NaN: there is nothing to whiten."
        )
    mean, within = total / chunks, scatter / chunks
    if few is not None:
        return mean.float(), _inverse_root_of_few(few, shrinkage).float()
    if size is None:
        return mean.float(), inverse_root(within, shrinkage).float()
    if not 1 <= size <= len(mean):
        raise ValueError(f"size must be from 1 to {len(mean)}, the size of the vectors, got {size}.")
    # Any root of the inverse will do, since what follows turns it; Cholesky's needs no second decomposition by axes.
    root = torch.linalg.cholesky(within + shrinkage * within.diagonal().mean() * torch.eye(len(within)).to(within))
    whiten = torch.linalg.solve_triangular(root, torch.eye(len(root)).to(root), upper=False)
    spread = whiten @ (between / chunks - torch.outer(mean, mean)) @ whiten.T
    return mean.float(), (torch.linalg.eigh(spread)[1].flip(1).T[:size] @ whiten).float()  # largest first


def _products(rows: list[torch.Tensor]) -> torch.Tensor:
    """The sum ``[D, D]`` of the products of each row with itself."""
    block = torch.cat(rows)
    return block.T @ block


def _inverse_root_of_few(rows: torch.Tensor, shrinkage: float) -> torch.Tensor:
    """`inverse_root` of the covariance ``A'A / n`` of few rows A ``[n, D]``, by the decomposition of ``A A'``.

    With A = U diag(s) V' and b = shrinkage * mean variance, it is b^(-1/2) I + A' U diag(g) U' A, where
    g = ((s^2 / n + b)^(-1/2) - b^(-1/2)) / s^2. Written without that difference, g is exact for small s, too.
    """
    count, size = rows.shape
    squares, axes = torch.linalg.eigh(rows @ rows.T)  # [n], [n, n]
    squares = squares.clamp(min=0)
    floor = shrinkage * squares.sum() / (count * size)
    root = (squares / count + floor).sqrt()
    scales = -1 / (count * floor.sqrt() * root * (root + floor.sqrt()))  # g
    turned = axes.T @ rows  # [n, D]
    found = (turned.T * scales) @ turned
    found.diagonal().add_(floor.rsqrt())
    return found


def inverse_root(covariance: torch.Tensor, shrinkage: float = 0.1) -> torch.Tensor:
    """(S + shrinkage * mean variance * I)^(-1/2) of a covariance S ``[D, D]``, symmetric."""
    values, axes = torch.linalg.eigh(covariance)
    return axes @ torch.diag((values + shrinkage * values.mean()).rsqrt()) @ axes.T
