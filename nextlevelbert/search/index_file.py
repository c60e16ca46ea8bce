"""The file of an index: arrays that are mapped into memory, so that a search reads only its part.

The format is safetensors.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

_DTYPES: dict[str, np.dtype] = {
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
    "F32": np.dtype(np.float32),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_HEADER_SIZE = np.dtype("<u8")
_ALIGNMENT = 8  # bytes
_BLOCK = 1 << 20  # bytes that are copied at once


class Column(NamedTuple):
    """An array that is written piece by piece, because it may not fit into memory.

    Args:
        dtype: type of the values.
        shape: shape of the whole array.
        pieces: the array's rows, in order.
    """

    dtype: np.typing.DTypeLike
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def column(array: np.ndarray) -> Column:
    """Returns an array that is in memory as one piece."""
    return Column(array.dtype, array.shape, [array])


def stored_column(file: IO[bytes], rows: int, size: int) -> Column:
    """Returns an array ``[rows, size]`` whose float32 values were written into a file."""
    file.seek(0)
    blocks = iter(partial(file.read, _BLOCK), b"")
    return Column(np.float32, (rows, size), (np.frombuffer(block, np.float32) for block in blocks))


def write_arrays(path: Path, columns: Mapping[str, Column]) -> None:
    """Writes arrays into one file.

    Args:
        path: the file.
        columns: the arrays by name, those with the largest values first.
    """
    header = {}
    end = 0
    for name, values in columns.items():
        start = end
        dtype = np.dtype(values.dtype)
        end += math.prod(values.shape) * dtype.itemsize
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": values.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(np.array(len(text), _HEADER_SIZE).tobytes())
        file.write(text)
        for values in columns.values():
            for piece in values.pieces:
                file.write(np.ascontiguousarray(piece, values.dtype).data)
        file.flush()
        os.fsync(file.fileno())


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Maps the arrays of a file into memory; what is not used is not read."""
    content = np.memmap(path, np.uint8, mode="r")
    first = _HEADER_SIZE.itemsize
    size = content[:first].view(_HEADER_SIZE)[0]
    start = first + int(size)
    header = json.loads(content[first:start].tobytes())
    data = content[start:]
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = _DTYPES[entry["dtype"]]
        values = data[begin:end].view(dtype)
        arrays[name] = np.asarray(values.reshape(entry["shape"]))
    return arrays
