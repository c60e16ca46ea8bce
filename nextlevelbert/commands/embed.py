"""``nextlevelbert embed``: the vectors of documents or chunks in one Parquet file."""

from __future__ import annotations

import argparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..corpus import whole_file
from .shelf import open_model, open_shelf


def run(arguments: argparse.Namespace) -> None:
    """Writes rows of chunks, or of documents, with the places of their files and with vectors in
    float32."""
    model = open_model(arguments)
    columns, size = (
        ["document", "chunk", "start", "end", "page", "text", "vector"],
        model.config.chunk_hidden_size,
    )
    if arguments.rows == "documents":
        columns, size = ["document", "metadata", "document_vector"], model.config.hidden_size
    tables = []
    for part in open_shelf(model, arguments.source, arguments.cache_dir, arguments.text_column):
        table = part.read(*columns, "chunk")
        table = (
            table.filter(pc.field("chunk") == 0) if arguments.rows == "documents" else table
        ).select(columns)
        places = pa.array(map(part.place_of, table["document"].to_pylist()), pa.string())
        vectors = table[columns[-1]].cast(pa.list_(pa.float32(), size))
        tables.append(
            table.set_column(0, "document", places).set_column(len(columns) - 1, "vector", vectors)
        )
    if len(table := pa.concat_tables(tables)) == 0:
        raise ValueError(f"{arguments.source} holds no word that the model can read.")
    with whole_file(arguments.output) as file:
        pq.write_table(table, file)
    print(f"Wrote {arguments.output}: {len(table):,} rows with vectors of {size} values.")
