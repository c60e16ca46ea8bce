"""CDLM's attention from its definition and beside transformers' Longformer, and what all its classes share."""

from __future__ import annotations

import pytest
import torch

from nextlevelbert import (
    CdlmConfig,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
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
