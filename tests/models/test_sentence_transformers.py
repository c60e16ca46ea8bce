"""A saved checkpoint is a SentenceTransformer."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from nextlevelbert import NextLevelBertForMaskedVectorModeling, NextLevelBertModel

TEXTS = ["Call me Ishmael. " * 200, "It was the best of times.", "", "All happy families are alike. " * 20]


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    config = {**minilm.encoder.model.config.to_dict(), "max_position_embeddings": 22}
    model = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(minilm, chunk_size=32, encoder_config=config)
    model.save_pretrained(folder)
    return folder


def test_encode_gives_the_models_own_document_vectors(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", message="Document.*contain no token")
        sentence_transformer = SentenceTransformer(str(folder), device="cpu")
        vectors = sentence_transformer.encode(TEXTS, batch_size=2)
        embeddings = NextLevelBertModel.from_pretrained(folder).encode(TEXTS)
    assert len(embeddings[0].chunks) > 20  # longer than a window
    expected = np.stack([embedding.document.numpy() for embedding in embeddings])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert sentence_transformer.get_embedding_dimension() == 384
    assert [type(module).__name__ for module in sentence_transformer] == ["Transformer"]


def test_saving_it_again_changes_nothing(folder, tmp_path):
    original = SentenceTransformer(str(folder), device="cpu")
    original.save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS[1:2]), original.encode(TEXTS[1:2]))


def test_the_trainer_of_sentence_transformers(folder, tmp_path):
    model = SentenceTransformer(str(folder), device="cpu")
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
    assert sum(".encoder.layer." in name for name in changed) == 6 * 16  # every weight of all six layers


def test_what_the_folder_holds(folder):
    config = (folder / "config.json").read_text()
    tasks = {"AutoModelForPreTraining", "AutoModelForSequenceClassification", "AutoModelForMultipleChoice"}
    assert set(json.loads(config)["auto_map"]) == {"AutoConfig", "AutoModel"} | tasks
    assert str(folder) not in config
    assert {file.name for file in folder.iterdir()} >= {"modules.json", "tokenizer.json", "modeling_nextlevelbert.py"}
