"""BERT-AL against full attention on one document: peak memory and time as it gets longer.

All are one encoder with the head for extractive summaries. "BERT-AL" reads segments of --segment_length tokens, 16,384
tokens at once; "no recurrence" is the same without LSTMs, which shows what they cost; full attention reads the whole
document with a longer table of positions (the paper's "Baseline-2"), by PyTorch's fused attention ("sdpa") or with
the scores of all pairs of tokens in memory ("eager", as was usual when the paper was written).
"""

from __future__ import annotations

import numpy as np
import torch
from tqdm import tqdm
from transformers.utils import logging

from benchmarks.common import measuring
from benchmarks.common.fresh_process import CUDA, DEVICE, in_limited_process, peak_and_seconds, prepare_processes

READINGS = ("BERT-AL", "no recurrence", "full, eager", "full, sdpa")
WARM_UP = 256  # tokens


def measure(encoder: str, reading: str, segment: int, training: bool, tokens: int) -> tuple[float, float]:
    """Peak MiB above the loaded model, in training with its gradients, and seconds of one document."""
    from nextlevelbert.models.modeling_bert_al import BertAlForExtractiveSummarization
    from nextlevelbert.tasks.summarization.baselines import with_extended_positions

    logging.disable_progress_bar()
    if reading.startswith("full"):
        model = with_extended_positions(encoder, segment, max(tokens, WARM_UP))
    else:
        recurrence = "residual" if reading == "BERT-AL" else "none"
        model = BertAlForExtractiveSummarization.from_encoder(encoder, segment_length=segment, recurrence=recurrence)
    model.set_attn_implementation("eager" if reading == "full, eager" else "sdpa")
    model.to(DEVICE).train(training)
    cls, vocabulary = model.config.cls_token_id or 0, model.config.encoder_config.vocab_size

    def run(length: int) -> None:
        ids = torch.randint(1000, vocabulary, (1, length), device=DEVICE)
        ids[0, ::28] = cls  # a sentence every 28 tokens, as in news
        labels = (torch.arange((length + 27) // 28, device=DEVICE)[None] % 2).long()
        with torch.set_grad_enabled(training):
            output = model(ids, labels=labels)
        if training:
            output.loss.backward()

    run(min(WARM_UP, tokens))
    model.zero_grad(set_to_none=False)
    return peak_and_seconds(lambda: run(tokens), max(1, 2048 // tokens))


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--segment_length", type=int, default=128, help="tokens in a segment")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512 << n for n in range(9)], help="tokens")
    parser.add_argument("--longest_training", type=int, default=8192, help="tokens of the longest training step")
    parser.add_argument("--memory_limit", type=float, default=9.0, help="GiB that a process may take; not on a GPU")
    args = parser.parse_args()
    args.lengths = sorted(set(args.lengths))
    prepare_processes("nextlevelbert.models.modeling_bert_al", "transformers.models.bert.modeling_bert")
    measuring.print_header(
        "float32, no attention dropout",
        f"one document a pass, segments of {args.segment_length} tokens, each figure from a fresh process",
    )
    for training, what in ((False, "Inference"), (True, "Training step")):
        lengths = [length for length in args.lengths if not training or length <= args.longest_training]
        found = np.full((len(lengths), len(READINGS), 2), np.nan)
        for row, column in tqdm(list(np.ndindex(found.shape[:2])), desc=what):
            reading, tokens = READINGS[column], lengths[row]
            hopeless = reading.startswith("full") and (
                tokens > 16384 or (row > 0 and np.isnan(found[row - 1, column, 0]))
            )
            if not hopeless:
                arguments = (args.encoder, reading, args.segment_length, training, tokens)
                found[row, column] = in_limited_process(args.memory_limit, measure, *arguments) or np.nan
        for quantity, form in ((0, ",.0f"), (1, ".2f")):
            unit = "peak MiB above the loaded model" if quantity == 0 else f"{'' if CUDA else 'CPU-'}seconds"
            rows = []
            for tokens, values in zip(lengths, found[..., quantity], strict=True):
                cells = [f"{value:{form}}".replace("nan", "-") for value in values]
                ratios = [f"{value / values[0]:.2f}".replace("nan", "") for value in values[1:]]
                rows.append([f"{tokens:,}", *cells, *ratios])
            print(
                f"\n{what}: {unit}; - : over {args.memory_limit:g} GiB, or longer than 16,384 tokens and not tried\n"
            )
            measuring.print_table(["tokens", *READINGS, *(f"{name} / BERT-AL" for name in READINGS[1:])], rows)


if __name__ == "__main__":
    main()
