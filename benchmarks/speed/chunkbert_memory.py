"""ChunkBERT against full attention on one document: peak memory and time as it gets longer.

Both are one network with one set of weights, the encoder and a TextCNN over the mean of its last five states; full
attention is a chunk that holds the whole document, with the position table continued by repeating. So they differ
only in who attends to whom. "sdpa" is PyTorch's fused attention, which the chunks are read by too; "eager" keeps the
scores of all pairs of tokens, as was usual when the paper was written (arXiv 2310.20558).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm
from transformers import AutoConfig
from transformers.utils import logging

from benchmarks.common import measuring
from benchmarks.common.fresh_process import (
    CUDA,
    DEVICE,
    in_fresh_process,
    in_limited_process,
    peak_and_seconds,
    prepare_processes,
)

CHUNK, FULL, DOCUMENTS = 128, 512, 16
WARM_UP = 64  # tokens: loads the kernels, and leaves next to no free memory that would hide a peak
FITTED = 3  # longest lengths of a model that its exponent comes from; below them what is fixed weighs most


class Reading(NamedTuple):
    """How a document is read: whole, or in chunks, of which all or one are in a pass."""

    whole: bool = False
    attention: str = "sdpa"
    chunk_batch_size: int | None = None
    checkpointing: bool = False


READINGS = {
    "vectorised": Reading(),
    "sequential": Reading(chunk_batch_size=1),
    "vectorised, checkpointing": Reading(checkpointing=True),
    "full, eager": Reading(whole=True, attention="eager"),
    "full, sdpa": Reading(whole=True),
}


def build(encoder: str, reading: Reading, tokens: int) -> Any:
    """A classifier that reads documents of up to this many tokens in this way."""
    from nextlevelbert.models.modeling_chunkbert import ChunkBertForSequenceClassification

    logging.disable_progress_bar()  # one bar in each process would break the bar over all of them
    model: Any = ChunkBertForSequenceClassification.from_encoder(
        encoder, num_labels=2, chunk_size=CHUNK, max_training_tokens=None, chunk_batch_size=reading.chunk_batch_size
    )
    if reading.whole:
        embeddings = model.model.encoder.embeddings
        table = embeddings.position_embeddings.weight.detach()
        rows = torch.arange(tokens) % len(table)
        embeddings.position_embeddings = torch.nn.Embedding.from_pretrained(table[rows], freeze=False)
        embeddings.position_ids = torch.arange(tokens)[None]  # [1, T]
        embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)
        model.config.encoder_config.max_position_embeddings = model.config.chunk_size = tokens
    model.set_attn_implementation(reading.attention)
    if reading.checkpointing:
        model.activation_checkpointing_enable()
    return model.to(DEVICE)


def measure_reading(encoder: str, reading: Reading, training: bool, tokens: int) -> tuple[float, float]:
    """Peak MiB above the loaded model, in training with its gradients, and seconds of one document."""
    model = build(encoder, reading, tokens).train(training)

    def run(length: int) -> None:
        ids = torch.randint(1, model.config.encoder_config.vocab_size, (1, length), device=DEVICE)
        with torch.set_grad_enabled(training):
            output = model(ids, labels=torch.ones(1, dtype=torch.long, device=DEVICE))
        if training:
            output.loss.backward()

    run(min(WARM_UP, tokens))
    model.zero_grad(set_to_none=False)
    return peak_and_seconds(lambda: run(tokens), max(1, 2048 // tokens))


def measure_scores(config: Any, rows: int, size: int) -> tuple[float, float]:
    """MiB and seconds of one call of the eager attention function, on so many rows of so many tokens."""
    from transformers.models.bert.modeling_bert import eager_attention_forward

    head_size = config.hidden_size // config.num_attention_heads
    vectors = torch.randn(rows, config.num_attention_heads, size, head_size, device=DEVICE)  # [rows, H, C, D / H]
    module = torch.nn.Identity().eval()
    eager_attention_forward(module, *[vectors[:1]] * 3, None)
    return peak_and_seconds(lambda: eager_attention_forward(module, *[vectors] * 3, None))


def measure_all(args: argparse.Namespace, config: Any, names: list[str], training: bool) -> np.ndarray:
    """MiB and seconds ``[lengths, names, 2]`` of a pass or a training step; NaN where the memory does not suffice."""
    found = np.full((len(args.lengths), len(names), 2), np.nan)
    for row, column in tqdm(list(np.ndindex(found.shape[:2])), desc="training" if training else "inference"):
        name, tokens = names[column], args.lengths[row]
        # Eager attention has its scores twice at a time, and for the backward pass keeps those of every layer.
        copies = (2 + training * config.num_hidden_layers) * (name == "full, eager")
        gib = copies * config.num_attention_heads * tokens**2 * 4 / 2**30
        if gib > args.memory_limit:
            tqdm.write(f"{name}, {tokens:,} tokens: not started, because its scores alone take {gib:.0f} GiB.")
        else:
            arguments = (args.encoder, READINGS[name], training, tokens)
            found[row, column] = in_limited_process(args.memory_limit, measure_reading, *arguments) or np.nan
    return found


def print_figures(title: str, names: list[str], lengths: list[int], figures: np.ndarray, form: str, gap: str) -> None:
    """A table of one quantity ``[lengths, names]``: with growth since the row above, full over chunked, exponents."""
    whole = np.array([READINGS[name].whole for name in names])
    growth = np.vstack([np.full(len(names), np.nan), figures[1:] / figures[:-1]])
    ratios = (figures[:, whole, None] / figures[:, None, ~whole]).reshape(len(lengths), -1)
    rows = []
    for tokens, values, grown, ratio in zip(lengths, figures, growth, ratios, strict=True):
        cells = [f"{v:{form}} (x {g:.2f})".replace(" (x nan)", "") for v, g in zip(values, grown, strict=True)]
        cells = [cell.replace("nan", gap) for cell in cells] + [f"{r:.2f}".replace("nan", "") for r in ratio]
        rows.append([f"{tokens:,}", *cells])
    exponents = []
    for column in figures.T:
        longest = np.flatnonzero(~np.isnan(column))[-FITTED:]
        x, y = np.log(np.array(lengths)[longest]), np.log(column[longest])
        exponents.append(f"{np.polyfit(x, y, 1)[0]:.2f}" if len(x) > 1 else "")
    heads = [f"{full} / {name}" for full in np.array(names)[whole] for name in np.array(names)[~whole]]
    print(f"\n{title}\n")
    measuring.print_table(["tokens", *names, *heads], [*rows, ["exponent", *exponents, *[""] * len(heads)]])


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512 << n for n in range(6)], help="tokens")
    parser.add_argument("--memory_limit", type=float, default=9.0, help="GiB that a process may take; not on a GPU")
    args = parser.parse_args()
    args.lengths = sorted(set(args.lengths))
    config = AutoConfig.from_pretrained(args.encoder)
    if config.model_type != "bert":
        raise SystemExit(f"--encoder must be a BERT, whose position table can be continued, not {config.model_type}.")
    if CUDA:
        args.memory_limit = round(torch.cuda.mem_get_info()[1] / 2**30)
    elif not Path("/proc/self/clear_refs").exists():
        raise SystemExit("Peak memory is read from a GPU or from Linux's /proc, and this machine has neither.")
    prepare_processes("nextlevelbert.models.modeling_chunkbert", "transformers.models.bert.modeling_bert")
    measuring.print_header(
        "float32, no attention dropout",
        f"one document a pass, chunks of {CHUNK} tokens, each figure from a fresh process; x: times the row above",
        f"exponent: of the growth over the {FITTED} longest measured, 1 is linear and 2 quadratic",
    )
    over = f"over {args.memory_limit:g} GiB"
    for training, what in enumerate(("Inference", "Training step")):
        names = [name for name, reading in READINGS.items() if training or not reading.checkpointing]
        found = measure_all(args, config, names, bool(training))  # [lengths, names, 2]
        held = "the loaded model and its gradients" if training else "the loaded model"
        print_figures(f"{what}: peak MiB above {held}", names, args.lengths, found[..., 0], ",.0f", over)
        print_figures(f"{what}: {'' if CUDA else 'CPU-'}seconds", names, args.lengths, found[..., 1], ".2f", over)

    print(
        f"\nAttention scores held of {FULL} tokens (the paper's 6.25 %), and eager attention of one layer measured\n"
    )
    mib, rows = [], []
    for name, chunks, size in (("full", 1, FULL), ("vectorised", FULL // CHUNK, CHUNK), ("sequential", 1, CHUNK)):
        mib.append(in_fresh_process(measure_scores, config, DOCUMENTS * chunks, size)[0])
        claimed, share = chunks * size**2 / FULL**2, mib[-1] / mib[0]
        rows.append([name, f"{chunks} x {size}^2", f"{claimed:.2%}", f"{mib[-1] / DOCUMENTS:.2f}", f"{share:.2%}"])
    measuring.print_table(["", "scores", "share", "measured MiB a document", "share"], rows)


if __name__ == "__main__":
    main()
