"""Attention in blocks against the definition, its gradients against Longformer's own."""

import itertools
import math

import pytest
import torch

from nextlevelbert.models.cdlm_attention import plan_attention

from ..toys.cdlm import GLOBALS, LENGTHS, PAD, WINDOWS, batch, globals_of, tiny
from ..toys.vectors import close


def dense_attention(attention, hidden, is_global, window):
    """One sequence ``[L, D]``: everyone sees its window and the global tokens, global tokens see
    everything."""

    def heads(projection):
        return (
            projection(hidden).unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)
        )  # [H, L, d]

    def attend(query, key, value, seen):
        scores = query @ key.transpose(1, 2) / math.sqrt(key.shape[-1])
        return (
            (scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value).transpose(0, 1).flatten(1)
        )

    place = torch.arange(len(hidden))
    near = (place[:, None] - place).abs() <= window // 2
    local = attend(
        heads(attention.query), heads(attention.key), heads(attention.value), near | is_global
    )
    wide = attend(
        heads(attention.query_global),
        heads(attention.key_global),
        heads(attention.value_global),
        torch.tensor(True),
    )
    return torch.where(is_global[:, None], wide, local)


def dense_states(model, ids, is_global):
    """The states of one sequence without padding, layer by layer; all but attention are
    transformers' own modules."""
    positions = torch.arange(len(ids)) + PAD + 1
    hidden = model.embeddings(ids[None], None, positions[None])[0]
    for layer, window in zip(model.encoder.layer, model.config.attention_window, strict=True):
        attended = dense_attention(layer.attention.self, hidden, is_global, window)
        attended = layer.attention.output(attended, hidden)
        hidden = layer.output(layer.intermediate(attended), attended)
    return hidden


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("windows", WINDOWS)
@torch.no_grad()
def test_attention_is_that_of_the_definition(attention, windows):
    """Sequence by sequence, so that padding changes nothing, even where it is said to be global."""
    model = tiny(attention=attention, attention_window=WINDOWS[windows]).double()
    ids, mask = batch()
    first = []
    for places in GLOBALS.values():
        wide = globals_of(places, ids.shape[1])
        output = model(ids, mask, torch.where(mask.bool(), wide, 1))
        for row, length in enumerate(LENGTHS):
            expected = dense_states(model, ids[row, :length], wide[row, :length].bool())
            close(output.last_hidden_state[row, :length], expected)
            close(output.pooler_output[row], expected.mean(0))
        first.append(output.last_hidden_state[0])

    # What is global matters, so the agreement says something.
    assert all((one - other).abs().max() > 0.1 for one, other in itertools.pairwise(first))


@pytest.mark.parametrize("places", ["different", "all"])
def test_gradients_of_both_kinds_of_attention_are_equal(places):
    ids, mask = batch()
    wide = globals_of(GLOBALS[places], ids.shape[1])
    weights = torch.randn(*ids.shape, 32, generator=torch.Generator().manual_seed(1))
    gradients = []
    for attention in ("sdpa", "eager"):
        model = tiny(attention=attention, attention_window=WINDOWS["different"])
        (model(ids, mask, wide).last_hidden_state * mask[..., None] * weights).sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for sdpa, eager in zip(*gradients, strict=True):
        scale = max(1.0, float(eager.abs().max()))
        close(sdpa / scale, eager / scale)


def test_blocks_where_they_save_something_and_the_square_elsewhere():
    real = torch.ones(1, 40, dtype=torch.bool)
    few = globals_of([[0, 7]], 40).bool()
    many = globals_of([range(30)], 40).bool()
    blocks = plan_attention(real, few, 8)

    assert blocks.block == 4
    assert blocks.allowed.shape == (10, 1, 4, 3 * 4 + 2)
    assert plan_attention(real, many, 8).block is None  # 12 + 30 keys, of 40
    assert plan_attention(real, few, 80).block is None

    real[:, 9:] = False
    for window in (8, 30):  # a query without a key could give NaN, so padding sees something
        assert plan_attention(real, torch.zeros_like(real), window).allowed.any(dim=-1).all()


@torch.no_grad()
def test_attentions_on_request_are_those_of_longformer():
    model = tiny(attention_window=[4, 4, 4])
    ids, mask = batch()
    wide = globals_of(GLOBALS["one"], ids.shape[1])
    plain = model(ids, mask, wide, output_hidden_states=True)
    with_attentions = model(ids, mask, wide, output_attentions=True, output_hidden_states=True)

    assert plain.attentions is None
    assert [tuple(weights.shape) for weights in with_attentions.attentions] == [
        (4, 4, 37, 1 + 5)
    ] * 3

    real = mask.bool()
    close(with_attentions.last_hidden_state[real], plain.last_hidden_state[real])
    for sdpa, eager in zip(plain.hidden_states, with_attentions.hidden_states, strict=True):
        close(sdpa[real], eager[real])
    sums = with_attentions.attentions[0].sum(-1)[
        :, :, 1:
    ]  # local queries; those of [CLS] are in the other
    close(sums[0], torch.ones_like(sums[0]))
    sums = with_attentions.global_attentions[0].sum(-2)
    close(sums, torch.ones_like(sums))


def test_blocks_learn_with_dropout():
    """Where SDPA lays out its output in another way."""
    model = tiny(attention_window=4, attention_probs_dropout_prob=0.1).train()
    ids, mask = batch()
    model(input_ids=ids, attention_mask=mask).last_hidden_state.sum().backward()

    assert model.encoder.layer[0].attention.self.query.weight.grad.abs().sum() > 0
