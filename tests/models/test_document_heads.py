"""The heads for tasks: what they compute, what they refuse, and the life of their checkpoints."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
)

from nextlevelbert import (
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)

from ..conftest import toy_config

WORDS = "The lighthouse keeper wrote every evening of the wind and of the ships that passed. "


def toy(cls, **config):
    torch.manual_seed(3)
    return cls(toy_config(**config)).eval()


@pytest.fixture(scope="module")
def tokenizer(minilm_path):
    return AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture
def documents():
    generator = torch.Generator().manual_seed(5)
    vectors = torch.randn(3, 11, 32, generator=generator)  # more chunks than a window of 8 holds
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, 4:] = 0
    return {"inputs_embeds": vectors, "attention_mask": mask}


def by_hand(model, features):
    """Linear, ReLU, Linear with the model's own weights, in plain tensor products."""
    first, _, second = model.classifier
    hidden = (features @ first.weight.T + first.bias).clamp(min=0)
    return hidden @ second.weight.T + second.bias


def test_a_classifier_over_the_document_vector(documents):
    model = toy(NextLevelBertForSequenceClassification, num_labels=3)
    vector = model.model(**documents).pooler_output
    output = model(**documents, labels=torch.tensor([2, 0, 1]))
    torch.testing.assert_close(output.logits, by_hand(model, vector))
    expected = nn.functional.nll_loss(output.logits.log_softmax(-1), torch.tensor([2, 0, 1]))
    torch.testing.assert_close(output.loss, expected)
    assert model.classifier[0].out_features == 768


def test_questions_stand_beside_the_document_vector_and_it_is_read_once(documents, monkeypatch):
    model = toy(NextLevelBertForSequenceClassification, num_labels=2, text_pair=True)
    questions, index = torch.randn(5, 32), torch.tensor([0, 0, 2, 1, 0])
    read = []
    contextualize = NextLevelBertModel.contextualize
    monkeypatch.setattr(
        NextLevelBertModel,
        "contextualize",
        lambda self, rows, *a: read.append(len(rows)) or contextualize(self, rows, *a),
    )
    output = model(**documents, pair_embeds=questions, document_index=index)
    assert read == [3]
    vector = model.model(**documents).pooler_output
    torch.testing.assert_close(output.logits, by_hand(model, torch.cat([vector[index], questions], dim=1)))


def test_candidates_of_a_question_share_a_softmax(documents):
    model = toy(NextLevelBertForMultipleChoice)
    candidates, index, labels = torch.randn(4, 4, 32), torch.tensor([2, 2, 0, 1]), torch.tensor([3, 0, 1, 1])
    output = model(**documents, pair_embeds=candidates, document_index=index, labels=labels)
    vector = model.model(**documents).pooler_output
    for row in range(4):
        for place in range(4):
            one = by_hand(model, torch.cat([vector[index[row]], candidates[row, place]]))
            torch.testing.assert_close(output.logits[row, place], one[0])
    torch.testing.assert_close(output.loss, nn.functional.nll_loss(output.logits.log_softmax(-1), labels))


@pytest.mark.parametrize(
    ("config", "labels", "loss"),
    [
        ({"num_labels": 1}, torch.tensor([0.5, -1.0, 2.0]), nn.functional.mse_loss),
        (
            {"num_labels": 4},
            torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]),
            nn.functional.binary_cross_entropy_with_logits,
        ),
    ],
)
def test_values_and_several_labels(documents, config, labels, loss):
    output = toy(NextLevelBertForSequenceClassification, **config)(**documents, labels=labels)
    torch.testing.assert_close(output.loss, loss(output.logits.squeeze(-1), labels))


def test_text_and_vectors_give_the_same(tokenizer):
    model = toy(NextLevelBertForMultipleChoice)
    texts = [WORDS * 3, "A short one."]
    questions = [["Who wrote? The keeper.", "Who wrote? Nobody."], ["Is it short? " * 20, "Is it long?"]]
    ids = tokenizer(texts, padding=True, return_tensors="pt")
    flat = tokenizer([text for row in questions for text in row], padding=True, return_tensors="pt")
    pairs = {f"pair_{key}": flat[key].reshape(2, 2, -1) for key in ("input_ids", "attention_mask")}
    from_text = model(**ids, **pairs).logits
    base = model.model
    base.tokenizer = tokenizer
    stored = [base.encode(text).plain for text in texts]
    vectors = nn.utils.rnn.pad_sequence(stored, batch_first=True)
    mask = torch.tensor([[i < len(rows) for i in range(vectors.shape[1])] for rows in stored])
    # The long question is cut like a document; the mean of its chunks stands for it.
    encoded = torch.stack([torch.stack([base.encode(text).plain.mean(0) for text in row]) for row in questions])
    assert len(base.encode(questions[1][0]).plain) > 1
    from_vectors = model(inputs_embeds=vectors, attention_mask=mask, pair_embeds=encoded).logits
    torch.testing.assert_close(from_text, from_vectors, atol=1e-5, rtol=1e-5)


def test_the_stock_tokenizer_s_pairs(tokenizer):
    model = toy(NextLevelBertForSequenceClassification, text_pair=True)
    texts, questions = [WORDS, WORDS * 2], ["Who wrote?", "What passed on the evening of the storm?"]
    together = model(**tokenizer(texts, questions, padding=True, return_tensors="pt")).logits
    pair = tokenizer(questions, padding=True, return_tensors="pt")
    apart = model(
        **tokenizer(texts, padding=True, return_tensors="pt"),
        pair_input_ids=pair["input_ids"],
        pair_attention_mask=pair["attention_mask"],
    ).logits
    torch.testing.assert_close(together, apart)
    assert not torch.equal(
        together, model(**tokenizer(texts, questions[::-1], padding=True, return_tensors="pt")).logits
    )


def test_the_pipeline_of_transformers(tokenizer, tmp_path):
    model = toy(NextLevelBertForSequenceClassification, id2label={0: "dull", 1: "good"})
    model.base_model.tokenizer = tokenizer
    model.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu")
    [answer] = classify(WORDS * 30)
    scores = model(**tokenizer([WORDS * 30], return_tensors="pt")).logits.softmax(-1)[0]
    assert answer["label"] == ("dull", "good")[int(scores.argmax())]
    assert answer["score"] == pytest.approx(scores.max().item(), abs=1e-5)


def inputs_of(model, documents):
    if isinstance(model, NextLevelBertForMultipleChoice):
        return {**documents, "pair_embeds": torch.randn(3, 2, 32), "labels": torch.tensor([1, 0, 1])}
    pair = {"pair_embeds": torch.randn(3, 32)} if model.config.text_pair else {}
    return {**documents, **pair, "labels": torch.tensor([0, 1, 1])}


HEADS = [
    (NextLevelBertForSequenceClassification, AutoModelForSequenceClassification, {}),
    (NextLevelBertForSequenceClassification, AutoModelForSequenceClassification, {"text_pair": True}),
    (NextLevelBertForMultipleChoice, AutoModelForMultipleChoice, {}),
]


@pytest.mark.parametrize(("cls", "auto", "config"), HEADS)
def test_one_step_reaches_every_trainable_parameter(cls, auto, config, documents):
    model = toy(cls, **config).train()
    model(**inputs_of(model, documents)).loss.backward()
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    without = {name for name in trainable if model.get_parameter(name).grad is None}
    silent = {name for name in trainable - without if not model.get_parameter(name).grad.any()}
    assert without == set()
    # A shift of all keys changes no softmax, so their bias never has a gradient beyond rounding.
    assert {name for name in silent if "key.bias" not in name} <= {
        "model.encoder.embeddings.token_type_embeddings.weight"
    }
    assert not any("chunk_encoder" in name for name in trainable)


@pytest.mark.parametrize(("cls", "auto", "config"), HEADS)
def test_save_and_load_change_nothing(cls, auto, config, documents, tmp_path):
    model = toy(cls, **config)
    inputs = inputs_of(model, documents)
    model.save_pretrained(tmp_path)
    loaded, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is cls
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits, atol=1e-6, rtol=1e-5)
    base = AutoModel.from_pretrained(tmp_path)  # the head is left out
    torch.testing.assert_close(
        base(**documents).pooler_output, model.model(**documents).pooler_output, atol=1e-6, rtol=1e-5
    )


def test_a_pretrained_model_gets_a_new_classifier_only(tmp_path, transformers_log):
    toy(NextLevelBertForMaskedVectorModeling).save_pretrained(tmp_path)
    model, info = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=5, text_pair=True, output_loading_info=True
    )
    assert all(key.startswith("classifier.") for key in info["missing_keys"])
    assert len(info["missing_keys"]) == 4
    assert not info["unexpected_keys"]
    assert model.classifier[0].in_features == 64
    assert model.classifier[2].out_features == 5


@pytest.mark.parametrize("target_modules", [["query", "value"], "all-linear"])
@pytest.mark.parametrize(("cls", "auto", "config"), HEADS[1:])
def test_an_adapter_loads_on_the_base_checkpoint_and_merges(cls, auto, config, target_modules, documents, tmp_path):
    toy(NextLevelBertModel).save_pretrained(tmp_path / "base")
    base = auto.from_pretrained(tmp_path / "base", **config)
    inputs = inputs_of(base, documents)
    settings = LoraConfig(
        target_modules=target_modules, modules_to_save=["classifier"], exclude_modules=r".*\bchunk_encoder\b.*"
    )
    model = get_peft_model(base, settings)
    adapted = {name for name, parameter in model.named_parameters() if "lora_" in name and parameter.requires_grad}
    assert adapted
    assert not any("chunk_encoder" in name for name, _ in model.named_parameters() if "lora_" in name)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    unmerged = model.eval()(**inputs).logits
    model.save_pretrained(tmp_path / "adapter")
    again = auto.from_pretrained(tmp_path / "base", **config)
    assert not torch.allclose(again(**inputs).logits, unmerged, atol=1e-3)
    loaded = PeftModel.from_pretrained(again, tmp_path / "adapter").eval()
    torch.testing.assert_close(loaded(**inputs).logits, unmerged, atol=1e-6, rtol=1e-5)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(**inputs).logits, unmerged, atol=1e-5, rtol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(
        auto.from_pretrained(tmp_path / "merged")(**inputs).logits, unmerged, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("config", "inputs", "message"),
    [
        ({}, {"labels": torch.tensor([0, 2, -1])}, r"labels of rows \[1, 2\] must be from 0 to 1 .* got \[2, -1\]"),
        (
            {},
            {"labels": torch.tensor([0, 1])},
            r"labels must be integers \[3\] \(torch.int64\), got torch.int64 \(2,\)",
        ),
        (
            {"num_labels": 3},
            {"labels": torch.tensor([[0.0, 1, 0], [0, 2, 0], [0, 0, 0]])},
            r"labels of rows \[1\] must be from 0 to 1",
        ),
        ({"num_labels": 3}, {"labels": torch.ones(3)}, r"float labels \(3, 3\), one column per class"),
        ({"num_labels": 1}, {"labels": torch.tensor([1.0, float("nan"), 0.0])}, r"rows \[1\] must be finite numbers"),
        ({}, {"pair_embeds": torch.ones(3, 32)}, r"text_pair=False and was given a question: load it with"),
        ({"text_pair": True}, {}, r"text_pair=True and was given no question: give pair_input_ids"),
        (
            {"text_pair": True},
            {"pair_embeds": torch.ones(3, 31)},
            r"pair_embeds \[N, 32\] .* got pair_embeds \(3, 31\)",
        ),
        ({"text_pair": True}, {"pair_embeds": torch.ones(2, 32)}, "2 questions for 3 documents"),
        (
            {"text_pair": True},
            {"pair_embeds": torch.ones(1, 32), "document_index": torch.tensor([3])},
            r"numbers from 0 to 2, the documents of this batch, and at least one; got \[3\]",
        ),
        (
            {"text_pair": True},
            {"pair_input_ids": torch.tensor([[7, 8], [101, 102], [7, 9]])},
            r"texts \[1\] contain no",
        ),
    ],
)
def test_what_the_classifier_refuses(config, inputs, message, documents):
    with pytest.raises(ValueError, match=message):
        toy(NextLevelBertForSequenceClassification, **config)(**documents, **inputs)


def test_a_question_that_comes_twice(tokenizer):
    model = toy(NextLevelBertForSequenceClassification, text_pair=True)
    with pytest.raises(ValueError, match="Questions were given twice"):
        model(**tokenizer(WORDS, "Who wrote?", return_tensors="pt"), pair_embeds=torch.ones(1, 32))


def test_what_the_chooser_refuses(documents):
    model = toy(NextLevelBertForMultipleChoice)
    with pytest.raises(ValueError, match=r"candidates as pair_input_ids \[N, C, Q\].*got \(3, 32\)"):
        model(**documents, pair_embeds=torch.ones(3, 32))
    with pytest.raises(ValueError, match=r"rows \[2\] must be from 0 to 3"):
        model(**documents, pair_embeds=torch.ones(3, 4, 32), labels=torch.tensor([0, 3, 4]))
    with pytest.raises(ValueError, match="classifier_hidden_size must be at least 1, got 0"):
        toy_config(classifier_hidden_size=0)


def test_a_pair_whose_parts_have_other_shapes():
    model = NextLevelBertForSequenceClassification(toy_config(text_pair=True, num_labels=2)).eval()
    ids, types = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"must be \[documents, tokens\], got \[\(2, 5\), \(2, 4\)\]"):
        model(input_ids=ids, token_type_ids=types)
    with pytest.raises(ValueError, match=r"must be \[documents, tokens\], got \[\(5,\), \(5,\)\]"):
        model(input_ids=ids[0], token_type_ids=torch.ones(5))
