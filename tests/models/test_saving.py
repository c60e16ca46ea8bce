"""A checkpoint is a SentenceTransformer, takes adapters, and is published with a card that opens it."""

from __future__ import annotations

import torch
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PreTrainedModel

from nextlevelbert import NextLevelBertForSequenceClassification, NextLevelBertModel

from ..conftest import toy_config

TEXTS = ["Call me Ishmael. " * 200, "It was the best of times.", "", "All happy families are alike. " * 20]


def test_the_trainer_of_sentence_transformers(toy_checkpoint, tmp_path):
    model = SentenceTransformer(toy_checkpoint, device="cpu")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    pairs = Dataset.from_dict({"anchor": TEXTS[:2] + TEXTS[3:], "positive": ["sea", "times", "family"]})
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=3, learning_rate=1e-3, use_cpu=True,
        save_strategy="no", dataloader_pin_memory=False, disable_tqdm=True,
    )  # fmt: skip
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)
    ).train()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert not any("chunk_encoder" in name for name in changed)
    assert sum(".encoder.layer." in name for name in changed) == 2 * 16  # every weight of both layers


def test_peft_adapts_attention_and_leaves_the_chunk_encoder_alone():
    from peft import LoraConfig, get_peft_model

    for made in (NextLevelBertForSequenceClassification, NextLevelBertModel):
        adapted = get_peft_model(made(toy_config()), LoraConfig(r=2, **made(toy_config()).lora_targets()))
        trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
        assert sum("lora_A" in name for name in trained) == 4  # query and value of two layers
        assert not any("chunk_encoder" in name for name in trained)
        assert any("classifier" in name for name in trained) == (made is NextLevelBertForSequenceClassification)


def test_the_card_that_is_published_opens_the_model(toy_checkpoint, tmp_path, monkeypatch):
    """In place of transformers' empty template; a card that someone wrote stays."""
    model, uploaded = NextLevelBertModel.from_pretrained(toy_checkpoint), []
    monkeypatch.setattr(PreTrainedModel, "_upload_modified_files", lambda *args, **kwargs: uploaded.append(args))
    ModelCard.from_template(ModelCardData(tags=["nextlevelbert"])).save(tmp_path / "README.md")
    model._upload_modified_files(str(tmp_path), "me/books", files_timestamps={})
    text = (tmp_path / "README.md").read_text()
    for line in ('AutoModel.from_pretrained("me/books")', "import nextlevelbert", "trust_remote_code=True", "- nextl"):
        assert line in text
    (tmp_path / "README.md").write_text("mine")
    model._upload_modified_files(str(tmp_path), "me/books", files_timestamps={})
    assert (tmp_path / "README.md").read_text() == "mine"
    assert len(uploaded) == 2
