"""Chunk vectors as records for a vector database, one for each chunk.

python examples/export_chunks.py --model demo/model --documents my_books/ --output chunks.jsonl

A record has document, id, start, end, text, vector, and metadata: the other columns of the document's row. The suffix
.parquet gives Parquet, in which vectors are fixed-size lists of float32 and metadata is JSON. Documents are read,
encoded and written one after the other, so memory does not grow with their number. Encode questions to a database of
plain vectors by `model.encode(question).plain`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetWriter
from tqdm.auto import tqdm
from transformers import AutoModel

import nextlevelbert


def records(model: Any, document: nextlevelbert.Document, kind: str, cache_dir: str | None) -> list[dict[str, Any]]:
    """One record for each chunk; `id` is the document's id and the number of the chunk."""
    encoder = model.get_chunk_encoder()
    if cache_dir:
        encoder = nextlevelbert.CachedEncoder(encoder, cache_dir)
    embedding = model.encode(document.text, chunk_encoder=encoder)
    vectors = embedding.plain if kind == "plain" else embedding.chunks  # fewer under truncation
    return [
        {"id": f"{document.id}#{number}", "document": document.id, "start": start, "end": end,
         "text": document.text[start:end], "metadata": document.metadata, "vector": vector.tolist()}
        for number, ((start, end), vector) in enumerate(zip(embedding.spans.tolist(), vectors, strict=False))
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument(
        "--vectors",
        choices=("contextual", "plain"),
        default="contextual",
        help="which vectors to write; default: contextual",
    )
    parser.add_argument("--output", required=True, type=Path, help="the file to write (.jsonl or .parquet)")
    parser.add_argument("--cache_dir", help="folder to keep chunk vectors in, so that a second run is fast")
    args = parser.parse_args()
    if args.output.suffix not in (".jsonl", ".parquet"):
        parser.error(f"--output {args.output} ends neither in .jsonl nor in .parquet")

    model = AutoModel.from_pretrained(args.model)
    text, number = pa.string(), pa.int64()
    vector = pa.list_(pa.float32(), model.config.hidden_size)
    fields = {"document": text, "id": text, "start": number, "end": number, "text": text, "vector": vector}
    fields |= {"metadata": text}
    schema = pa.schema(list(fields.items()))
    partial = args.output.with_name(args.output.name + ".partial")  # renamed when whole
    parquet = args.output.suffix == ".parquet"
    out = ParquetWriter(partial, schema) if parquet else partial.open("w", encoding="utf-8")
    written, seen = 0, set()
    with out:
        for document in tqdm(nextlevelbert.read_documents(args.documents), unit="document"):
            if document.id in seen:
                parser.error(
                    f"two documents have the id {document.id!r}; the records of one would replace those of the other"
                )
            seen.add(document.id)
            rows = records(model, document, args.vectors, args.cache_dir)
            if isinstance(out, ParquetWriter):
                metadata = json.dumps(dict(document.metadata), ensure_ascii=False, default=str)
                stored = [{**row, "metadata": metadata} for row in rows]
                out.write_table(pa.Table.from_pylist(stored, schema))
            else:  # a date, which JSON does not have, becomes text
                out.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            written += len(rows)
    partial.replace(args.output)
    print(f"Wrote {args.output}: {written} records with {args.vectors} vectors of {model.config.hidden_size} numbers.")


if __name__ == "__main__":
    main()
