"""ChunkBERT against full attention on one document: peak memory and time as it gets longer.

Both are one network with one set of weights, the encoder and a TextCNN over the mean of its last
five states; full attention is a chunk that holds the whole document, with the position table
continued by repeating. So they differ only in who attends to whom. "sdpa" is PyTorch's fused
attention, which the chunks are read by too; "eager" keeps the scores of all pairs of tokens, as was
usual when the paper was written (arXiv 2310.20558). The last lines are the paper's 6.25 %:
attention scores of 512 tokens held at a time, and eager attention of one layer measured.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig

from benchmarks.common import measuring
from benchmarks.common.fresh_process import (
    grid_options,
    in_fresh_process,
    longer_positions,
    peak_and_seconds,
    print_grid,
    step,
)

CHUNK, FULL, DOCUMENTS = 128, 512, 16
WAYS = ("vectorised", "sequential", "full, eager", "full, sdpa")


def measure(encoder: str, name: str, training: bool, tokens: int) -> tuple[float, float]:
    """Measures peak MiB above the loaded model (in training with gradients) and seconds."""
    from nextlevelbert import ChunkBertForSequenceClassification

    options = {"chunk_size": CHUNK, "chunk_batch_size": 1 if name == "sequential" else None}
    model: Any = ChunkBertForSequenceClassification.from_encoder(
        encoder, num_labels=2, max_training_tokens=None, **options
    )
    if name.startswith("full"):
        longer_positions(model.model.encoder.embeddings, max(tokens, FULL))
        model.config.encoder_config.max_position_embeddings = model.config.chunk_size = max(
            tokens, FULL
        )
    model.set_attn_implementation("eager" if name == "full, eager" else "sdpa")
    model.train(training)
    step(model, 64, training, labels=torch.ones(1, dtype=torch.long))  # loads the kernels
    model.zero_grad(set_to_none=False)
    return peak_and_seconds(
        lambda: step(model, tokens, training, labels=torch.ones(1, dtype=torch.long))
    )


def measure_scores(encoder: str, rows: int, size: int) -> float:
    """Measures the MiB of one call of eager attention, by number of rows and tokens."""
    from transformers.models.bert.modeling_bert import eager_attention_forward

    config = AutoConfig.from_pretrained(encoder)
    heads = config.num_attention_heads
    vectors = torch.randn(rows, heads, size, config.hidden_size // heads)  # [rows, H, C, D / H]
    module = torch.nn.Identity().eval()
    eager_attention_forward(module, *[vectors[:1]] * 3, None)
    return peak_and_seconds(lambda: eager_attention_forward(module, *[vectors] * 3, None))[0]


def main() -> None:
    args = grid_options(__doc__, [512 << n for n in range(6)])
    measuring.print_header(
        "float32", f"one document a pass, chunks of {CHUNK}, each figure from a fresh process"
    )
    print_grid(measure, args.encoder, WAYS, sorted(args.lengths), args.memory_limit)
    mib = []
    rows = []
    shapes = {"full": (1, FULL), "vectorised": (FULL // CHUNK, CHUNK), "sequential": (1, CHUNK)}
    for name, (chunks, size) in shapes.items():
        mib.append(in_fresh_process(measure_scores, args.encoder, DOCUMENTS * chunks, size))
        rows.append([name, f"{chunks * size**2 / FULL**2:.2%}", f"{mib[-1] / mib[0]:.2%}"])
    print()
    measuring.print_table(["attention of one layer", "share of scores", "measured"], rows)


if __name__ == "__main__":
    main()
