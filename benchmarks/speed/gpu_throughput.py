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

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import measuring
from benchmarks.common.corpora import random_corpus
from nextlevelbert import (
    ChunkingRule,
    DataCollatorForVectorMasking,
    Document,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.models.chunking import tokenize_document

BOOKS3_TOKENS, EPOCHS, CAPACITY = 25e9, 20, 254
DOCUMENT_CHARACTERS = 400_000
LENGTH = 512


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


class Training:
    """A model of the encoder's size with its optimiser, on a device."""

    def __init__(self, encoder: str, device: torch.device) -> None:
        model: Any = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(encoder, include_chunk_encoder=False)
        self.model, self.device = model.to(device).train(), device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def forward_backward(self, batch: dict[str, torch.Tensor], piece: int) -> None:
        """Adds up the gradients of a batch, `piece` sequences at a time."""
        size = len(batch["special_ids"])
        for start in range(0, size, piece):
            part = {
                name: values[start : start + piece].to(self.device, non_blocking=True)
                for name, values in batch.items()
            }
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.model(**part).loss
            (loss * len(part["special_ids"]) / size).backward()

    def step(self, batch: dict[str, torch.Tensor], piece: int) -> None:
        self.forward_backward(batch, piece)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def collated(corpus: VectorCorpus, batch: int, steps: int, workers: int, device: torch.device) -> DataLoader:
    """Batches of sequences drawn with replacement, so that a small corpus gives as many as are asked for."""
    dataset = PackedVectorDataset(corpus, LENGTH)
    return DataLoader(
        dataset,
        batch,
        sampler=RandomSampler(dataset, replacement=True, num_samples=batch * steps),
        collate_fn=DataCollatorForVectorMasking(),
        num_workers=workers,
        pin_memory=device.type == "cuda",
    )


def ready_rate(encoder: str, corpus: VectorCorpus, device: torch.device, size: int) -> tuple[float, float, int]:
    """Steps over one batch that lies on the device.

    Returns:
        Positions a second, operations a position, and the sequences of one piece: the batch, or the largest
        half of a half of it that fits.
    """
    training = Training(encoder, device)
    [batch] = list(collated(corpus, size, 1, 0, device))
    batch = {name: values.to(device) for name, values in batch.items()}
    few = {name: values[:2] for name, values in batch.items()}
    work = operations(lambda: training.forward_backward(few, 2)) / few["special_ids"].numel()
    piece = size
    while True:
        try:
            training.step(batch, piece)
            break
        except torch.OutOfMemoryError:
            if piece == 1:
                raise
        piece //= 2  # outside the handler, whose traceback holds on to the tensors of the step
        training.optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    start = synchronized(device)
    for _ in range(5):
        training.step(batch, piece)
    return 5 * batch["special_ids"].numel() / (synchronized(device) - start), work, piece


def loader_rate(
    encoder: str,
    corpus: VectorCorpus,
    device: torch.device,
    size: int,
    piece: int,
    steps: int,
    workers: int,
) -> float:
    """Positions a second of steps fed by the loader, once the batches that it had ready are used up."""
    training = Training(encoder, device)
    ready = 2 * workers + 1  # what the workers read ahead, and the step that warms up
    if steps <= ready:
        raise ValueError(f"--steps must be above {ready} with {workers} workers, got {steps}.")
    start, positions = 0.0, 0
    for number, batch in enumerate(collated(corpus, size, steps, workers, device)):
        if number == ready:
            start, positions = synchronized(device), 0
        training.step(batch, piece)
        positions += batch["special_ids"].numel()
    return positions / (synchronized(device) - start)


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
        rate, work, split = ready_rate(args.encoder, corpus, device, args.batch)
        rows.append((f"pretraining, {args.batch} in {split}s", rate, work, positions, ""))
        rate = loader_rate(args.encoder, corpus, device, args.batch, split, args.steps, args.workers)
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
