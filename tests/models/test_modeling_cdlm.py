"""CDLM's attention from its definition and beside transformers' Longformer, and what all its classes share."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from nextlevelbert import (
    CdlmConfig,
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
)
from nextlevelbert.models.cdlm_attention import plan_attention

from ..cdlm_toys import GLOBALS, HEADS, LENGTHS, PAD, SIZE, WINDOWS, batch, globals_of, inputs_of, masked_batch, tiny

# Longformer's attention from its definition.


def dense_attention(attention, hidden, is_global, window):
    """One sequence ``[L, D]``: everyone sees its window and the global tokens, global tokens see everything."""

    def heads(projection):
        return projection(hidden).unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)  # [H, L, d]

    def attend(query, key, value, seen):
        scores = query @ key.transpose(1, 2) / math.sqrt(key.shape[-1])
        return (scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value).transpose(0, 1).flatten(1)

    place = torch.arange(len(hidden))
    near = (place[:, None] - place).abs() <= window // 2
    local = attend(heads(attention.query), heads(attention.key), heads(attention.value), near | is_global)
    wide = attend(
        heads(attention.query_global), heads(attention.key_global), heads(attention.value_global), torch.tensor(True)
    )
    return torch.where(is_global[:, None], wide, local)


def dense_states(model, ids, is_global):
    """The states of one sequence without padding, layer by layer; all but attention are transformers' own modules."""
    positions = torch.arange(len(ids)) + PAD + 1
    hidden = model.embeddings(ids[None], None, positions[None])[0]
    for layer, window in zip(model.encoder.layer, model.config.windows(), strict=True):
        found = dense_attention(layer.attention.self, hidden, is_global, window)
        found = layer.attention.output(found, hidden)
        hidden = layer.output(layer.intermediate(found), found)
    return hidden


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("windows", WINDOWS)
@torch.no_grad()
def test_attention_is_that_of_the_definition(attention, windows):
    model = tiny(attention=attention, attention_window=WINDOWS[windows]).double()
    ids, mask = batch()
    seen = []
    for places in GLOBALS.values():
        wide = globals_of(places, ids.shape[1])
        found = model(ids, mask, wide).last_hidden_state
        for row, length in enumerate(LENGTHS):
            expected = dense_states(model, ids[row, :length], wide[row, :length].bool())
            torch.testing.assert_close(found[row, :length], expected, atol=1e-5, rtol=0)
        seen.append(found[0])
    # What is global matters, so the agreement says something.
    assert all((one - other).abs().max() > 0.1 for one, other in itertools.pairwise(seen))


@pytest.mark.parametrize("places", GLOBALS)
@pytest.mark.parametrize("windows", WINDOWS)
def test_gradients_of_both_kinds_of_attention_are_equal(windows, places):
    ids, mask = batch()
    wide = globals_of(GLOBALS[places], ids.shape[1])
    weights = torch.randn(*ids.shape, 32, generator=torch.Generator().manual_seed(1))
    outputs, gradients = [], []
    for attention in ("sdpa", "eager"):
        model = tiny(attention=attention, attention_window=WINDOWS[windows])
        states = model(ids, mask, wide).last_hidden_state * mask[..., None]
        (states * weights).sum().backward()
        outputs.append(states.detach())
        gradients.append([each.grad for each in model.parameters()])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=0)
    for ours, theirs in zip(*gradients, strict=True):
        if ours is None or theirs is None:  # eager reads the projections of global attention where nothing is global
            assert places == "none"
            assert ours is None
            assert theirs is None or not theirs.any()
        else:
            scale = max(1.0, float(theirs.abs().max()))
            torch.testing.assert_close(ours / scale, theirs / scale, atol=1e-5, rtol=0)


def test_blocks_where_they_save_something_and_the_square_elsewhere():
    real = torch.ones(1, 40, dtype=torch.bool)
    few, many = globals_of([[0, 7]], 40).bool(), globals_of([range(30)], 40).bool()
    blocks = plan_attention(real, few, 8)
    assert blocks.block == 4
    assert blocks.allowed.shape == (10, 1, 4, 3 * 4 + 2)
    assert plan_attention(real, many, 8).block is None  # 12 + 30 keys, of 40
    assert plan_attention(real, few, 80).block is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_padding_changes_nothing(attention):
    model = tiny(attention=attention, attention_window=WINDOWS["different"])
    ids, mask = batch()
    wide = globals_of(GLOBALS["different"], ids.shape[1])
    found = model(ids, mask, wide)
    for row, length in enumerate(LENGTHS):
        alone = model(ids[row : row + 1, :length], None, wide[row : row + 1, :length])
        torch.testing.assert_close(
            found.last_hidden_state[row, :length], alone.last_hidden_state[0], atol=1e-5, rtol=0
        )
        torch.testing.assert_close(found.pooler_output[row], alone.last_hidden_state[0].mean(0), atol=1e-5, rtol=0)
    everywhere = torch.where(mask.bool(), wide, 1)  # global padding is none
    again = model(ids.masked_fill(mask == 0, 77), mask, everywhere).last_hidden_state
    torch.testing.assert_close(again[mask.bool()], found.last_hidden_state[mask.bool()], atol=1e-5, rtol=0)


@torch.no_grad()
def test_attentions_on_request_are_those_of_longformer():
    model = tiny(attention_window=[4, 4, 4])
    ids, mask = batch()
    wide = globals_of(GLOBALS["one"], ids.shape[1])
    plain = model(ids, mask, wide, output_hidden_states=True)
    with_attentions = model(ids, mask, wide, output_attentions=True, output_hidden_states=True)
    assert plain.attentions is None
    assert [tuple(each.shape) for each in with_attentions.attentions] == [(4, 4, 37, 1 + 5)] * 3
    real = mask.bool()
    torch.testing.assert_close(
        with_attentions.last_hidden_state[real], plain.last_hidden_state[real], atol=1e-5, rtol=0
    )
    for ours, theirs in zip(plain.hidden_states, with_attentions.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], theirs[real], atol=1e-5, rtol=0)
    sums = with_attentions.attentions[0].sum(-1)[:, :, 1:]  # local queries; those of [CLS] are in the other
    torch.testing.assert_close(sums[0], torch.ones_like(sums[0]))
    sums = with_attentions.global_attentions[0].sum(-2)
    torch.testing.assert_close(sums, torch.ones_like(sums))


# All classes.


@torch.no_grad()
@pytest.mark.parametrize("cls", HEADS[1:])
def test_padding_on_the_left_changes_nothing(cls):
    model = tiny(cls)
    inputs = {name: values for name, values in inputs_of(cls).items() if "label" not in name and "_pos" not in name}
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    moved = {}
    for name, values in inputs.items():
        if name.endswith(("_index", "_spans")):
            moved[name] = torch.where(values >= 0, values + 3, values)
        else:
            moved[name] = values if name == "mention_pairs" else torch.nn.functional.pad(values, (3, 0))
    scores, again = (model(**each).to_tuple() for each in (inputs, moved))
    if cls is CdlmForMultiHopQuestionAnswering:
        again = (again[0][:, 3:], again[1][:, 3:], *again[2:])
    for one, other in zip(scores, again, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cls", HEADS)
def test_the_gradient_reaches_every_parameter(cls, attention):
    model = tiny(cls, attention).train()
    model(**inputs_of(cls)).loss.backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    # The bias of the keys shifts all scores of a query alike, so the softmax leaves it without a gradient.
    without = {name for name in without if not name.endswith(("key.bias", "key_global.bias"))}
    # Where only states of global tokens are read, nothing asks what the last layer does for the others.
    unread = set()
    if cls in (CdlmForDocumentMatching, CdlmForCrossDocumentCoreference):
        parts = ("query.weight", "query.bias", "key.weight", "value.weight", "value.bias")
        unread = {f"longformer.encoder.layer.2.attention.self.{part}" for part in parts}
    assert without == unread


@pytest.mark.parametrize("cls", HEADS)
def test_checkpointed_activations_change_no_gradient(cls):
    gradients = []
    for checkpointed in (False, True):
        model = tiny(cls).train()
        if checkpointed:
            model.activation_checkpointing_enable()
        model(**inputs_of(cls)).loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for plain, other in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, other, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cls", [CdlmModel, *HEADS])
@torch.no_grad()
def test_saved_and_loaded_it_is_the_same(cls, tmp_path):
    model = tiny(cls)
    model.save_pretrained(tmp_path)
    again, info = cls.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    assert torch.equal(again(**inputs_of(cls))[0], model(**inputs_of(cls))[0])
    assert len(load_file(tmp_path / "model.safetensors")) == len(list(model.named_parameters()))  # the tied one once


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("cls", HEADS)
def test_half_precision(cls, attention):
    model = tiny(cls, attention)
    expected = model(**inputs_of(cls))
    half = model.bfloat16()(**inputs_of(cls))
    assert torch.isfinite(half.loss)
    half.loss.backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)
    assert {weight.grad.dtype for weight in model.parameters() if weight.grad is not None} == {torch.bfloat16}
    assert float(half.loss.detach()) == pytest.approx(float(expected.loss.detach()), rel=0.2)


@pytest.mark.parametrize(
    ("cls", "task"),
    [
        (CdlmForMaskedLM, None),
        (CdlmForDocumentMatching, "SEQ_CLS"),
        (CdlmForCrossDocumentCoreference, None),
        (CdlmForMultiHopQuestionAnswering, None),
    ],
)
def test_an_adapter_trains_and_merges(cls, task):
    model = tiny(cls)
    with torch.no_grad():
        before = model(**inputs_of(cls))[1]
    wanted = ["query", "value", "query_global", "value_global"]
    adapted = get_peft_model(model, LoraConfig(task_type=task, target_modules=wanted))
    frozen = {name: weight.clone() for name, weight in adapted.named_parameters() if not weight.requires_grad}
    torch.testing.assert_close(adapted(**inputs_of(cls))[1], before, atol=1e-5, rtol=0)
    optimizer = torch.optim.AdamW([weight for weight in adapted.parameters() if weight.requires_grad], lr=0.005)
    losses = []
    for _ in range(4):
        loss = adapted(**inputs_of(cls)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert all(torch.equal(weight, frozen[name]) for name, weight in adapted.named_parameters() if name in frozen)
    with torch.no_grad():
        after = adapted.eval()(**inputs_of(cls))[1]
        merged = adapted.merge_and_unload()
        assert type(merged) is cls
        torch.testing.assert_close(merged(**inputs_of(cls))[1], after, atol=1e-3, rtol=1e-4)


def test_new_words_keep_the_head_tied(tmp_path):
    model = tiny(CdlmForMaskedLM)
    ids, mask, labels = masked_batch()
    with torch.no_grad():
        before = model(ids, mask).logits
    model.resize_token_embeddings(107, mean_resizing=False)
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight
    assert model.lm_head.decoder.bias is model.lm_head.bias
    with torch.no_grad():
        torch.testing.assert_close(model(ids, mask).logits[..., :100], before)
    labels[0, 2] = 106
    ids[0, 3] = 106
    expected = model(ids, mask, labels=labels)
    expected.loss.backward()
    model.save_pretrained(tmp_path)
    again, info = CdlmForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert again.config.vocab_size == 107
    assert again.lm_head.decoder.weight is again.longformer.embeddings.word_embeddings.weight
    torch.testing.assert_close(again(ids, mask, labels=labels).loss, expected.loss)


def test_inputs_that_are_refused():
    model = tiny()
    ids, mask = batch()
    with pytest.raises(ValueError, match=r"Rows \[1\] have up to 65 tokens, the model reads 64"):
        model(torch.full((2, 65), 7), (torch.arange(65) < torch.tensor([[64], [65]])).long())
    with pytest.raises(ValueError, match=r"Rows \[1\] have no tokens"):
        model(ids, mask * torch.tensor([[1], [0], [1], [1]]))
    for wrong in (100, -1):
        with pytest.raises(ValueError, match=f"input_ids must be from 0 to 99.* got {wrong}"):
            model(torch.where(ids == ids[0, 3], wrong, ids), mask)
    with pytest.raises(ValueError, match=r"global_attention_mask must be \(4, 37\) with 0 and 1, got .* \[0, 2\]"):
        model(ids, mask, globals_of(GLOBALS["one"], 37) * 2)
    with pytest.raises(ValueError, match=r"global_attention_mask must be \(4, 37\) .* got \(4, 5\)"):
        model(ids, mask, globals_of(GLOBALS["none"], 5))
    with pytest.raises(ValueError, match=r"attention_mask must be \(4, 37\) like input_ids, got \(4, 30\)"):
        model(ids, mask[:, :30])
    for given in ({}, {"input_ids": ids, "inputs_embeds": torch.zeros(4, 37, 32)}):
        with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
            model(**given)


@torch.no_grad()
def test_embeddings_in_place_of_ids():
    ids, mask = batch()
    wide = globals_of(GLOBALS["different"], 37)
    model = tiny()
    found = model(attention_mask=mask, global_attention_mask=wide, inputs_embeds=model.get_input_embeddings()(ids))
    assert torch.equal(found.last_hidden_state, model(ids, mask, wide).last_hidden_state)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attention_window": 5}, "must be an even number of 4 or more.* got 5"),
        ({"attention_window": 0}, "must be an even number"),
        ({"attention_window": [4, 4, 7]}, r"got \[4, 4, 7\]"),
        ({"attention_window": [4, 4]}, "one for each of the 3 layers"),
        ({"max_position_embeddings": 2}, r"must be above pad_token_id \+ 1 = 2"),
        ({"pair_scorer_hidden_size": 0}, "must be at least 1, got 0"),
    ],
)
def test_configurations_that_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        CdlmConfig(**{**SIZE, **values})
    model = tiny()
    for name, value in values.items():
        setattr(model.config, name, value)  # set later they are found with the next pass
    with pytest.raises(ValueError, match=message):
        model(batch()[0])
