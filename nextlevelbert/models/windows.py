"""Windows over documents of many chunks, as pure functions over tensors.

Notation for shapes: B documents, L chunks of the longest document, J windows of all documents, S
chunks of a window, D size of a vector.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from .configuration_nextlevelbert import CLS, NOT_SPECIAL, PAD, SEP


def traced() -> bool:
    """Returns whether a graph is recorded, in which values are unknown.

    A graph is recorded in `torch.export`, ONNX, `torch.compile` and tracing.
    """
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def indices(count: int, like: Tensor) -> Tensor:
    """Returns the numbers from 0 to `count` - 1 on the device of another tensor.

    Example:
        >>> indices(3, like=torch.zeros(1))
        tensor([0, 1, 2])
    """
    return torch.arange(count, device=like.device)


def copy_to(device: torch.device, array: np.ndarray) -> Tensor:
    """Copies an array to a device.

    From page-locked memory, a copy to a GPU overlaps with computation.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def pad_vectors(documents: Sequence[Tensor]) -> dict[str, Tensor]:
    """Pads the chunk vectors of documents.

    Args:
        documents: chunk vectors ``[n, D]`` of each document.

    Returns:
        The dict ``inputs_embeds`` [B, L, D] and ``attention_mask`` [B, L].

    Example:
        >>> pad_vectors([torch.ones(2, 1), torch.ones(1, 1)])["attention_mask"].tolist()
        [[1, 1], [1, 0]]
    """
    vectors = pad_sequence(list(documents), batch_first=True)
    counts = np.array([len(chunks) for chunks in documents])
    lengths = copy_to(vectors.device, counts)
    position = indices(vectors.shape[1], like=lengths)
    mask = position < lengths.unsqueeze(-1)
    return {"inputs_embeds": vectors, "attention_mask": mask.long()}


def special_ids_of_windows(chunks: Tensor, width: int, specials: int) -> Tensor:
    """Returns which special vector is at each position of windows: [CLS] v1 … vn [SEP].

    Args:
        chunks: number of chunks in each window, ``[J]``.
        width: most chunks of a window.
        specials: special vectors of a window: 2, or 1 if no [SEP] follows the chunks, as in HATE.

    Returns:
        ``[J, width + 1]`` or, with separator, ``[J, width + 2]``: -1 at chunk vectors, otherwise
        the row in the table of special vectors.

    Example:
        >>> special_ids_of_windows(torch.tensor([3, 1]), width=3, specials=2).tolist()
        [[1, -1, -1, -1, 2], [1, -1, 2, 0, 0]]
    """
    ends = chunks.unsqueeze(-1)  # [J, 1]
    position = indices(width + specials, like=chunks)
    special_ids = torch.where(position <= ends, NOT_SPECIAL, PAD)
    special_ids = special_ids.masked_fill(position == 0, CLS)
    if specials == 2:
        separator = ends + 1
        special_ids = special_ids.masked_fill(position == separator, SEP)
    return special_ids


def gather_chunks(vectors: Tensor, documents: Tensor, chunks: Tensor) -> Tensor:
    """Picks vectors of documents.

    Args:
        vectors: vectors of the documents, ``[B, L, D]``.
        documents: index of a document for each row of the result, ``[J]``.
        chunks: indices of chunks of that document, ``[J, S]``.

    Returns:
        The picked vectors, ``[J, S, D]``.

    Example:
        >>> vectors = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
        >>> gather_chunks(vectors, torch.tensor([1, 0]), torch.tensor([[1], [0]])).tolist()
        [[[4.0]], [[1.0]]]
    """
    length = vectors.shape[1]
    first_rows = documents.unsqueeze(-1) * length
    rows = first_rows + chunks
    table = vectors.flatten(0, 1)
    return F.embedding(rows, table)


def front_order(read_mask: Tensor, longest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Orders the chunks of each document so that they come before the padding.

    Args:
        read_mask: bool mask ``[B, L]``, true at chunks to read.
        longest: most chunks of a document; further padding is left out (default: none is).

    Returns:
        The chunks in their new order ``[B, S]``; the mask of real chunks in that order ``[B, S]``;
        and the position of each chunk in that order ``[B, L]``.

    Example:
        >>> order, front_mask, position = front_order(torch.tensor([[False, True, True]]), 2)
        >>> order.tolist(), front_mask.tolist(), position.tolist()
        ([[1, 2]], [[True, True]], [[0, 0, 1]])
    """
    counts = read_mask.sum(dim=1)
    position = read_mask.cumsum(dim=1) - 1
    position = position.clamp(min=0)
    behind_all = 2**31
    is_padding = ~read_mask
    keys = position.masked_fill(is_padding, behind_all)
    order = keys.argsort(dim=1)
    if longest is not None:
        order = order[:, : max(longest, 1)]

    length = order.shape[1]
    front = indices(length, like=counts)
    front_mask = front < counts.unsqueeze(-1)
    return order, front_mask, position


def mean_by_row(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Averages the values that belong to the same row; rows without values are zero.

    Args:
        values: values to average, ``[R, D]``.
        rows: row of each value, ``[R]``.
        count: number of rows.

    Returns:
        The means, ``[count, D]``.

    Example:
        >>> mean_by_row(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), 3).tolist()
        [[2.0], [0.0], [5.0]]
    """
    totals = values.new_zeros(count, values.shape[1])
    totals = totals.index_add(0, rows, values)
    # `bincount` would wait for a GPU.
    ones = totals.new_ones(len(rows))
    times = totals.new_zeros(count)
    times = times.index_add(0, rows, ones)
    times = times.clamp(min=1)
    return totals / times.unsqueeze(-1)
