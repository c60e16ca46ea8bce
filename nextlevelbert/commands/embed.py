"""``nextlevelbert embed``: the vectors of documents and chunks in one file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from ..corpus.files import atomic_file, remove_leftovers_of
from .opening import open_model
from .printing import Printer, print_json, print_unreadable
from .shelf import Shelf, ShelvedDocument, open_shelf


def rows_of(document: ShelvedDocument, which: str) -> Iterator[dict[str, Any]]:
    """The row of a document, and one for each of its chunks; `which` is ``"both"``, ``"documents"`` or ``"chunks"``.

    The row of a document has chunk -1 and no text; the vector of a chunk is the plain one.
    """
    shared = {"document": document.place, "metadata": json.dumps(document.metadata, ensure_ascii=False)}
    if which != "chunks":
        whole = {"start": 0, "end": len(document.text), "text": "", "vector": document.vector.numpy()}
        yield {"id": document.place, "level": "document", "chunk": -1, **shared, **whole}
    if which != "documents":
        for number, (start, end) in enumerate(document.spans.tolist()):
            part = {"start": start, "end": end, "text": document.text[start:end]}
            key = {"id": f"{document.place}#{number}", "level": "chunk", "chunk": number}
            yield {**key, **shared, **part, "vector": document.plain[number].numpy()}


def write_rows(shelf: Shelf, which: str, path: Path) -> int:
    """Writes the rows of a shelf as Parquet (document by document) or npz (one array a column); their number.

    The file appears when it is whole.

    Raises:
        SystemExit: with a message, if there are no rows.
    """
    remove_leftovers_of(path)
    with atomic_file(path) as file:
        written = (_write_parquet if path.suffix == ".parquet" else _write_npz)(shelf, which, file)
        if written == 0:
            raise SystemExit("error: there is nothing to write: no document has a chunk.")
    return written


def _write_parquet(shelf: Shelf, which: str, file: BinaryIO) -> int:
    written, writer = 0, None
    text, number = pa.string(), pa.int64()
    fields = {"id": text, "document": text, "level": text, "chunk": number, "start": number, "end": number}
    try:
        for document in shelf:
            if not (rows := list(rows_of(document, which))):
                continue
            if writer is None:
                vector = pa.list_(pa.float32(), len(rows[0]["vector"]))
                schema = pa.schema(list({**fields, "text": text, "metadata": text, "vector": vector}.items()))
                writer = ParquetWriter(file, schema)
            writer.write_table(pa.Table.from_pylist(rows, schema))
            written += len(rows)
    finally:
        if writer is not None:
            writer.close()
    return written


def _write_npz(shelf: Shelf, which: str, file: BinaryIO) -> int:
    rows = [row for document in shelf for row in rows_of(document, which)]
    if rows:
        columns: dict[str, Any] = {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
        np.savez(file, **columns)
    return len(rows)


def run(arguments: argparse.Namespace) -> None:
    model = open_model(arguments.model, arguments.chunk_encoder)
    sizes = (model.config.chunk_hidden_size, model.config.hidden_size)
    if arguments.rows == "both" and sizes[0] != sizes[1]:
        raise SystemExit(
            f"error: this model's chunk vectors have {sizes[0]} values and its document vectors {sizes[1]}, which do "
            "not fit one column. Give --rows chunks or --rows documents."
        )
    shelf = open_shelf(model, arguments.source, arguments.cache_dir)
    rows = write_rows(shelf, arguments.rows, arguments.output)
    size = sizes[arguments.rows != "chunks"]
    if arguments.json:
        print_json({"output": str(arguments.output), "rows": rows, "vector_size": size}, shelf.unreadable)
    else:
        Printer().line(f"Wrote {arguments.output}: {rows:,} rows with vectors of {size} values.")
        print_unreadable(shelf.unreadable)
