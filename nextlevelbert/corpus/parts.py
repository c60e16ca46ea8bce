"""The files of a corpus: Parquet parts that are whole or absent, with checksums.

`encode_corpus` names a part by its number and a hash of its documents; ``_SUCCESS`` holds the
number of parts once all are there. Other engines may name their parts as they like.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..models.files import whole_file
from .recipe import recipe_differences

if TYPE_CHECKING:
    from .folder import CorpusFolder

DONE = "_SUCCESS"
FILES = "*.parquet"
_CHECKED = {"document", "chunk", "start", "end", "vector"}  # other columns may hold nulls
PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")


def number_array(numbers: np.ndarray) -> pa.Array:
    """Returns numbers ``[N]`` as an Arrow array; ``pa.array`` would import pandas for a while."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), buffers)


def text_array(texts: Sequence[str]) -> pa.StringArray:
    """Returns texts as an Arrow array, as `number_array` does."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def chunk_table(
    schema: pa.Schema, ids: Sequence[object], spans: Sequence[np.ndarray], vectors: np.ndarray
) -> pa.Table:
    """Makes the table of several documents, with a row for each chunk.

    Args:
        schema: columns of the corpus.
        ids: id of each document.
        spans: the character spans of each document, ``[n, 2]``.
        vectors: chunk vectors of all documents, one after the other, ``[N, D]``.
    """
    counts = list(map(len, spans))
    document = np.repeat(np.arange(len(ids)), counts)
    first_chunks = np.cumsum([0, *counts[:-1]])
    all_spans = np.concatenate(spans).astype(np.int64)
    values = number_array(vectors.astype(np.float16).reshape(-1))
    columns = [
        text_array(list(map(str, ids))).take(number_array(document)),
        number_array((np.arange(len(document)) - first_chunks[document]).astype(np.int32)),
        number_array(all_spans[:, 0]),
        number_array(all_spans[:, 1]),
        pa.FixedSizeListArray.from_arrays(values, vectors.shape[1]),
    ]
    return pa.table(columns, schema=schema)


def write_part(path: str | Path, table: pa.Table) -> None:
    """Writes rows as a part with checksums of its pages and columns, whole or not at all."""
    with whole_file(Path(path)) as file:
        file.write(part_content(table))


def part_content(table: pa.Table) -> bytes:
    """Returns the file of a part, with checksums of its pages and columns."""
    metadata = table.schema.metadata or {}
    sums = json.dumps(_checksums(table, metadata))
    table = table.replace_schema_metadata({**metadata, "sums": sums})
    file = pa.BufferOutputStream()
    pq.write_table(
        table,
        file,
        compression="zstd",
        use_dictionary=["document"],
        write_statistics=["document", "chunk"],
        write_page_checksum=True,
    )
    return file.getvalue().to_pybytes()


def column_values(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the numbers of a column; lists follow one another."""
    array = column.combine_chunks()
    if array.type.num_fields > 0:
        array = array.flatten()  # which minds the offset of a slice
    return np.from_dlpack(array)  # other ways import pandas


def _checksums(table: pa.Table, metadata: Mapping[bytes, bytes]) -> dict[str, int]:
    """Returns a checksum of each column of a corpus, and of each further entry of the metadata.

    Parquet's page checksums do not cover headers and metadata: of 5,952 bits of a small part, each
    flipped alone, they miss 38 that change values and 79 that change the recipe. These sums leave 0
    and 5.
    """
    sums = {key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"}
    for name in table.column_names:
        if name not in _CHECKED:
            continue
        column = table[name]
        if pa.types.is_string(column.type):
            texts = column.combine_chunks()
            texts_of_part = pa.ListArray.from_arrays([0, len(texts)], texts)
            joined = pc.binary_join(texts_of_part, "\0")[0]  # without a Python object a row
            sums[name] = zlib.crc32(joined.as_buffer())
        else:
            sums[name] = zlib.crc32(np.ascontiguousarray(column_values(column)).data)
    return sums


def read_columns(
    folder: CorpusFolder, name: str, *columns: str, recipe: Mapping[str, Any] | None = None
) -> tuple[dict[bytes, bytes], list[pa.ChunkedArray]]:
    """Reads metadata and columns of a part.

    Args:
        folder: the folder of the corpus.
        name: name of the part.
        *columns: names of the columns to read.
        recipe: the recipe that the part must have been made with (default: any).

    Raises:
        OSError: the part cannot be reached.
        ValueError: the part is damaged (Arrow's errors do not name it), or was made with another
            recipe.
    """
    path = f"{folder}/{name}"
    try:
        with (
            folder.open(name) as stream,
            pq.ParquetFile(stream, page_checksum_verification=True, pre_buffer=True) as file,
        ):
            metadata = file.schema_arrow.metadata or {}
            table = file.read(list(columns))
        if PART.fullmatch(name):
            expected = json.loads(metadata.get(b"sums", b"{}"))
            for column, value in _checksums(table, metadata).items():
                if value != expected.get(column, value):
                    raise ValueError(f"the checksum of {column!r} does not match.")
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
        # Arrow raises a plain OSError without a number for what it cannot decode.
        if isinstance(error, ConnectionError) or getattr(error, "errno", None) is not None:
            raise
        raise ValueError(
            f"{path} is damaged, or does not belong to this corpus: {error} Delete it and run the"
            " same encoding again, which writes this part only."
        ) from error

    stored = json.loads(metadata.get(b"recipe", b"null"))
    if stored and recipe:
        differences = recipe_differences(stored, recipe)
        if differences:
            raise ValueError(
                f"{path} was made with other settings (of the file, of this call): {differences}."
                " Write to another folder, or delete this one."
            )
    return metadata, table.columns


def numbered_parts(names: Iterable[str]) -> dict[int, str]:
    """Returns the names of the parts that `encode_corpus` wrote, by number."""
    parts = {}
    for name in names:
        match = PART.fullmatch(name)
        if match is not None:
            parts[int(match[1])] = name
    return parts


def finished_parts(folder: CorpusFolder) -> dict[str, str]:
    """Returns the names of the parts of a corpus in order, each with its stamp.

    Raises:
        FileNotFoundError: the folder holds no Parquet file.
        ValueError: a part is missing, or the number of parts is unreadable.
    """
    stamps = folder.stamps()
    parts = {name: stamp for name, stamp in stamps.items() if name.endswith(".parquet")}
    if not parts:
        raise FileNotFoundError(
            f"There is no corpus in {folder}: it contains no Parquet file. encode_corpus writes"
            " one."
        )
    numbered = numbered_parts(stamps)
    if numbered:
        count = len(numbered) + 1
        if DONE in stamps:
            text = folder.read(DONE).decode().strip()
            if not text.isdecimal():
                raise ValueError(
                    f"{folder}/{DONE} must hold the number of parts; it holds {text!r}. Delete it"
                    " and run the same encoding again, which writes missing parts only."
                )
            count = int(text)
        missing = sorted(set(range(count)) - numbered.keys())
        if missing:
            raise ValueError(
                f"{folder} is incomplete: it lacks part {missing[0]}. Run the same encoding again."
            )
    return parts
