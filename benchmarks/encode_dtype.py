"""What bfloat16 does to speed and to chunk vectors: ratio to float32 in one run, and the cosines."""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
from tokenise_throughput import long_text

from nextlevelbert import ChunkingRule, load_chunk_encoder
from nextlevelbert.chunking import tokenize_document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--file", help="a .txt to encode in place of Python's manual")
    parser.add_argument("--chunks", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    source = load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 256, max_chunk_size=source.max_chunk_size)
    text = open(args.file, encoding="utf-8").read() if args.file else long_text(1_000_000)
    document = tokenize_document(source.tokenizer, text)
    boundaries = rule.boundaries(document.input_ids)[: args.chunks + 1]
    encoders = {dtype: copy.deepcopy(source.encoder).to(dtype) for dtype in (torch.float32, torch.bfloat16)}
    seconds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in encoders}
    vectors = {}
    for _ in range(args.runs):
        for dtype, encoder in encoders.items():
            start = time.perf_counter()
            vectors[dtype] = encoder.encode(document.input_ids, boundaries, rule)
            seconds[dtype].append(time.perf_counter() - start)
    cosine = torch.cosine_similarity(vectors[torch.float32], vectors[torch.bfloat16])
    tokens = int(boundaries[-1])
    for dtype, runs in seconds.items():
        print(f"| {dtype} | {tokens / statistics.median(runs):,.0f} tokens/s |")
    ratio = statistics.median(seconds[torch.float32]) / statistics.median(seconds[torch.bfloat16])
    print(f"| speed-up | {ratio:.2f} |")
    print(f"| cosine of bfloat16 to float32 | min {cosine.min():.6f}, mean {cosine.mean():.6f} |")


if __name__ == "__main__":
    main()
