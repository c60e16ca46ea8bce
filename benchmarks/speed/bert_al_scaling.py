"""BERT-AL against full attention on one document: peak memory and time as it gets longer.

All are one encoder with the head for extractive summaries. "BERT-AL" reads segments of 128 tokens,
16,384 tokens at once; "no recurrence" is the same without LSTMs, which shows what they cost; full
attention reads the whole document with a longer table of positions (the paper's "Baseline-2"), by
PyTorch's fused attention ("sdpa") or with the scores of all pairs of tokens in memory ("eager").
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.common import measuring
from benchmarks.common.fresh_process import (
    grid_options,
    longer_positions,
    peak_and_seconds,
    print_grid,
    step,
)

SEGMENT = 128  # tokens
SENTENCE = 28  # tokens
WAYS = ("BERT-AL", "no recurrence", "full, eager", "full, sdpa")


def measure(encoder: str, name: str, training: bool, tokens: int) -> tuple[float, float]:
    """Measures peak MiB above the loaded model (in training with gradients) and seconds."""
    from nextlevelbert import BertAlForExtractiveSummarization

    recurrence = "residual" if name == "BERT-AL" else "none"
    model: Any = BertAlForExtractiveSummarization.from_encoder(
        encoder, segment_length=SEGMENT, recurrence=recurrence
    )
    if name.startswith("full"):
        longer_positions(model.model.encoder.embeddings, max(tokens, 2 * SEGMENT))
        model.config.encoder_config.max_position_embeddings = model.config.segment_length = max(
            tokens, 2 * SEGMENT
        )
    model.set_attn_implementation("eager" if name == "full, eager" else "sdpa")
    model.train(training)

    def run(length: int) -> None:
        step(model, length, training, labels=torch.arange(-(-length // SENTENCE))[None] % 2)

    run(2 * SEGMENT)  # loads the kernels
    model.zero_grad(set_to_none=False)
    return peak_and_seconds(lambda: run(tokens))


def main() -> None:
    args = grid_options(__doc__, [512, 2048, 8192, 16384])
    measuring.print_header(
        "float32", f"one document a pass, segments of {SEGMENT}, each figure from a fresh process"
    )
    print_grid(measure, args.encoder, WAYS, sorted(args.lengths), args.memory_limit)


if __name__ == "__main__":
    main()
