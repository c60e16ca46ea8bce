"""CDLM's attention from its definition and beside transformers' Longformer, and what all its classes share."""

from __future__ import annotations

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

from ..cdlm_toys import HEADS, SIZE, inputs_of, masked_batch, tiny

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


def test_what_the_model_refuses():
    with pytest.raises(ValueError, match="attention_window"):
        CdlmConfig(**{**SIZE, "attention_window": [4, 4, 7]})
    with pytest.raises(ValueError, match="65 tokens"):
        tiny()(torch.full((1, 65), 7))
    ids, mask, labels = masked_batch()
    with pytest.raises(ValueError, match="masked"):
        tiny(CdlmForMaskedLM)(ids, mask, labels=torch.full_like(labels, -100))
