"""Encoding and pretraining on one GPU in bfloat16: tokens and positions a second, and the share of the card's peak.

- peak: the best of repeated bfloat16 matrix products in the same run, not the data sheet's.
- from ready ids: `ChunkEncoder.encode` alone. From text: `encode_corpus`, tokenising and writing included; two
  lengths are timed and the difference counts, so that starting workers and compiling, which happen once, fall away.
- pretraining: forward, backward and fused AdamW under autocast, on a batch that lies on the device, and again
  through the loader. A batch that does not fit is split, with gradients added up.
- projections: Books3 as the paper has it (25e9 tokens), and 20 epochs over its vectors, one for 254 tokens.

Shares count floating-point operations of forward (and backward) by PyTorch's own counter; optimiser not counted.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import measuring
import torch
from corpus_read import random_corpus
from gpu_pretraining import loader_rate, ready_rate
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from nextlevelbert import ChunkingRule, Document, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunking import tokenize_document

BOOKS3_TOKENS, EPOCHS, CAPACITY = 25e9, 20, 254
DOCUMENT_CHARACTERS = 400_000


def operations(run: Callable[[], Any]) -> int:
    """Floating-point operations of a run; attention as plain matrix products, because not every kernel is known."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def synchronized(device: torch.device) -> float:
    """The clock, once the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_operations(device: torch.device, size: int) -> float:
    """Operations a second in the fastest of ten bfloat16 products of two ``[size, size]`` matrices."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(10):
        start = synchronized(device)
        a @ b
        seconds.append(synchronized(device) - start)
    return 2 * size**3 / min(seconds)


def ids_rate(source: Any, rule: ChunkingRule, text: str, device: torch.device, compiled: bool) -> tuple[float, float]:
    """Tokens a second of the chunk encoder on ids that lie ready, and operations a token."""
    encoder = copy.deepcopy(source.encoder).to(device, torch.bfloat16)
    ids = tokenize_document(source.tokenizer, text).input_ids
    boundaries = rule.boundaries(ids)
    few = boundaries[:9]
    work = operations(lambda: encoder.encode(ids, few, rule)) / int(few[-1])
    if compiled:
        encoder.compile(dynamic=True)
    encoder.encode(ids, boundaries, rule)  # compiles, and fills the allocator's pool
    seconds = []
    for _ in range(3):
        start = synchronized(device)
        encoder.encode(ids, boundaries, rule)
        seconds.append(synchronized(device) - start)
    return len(ids) / statistics.median(seconds), work


def text_rate(source: Any, rule: ChunkingRule, text: str, device: torch.device, **options: Any) -> tuple[float, float]:
    """Tokens a second of `encode_corpus` beyond its start, and the seconds that its first start takes."""

    def documents(length: int) -> Iterator[Document]:
        for start in range(0, length, DOCUMENT_CHARACTERS):
            yield Document(str(start), text[start : min(start + DOCUMENT_CHARACTERS, length)])

    points = []
    for length in (len(text) // 5, len(text) // 5, len(text)):  # the first fills the compiler's cache on disk
        torch.compiler.reset()  # or the encoders of earlier calls count against its limit of graphs
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            corpus = encode_corpus(
                documents(length), source, rule, folder, torch.bfloat16, device, 1_000_000, progress=False, **options
            )
            points.append((time.perf_counter() - start, corpus.manifest["tokens"]))
    (first, _), (short, few), (long, many) = points
    if long <= short:
        raise ValueError(f"{many:,} tokens took no longer than {few:,} ({long:.1f} s, {short:.1f} s): raise --tokens.")
    rate = (many - few) / (long - short)
    return rate, first - few / rate


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=30_000_000)
    parser.add_argument("--device", default="cuda", help='"cpu" only to try the script')
    parser.add_argument("--matrix", type=int, default=8_192, help="rows of the matrices that measure the peak")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512, help="sequences of 512 vectors in a pretraining step")
    parser.add_argument("--steps", type=int, default=64)
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "No CUDA device here. Run this on a machine with one, or try it with --device cpu and small sizes."
        )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    peak = peak_operations(device, args.matrix)
    measuring.print_header("bfloat16", f"{name}; {args.matrix}^3 matrix product: {peak / 1e12:.3g} TFLOP/s")
    source = load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, CAPACITY + 2, max_chunk_size=source.max_chunk_size)
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    rows: list[tuple[str, float, float, float, str]] = []
    for compiled in (False, True):
        note = ", compiled" if compiled else ""
        rate, work = ids_rate(source, rule, text[: 4 * 4_000_000], device, compiled)
        rows.append((f"encoding, ready ids{note}", rate, work, BOOKS3_TOKENS, ""))
        rate, start = text_rate(source, rule, text, device, num_workers=args.workers, compile=compiled)
        rows.append((f"encoding, text{note}", rate, work, BOOKS3_TOKENS, f"{start:.0f}"))
    with tempfile.TemporaryDirectory() as folder:
        corpus = random_corpus(args.encoder, folder)
        positions = EPOCHS * BOOKS3_TOKENS / CAPACITY
        rate, work, split = ready_rate(args.encoder, corpus, device, args.batch, operations, synchronized)
        rows.append((f"pretraining, {args.batch} in {split}s", rate, work, positions, ""))
        rate = loader_rate(args.encoder, corpus, device, args.batch, split, args.steps, args.workers, synchronized)
        rows.append(("pretraining, loader included", rate, work, positions, ""))
    measuring.print_table(
        ["what", "tokens or positions/s", "share of the peak", "hours: Books3 / its 20 epochs", "start (s)"],
        [
            [what, f"{rate:,.0f}", f"{rate * work / peak:.1%}", f"{total / rate / 3600:,.1f}", start]
            for what, rate, work, total, start in rows
        ],
    )


if __name__ == "__main__":
    main()
