"""One pretraining step at 8 x 512 vectors, against the bare backbone and against the authors' recipe.

- authors' recipe: a reconstruction in plain transformers: float32, attention and hidden dropout 0.1, an attention
  mask that hides nothing but is given, prediction head and smooth L1 on all positions.
- bare backbone: the same layers without mask, head and attention dropout; forward and backward.
- ours: `NextLevelBertForMaskedVectorModeling` on a batch of `DataCollatorForVectorMasking`.

bfloat16 is autocast over float32 weights, as `Trainer` does it. A step is forward and backward; the fused AdamW is
timed by itself and added in its own column. Vectors and weights are random. The peak is that of a process which makes
one batch and takes one step, without the optimiser.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from benchmarks.common import measuring
from benchmarks.common.corpora import random_corpus
from benchmarks.common.fresh_process import in_fresh_process, resident_peak_mib
from benchmarks.common.models import AuthorsModel, without_word_embeddings
from nextlevelbert import (
    DataCollatorForVectorMasking,
    NextLevelBertConfig,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
)
from nextlevelbert.models.configuration_vector_document import CLS, NOT_SPECIAL, SEP
from nextlevelbert.pretraining.sequences import VectorSequence

LENGTH = 512
AUTHORS, BARE, OURS = "authors' recipe in plain transformers", "bare backbone", "ours"
WAYS = {f"{AUTHORS}, float32": (AUTHORS, False)} | {
    f"{name}, {dtype}": (name, dtype == "bfloat16") for name in (BARE, OURS) for dtype in ("float32", "bfloat16")
}


def new_model(encoder: str) -> Any:
    """Ours with random weights, which cost the same and need no encoder in memory; no attention dropout."""
    chunks = AutoConfig.from_pretrained(encoder).to_dict()
    upper = {**chunks, "attention_probs_dropout_prob": 0.0}
    config = NextLevelBertConfig(encoder_config=upper, chunk_encoder_config=chunks, include_chunk_encoder=False)
    return NextLevelBertForMaskedVectorModeling(config)


def random_batch(hidden_size: int, size: int) -> dict[str, torch.Tensor]:
    """What the collator makes of full sequences of random vectors, a [SEP] after every 200."""
    sequences: list[VectorSequence] = []
    for index in range(size):
        special_ids = torch.full((LENGTH,), NOT_SPECIAL)
        special_ids[0], special_ids[200::200] = CLS, SEP
        vectors = nn.functional.normalize(torch.randn(LENGTH, hidden_size), dim=-1).half()
        sequences.append({"inputs_embeds": vectors, "special_ids": special_ids, "mask_key": (0, 0, index)})
    return DataCollatorForVectorMasking()(sequences)


def build(name: str, ours: Any, batch: dict[str, torch.Tensor]) -> tuple[Callable[[], float], nn.Module]:
    """A step (forward and backward, gradients set anew) that returns its loss, and the model it is of."""
    way, autocast = WAYS[name]
    vectors, labels = batch["inputs_embeds"].float(), batch["labels"].float()  # [B, L, D]
    loss: Callable[[], torch.Tensor]
    model: Any
    if way == AUTHORS:
        model = AuthorsModel(ours.config.encoder_config)
        loss = lambda: model(vectors, labels)  # noqa: E731
    elif way == BARE:
        model = without_word_embeddings(ours.config.encoder_config)
        loss = lambda: model(inputs_embeds=vectors).last_hidden_state.float().square().mean()  # noqa: E731
    else:
        model = copy.deepcopy(ours)
        loss = lambda: model(**batch).loss  # noqa: E731
    model.train()

    def step() -> float:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        return value.detach().item()

    return step, model


def new_model_and_batch(encoder: str, size: int) -> tuple[Any, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = new_model(encoder)
    return model, random_batch(model.config.hidden_size, size)


def peak_of_one_step(encoder: str, size: int, name: str) -> float:
    """Peak MiB of this process after one step of a way; "" takes no step."""
    model, batch = new_model_and_batch(encoder, size)
    if name:
        build(name, model, batch)[0]()
    return resident_peak_mib()


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--batch", type=int, default=8, help="sequences of 512 vectors")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ours, batch = new_model_and_batch(args.encoder, args.batch)
    steps, models = {}, {}
    for name in WAYS:
        steps[name], models[name] = build(name, ours, batch)
    note = f"{args.batch} x {LENGTH} vectors; medians of {args.rounds} interleaved rounds"
    measuring.print_header("float32, bfloat16 autocast", note)
    with tempfile.TemporaryDirectory() as folder:
        dataset, collator = (
            PackedVectorDataset(random_corpus(args.encoder, folder), LENGTH),
            DataCollatorForVectorMasking(),
        )
        cases = {**steps, "collating": lambda: collator([dataset[index] for index in range(args.batch)])}
        seconds, _ = measuring.interleaved(cases, args.rounds)
    optimizers = {
        name: torch.optim.AdamW([weight for weight in model.parameters() if weight.grad is not None], fused=True)
        for name, model in models.items()
    }
    updates, _ = measuring.interleaved({name: optimizer.step for name, optimizer in optimizers.items()}, args.rounds)
    rows = []
    for name in WAYS:
        took, base = seconds[name].wall, f"{BARE}, {name.rpartition(', ')[2]}"
        memory = in_fresh_process(peak_of_one_step, args.encoder, args.batch, name)
        rows.append([name, f"{args.batch * LENGTH / took:,.0f}"])
        rows[-1].append(f"{args.batch * LENGTH / (took + updates[name].wall):,.0f}")
        rows[-1] += [f"{seconds[other].wall / took:.2f}" for other in (f"{AUTHORS}, float32", base)]
        rows[-1].append(f"{memory:,.0f}")
    head = ["step, dtype", "positions/s", "with AdamW", "times the authors'", "of bare, same dtype", "peak MiB"]
    measuring.print_table(head, rows)
    idle = in_fresh_process(peak_of_one_step, args.encoder, args.batch, "")
    print(f"\nA process that makes our model and a batch, and takes no step, has a peak of {idle:,.0f} MiB.")
    for dtype in ("float32", "bfloat16"):
        share = seconds["collating"].wall / (seconds["collating"].wall + seconds[f"{OURS}, {dtype}"].wall)
        print(f"Reading and collating beside our {dtype} step: {share:.2%}")


if __name__ == "__main__":
    main()
