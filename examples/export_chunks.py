"""Chunk vectors as records for a vector database, one a chunk: document, id, start, end, text, vector.

python examples/export_chunks.py --model demo/model --documents my_books/ --output chunks.jsonl

A suffix .parquet gives Parquet (vectors as fixed-size lists of float32). Documents are read, encoded and written one
after the other, so memory does not grow with the shelf. Questions to a database of plain vectors are encoded as
`model.encode(question).plain`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter
from tqdm.auto import tqdm
from transformers import AutoModel

import nextlevelbert


def records(
    model: Any, document: nextlevelbert.Document, kind: str, cache_dir: str | None
) -> Iterator[dict[str, Any]]:
    """One record a chunk; `id` is the document's id and the number of the chunk."""
    embedding = model.encode(document.text, cache_dir=cache_dir)
    vectors = embedding.plain if kind == "plain" else embedding.chunks
    # Contextual vectors are fewer than spans where the model truncates; it has warned of that.
    for number, ((start, end), vector) in enumerate(zip(embedding.spans.tolist(), vectors.tolist(), strict=False)):
        yield {
            "document": document.id,
            "id": f"{document.id}#{number}",
            "start": start,
            "end": end,
            "text": document.text[start:end],
            "vector": vector,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help='folder of .txt, .jsonl, .parquet, or "python-manual"')
    parser.add_argument("--vectors", choices=("contextual", "plain"), default="contextual", help="default: contextual")
    parser.add_argument("--output", required=True, type=Path, help="the file to write (.jsonl or .parquet)")
    parser.add_argument("--cache_dir", help="keep chunk vectors here, so that a second run is quick")
    args = parser.parse_args()
    if args.output.suffix not in (".jsonl", ".parquet"):
        parser.error(f"--output {args.output} ends neither in .jsonl nor in .parquet")

    model = AutoModel.from_pretrained(args.model)
    text, number = pa.string(), pa.int64()
    vector = pa.list_(pa.float32(), model.config.hidden_size)
    fields = {"document": text, "id": text, "start": number, "end": number, "text": text, "vector": vector}
    schema = pa.schema(list(fields.items()))
    partial = args.output.with_name(args.output.name + ".partial")  # renamed when whole
    parquet = args.output.suffix == ".parquet"
    out = ParquetWriter(partial, schema) if parquet else partial.open("w", encoding="utf-8")
    written, seen = 0, set()
    with out:
        for document in tqdm(nextlevelbert.read_documents(args.documents), unit="document"):
            if document.id in seen:
                parser.error(f"two documents have the id {document.id!r}: one's records would replace the other's")
            seen.add(document.id)
            rows = list(records(model, document, args.vectors, args.cache_dir))
            if isinstance(out, ParquetWriter):
                out.write_table(pa.Table.from_pylist(rows, schema))
            else:
                out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            written += len(rows)
    partial.replace(args.output)
    print(f"Wrote {args.output}: {written} records with {args.vectors} vectors of {model.config.hidden_size} numbers.")


if __name__ == "__main__":
    main()
