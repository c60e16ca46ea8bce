"""A map of a shelf: every document is a point, and similar documents are close together.

python examples/shelf_map.py --model demo/model --documents my_books/ --output shelf.png

Document vectors, scaled to length 1, are projected on their first two principal components. The title says how much of
the variance these two explain. If it is little, documents that are close together need not be alike. The command
`nextlevelbert map` does the same, and keeps the vectors.
"""

from __future__ import annotations

import argparse

import numpy as np
from tqdm.auto import tqdm
from transformers import AutoModel

import nextlevelbert
from nextlevelbert.commands.map import draw_map


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help='file, folder or pattern, or "python-manual"')
    parser.add_argument("--output", required=True, help="the picture to write (.png)")
    parser.add_argument("--cache_dir", help="folder to keep chunk vectors in, so that a second run is fast")
    args = parser.parse_args()

    model = AutoModel.from_pretrained(args.model)
    encoder = model.get_chunk_encoder()
    if args.cache_dir:
        encoder = nextlevelbert.CachedEncoder(encoder, args.cache_dir)
    names, vectors, chunks = [], [], []
    for document in tqdm(nextlevelbert.read_documents(args.documents), unit="document"):
        embedding = model.encode(document.text, chunk_encoder=encoder)
        names.append(document.id)
        vectors.append(embedding.document.numpy())
        chunks.append(len(embedding.plain))
    if len(names) < 3:
        parser.error(f"{args.documents} holds {len(names)} document(s); a map needs at least three.")
    figure, placed = draw_map(names, np.stack(vectors), chunks)
    figure.savefig(args.output)
    print(f"Wrote {args.output}: {len(names)} documents, {placed} with room for their name.")


if __name__ == "__main__":
    main()
