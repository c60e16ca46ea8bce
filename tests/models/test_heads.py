"""The heads for tasks: what they compute, what they refuse; training by sentence-transformers."""

import copy

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from transformers import AutoTokenizer, DataCollatorForMultipleChoice, pipeline

from nextlevelbert import (
    DataCollatorForDocumentChoice,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
)

from ..toys.vectors import close, toy_config

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
    close(output.logits, by_hand(model, vector))
    expected = nn.functional.nll_loss(output.logits.log_softmax(-1), torch.tensor([2, 0, 1]))
    close(output.loss, expected)

    assert model.classifier[0].out_features == 768


def test_candidates_of_a_question_share_a_softmax(documents):
    model = toy(NextLevelBertForMultipleChoice)
    candidates = torch.randn(4, 4, 32)
    index = torch.tensor([2, 2, 0, 1])
    labels = torch.tensor([3, 0, 1, 1])
    output = model(**documents, pair_embeds=candidates, document_index=index, labels=labels)
    vector = model.model(**documents).pooler_output
    for row in range(4):
        for place in range(4):
            one = by_hand(model, torch.cat([vector[index[row]], candidates[row, place]]))
            close(output.logits[row, place], one[0])
    close(output.loss, nn.functional.nll_loss(output.logits.log_softmax(-1), labels))


def test_the_stock_tokenizer_s_pairs(tokenizer):
    model = toy(NextLevelBertForSequenceClassification, text_pair=True)
    texts = [WORDS, WORDS * 2]
    questions = ["Who wrote?", "What passed on the evening of the storm?"]
    together = model(**tokenizer(texts, questions, padding=True, return_tensors="pt")).logits
    pair = tokenizer(questions, padding=True, return_tensors="pt")
    apart = model(
        **tokenizer(texts, padding=True, return_tensors="pt"),
        pair_input_ids=pair["input_ids"],
        pair_attention_mask=pair["attention_mask"],
    ).logits
    close(together, apart)
    other = model(**tokenizer(texts, questions[::-1], padding=True, return_tensors="pt")).logits

    assert not torch.equal(together, other)


def test_the_pipeline_of_transformers(tokenizer, tmp_path):
    model = toy(NextLevelBertForSequenceClassification, id2label={0: "dull", 1: "good"})
    model.base_model.tokenizer = tokenizer
    model.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu")
    [answer] = classify(WORDS * 30)
    scores = model(**tokenizer([WORDS * 30], return_tensors="pt")).logits.softmax(-1)[0]

    assert answer["label"] == ("dull", "good")[int(scores.argmax())]
    assert answer["score"] == pytest.approx(scores.max().item(), abs=1e-5)


def test_questions_stand_beside_the_document_vector_and_it_is_read_once(documents):
    model = toy(NextLevelBertForSequenceClassification, num_labels=2, text_pair=True)
    questions = torch.randn(5, 32)
    index = torch.tensor([0, 0, 2, 1, 0])
    vector = model.model(**documents).pooler_output
    read = []
    model.model.register_forward_hook(lambda *of_pass: read.append(1))
    output = model(**documents, pair_embeds=questions, document_index=index)

    assert read == [1]

    close(output.logits, by_hand(model, torch.cat([vector[index], questions], dim=1)))


def test_transformers_own_recipe_of_multiple_choice(tokenizer, monkeypatch):
    """`[B, C, T]` of `DataCollatorForMultipleChoice`: the document is read once, and all as when
    given apart."""
    model = toy(NextLevelBertForMultipleChoice)
    texts = [WORDS * 20, "A short one."]
    pairs = ["Who? He did.", "Who? She did, long ago.", "Who? Yes.", "Who? No."]
    rows = [tokenizer([texts[0]] * 2, pairs[:2]), tokenizer([texts[1]] * 2, pairs[2:])]
    batch = DataCollatorForMultipleChoice(tokenizer)([{**row, "label": 1} for row in rows])
    chunks = []
    encode_ids = type(model.model).encode_ids
    monkeypatch.setattr(
        type(model.model),
        "encode_ids",
        lambda self, ids, mask: chunks.append(len(ids)) or encode_ids(self, ids, mask),
    )
    output = model(**batch)

    assert chunks == [4, 2]  # candidates, documents

    candidates = tokenizer(pairs, padding=True, return_tensors="pt")
    apart = model(
        **tokenizer(texts, padding=True, return_tensors="pt"),
        pair_input_ids=candidates["input_ids"].view(2, 2, -1),
        pair_attention_mask=candidates["attention_mask"].view(2, 2, -1),
        labels=torch.tensor([1, 1]),
    )
    close(output.logits, apart.logits)
    close(output.loss, apart.loss)
    batch["token_type_ids"] *= 0
    with pytest.raises(ValueError, match=r"needs candidates \[N, C, …\]: pass pair_input_ids"):
        model(**batch)


def test_what_the_heads_refuse(documents):
    with pytest.raises(ValueError, match=r"takes no questions \(text_pair=False\): leave out"):
        toy(NextLevelBertForSequenceClassification)(**documents, pair_embeds=torch.ones(3, 32))
    with pytest.raises(ValueError, match="document_index"):
        toy(NextLevelBertForMultipleChoice)(**documents, pair_embeds=torch.ones(2, 4, 32))


def test_candidates_of_a_question_have_the_same_document():
    """Token 7 is the document of the first candidate, token 9 the document of the second."""
    model = toy(NextLevelBertForMultipleChoice)
    ids = torch.tensor([[[101, 7, 102, 8, 102], [101, 9, 102, 8, 102]]])
    types = torch.tensor([[[0, 0, 0, 1, 1], [0, 0, 0, 1, 1]]])

    with pytest.raises(ValueError, match="have different documents"):
        model(input_ids=ids, token_type_ids=types)


def test_questions_with_any_tokenizer(tokenizer):
    """Ids and stored vectors give the same; a text is read once for its questions."""
    model = toy(NextLevelBertForMultipleChoice)
    model.model.tokenizer = tokenizer
    collate = DataCollatorForDocumentChoice(tokenizer)
    row = {"question": "Who wrote?", "choices": ["He did.", "No one, ever.", "I"], "label": 0}
    rows = []
    stored = []
    for count in (2, 9, 9, 1):
        rows.append({**row, "text": WORDS * count})
        stored.append({**row, "inputs_embeds": model.model.encode(WORDS * count).plain})
    batch = collate(rows)

    assert batch["input_ids"].shape[0] == 3
    assert batch["document_index"].tolist() == [0, 1, 1, 2]

    logits = model(**batch).logits
    for index in range(4):
        close(model(**collate(stored[index : index + 1])).logits[0], logits[index])
    for unlabelled in rows:
        del unlabelled["label"]

    assert "labels" not in collate(rows)


def test_the_trainer_of_sentence_transformers(toy_checkpoint, tmp_path):
    model = SentenceTransformer(toy_checkpoint, device="cpu")
    before = copy.deepcopy(model.state_dict())
    texts = ["Call me Ishmael. " * 200, "It was the best of times.", "All alike. " * 20]
    pairs = Dataset.from_dict({"anchor": texts, "positive": ["sea", "times", "family"]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=2,
        learning_rate=1e-3,
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    ).train()
    for name, parameter in model.named_parameters():
        is_changed = not torch.equal(parameter, before[name])
        if "chunk_encoder" in name:
            assert not is_changed
        elif ".encoder.layer." in name:
            assert is_changed
