"""``nextlevelbert embed``: the vectors of documents or chunks in one Parquet file."""

from __future__ import annotations

import argparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..corpus import whole_file
from .shelf import Part, open_model, open_shelf


def rows(part: Part, which: str) -> pa.Table:
    """The chunks or documents of a part, by the place of their file; vectors in float32."""
    columns = ["document", "chunk", "start", "end", "page", "text", "vector"]
    if which == "documents":
        columns = ["document", "metadata", "document_vector"]
        table = part.read("chunk", *columns)
        table = table.filter(pc.equal(table["chunk"], 0)).select(columns)
    else:
        table = part.read(*columns)
    places = pa.array([part.place_of(name) for name in table["document"].to_pylist()], pa.string())
    vectors = table[columns[-1]].combine_chunks()
    size = len(vectors[0]) if len(vectors) else 0
    values = pa.FixedSizeListArray.from_arrays(vectors.flatten().cast(pa.float32()), size) if size else vectors
    return table.set_column(0, "document", places).set_column(len(columns) - 1, "vector", values)


def run(arguments: argparse.Namespace) -> None:
    model = open_model(arguments)
    tables = [rows(part, arguments.rows) for part in open_shelf(model, arguments.source, arguments.cache_dir)]
    if not (tables := [table for table in tables if len(table) > 0]):
        raise ValueError(f"{arguments.source} holds no word that the model can read.")
    table = pa.concat_tables(tables)
    with whole_file(arguments.output) as file:
        pq.write_table(table, file)
    print(f"Wrote {arguments.output}: {len(table):,} rows with vectors of {table['vector'].type.list_size} values.")
