"""``nextlevelbert embed``: the vectors of documents or chunks in one file."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ..corpus.parts import column_values, vector_array
from ..messages import readable_name
from ..models.files import whole_file
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .encoders.choice import SearchModel
from .passages import Run, readable_json
from .reading import ReadingOptions, check_output
from .store import Store, open_store

# Rows of small files are written together: a row group of Parquet for each file would take time.
_BYTES_AT_ONCE = 1 << 25


class Rows(NamedTuple):
    """The rows to write.

    Attributes:
        schema: their columns.
        shape: the number of rows, and of the values of each vector.
        tables: some rows at a time, in order.
    """

    schema: pa.Schema
    shape: tuple[int, int]
    tables: Iterable[pa.Table]


def _vectors(table: pa.Table) -> np.ndarray:
    """Returns the vectors of a table's rows as one matrix."""
    return column_values(table["vector"]).reshape(len(table), -1)


def _write_parquet(rows: Rows, file: BinaryIO) -> None:
    """Writes a row group for each table."""
    with pq.ParquetWriter(file, rows.schema) as writer:
        for table in rows.tables:
            writer.write_table(table)


def _write_csv(rows: Rows, file: BinaryIO) -> None:
    """Writes a column for each value of the vectors, named ``vector_0`` and so on."""
    options = pyarrow.csv.WriteOptions()
    for table in rows.tables:
        flat = table.drop_columns("vector")
        for index, values in enumerate(_vectors(table).T):
            flat = flat.append_column(f"vector_{index}", pa.array(values))
        pyarrow.csv.write_csv(flat, file, options)
        options.include_header = False


def _write_json_lines(rows: Rows, file: BinaryIO) -> None:
    """Writes an object for each row."""
    for table in rows.tables:
        for batch in table.to_batches(max_chunksize=1_024):
            for row in batch.to_pylist():
                line = json.dumps(row, ensure_ascii=False)
                file.write(f"{line}\n".encode())


def _write_npy(rows: Rows, file: BinaryIO) -> None:
    """Writes the vectors only, as one matrix."""
    header = {"descr": "<f4", "fortran_order": False, "shape": rows.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for table in rows.tables:
        file.write(_vectors(table).data)


WRITERS = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
    ".npy": _write_npy,
}
"""By suffix of a file: writes rows into it."""


def run(
    source: str,
    output: Path,
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
        ValueError: if no document can be read, or the output is one.
    """
    write = WRITERS[output.suffix.lower()]
    check_output(source, output)
    store = open_store(source, model, reading)
    make_rows = _chunk_rows
    count = sum(len(run.texts) for run in store.runs)
    if rows == "documents":
        make_rows = _document_rows
        count = sum(len(run.counts) for run in store.runs)
    tables = _joined(make_rows(store, run) for run in store.runs)
    first = next(tables)
    schema = first.schema.with_metadata({"recipe": json.dumps(store.recipe)})
    size = schema.field("vector").type.list_size
    with whole_file(output) as file:
        write(Rows(schema, (count, size), tables=chain([first], tables)), file)
    print(f"Wrote {readable_name(output)}: {count:,} rows with vectors of {size:,} values.")


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Joins tables that follow one another until they are large enough."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= _BYTES_AT_ONCE:
            yield pa.concat_tables(waiting)
            waiting = []
            size = 0
    if waiting:
        yield pa.concat_tables(waiting)


def _document_rows(store: Store, run: Run) -> pa.Table:
    """Makes a row for each document of a run, with the document's id, metadata and vector."""
    documents = store.documents(run.file, run.first_passage, len(run.texts))
    metadata = [readable_json(document.metadata) for document in documents]
    columns = {
        "document": pa.array([document.name for document in documents]),
        "metadata": pa.array(metadata, pa.large_string()),
        "vector": vector_array(store.array("document_vectors", run).astype(np.float32)),
    }
    return pa.table(columns)


def _chunk_rows(store: Store, run: Run) -> pa.Table:
    """Makes a row for each chunk of a run: its place, first page, text and search vector."""
    names = []
    chunks: list[int] = []
    pages: list[int | None] = []
    texts = []
    spans = store.array("spans", run)[:, :2]
    documents = store.documents(run.file, run.first_passage, len(run.texts))
    starts_of_documents = np.split(spans[:, 0], np.cumsum(run.counts)[:-1])
    for document, starts in zip(documents, starts_of_documents, strict=True):
        names += [document.name] * len(starts)
        chunks += range(len(starts))
        if document.page_starts is None:
            pages += [None] * len(starts)
        else:
            pages += np.searchsorted(document.page_starts, starts, side="right").tolist()
        # From a chunk, or the beginning, to the next chunk.
        borders = [0, *starts[1:].tolist(), len(document.text)]
        texts += [document.text[start:end] for start, end in pairwise(borders)]
    columns = {
        "document": pa.array(names),
        "chunk": pa.array(chunks, pa.int32()),
        "start": pa.array(spans[:, 0], pa.int64()),
        "end": pa.array(spans[:, 1], pa.int64()),
        "page": pa.array(pages, pa.int32()),
        "text": pa.array(texts, pa.large_string()),
        "vector": vector_array(store.array("vectors", run)),
    }
    return pa.table(columns)
