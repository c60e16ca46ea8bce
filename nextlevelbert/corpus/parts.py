"""The files of a corpus: Parquet parts that are whole or absent, with checksums.

`encode_corpus` names a part by its number and a hash of its documents; ``_SUCCESS`` holds the
number of parts once all are there. Other engines may name their parts as they like.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .recipe import recipe_differences

if TYPE_CHECKING:
    from .folder import CorpusFolder

DONE = "_SUCCESS"
FILES = "*.parquet"
PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """Returns the columns of a corpus, with the recipe as metadata.

    Args:
        recipe: recipe of the corpus; ``recipe["encoder"]["hidden_size"]`` is D.
    """
    columns = [
        ("document", pa.string()),
        ("chunk", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("vector", pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])),
    ]
    return pa.schema(columns, metadata={"recipe": json.dumps(recipe)})


def vector_array(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Returns vectors ``[N, D]`` as an Arrow array of lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def chunk_table(
    schema: pa.Schema, ids: Sequence[object], spans: Sequence[np.ndarray], vectors: np.ndarray
) -> pa.Table:
    """Makes the table of several documents, with a row for each chunk.

    Args:
        schema: columns of the corpus.
        ids: id of each document.
        spans: the character spans of each document, ``[n, 2]``.
        vectors: chunk vectors of all documents, one after the other, ``[N, D]`` float16.
    """
    counts = list(map(len, spans))
    names = np.asarray(list(map(str, ids)), object)
    starts, ends = np.concatenate(spans).T
    columns = [
        np.repeat(names, counts),
        np.concatenate(list(map(np.arange, counts))),
        starts,
        ends,
        vector_array(vectors),
    ]
    return pa.table(columns, schema=schema)


def part_content(table: pa.Table) -> bytes:
    """Returns the file of a part, with checksums of its pages and columns."""
    metadata = {**(table.schema.metadata or {}), "sums": json.dumps(_checksums(table))}
    file = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(metadata),
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


def _checksums(table: pa.Table) -> dict[str, int]:
    """Returns a checksum of each column of a corpus, and of each further entry of the metadata.

    Parquet's page checksums do not cover headers and metadata: of 5,952 bits of a small part, each
    flipped alone, they miss 38 that change values and 79 that change the recipe. These sums leave 0
    and 5.
    """
    metadata = table.schema.metadata or {}
    sums = {key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_string(column.type):
            texts = column.combine_chunks()
            texts_of_part = pa.ListArray.from_arrays([0, len(texts)], texts)
            joined = pc.binary_join(texts_of_part, "\0")[0]  # without a Python object a row
            sums[name] = zlib.crc32(joined.as_buffer())
        else:
            sums[name] = zlib.crc32(column_values(column).data)
    return sums


def read_part(
    folder: CorpusFolder, name: str, *columns: str, recipe: Mapping[str, Any] | None = None
) -> pa.Table:
    """Reads columns of a part, with the metadata of its schema.

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
    with folder.open(name) as stream:
        try:
            file = pq.ParquetFile(stream, page_checksum_verification=True, pre_buffer=True)
            # Each thread would keep memory of its own, for the few columns that are read.
            table = file.read(list(columns), use_threads=False).select(columns)
            if PART.fullmatch(name):
                expected = part_metadata(table, "sums") or {}
                for column, value in _checksums(table).items():
                    if value != expected.get(column, value):
                        raise ValueError(f"the checksum of {column!r} does not match.")
        except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
            # Arrow raises a plain OSError without a number for what it cannot decode.
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno):
                raise
            raise ValueError(
                f"{folder}/{name} is damaged, or does not belong to this corpus: {error} Delete it"
                " and run the same encoding again, which writes this part only."
            ) from error

    stored = part_metadata(table, "recipe")
    if stored and recipe:
        differences = recipe_differences(stored, recipe)
        if differences:
            raise ValueError(
                f"{folder}/{name} was made with other settings (of the file, of this call):"
                f" {differences}. Write to another folder, or delete this one."
            )
    return table


def part_metadata(table: pa.Table, key: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    """Returns an entry of the metadata of a part, from JSON; None if it is missing."""
    return json.loads((table.schema.metadata or {}).get(key.encode(), b"null"))


def numbered_parts(names: Iterable[str]) -> dict[int, str]:
    """Returns the names of the parts that `encode_corpus` wrote, by number."""
    matches = map(PART.fullmatch, names)
    return {int(match[1]): match[0] for match in matches if match is not None}


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
            with folder.open(DONE) as file:
                text = file.read().decode().strip()
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
