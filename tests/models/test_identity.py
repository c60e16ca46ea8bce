"""What a stored vector depends on: one thing after the other is changed, and paths are not."""

import json
import shutil

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

from nextlevelbert import NextLevelBertModel, load_chunk_encoder
from nextlevelbert.models.identity import encoder_identity, model_identity
from nextlevelbert.search.encoders.torch import open_model
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.store import Store


def save(bert, folder, pooling="mean", normalize=True, longest=64, change=None, **settings):
    """Saves a sentence encoder of a saved BERT, with one thing changed."""
    steps = [modules.Transformer(bert), modules.Pooling(32, pooling)]
    if normalize:
        steps.append(modules.Normalize())
    model = SentenceTransformer(modules=steps, device="cpu", **settings)
    model.max_seq_length = longest
    if change is not None:
        change(model)
    model.save(str(folder))
    return str(folder)


def add_to_a_weight(model):
    next(model[0].auto_model.parameters()).data[9, 0] += 1.0


def add_a_token(model):
    model.tokenizer.add_tokens(["aquarium-like"])


def compute_relu(model):
    model[0].auto_model.config.hidden_act = "relu"


CHANGES = {
    "weights": {"change": add_to_a_weight},
    "tokenizer": {"change": add_a_token},
    "activation": {"change": compute_relu},
    "pooling": {"pooling": "cls"},
    "normalisation": {"normalize": False},
    "prompts": {"prompts": {"query": "ask: "}},
    "default prompt": {"prompts": {"query": "ask: "}, "default_prompt_name": "query"},
    "max_seq_length": {"longest": 32},
}


@pytest.fixture(scope="module")
def identities(encoder, tmp_path_factory):
    """The identity of each encoder, by the thing that was changed."""
    folder = tmp_path_factory.mktemp("encoders")
    paths = {"nothing": save(encoder, folder / "nothing")}
    for name, changes in CHANGES.items():
        paths[name] = save(encoder, folder / name, **changes)
    paths["path"] = shutil.copytree(paths["nothing"], folder / "elsewhere" / "copy")
    found = {name: encoder_identity(load_chunk_encoder(path)) for name, path in paths.items()}

    halved = load_chunk_encoder(paths["nothing"])
    halved.encoder.half()
    found["precision"] = encoder_identity(halved)
    return found


@pytest.mark.parametrize("name", [*CHANGES, "precision"])
def test_another_encoder_has_another_identity(identities, name):
    others = {other: identity for other, identity in identities.items() if other != name}

    assert identities[name] not in others.values()


def test_a_copy_has_the_same_identity(identities):
    assert identities["path"] == identities["nothing"]


def test_a_version_and_names_do_not_matter(toy_checkpoint, tmp_path):
    path = shutil.copytree(toy_checkpoint, tmp_path / "copy")
    config = json.loads((path / "config.json").read_text())
    config |= {"transformers_version": "4.1", "chunk_encoder_name": "another/name"}
    config["chunk_encoder_config"] |= {"transformers_version": "4.1", "_name_or_path": "/home/me"}
    (path / "config.json").write_text(json.dumps(config))

    model = NextLevelBertModel.from_pretrained(path)

    original = NextLevelBertModel.from_pretrained(toy_checkpoint)
    assert model_identity(model, model.tokenizer) == model_identity(original, original.tokenizer)
    model.config.pooling = "cls"
    assert model_identity(model, model.tokenizer) != model_identity(original, original.tokenizer)


def test_weights_that_are_drawn_and_not_used_do_not_matter(toy_encoder_path, tmp_path):
    found = []
    keys = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = open_model(toy_encoder_path)
        found.append((model.special_embeddings.weight[1, 0].item(), model))
        reading = ReadingOptions(cache_dir=tmp_path)
        keys.append(Store("books", model, reading).path)

    assert found[0][0] != found[1][0]
    first = found[0][1]
    second = found[1][1]
    assert model_identity(first, first.tokenizer) == model_identity(second, second.tokenizer)
    assert keys[0] == keys[1]
