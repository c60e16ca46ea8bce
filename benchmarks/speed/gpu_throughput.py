"""Encoding and pretraining on one GPU in bfloat16: tokens and positions a second, and the share of
the card's peak.

- peak: the best of repeated bfloat16 matrix products in the same run, not the data sheet's.
- encoding: `ChunkEncoder.encode` on ids that lie ready, and `model.encode` from text.
- pretraining: forward, backward and fused AdamW under autocast, on a batch that lies on the device.

Shares count floating-point operations of forward (and backward) by PyTorch's own counter; optimiser
not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import measuring
from nextlevelbert import (
    DataCollatorForVectorMasking,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
    PackedVectorDataset,
)
from nextlevelbert.models.chunking import tokenize_document

ROUNDS, LENGTH = 3, 512


def operations(run: Callable[[], Any]) -> int:
    """Counts floating-point operations of a run.

    Attention counts as plain matrix products, because the counter does not know every kernel.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def seconds_of(run: Callable[[], Any], device: torch.device, rounds: int = ROUNDS) -> float:
    """Measures the median seconds of some runs until the device is done.

    One run before them fills the allocator's pool.
    """
    run()
    seconds = []
    for _ in range(rounds):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=3_000_000)
    parser.add_argument("--device", default="cuda", help='"cpu" only to try the script')
    parser.add_argument(
        "--matrix", type=int, default=8_192, help="rows of the matrices that measure the peak"
    )
    parser.add_argument(
        "--batch", type=int, default=64, help="sequences of 512 vectors in a pretraining step"
    )
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("No CUDA device here. Try the script with --device cpu and small sizes.")
    a, b = (
        torch.randn(args.matrix, args.matrix, device=device, dtype=torch.bfloat16) for _ in range(2)
    )
    peak = 2 * args.matrix**3 / seconds_of(lambda: a @ b, device, 10)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    measuring.print_header(
        "bfloat16", f"{name}; {args.matrix}^3 matrix product: {peak / 1e12:.3g} TFLOP/s"
    )

    model: Any = NextLevelBertModel.from_chunk_encoder(args.encoder, chunk_size=256).to(device)
    model.chunk_encoder.to(torch.bfloat16)
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    rule, ids = model.config.chunking_rule(), tokenize_document(model.tokenizer, text).input_ids
    boundaries = rule.boundaries(ids)
    work = operations(lambda: model.chunk_encoder.encode(ids, boundaries[:9], rule)) / int(
        boundaries[8]
    )
    ready = len(ids) / seconds_of(lambda: model.chunk_encoder.encode(ids, boundaries, rule), device)
    from_text = len(ids) / seconds_of(lambda: model.encode(text), device)

    upper: Any = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        args.encoder, include_chunk_encoder=False
    )
    upper.to(device).train()
    optimizer = torch.optim.AdamW(upper.parameters(), lr=1e-4, fused=True)
    with measuring.random_corpus(upper.config.hidden_size) as corpus:
        dataset = PackedVectorDataset(corpus, LENGTH)
        rows = [dataset[number % len(dataset)] for number in range(args.batch)]
        batch = {
            key: values.to(device) for key, values in DataCollatorForVectorMasking()(rows).items()
        }

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = upper(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step_work = operations(step) / (args.batch * LENGTH)
    positions = args.batch * LENGTH / seconds_of(step, device, 5)
    measuring.print_table(
        ["what", "tokens or positions/s", "share of the peak"],
        [
            [what, f"{rate:,.0f}", f"{rate * flops / peak:.1%}"]
            for what, rate, flops in (
                ("encoding, ready ids", ready, work),
                ("encoding, text", from_text, work),
                ("pretraining", positions, step_work),
            )
        ],
    )


if __name__ == "__main__":
    main()
