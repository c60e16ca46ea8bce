"""How fast a 2-million-token document is tokenised: ours against one plain call of the same tokenizer.

Prints the ratio of the medians of interleaved runs, and whether the ids are the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from itertools import islice

from nextlevelbert import load_chunk_encoder, read_documents
from nextlevelbert.chunking import tokenize_document


def long_text(characters: int) -> str:
    """Python's own manual, over and over, as one document."""
    manual = "\n\n".join(document.text for document in islice(read_documents("python-manual"), 400))
    return (manual * (characters // len(manual) + 1))[:characters]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--characters", type=int, default=8_000_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    tokenizer = load_chunk_encoder(args.encoder).tokenizer
    text = long_text(args.characters)
    ours, plain = [], []
    for _ in range(args.runs):
        start = time.perf_counter()
        document = tokenize_document(tokenizer, text)
        ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        ids = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["input_ids"]
        plain.append(time.perf_counter() - start)
    same = document.input_ids.tolist() == ids
    a, b = statistics.median(ours), statistics.median(plain)
    print(f"{len(ids):,} tokens with offsets, {os.cpu_count()} cores, medians of {args.runs}. Same ids: {same}")
    print(f"| plain call | {b:.2f} s |\n| tokenize_document | {a:.2f} s |\n| ratio | {b / a:.2f} |")


if __name__ == "__main__":
    main()
