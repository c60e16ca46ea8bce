"""CDLM against transformers' Longformer, BERT and RoBERTa, attention from its definition, and heads worked by hand."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    LongformerConfig,
    LongformerForMaskedLM,
    LongformerModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)

from nextlevelbert import (
    CdlmConfig,
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmForMultiHopQuestionAnswering,
    CdlmModel,
)
from nextlevelbert.cdlm_attention import plan_attention

from .test_processing_cdlm import byte_level_tokenizer

CLS, PAD, MASK = 0, 1, 4
SIZE = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SIZE |= {"intermediate_size": 48, "pad_token_id": PAD}
LENGTHS = (37, 1, 20, 9)
# Positions with global attention, row by row: none, one, many, another number in every row, everything.
GLOBALS = {
    "none": [[], [], [], []],
    "one": [[0], [0], [0], [0]],
    "many": [[0, 3, 4, 5, 17, 30, 36], [0], [0, 1, 2, 3, 18, 19], [0, 4, 5, 6, 7, 8]],
    "different": [[36], [], [2, 3, 19], [0, 8]],
    "all": [list(range(length)) for length in LENGTHS],
}
# Small ones are taken in blocks; with 24 and any global token blocks would have more keys than the square.
WINDOWS = {"small": [4, 4, 4], "different": [4, 12, 6], "half": [24, 24, 24], "wide": [80, 80, 80]}
HEADS = (CdlmForMaskedLM, CdlmForDocumentMatching, CdlmForCrossDocumentCoreference, CdlmForMultiHopQuestionAnswering)


def draw(model, std=0.2):
    """Weights that make attention far from uniform, with projections for global attention of their own."""
    torch.manual_seed(3)
    for name, weight in model.named_parameters():
        scale = name.lower().replace("_", "").endswith("layernorm.weight")
        torch.nn.init.normal_(weight, mean=1.0 if scale else 0.0, std=std)
    return model.eval()


def tiny(cls=CdlmModel, attention="sdpa", **values):
    defaults = {"max_position_embeddings": 66, "attention_window": 8, "mask_token_id": MASK, "classifier_dropout": 0.0}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = CdlmConfig(**{**SIZE, **defaults, **dropout, "pair_scorer_hidden_size": 24, **values})
    model = draw(cls(config))
    model.set_attn_implementation(attention)
    return model


def batch(lengths=LENGTHS, seed=0):
    """Sequences of random words, [CLS] first, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(10, 100, mask.shape, generator=generator)
    ids[:, 0] = CLS
    return ids.masked_fill(mask == 0, PAD), mask


def globals_of(places, length):
    mask = torch.zeros(len(places), length, dtype=torch.long)
    for row, positions in enumerate(places):
        mask[row, positions] = 1
    return mask


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


# Checkpoints of transformers' Longformer.


@pytest.fixture(scope="module", params=[LongformerForMaskedLM, LongformerModel])
def longformer(request, tmp_path_factory):
    """A random Longformer of transformers, and the folder where it is saved."""
    config = LongformerConfig(**SIZE, max_position_embeddings=66, attention_window=[4, 8, 4], layer_norm_eps=1e-5)
    model = draw(request.param(config))
    folder = tmp_path_factory.mktemp("longformer")
    model.save_pretrained(folder)
    return model, str(folder)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("places", ["none", "many", "different"])
@torch.no_grad()
def test_a_longformer_opens_and_gives_the_same(longformer, attention, places):
    theirs, folder = longformer
    cls = CdlmForMaskedLM if isinstance(theirs, LongformerForMaskedLM) else CdlmModel
    ours, info = cls.from_pretrained(folder, attn_implementation=attention, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]  # LongformerModel has a pooler, which is not wanted
    assert ours.config._attn_implementation == attention
    assert ours.config.windows() == [4, 8, 4]
    ids, mask = batch()
    wide = globals_of(GLOBALS[places], ids.shape[1])
    found = ours(ids, mask, wide)[0]
    expected = theirs(ids, attention_mask=mask, global_attention_mask=wide)[0]
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)
    assert (expected[mask.bool()] - theirs(ids, attention_mask=mask)[0][mask.bool()]).abs().max() > (
        0.01 if places != "none" else -1
    )


@torch.no_grad()
def test_a_longformer_opens_with_the_heads_of_tasks(longformer):
    theirs, folder = longformer
    base = theirs.base_model
    ids, mask = batch()
    for cls in HEADS[1:]:
        model, info = cls.from_pretrained(folder, output_loading_info=True)
        assert {name.split(".")[0] for name in info["missing_keys"]} <= {
            "classifier", "scorer", "qa_outputs", "qa_type", "qa_sentence", "qa_paragraph"
        }  # fmt: skip
        expected = base(ids, attention_mask=mask).last_hidden_state
        found = model.longformer(ids, mask).last_hidden_state
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_longformer_opens_with_fields_and_any_dtype(longformer):
    _, folder = longformer
    model = CdlmForDocumentMatching.from_pretrained(folder, num_labels=3, dtype="auto", attention_window=8)
    assert model(batch()[0]).logits.shape == (4, 3)
    assert model.config.windows() == [8, 8, 8]


def test_a_new_head_over_words_has_numbers(tmp_path):
    """Its bias is nobody's to initialise in transformers; uninitialised memory can be anything, here it was NaN."""
    tiny(CdlmModel).save_pretrained(tmp_path)
    for _ in range(3):
        junk = torch.full((200_000,), torch.nan)
        del junk
        model, info = CdlmForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
        assert "lm_head.bias" in info["missing_keys"]
        assert torch.equal(model.lm_head.bias, torch.zeros(100))


# Made of an encoder.


def save_encoder(model, tokenizer, folder):
    draw(model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


ENCODER_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


@pytest.fixture(scope="module")
def encoders(toy_encoder_path, tmp_path_factory):
    """Folders of a toy BERT and a toy RoBERTa with heads over words, and of both without."""
    folder = tmp_path_factory.mktemp("encoders")
    byte_level = byte_level_tokenizer()
    pieces = AutoTokenizer.from_pretrained(toy_encoder_path)
    bert = BertConfig(**ENCODER_SIZE, vocab_size=len(pieces), max_position_embeddings=40)
    roberta = RobertaConfig(
        **ENCODER_SIZE, vocab_size=len(byte_level), max_position_embeddings=42, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, type_vocab_size=1,
    )  # fmt: skip
    return {
        "bert": save_encoder(BertForMaskedLM(bert), pieces, folder / "bert"),
        "roberta": save_encoder(RobertaForMaskedLM(roberta), byte_level, folder / "roberta"),
        "bert without head": save_encoder(BertModel(bert), pieces, folder / "plain_bert"),
        "roberta without head": save_encoder(RobertaModel(roberta), byte_level, folder / "plain_roberta"),
    }


def read(tokenizer):
    texts = ["The storm cut power to thousands.", "Power was cut.", "No."]
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    return tokens["input_ids"], tokens["attention_mask"]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "roberta", "minilm"])
@torch.no_grad()
def test_with_a_wide_window_it_is_the_encoder(encoders, minilm_path, name, attention):
    folder = {**encoders, "minilm": minilm_path}[name]
    model = CdlmModel.from_encoder(folder, max_length=80, attention_window=80)
    model.set_attn_implementation(attention)
    ids, mask = read(model.tokenizer)
    assert 2 * ids.shape[1] <= 80
    expected = AutoModel.from_pretrained(folder).eval()(ids, mask).last_hidden_state
    for wide in (None, torch.zeros_like(mask).index_fill(1, torch.tensor([0, 3]), 1)):  # global ones see as others do
        found = model(ids, mask, wide).last_hidden_state
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "pad", "offset"), [("bert", 0, 0), ("roberta", 1, 2)])
def test_the_position_table_is_the_encoder_s_again_and_again(encoders, name, pad, offset):
    model = CdlmModel.from_encoder(encoders[name], max_length=100)
    theirs = AutoModel.from_pretrained(encoders[name]).embeddings.position_embeddings.weight[offset:]
    ours = model.embeddings.position_embeddings.weight
    assert theirs.shape[0] == 40
    assert ours.shape[0] == pad + 1 + 100
    assert not ours[: pad + 1].any()
    for position, learnt in ((0, 0), (1, 1), (39, 39), (40, 0), (41, 1), (79, 39), (80, 0), (99, 19)):
        assert torch.equal(ours[pad + 1 + position], theirs[learnt])
    assert model.config.max_sequence_length == 100
    model(torch.full((1, 100), 5))
    with pytest.raises(ValueError, match=r"Rows \[0\] have up to 101 tokens, the model reads 100"):
        model(torch.full((1, 101), 5))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_projections_of_global_attention_start_as_copies(encoders, name):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40)
    theirs = AutoModel.from_pretrained(encoders[name]).encoder.layer
    for ours, layer in zip(model.longformer.encoder.layer, theirs, strict=True):
        for part in ("query", "key", "value"):
            local = getattr(layer.attention.self, part)
            for found in (getattr(ours.attention.self, part), getattr(ours.attention.self, f"{part}_global")):
                assert torch.equal(found.weight, local.weight)
                assert torch.equal(found.bias, local.bias)
    tokenizer = model.tokenizer
    assert model.config.mask_token_id == tokenizer.mask_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.parametrize(("name", "theirs"), [("bert", BertForMaskedLM), ("roberta", RobertaForMaskedLM)])
@torch.no_grad()
def test_the_head_over_words_is_kept(encoders, name, theirs):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40, attention_window=80)
    ids, mask = read(model.tokenizer)
    ids[0, 3] = model.tokenizer.mask_token_id  # gets global attention
    expected = theirs.from_pretrained(encoders[name]).eval()(ids, attention_mask=mask).logits
    found = model(ids, mask).logits
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-4, rtol=0)
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight


@pytest.mark.parametrize("name", ["bert without head", "roberta without head"])
@torch.no_grad()
def test_a_head_that_is_not_there_is_new_and_tied(encoders, name):
    model = CdlmForMaskedLM.from_encoder(encoders[name], max_length=40)
    theirs = AutoModel.from_pretrained(encoders[name]).embeddings.word_embeddings.weight
    assert model.lm_head.decoder.weight is model.longformer.embeddings.word_embeddings.weight
    assert torch.equal(model.lm_head.decoder.weight, theirs)
    assert not model.lm_head.bias.any()
    assert torch.isfinite(model(*read(model.tokenizer)).logits).all()


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (DistilBertModel, DistilBertConfig(dim=32, n_layers=1, n_heads=4, hidden_dim=48)),
        (MPNetModel, MPNetConfig(**{**ENCODER_SIZE, "num_hidden_layers": 1})),
    ],
)
def test_other_encoders_are_refused_by_name(kind, config, toy_encoder_path, tmp_path):
    folder = save_encoder(kind(config), AutoTokenizer.from_pretrained(toy_encoder_path), tmp_path)
    with pytest.raises(ValueError, match=rf"is a {config.model_type}; a CDLM starts from one of bert, roberta"):
        CdlmModel.from_encoder(folder)


def test_what_from_encoder_refuses(encoders):
    with pytest.raises(ValueError, match=r"takes fields of CdlmConfig .*, not \['window'\]"):
        CdlmModel.from_encoder(encoders["bert"], window=8)
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        CdlmModel.from_encoder(encoders["bert"], max_length=0)
    with pytest.raises(ValueError, match="is a bert, no cdlm"):
        CdlmModel.from_pretrained(encoders["bert"])


# Masked words.


def masked_batch():
    ids, mask = batch()
    labels = torch.full_like(ids, -100)
    for row, position in ((0, 2), (0, 30), (2, 5), (3, 8)):
        labels[row, position] = ids[row, position]
        ids[row, position] = MASK
    labels[0, 11] = 42  # one that is not masked
    return ids, mask, labels


def test_the_loss_over_words_is_that_of_torch():
    model = tiny(CdlmForMaskedLM)
    ids, mask, labels = masked_batch()
    output = model(ids, mask, labels=labels)
    assert output.logits.shape == (*ids.shape, 100)
    expected = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(output.loss, expected)


def test_sparse_prediction_has_the_same_loss_and_gradient():
    ids, mask, labels = masked_batch()
    losses, gradients, logits = [], [], []
    for sparse in (False, True):
        model = tiny(CdlmForMaskedLM, sparse_prediction=sparse)
        output = model(ids, mask, labels=labels)
        output.loss.backward()
        losses.append(output.loss)
        logits.append(output.logits)
        gradients.append([weight.grad for weight in model.parameters()])
        assert model(ids, mask).logits.shape == (*ids.shape, 100)  # without labels there is nothing to leave out
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(logits[1], logits[0][labels != -100], atol=1e-5, rtol=0)
    for sparse, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(sparse, whole, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_masked_words_have_global_attention_by_default():
    model = tiny(CdlmForMaskedLM, attention_window=4)
    ids, mask, _ = masked_batch()
    by_default = model(ids, mask).logits
    assert torch.equal(by_default, model(ids, mask, (ids == 4).long()).logits)
    assert not torch.allclose(by_default, model(ids, mask, torch.zeros_like(ids)).logits, atol=0.1)
    model.config.mask_token_id = None
    assert torch.equal(model(ids, mask).logits, model(ids, mask, torch.zeros_like(ids)).logits)


def test_labels_over_words_that_are_refused():
    model = tiny(CdlmForMaskedLM)
    ids, mask, labels = masked_batch()
    with pytest.raises(ValueError, match="No position of the batch is masked"):
        model(ids, mask, labels=torch.full_like(ids, -100))
    for wrong in (labels[:, :5], torch.where(labels == 42, 100, labels), torch.where(labels == 42, -1, labels)):
        with pytest.raises(ValueError, match=r"labels must be \(4, 37\) ids below 100"):
            model(ids, mask, labels=wrong)


# Document matching.


@torch.no_grad()
def test_matching_gives_global_attention_to_cls():
    model = tiny(CdlmForDocumentMatching, attention_window=4, num_labels=2)
    ids, mask = batch()
    by_default = model(ids, mask).logits
    first = globals_of([[0]] * 4, ids.shape[1])
    assert torch.equal(by_default, model(ids, mask, first).logits)
    assert not torch.allclose(by_default, model(ids, mask, torch.zeros_like(first)).logits, atol=1e-2)
    labels = torch.tensor([1, 0, 0, 1])
    loss = model(ids, mask, labels=labels).loss
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(by_default, labels))
    with pytest.raises(ValueError, match=r"labels must be integers \[4\]"):
        model(ids, mask, labels=labels[:3])
    with pytest.raises(ValueError, match=r"labels of rows \[1\] must be from 0 to 1"):
        model(ids, mask, labels=torch.tensor([1, 2, 0, 1]))


@pytest.mark.parametrize(
    ("problem_type", "labels", "expected"),
    [
        ("multi_label_classification", torch.tensor([[0.0, 1], [1, 1], [0, 0], [1, 0]]),
         torch.nn.functional.binary_cross_entropy_with_logits),
        ("regression", torch.tensor([[0.5, 1], [1, 2], [0, 0], [1, 0]]), torch.nn.functional.mse_loss),
    ],
)  # fmt: skip
def test_other_losses_of_matching_are_those_of_torch(problem_type, labels, expected):
    output = tiny(CdlmForDocumentMatching, problem_type=problem_type)(*batch(), labels=labels)
    torch.testing.assert_close(output.loss, expected(output.logits, labels))


# Coreference.

SPANS = torch.tensor([[[3, 5], [20, 21], [30, 34]], [[0, 1], [0, 1], [-1, -1]], [[6, 9], [18, 20], [-1, -1]]])
PAIRS = torch.tensor([[[0, 1], [2, 0]], [[0, 1], [-1, -1]], [[1, 0], [-1, -1]]])


def mentions_batch():
    ids, mask = batch()
    return ids[:3], mask[:3]


@torch.no_grad()
def test_the_score_of_a_pair_worked_by_hand():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    output = model(ids, SPANS, PAIRS, mask, output_hidden_states=True)
    states = output.hidden_states[-1]
    first, last = model.scorer.dense, model.scorer.projection
    for row, pair, (one, other) in ((0, 0, ([3, 4], [20])), (0, 1, ([30, 31, 32, 33], [3, 4])),
                                    (1, 0, ([0], [0])), (2, 0, ([18, 19], [6, 7, 8]))):  # fmt: skip
        m_i = sum(states[row, token] for token in one)
        m_j = sum(states[row, token] for token in other)
        features = torch.cat([states[row, 0], m_i, m_j, m_i * m_j])
        score = last.weight[0] @ torch.tanh(first.weight @ features + first.bias) + last.bias[0]
        torch.testing.assert_close(output.logits[row, pair], score, atol=1e-4, rtol=0)
    assert output.pair_mask.tolist() == [[True, True], [True, False], [True, False]]
    assert output.logits[1:, 1].tolist() == [0.0, 0.0]


@torch.no_grad()
def test_padded_mentions_and_pairs_change_nothing():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    together = model(ids, SPANS, PAIRS, mask).logits
    for row, length, mentions, pairs in ((0, 37, 3, 2), (1, 1, 2, 1), (2, 20, 2, 1)):
        alone = model(ids[row : row + 1, :length], SPANS[row : row + 1, :mentions], PAIRS[row : row + 1, :pairs])
        torch.testing.assert_close(alone.logits[0], together[row, :pairs], atol=1e-4, rtol=0)
    the_one = model(ids[2:, :20], SPANS[2:, :2])  # two mentions need no pairs
    torch.testing.assert_close(the_one.logits, model(ids[2:, :20], SPANS[2:, :2], torch.tensor([[[0, 1]]])).logits)


@torch.no_grad()
def test_mentions_and_their_markers_have_global_attention():
    model = tiny(CdlmForCrossDocumentCoreference, attention_window=4)
    ids, mask = mentions_batch()
    wide = globals_of([[0, *range(2, 6), 19, 20, 21, *range(29, 35)], [0], [0, *range(5, 10), 17, 18, 19]], 37)
    by_default = model(ids, SPANS, PAIRS, mask).logits
    torch.testing.assert_close(by_default, model(ids, SPANS, PAIRS, mask, wide).logits)
    for place in (0, 2, 5, 20, 34):
        fewer = wide.clone()
        fewer[0, place] = 0
        assert not torch.allclose(by_default[0], model(ids, SPANS, PAIRS, mask, fewer).logits[0], atol=1e-4)


def test_the_loss_of_pairs_leaves_out_what_is_unknown():
    model = tiny(CdlmForCrossDocumentCoreference)
    ids, mask = mentions_batch()
    output = model(ids, SPANS, PAIRS, mask, labels=torch.tensor([[1, -100], [0, -100], [1, -100]]))
    scores = [1 / (1 + math.exp(-score)) for score in output.logits[:, 0].tolist()]
    expected = -(math.log(scores[0]) + math.log(1 - scores[1]) + math.log(scores[2])) / 3
    assert float(output.loss.detach()) == pytest.approx(expected, abs=1e-4)
    assert float(model(ids, SPANS, PAIRS, mask, labels=torch.full((3, 2), -100)).loss.detach()) == 0.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mention_spans": torch.tensor([[[3, 40]], [[0, 1]], [[0, 1]]])}, r"Mention 0 of row 0 has the span \[3, 40"),
        ({"mention_spans": torch.tensor([[[3, 5]], [[0, 2]], [[0, 1]]])}, r"Mention 0 of row 1 .* 0 to 1, the end"),
        ({"mention_spans": torch.tensor([[[5, 5]], [[0, 1]], [[0, 1]]])}, "must have tokens"),
        ({"mention_spans": torch.tensor([[[-2, 5]], [[0, 1]], [[0, 1]]])}, r"span \[-2, 5\]"),
        ({"mention_spans": SPANS[0]}, r"mention_spans must be \[3, mentions, 2\], got \(3, 2\)"),
        ({"mention_pairs": torch.tensor([[[0, 3]], [[0, 1]], [[0, 1]]])}, r"Pair 0 of row 0 is \[0, 3\]"),
        ({"mention_pairs": torch.tensor([[[0, 1]], [[0, 2]], [[0, 1]]])}, r"row 1 is \[0, 2\].* mentions \[0, 1\]"),
        ({"mention_pairs": torch.tensor([[[0, 1]], [[0, -1]], [[0, 1]]])}, r"row 1 is \[0, -1\]"),
        ({"mention_pairs": torch.full((3, 1, 2), -1)}, "No row has a pair"),
        ({"mention_pairs": PAIRS[0]}, r"mention_pairs must be \[3, pairs, 2\], got \(2, 2\)"),
        ({"mention_pairs": None}, "There are 3 mentions: say with mention_pairs"),
        ({"labels": torch.tensor([1, 0, 1])}, r"labels must be \(3, 2\).* got \(3,\)"),
        ({"labels": torch.tensor([[1, 2], [0, -100], [0, -100]])}, r"labels must be \(3, 2\)"),
        ({"labels": torch.tensor([[1, 0], [0, 1], [0, -100]])}, "-100 where unknown or where there is nothing"),
    ],
)
def test_mentions_that_are_refused(values, message):
    ids, mask = mentions_batch()
    with pytest.raises(ValueError, match=message):
        tiny(CdlmForCrossDocumentCoreference)(
            ids, attention_mask=mask, **{"mention_spans": SPANS, "mention_pairs": PAIRS, **values}
        )


# Questions over several paragraphs.


def question_batch():
    """Two questions of 37 and 20 tokens; three sentences and two titles in the longer one."""
    ids, mask = batch()
    return {
        "input_ids": ids[[0, 2]],
        "attention_mask": mask[[0, 2]],
        "global_attention_mask": globals_of([[0, 1, 2, 9, 12, 25], [0, 6, 9]], 37),
        "sentence_index": torch.tensor([[12, 19, 30], [9, -1, -1]]),
        "paragraph_index": torch.tensor([[9, 25], [6, -1]]),
        "context_mask": globals_of([range(9, 36), range(6, 19)], 37),
    }


ANSWERS = {
    "start_positions": torch.tensor([[10, 14, 33], [8, -1, -1]]),
    "end_positions": torch.tensor([[11, 14, 35], [8, -1, -1]]),
    "type_labels": torch.tensor([0, 2]),
    "sentence_labels": torch.tensor([[1, 0, -100], [1, -100, -100]]),
    "paragraph_labels": torch.tensor([[1, 0], [1, -100]]),
}


def any_of(scores, *positions):
    """Minus the log of the share that these positions have of the softmax."""
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    return -math.log(sum(powers[position] for position in positions) / sum(powers))


def binary(score, label):
    return math.log(1 + math.exp(-score if label else score))


def test_losses_of_a_question_worked_by_hand():
    model = tiny(CdlmForMultiHopQuestionAnswering, num_labels=2)
    output = model(**question_batch(), **ANSWERS)
    assert output.start_logits.shape == output.end_logits.shape == (2, 37)
    shapes = [tuple(each.shape) for each in (output.type_logits, output.sentence_logits, output.paragraph_logits)]
    assert shapes == [(2, 3), (2, 3), (2, 2)]
    # What cannot be an answer has no probability, what is not there no score.
    allowed = question_batch()["context_mask"].bool()
    for logits in (output.start_logits, output.end_logits):
        assert not logits.softmax(-1)[~allowed].any()
        assert (logits.softmax(-1)[allowed] > 0).all()
    assert output.sentence_logits[1, 1:].tolist() == [0.0, 0.0]
    assert output.paragraph_logits[1, 1:].tolist() == [0.0]
    start, end, kind, sentence, paragraph = (
        each.tolist()
        for each in (
            output.start_logits, output.end_logits, output.type_logits, output.sentence_logits, output.paragraph_logits
        )
    )  # fmt: skip
    parts = {
        "start_positions": (any_of(start[0], 10, 14, 33) + any_of(start[1], 8)) / 2,
        "end_positions": (any_of(end[0], 11, 14, 35) + any_of(end[1], 8)) / 2,
        "type_labels": (any_of(kind[0], 0) + any_of(kind[1], 2)) / 2,
        "sentence_labels": ((binary(sentence[0][0], 1) + binary(sentence[0][1], 0)) / 2 + binary(sentence[1][0], 1))
        / 2,
        "paragraph_labels": (
            (binary(paragraph[0][0], 1) + binary(paragraph[0][1], 0)) / 2 + binary(paragraph[1][0], 1)
        )
        / 2,
    }
    for name, part in parts.items():
        alone = model(**question_batch(), **{name: ANSWERS[name]}).loss
        assert float(alone.detach()) == pytest.approx(part, abs=1e-4), name
    assert float(output.loss.detach()) == pytest.approx(sum(parts.values()), abs=1e-4)
    assert model(**question_batch()).loss is None


def test_scores_of_a_question_are_read_where_the_layout_says():
    model = tiny(CdlmForMultiHopQuestionAnswering)
    output = model(**question_batch(), output_hidden_states=True)
    states = output.hidden_states[-1]

    def head(layers, state):
        return layers[2](torch.nn.functional.gelu(layers[0](state)))

    torch.testing.assert_close(output.type_logits[1], head(model.qa_type, states[1, 0]), atol=1e-5, rtol=0)
    for position, place in enumerate((12, 19, 30)):
        expected = head(model.qa_sentence, states[0, place])[0]
        torch.testing.assert_close(output.sentence_logits[0, position], expected, atol=1e-5, rtol=0)
    for position, place in enumerate((9, 25)):
        expected = head(model.qa_paragraph, states[0, place])[0]
        torch.testing.assert_close(output.paragraph_logits[0, position], expected, atol=1e-5, rtol=0)
    expected = states[0, 10] @ model.qa_outputs.weight[1] + model.qa_outputs.bias[1]
    torch.testing.assert_close(output.end_logits[0, 10], expected, atol=1e-5, rtol=0)


def test_what_is_unknown_of_a_question_is_left_out():
    model = tiny(CdlmForMultiHopQuestionAnswering)
    one = {name: values[:1] for name, values in question_batch().items()}
    for name, nothing in (
        ("start_positions", torch.tensor([[10, 14, 33], [-1, -1, -1]])),
        ("type_labels", torch.tensor([0, -100])),
        ("sentence_labels", torch.tensor([[1, 0, -100], [-100, -100, -100]])),
        ("paragraph_labels", torch.tensor([[1, 0], [-100, -100]])),
    ):
        together = model(**question_batch(), **{name: nothing}).loss
        alone = model(**one, **{name: nothing[:1]}).loss
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
        none = model(**question_batch(), **{name: torch.full_like(nothing, -1 if "pos" in name else -100)}).loss
        assert float(none.detach()) == 0.0
        none.backward()
        assert all(torch.isfinite(weight.grad).all() for weight in model.parameters() if weight.grad is not None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"type_labels": torch.tensor([0, 3])}, r"labels of rows \[1\] must be from 0 to 2"),
        ({"type_labels": torch.tensor([0])}, r"labels must be integers \[2\]"),
        ({"sentence_labels": torch.tensor([[1, 0], [1, -100]])}, r"sentence_labels must be \(2, 3\)"),
        ({"sentence_labels": torch.tensor([[1, 0, 0], [1, 0, -100]])}, "where there is nothing"),
        ({"paragraph_labels": torch.tensor([[1, 5], [1, -100]])}, r"paragraph_labels must be \(2, 2\)"),
        ({"start_positions": torch.tensor([[37], [9]])}, r"start_positions must be \[2, n\] .* from 0 to 36"),
        ({"start_positions": torch.tensor([9, 9])}, r"start_positions must be \[2, n\] .* got \(2,\)"),
        ({"start_positions": torch.tensor([[9]])}, r"start_positions must be \[2, n\] .* got \(1, 1\)"),
        ({"end_positions": torch.tensor([[-7], [9]])}, "end_positions must be"),
        ({"end_positions": torch.tensor([[10], [2]])}, r"end_positions of rows \[1\] are where context_mask is 0"),
        ({"sentence_index": torch.tensor([[99, 1, 2], [1, 2, 3]])}, "sentence_index must be"),
        ({"sentence_index": torch.tensor([1, 2])}, "sentence_index must be"),
        ({"context_mask": torch.ones(2, 5)}, r"context_mask must be \(2, 37\)"),
    ],
)
def test_labels_of_questions_that_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        tiny(CdlmForMultiHopQuestionAnswering)(**{**question_batch(), **values})


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


def inputs_of(cls):
    """A batch with labels, in which some have global attention."""
    ids, mask, labels = masked_batch()
    if cls is CdlmModel:
        return {"input_ids": ids, "attention_mask": mask}
    if cls is CdlmForMaskedLM:
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}
    if cls is CdlmForDocumentMatching:
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1, 1, 0])}
    if cls is CdlmForCrossDocumentCoreference:
        ids, mask = mentions_batch()
        pairs = {
            "mention_spans": SPANS,
            "mention_pairs": PAIRS,
            "labels": torch.tensor([[1, 0], [0, -100], [1, -100]]),
        }
        return {"input_ids": ids, "attention_mask": mask, **pairs}
    return {**question_batch(), **ANSWERS}


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
    with pytest.raises(ValueError, match=r"Rows \[1\] have no token to read"):
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


# Checkpoints that open everywhere.


@pytest.fixture(scope="module")
def saved(encoders, tmp_path_factory):
    """A masked-word model around the toy BERT, saved."""
    model = CdlmForMaskedLM.from_encoder(encoders["bert"], max_length=100, attention_window=8)
    for layer in model.longformer.encoder.layer:
        torch.nn.init.normal_(layer.attention.self.query_global.weight, std=0.3)
    folder = tmp_path_factory.mktemp("cdlm")
    model.save_pretrained(folder)
    return model, str(folder)


TEXT = "The storm cut [MASK] to thousands, and it rained and rained. " * 3


@torch.no_grad()
def test_auto_classes_open_it(saved):
    model, folder = saved
    tokens = model.tokenizer(TEXT, return_tensors="pt", return_token_type_ids=False)
    assert type(AutoConfig.from_pretrained(folder)) is CdlmConfig
    for auto, cls in (
        (AutoModel, CdlmModel),
        (AutoModelForMaskedLM, CdlmForMaskedLM),
        (AutoModelForPreTraining, CdlmForMaskedLM),
        (AutoModelForSequenceClassification, CdlmForDocumentMatching),
        (AutoModelForQuestionAnswering, CdlmForMultiHopQuestionAnswering),
    ):
        again = auto.from_pretrained(folder)
        assert type(again) is cls
        found = again.base_model(**tokens).last_hidden_state
        torch.testing.assert_close(found, model.longformer(**tokens).last_hidden_state, atol=1e-6, rtol=0)
        if cls is CdlmForMaskedLM:
            torch.testing.assert_close(again(**tokens).logits, model(**tokens).logits, atol=1e-6, rtol=0)
    assert AutoModelForSequenceClassification.from_pretrained(folder, num_labels=5)(**tokens).logits.shape == (1, 5)


@torch.no_grad()
def test_sentence_transformers_take_the_mean_of_its_states(saved, tmp_path):
    _, folder = saved
    model = CdlmModel.from_pretrained(folder)
    model.save_pretrained(tmp_path)
    texts = [TEXT, "No."]
    for path in (folder, tmp_path):
        vectors = SentenceTransformer(str(path), device="cpu").encode(texts, convert_to_tensor=True)
        for text, vector in zip(texts, vectors, strict=True):
            states = model(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            torch.testing.assert_close(vector, states.mean(0), atol=1e-5, rtol=0)


WITHOUT_THE_PACKAGE = """
import json, sys
sys.modules["nextlevelbert"] = None  # as if it were not installed
import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module

folder, coreference, text = sys.argv[1:]
tokens = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(text, return_tensors="pt")
with torch.no_grad():
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True)
    base = AutoModel.from_pretrained(folder, trust_remote_code=True)
    logits, vector = model(**tokens).logits[0, 4, :20], base(**tokens).pooler_output[0]
    pairs = get_class_from_dynamic_module("modeling_cdlm.CdlmForCrossDocumentCoreference", coreference)
    spans = torch.tensor([[[2, 4], [5, 6]]])
    score = pairs.from_pretrained(coreference)(tokens["input_ids"], spans).logits[0]
print(json.dumps([type(model).__name__, logits.tolist(), vector.tolist(), score.tolist()]))
"""


@torch.no_grad()
def test_it_loads_where_the_package_is_not(saved, tmp_path):
    model, folder = saved
    coreference = CdlmForCrossDocumentCoreference.from_pretrained(folder)  # no auto class has it
    coreference.save_pretrained(tmp_path / "coreference")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PACKAGE, folder, str(tmp_path / "coreference"), TEXT],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, logits, vector, score = json.loads(done.stdout.splitlines()[-1])
    tokens = model.tokenizer(TEXT, return_tensors="pt")
    assert name == "CdlmForMaskedLM"
    expected = coreference(tokens["input_ids"], torch.tensor([[[2, 4], [5, 6]]])).logits[0].tolist()
    assert score == pytest.approx(expected, abs=1e-4)
    assert logits == pytest.approx(model(**tokens).logits[0, 4, :20].tolist(), abs=1e-4)
    assert vector == pytest.approx(model.longformer(**tokens).pooler_output[0].tolist(), abs=1e-4)


ONE_STEP = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from nextlevelbert import CdlmForMaskedLM

folder, file, output, meeting, rank = sys.argv[1:]
rank = int(rank)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
model = CdlmForMaskedLM.from_pretrained(folder)
batch = {name: values[2 * rank : 2 * rank + 2] for name, values in torch.load(file).items()}
wrapped = DistributedDataParallel(model.train())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
wrapped(**batch).loss.backward()
optimizer.step()
if rank == 0:
    model.save_pretrained(output)
torch.distributed.destroy_process_group()
"""


def test_two_processes_take_the_step_of_one(tmp_path):
    model = tiny(CdlmForMaskedLM, sparse_prediction=True)
    model.save_pretrained(tmp_path / "start")
    ids, mask = batch((20, 9, 33, 14))
    labels = torch.full_like(ids, -100)
    for row in range(4):  # as many in each row, so that the mean of two means is the mean of all
        labels[row, [2, 7]] = ids[row, [2, 7]]
        ids[row, 2] = MASK
    given = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    torch.save(given, tmp_path / "batch.pt")
    paths = [str(tmp_path / name) for name in ("start", "batch.pt", "end", "meeting")]
    processes = [
        subprocess.Popen([sys.executable, "-c", ONE_STEP, *paths, str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    model.train()(**given).loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    found = load_file(tmp_path / "end" / "model.safetensors")
    for name, weight in model.named_parameters():
        torch.testing.assert_close(found[name], weight.detach(), atol=1e-5, rtol=0)
    assert max((weight - before[name]).abs().max() for name, weight in model.named_parameters()) > 0.01
