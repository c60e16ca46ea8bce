"""One pretraining step of the authors' code as data: inputs, predictions, losses and gradients."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig

from nextlevelbert import NextLevelBertConfig, NextLevelBertForMaskedVectorModeling
from nextlevelbert.models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, SEP
from nextlevelbert.models.losses import smooth_l1_loss

from ..toys.vectors import TINY


@pytest.fixture
def step(shared):
    return load_file(
        shared / "reference" / "nextlevelbert" / "tiny" / "expected_pretraining_step.safetensors"
    )


@pytest.fixture
def model(step):
    config = NextLevelBertConfig(
        encoder_config=BertConfig(**TINY, max_position_embeddings=24).to_dict(),
        chunk_encoder_config=BertConfig(**TINY).to_dict(),
        include_chunk_encoder=False,
    )
    model = NextLevelBertForMaskedVectorModeling(config).eval()
    # The authors' head is 384 wide whatever the hidden size; at theirs, 384, it has our shape.
    model.head[0] = torch.nn.Linear(32, 384)
    model.head[2] = torch.nn.Linear(384, 32)
    names = {"special_vec_embeddings.weight": "model.special_embeddings.weight"}
    weights = {}
    for key, tensor in step.items():
        if key.startswith("weights."):
            name = key.removeprefix("weights.")
            name = names.get(name, name)
            name = name.replace("bert.", "model.encoder.", 1)
            name = name.replace("cls.cls.", "head.", 1)
            weights[name] = tensor
    model.load_state_dict(weights)
    return model


def batch_of(step, scheme):
    mask = {
        name: step[f"{scheme}.mask.{name}"].bool()
        for name in ("masked_indices", "cls_mask", "sep_mask")
    }
    special = torch.full(mask["cls_mask"].shape, NOT_SPECIAL)
    special[mask["cls_mask"]] = CLS
    special[mask["sep_mask"]] = SEP
    return mask["masked_indices"], special


def per_sample(predictions, targets, positions):
    """The authors average within a sample first; ours is the mean over all positions of what it is
    given."""
    return torch.stack(
        [
            smooth_l1_loss(p[chosen], t[chosen])
            for p, t, chosen in zip(predictions, targets, positions, strict=True)
        ]
    ).mean()


def test_step_of_the_original_scheme(step, model):
    positions, special = batch_of(step, "original_bert")
    targets = step["original_bert.targets"]
    replaced = step["original_bert.mask.replace"].bool()
    special[step["original_bert.mask.masked"].bool()] = MASK
    inputs = torch.where(replaced.unsqueeze(-1), step["original_bert.inputs_embeds"], targets)
    entering = []
    model.model.encoder.register_forward_pre_hook(
        lambda module, args, kwargs: entering.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    output = model(inputs, special, positions, labels=targets)
    torch.testing.assert_close(
        entering[0], step["original_bert.inputs_embeds"], atol=1e-5, rtol=1e-5
    )
    expected = step["original_bert.predictions"]
    torch.testing.assert_close(output.predictions, expected[positions], atol=1e-5, rtol=1e-5)
    predictions = torch.zeros_like(expected).masked_scatter(
        positions.unsqueeze(-1), output.predictions
    )
    loss = per_sample(predictions, targets, positions)
    torch.testing.assert_close(loss, step["original_bert.loss.smoothl1"], atol=1e-5, rtol=1e-5)
    model.config.loss_mean = "sequences"
    averaged = model(inputs, special, positions, labels=targets).loss
    torch.testing.assert_close(averaged, step["original_bert.loss.smoothl1"], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        output.loss,
        smooth_l1_loss(expected[positions], targets[positions]),
        atol=1e-5,
        rtol=1e-5,
    )
    loss.backward()
    for name, grad in {
        "special_vec_embeddings.weight": model.model.special_embeddings.weight.grad,
        "cls.cls.2.bias": model.head[2].bias.grad,
        "bert.embeddings.position_embeddings.weight": (
            model.model.encoder.embeddings.position_embeddings.weight.grad
        ),
    }.items():
        torch.testing.assert_close(grad, step[f"grad.{name}"], atol=1e-5, rtol=1e-5)


def test_their_all_mask_scheme_adds_the_mask_vector_to_the_target(step, model):
    """The published `only_mask` leaks: its numbers come out only if [MASK] is added, not put in
    place."""
    positions, special = batch_of(step, "only_mask")
    targets = step["only_mask.targets"]
    leaking = targets + positions.unsqueeze(-1) * model.model.special_embeddings.weight[MASK]
    output = model(leaking, special, positions, labels=targets)
    expected = step["only_mask.predictions"][positions]
    torch.testing.assert_close(output.predictions, expected, atol=1e-5, rtol=1e-5)
    special[positions] = MASK
    masked = model(targets, special, positions, labels=targets)

    assert (masked.predictions - expected).abs().max() > 1e-2
