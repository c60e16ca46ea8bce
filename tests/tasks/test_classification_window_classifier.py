"""The classifier over one or two windows, against BERT by hand."""

from __future__ import annotations

import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5Model,
)

from nextlevelbert import ChunkBertConfig, ChunkBertModel
from nextlevelbert.tasks.classification.window_classifier import WindowClassifier

ONE_LABEL, SEVERAL, VALUES = "single_label_classification", "multi_label_classification", "regression"


SIZE = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


SIZE |= {"intermediate_size": 48, "max_position_embeddings": 40}


BACKBONES = {
    "bert": (BertModel, BertConfig(**SIZE, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.5)),
    "roberta": (RobertaModel, RobertaConfig(**SIZE)),
    "distilbert": (DistilBertModel, DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=4, hidden_dim=48)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders with tiny random encoders of several architectures."""
    folder = tmp_path_factory.mktemp("encoders")
    torch.manual_seed(7)
    for name, (model, config) in BACKBONES.items():
        model(config).save_pretrained(folder / name)
    return folder


def windows(lengths, seed=0):
    """Random ids of these lengths, each alone and as a padded batch with its mask."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(5, 200, (length,), generator=generator) for length in lengths]
    mask = torch.tensor([[place < length for place in range(max(lengths))] for length in lengths]).long()
    return rows, nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1), mask


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_one_window_is_the_library_s_encoder_and_a_linear_layer(saved, name):
    model = WindowClassifier.from_encoder(str(saved / name), ONE_LABEL, 3, windows=1)
    plain = BACKBONES[name][0].from_pretrained(saved / name).eval()
    rows, ids, mask = windows([20, 7, 13])
    cls = torch.cat([plain(row[None]).last_hidden_state[:, 0] for row in rows])
    expected = cls @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(ids, mask).logits, expected, atol=1e-5, rtol=0)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert not any("pooler" in key for key in model.state_dict())


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("lengths", [(9, 22, 5), (30, 3, 4)])
@torch.no_grad()
def test_two_windows_are_two_passes_side_by_side(saved, name, lengths):
    model = WindowClassifier.from_encoder(saved / name, SEVERAL, 4, windows=2)
    plain = BACKBONES[name][0].from_pretrained(saved / name).eval()
    first, second = windows([20, 7, 13]), windows(lengths, seed=1)
    vectors = [torch.cat([plain(row[None]).last_hidden_state[:, 0] for row in rows]) for rows in (first[0], second[0])]
    expected = torch.cat(vectors, dim=1) @ model.classifier.weight.T + model.classifier.bias
    found = model(*first[1:], *second[1:]).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    for row in range(3):  # alone, without padding
        alone = model(first[0][row][None], second_input_ids=second[0][row][None]).logits
        torch.testing.assert_close(alone[0], found[row], atol=1e-5, rtol=0)


def test_both_windows_go_through_the_encoder_at_once(saved):
    model = WindowClassifier.from_encoder(saved / "bert", ONE_LABEL, 2, windows=2)
    shapes = []
    model.encoder.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    model(*windows([20, 7])[1:], *windows([5, 30])[1:])
    assert shapes == [(4, 30)]


@pytest.mark.parametrize("count", [1, 2])
def test_every_parameter_learns(saved, count):
    model = WindowClassifier.from_encoder(saved / "bert", ONE_LABEL, 3, windows=count)
    first, second = windows([20, 7])[1:], windows([25, 9], seed=1)[1:]
    model(*first, *(second if count == 2 else ()), labels=torch.tensor([0, 2])).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("key.bias"):  # shifts all scores of a query alike, so softmax does not see it
            assert parameter.grad.abs().max() > 1e-6, name
    assert (model.classifier.weight.grad.abs().sum(dim=0) > 0).all()
    learnt = model.encoder.embeddings.word_embeddings.weight.grad.abs().sum(dim=1) > 0
    read = {int(token) for ids, mask in [first, second][:count] for token in ids[mask.bool()]}
    assert set(learnt.nonzero().flatten().tolist()) == read


def test_hidden_dropout_is_the_encoder_s_and_attention_dropout_is_off(saved):
    model = WindowClassifier.from_encoder(saved / "bert", ONE_LABEL, 2, windows=2)
    assert not model.training
    seen = []
    model.classifier.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    pair = *windows([20] * 40)[1:], *windows([25] * 40)[1:]
    model.train()(*pair)
    assert 0.22 < (seen.pop() == 0).float().mean() < 0.28
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    torch.testing.assert_close(model(*pair).logits, model(*pair).logits, atol=0, rtol=0)
    assert model.encoder.config.attention_probs_dropout_prob == 0
    assert WindowClassifier.from_encoder(saved / "distilbert", ONE_LABEL, 2, 1).dropout.p == 0.1


def test_the_new_layer_starts_small(saved):
    torch.manual_seed(1)
    layer = WindowClassifier.from_encoder(saved / "bert", SEVERAL, 200, windows=2).classifier
    assert layer.weight.shape == (200, 64)
    assert layer.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("problem", "classes", "labels", "loss"),
    [
        (ONE_LABEL, 3, torch.tensor([2, 0]), nn.functional.cross_entropy),
        (SEVERAL, 3, torch.tensor([[1.0, 0, 1], [0, 0, 0]]), nn.functional.binary_cross_entropy_with_logits),
        (VALUES, 1, torch.tensor([[0.5], [-2.0]]), nn.functional.mse_loss),
    ],
)
def test_losses_and_wrong_labels(saved, problem, classes, labels, loss):
    model = WindowClassifier.from_encoder(saved / "bert", problem, classes, windows=1)
    output = model(*windows([20, 7])[1:], labels=labels)
    torch.testing.assert_close(output.loss, loss(output.logits, labels))
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        model(*windows([20, 7])[1:], labels=torch.cat([labels[:1], labels[1:] * 0 + (7 if classes > 1 else math.nan)]))


def test_windows_that_cannot_be_read(saved):
    one = WindowClassifier.from_encoder(saved / "roberta", ONE_LABEL, 2, windows=1)
    two = WindowClassifier.from_encoder(saved / "bert", ONE_LABEL, 2, windows=2)
    assert (one.positions, two.positions) == (38, 40)
    _, ids, mask = windows([20, 7])
    with pytest.raises(ValueError, match=r"second_input_ids is missing.*windows=2"):
        two(ids, mask)
    with pytest.raises(ValueError, match=r"only the first \(windows=1\)"):
        one(ids, mask, ids, mask)
    with pytest.raises(ValueError, match="2 first windows but 1 second"):
        two(ids, mask, ids[:1], mask[:1])
    with pytest.raises(ValueError, match="39 tokens, but the encoder reads at most 38"):
        one(torch.full((1, 39), 5))
    with pytest.raises(ValueError, match=r"second windows of documents \[1\] have no token at position 0"):
        two(ids, mask, ids, mask.flip(1))
    with pytest.raises(ValueError, match=r"first windows of documents \[0\] have no token"):
        one(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(ValueError, match="from 0 to 199"):
        two(ids, mask, ids + 199, mask)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("multiple_choice", 4, 1), "problem_type must be one of"),
        ((ONE_LABEL, 2, 3), "windows must be 1"),
        ((ONE_LABEL, 0, 1), "num_labels must be at least 1"),
    ],
)
def test_classifiers_that_cannot_be_built(saved, arguments, message):
    with pytest.raises(ValueError, match=message):
        WindowClassifier.from_encoder(saved / "bert", *arguments)


def test_what_is_no_encoder_is_refused(saved, tmp_path):
    with pytest.raises(ValueError, match=r"Cannot load the encoder '.*nowhere'"):
        WindowClassifier.from_encoder(tmp_path / "nowhere", ONE_LABEL, 2, 1)
    BertConfig(**SIZE).save_pretrained(tmp_path / "no_weights")
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        WindowClassifier.from_encoder(tmp_path / "no_weights", ONE_LABEL, 2, 1)
    GPT2Model(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path / "gpt2")
    T5Model(T5Config(vocab_size=50, d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8)).save_pretrained(
        tmp_path / "t5"
    )
    config = ChunkBertConfig(encoder_config=BertConfig(**SIZE), chunk_size=8, num_averaged_layers=2)
    ChunkBertModel(config).save_pretrained(tmp_path / "chunkbert")
    for kind in ("gpt2", "t5", "chunkbert"):
        with pytest.raises(ValueError, match=f"is a {kind}, which is not a bidirectional encoder"):
            WindowClassifier.from_encoder(tmp_path / kind, ONE_LABEL, 2, 1)


def test_missing_weights_are_named_and_those_of_other_heads_left_out(saved, tmp_path):
    torch.manual_seed(5)
    with_head = BertForMaskedLM(BertConfig(**SIZE))
    with_head.save_pretrained(tmp_path)
    model = WindowClassifier.from_encoder(tmp_path, ONE_LABEL, 2, 1)
    for name, weight in model.encoder.state_dict().items():
        torch.testing.assert_close(weight, with_head.bert.state_dict()[name], atol=0, rtol=0)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["bert.encoder.layer.1.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 weights .*encoder\.layer\.1\.output\.dense\.weight"):
        WindowClassifier.from_encoder(tmp_path, ONE_LABEL, 2, 1)
