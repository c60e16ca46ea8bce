"""Memory that pretraining on chunk vectors needs on a device, beside the framework's own.

These are the activations: what PyTorch keeps from the forward for the backward pass, without the
weights, as its own hooks report it. They count bytes, not the allocator's pools, so the figures
hold for a GPU as well; the largest temporary tensor of a step comes on top. Weights, gradients and
the moments of AdamW take 16 bytes a weight.

Sequences have 512 chunk vectors, as in the paper, and the loss is the default of `pretrain`. The
vectors and weights are random. bfloat16 is autocast over float32 weights (`--bf16`).
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from transformers import BertConfig

from benchmarks.common import measuring
from nextlevelbert import (
    DataCollatorForVectorMasking,
    NextLevelBertConfig,
    NextLevelBertForMaskedVectorModeling,
)
from nextlevelbert.models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP
from nextlevelbert.pretraining.datasets import VectorSequence

LENGTH = 512
CANDIDATES = 8_192
MIB = 2**20
SIZES = {"MiniLM's layers (6 of 384)": (6, 384, 12), "MPNet's layers (12 of 768)": (12, 768, 12)}


def new_model(layers: int, hidden_size: int, heads: int) -> NextLevelBertForMaskedVectorModeling:
    """Makes a model with random layers, and random vectors to choose among."""
    encoder_config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden_size,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        attention_probs_dropout_prob=0.0,
    )
    config = NextLevelBertConfig(
        encoder_config=encoder_config,
        chunk_encoder_config=BertConfig(hidden_size=hidden_size),
        include_chunk_encoder=False,
        loss="cross_entropy",
        num_candidates=CANDIDATES,
    )
    model = NextLevelBertForMaskedVectorModeling(config)
    model.candidates = nn.functional.normalize(torch.randn(CANDIDATES, hidden_size), dim=-1)
    return model.train()


def random_sequence(hidden_size: int, index: int) -> VectorSequence:
    """Makes a sequence of random vectors between [CLS] and [SEP]."""
    special_ids = torch.full((LENGTH,), NOT_SPECIAL)
    special_ids[0] = CLS
    special_ids[-1] = SEP
    vectors = torch.randn(LENGTH, hidden_size).half()
    return VectorSequence(vectors, special_ids=special_ids, mask_key=(0, 0, index))


def activation_bytes(
    model: NextLevelBertForMaskedVectorModeling, batch: Mapping[str, torch.Tensor], autocast: bool
) -> int:
    """Counts the bytes of all tensors that a forward pass keeps for the backward pass."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with (
        saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        loss = model(**batch).loss
    loss.backward()
    return sum(storage.nbytes() for storage in kept.values())


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.parse_args()
    measuring.print_header("float32, bfloat16 autocast", f"sequences of {LENGTH} random vectors")

    rows = []
    for name, (layers, hidden_size, heads) in SIZES.items():
        model = new_model(layers, hidden_size=hidden_size, heads=heads)
        for dtype in ("float32", "bfloat16"):
            kept = {}
            for size in (1, 2):
                batch = DataCollatorForVectorMasking()(
                    [random_sequence(hidden_size, index) for index in range(size)]
                )
                kept[size] = activation_bytes(model, batch, autocast=dtype == "bfloat16")
            sizes = (kept[1], kept[2], kept[2] - kept[1])
            rows.append([f"{name}, {dtype}", *(f"{size / MIB:,.0f}" for size in sizes)])
    head = ["layers, dtype", "1 sequence, MiB", "2 sequences, MiB", "each further sequence, MiB"]
    measuring.print_table(head, rows)


if __name__ == "__main__":
    main()
