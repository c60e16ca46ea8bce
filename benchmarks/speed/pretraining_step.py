"""One pretraining step at 8 x 512 vectors, against the bare backbone and against the authors'
recipe.

- authors' recipe: a reconstruction in plain transformers: float32, attention and hidden dropout
  0.1, an attention mask that hides nothing but is given, prediction head and smooth L1 on all
  positions; with attention written out, which is faster on a CPU with dropout in it, so the
  comparison is not in our favour.
- bare backbone: the same layers without mask, head and attention dropout.
- ours: `NextLevelBertForMaskedVectorModeling` on a batch of `DataCollatorForVectorMasking`.

bfloat16 is autocast over float32 weights, as `Trainer` does it. A step is forward and backward,
without the optimiser. Vectors and weights are random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel

from benchmarks.common import measuring
from nextlevelbert import (
    DataCollatorForVectorMasking,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
)

LENGTH = 512
AUTHORS = "authors' recipe in plain transformers"
BARE = "bare backbone"
OURS = "ours"


class AuthorsModel(nn.Module):
    """Computes Smooth L1 on every position, with backbone, head and the whole mask given."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.backbone = BertModel(config, add_pooling_layer=False)
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, size))

    def forward(self, inputs_embeds: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        batch, length = inputs_embeds.shape[:2]
        mask = inputs_embeds.new_zeros(batch, 1, length, length)  # added to the scores
        hidden = self.backbone(inputs_embeds=inputs_embeds, attention_mask=mask).last_hidden_state
        return nn.functional.smooth_l1_loss(self.head(hidden), labels)


def step(model: nn.Module, loss: Callable[[], torch.Tensor], autocast: bool) -> Callable[[], None]:
    """Runs forward and backward, with new gradients."""
    model.train()

    def run() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()

    return run


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--batch", type=int, default=8, help="sequences of 512 vectors")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    model: Any = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        args.encoder, include_chunk_encoder=False
    )
    with measuring.random_corpus(model.config.hidden_size) as corpus:
        dataset = PackedVectorDataset(corpus, LENGTH)
        batch = DataCollatorForVectorMasking()([dataset[index] for index in range(args.batch)])
        vectors = batch["inputs_embeds"].float()  # [B, L, D]
        labels = batch["labels"].float()
        config = model.config.encoder_config
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        written_out = BertConfig(**{**config.to_dict(), **dropout}, attn_implementation="eager")
        authors = AuthorsModel(written_out)
        bare = BertModel(
            BertConfig(**{**config.to_dict(), "attention_probs_dropout_prob": 0.0}),
            add_pooling_layer=False,
        )
        ways: dict[tuple[str, str], Callable[[], Any]] = {
            (AUTHORS, "float32"): step(authors, lambda: authors(vectors, labels), autocast=False)
        }
        for kind in ("float32", "bfloat16"):
            half = kind == "bfloat16"
            states = lambda: bare(inputs_embeds=vectors).last_hidden_state.float().square().mean()  # noqa: E731
            ways[BARE, kind] = step(bare, states, half)
            ways[OURS, kind] = step(model, lambda: model(**batch).loss, half)
        note = f"{args.batch} x {LENGTH} vectors; medians of {args.rounds} interleaved rounds"
        measuring.print_header("float32, bfloat16 autocast", note)
        seconds, _ = measuring.interleaved(ways, args.rounds)
    rows = []
    for (name, kind), took in seconds.items():
        rate = f"{args.batch * LENGTH / took.wall:,.0f}"
        times = [seconds[AUTHORS, "float32"].wall / took.wall, seconds[BARE, kind].wall / took.wall]
        rows.append([f"{name}, {kind}", rate, *(f"{value:.2f}" for value in times)])
    head = ["step, dtype", "positions/s", "times the authors'", "of bare, same dtype"]
    measuring.print_table(head, rows)


if __name__ == "__main__":
    main()
