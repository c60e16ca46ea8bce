"""``nextlevelbert embed``: the vectors of documents or chunks in one file."""

import json
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..corpus.parts import column_values, number_array
from ..data.files import readable_name
from ..models.files import local_path, whole_file
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .notes import Notes
from .parts import Part
from .passages import first_rows
from .reading import ReadingOptions, check_output
from .search_model import SearchModel
from .shelf import Shelf, open_shelf, part_notes


def _vectors(table: pa.Table) -> np.ndarray:
    """Returns the vectors of a table's rows as one matrix."""
    return column_values(table["vector"]).reshape(len(table), -1)


def _write_csv(table: pa.Table, file: BinaryIO) -> None:
    """Writes a column for each value of the vectors, named ``vector_0`` and so on."""
    values = _vectors(table)
    table = table.drop_columns("vector")
    for index in range(values.shape[1]):
        table = table.append_column(f"vector_{index}", pa.array(values[:, index]))
    pyarrow.csv.write_csv(table, file)


def _write_json_lines(table: pa.Table, file: BinaryIO) -> None:
    """Writes an object for each row."""
    for batch in table.to_batches(max_chunksize=1_024):
        for row in batch.to_pylist():
            line = json.dumps(row, ensure_ascii=False)
            file.write(f"{line}\n".encode())


def _write_npy(table: pa.Table, file: BinaryIO) -> None:
    """Writes the vectors only, as one matrix."""
    np.save(file, _vectors(table))


WRITERS: dict[str, Callable[[pa.Table, BinaryIO], None]] = {
    ".parquet": pq.write_table,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".npy": _write_npy,
}
"""By suffix of a file: writes a table into it."""


def run(
    source: str,
    output: str | Path,
    model: NextLevelBertModel | SearchModel | None = None,
    reading: ReadingOptions | None = None,
    *,
    rows: str = "chunks",
) -> None:
    """Writes rows of chunks or of documents, with their names and float32 vectors.

    Args:
        source: a file, a folder or a pattern.
        output: the file to write. Its suffix says what is written; see `WRITERS`.
        model: the document model (default: the installed checkpoint).
        reading: how the files are read, and where their passages and vectors are kept.
        rows: ``"documents"`` or ``"chunks"``, the unit that each row of the file describes.

    Raises:
        ValueError: if no document holds a word that the model can read, or the output is one.
    """
    output = local_path(output)
    write = WRITERS[output.suffix.lower()]
    check_output(source, output)
    shelf = open_shelf(source, model, reading or ReadingOptions())
    tables = []
    all_metadata = []
    for part in shelf.parts:
        if rows == "documents":
            table = _document_rows(shelf, part)
        else:
            table = _chunk_rows(shelf, part)
        all_metadata.append(table.schema.metadata)
        names = [part.file.name_of(document) for document in table["document"].to_pylist()]
        table = table.set_column(0, "document", pa.array(names, pa.string()))
        metadata = {"recipe": table.schema.metadata[b"recipe"]}
        tables.append(table.replace_schema_metadata(metadata))
    notes = Notes()
    for part, notes_on_file in zip(shelf.parts, part_notes(shelf.parts, all_metadata), strict=True):
        notes.add(part.file.name, notes_on_file)
    notes.print()
    table = pa.concat_tables(tables)
    if len(table) == 0:
        raise ValueError(f"{source} holds no word that the model can read.")
    size = len(table["vector"][0])
    column = table.schema.get_field_index("vector")
    vectors = table["vector"].cast(pa.list_(pa.float32(), size))
    table = table.set_column(column, "vector", vectors)
    with whole_file(output) as file:
        write(table, file)
    print(f"Wrote {readable_name(output)}: {len(table):,} rows with vectors of {size} values.")


def _document_rows(shelf: Shelf, part: Part) -> pa.Table:
    """Makes a row for each document of a part, with the document's id, metadata and vector."""
    table = shelf.read(part, "document", "chunk", "metadata", "document_vector")
    table = table.take(number_array(first_rows(table))).drop_columns("chunk")
    return table.set_column(2, "vector", table["document_vector"])


def _chunk_rows(shelf: Shelf, part: Part) -> pa.Table:
    """Makes a row for each chunk of a part: its place, first page, text and search vector."""
    table = shelf.read(part, "document", "chunk", "start", "end", "pages", "text", "vector")
    page_starts = None
    pages: list[int | None] = []
    for row in table.select(["chunk", "start", "pages"]).to_pylist():
        if row["chunk"] == 0:
            page_starts = row["pages"]
        if not page_starts:
            pages.append(None)
        else:
            pages.append(bisect_right(page_starts, row["start"]))
    table = table.set_column(4, "page", pa.array(pages, pa.int32()))
    size = table.schema.field("vector").type.list_size
    plain = column_values(table["vector"])
    vectors = shelf.model.vectors.search_vectors(plain.reshape(-1, size))
    values = number_array(vectors.ravel())
    return table.set_column(6, "vector", pa.FixedSizeListArray.from_arrays(values, size))
