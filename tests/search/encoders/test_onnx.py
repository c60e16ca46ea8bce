"""Encoders by ONNX Runtime: which graph is used for which files, and 8 bits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import nextlevelbert
from nextlevelbert import read_documents
from nextlevelbert.search.encoders import choice
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.encoders.export import write_installed
from nextlevelbert.search.encoders.onnx import MINILM, OnnxEncoder, batches_by_length
from nextlevelbert.search.encoders.torch import TorchEncoder, open_model

from ..conftest import COURT, KITCHEN, SEA

ROOT = Path(nextlevelbert.__file__).parents[1]
QUESTION = "Who hunts the whale?"


@pytest.fixture
def graph(toy_encoder_path, settled, exports) -> OnnxEncoder:
    """A toy encoder, which is exported once."""
    encoder = SearchModel(toy_encoder_path, cache_dir=exports).vectors
    assert isinstance(encoder, OnnxEncoder)
    return encoder


def test_a_later_command_opens_no_model(graph, toy_encoder_path, exports, monkeypatch, capsys):
    monkeypatch.setattr("nextlevelbert.search.encoders.torch.open_model", None)

    later = SearchModel(toy_encoder_path, cache_dir=exports).vectors

    np.testing.assert_array_equal(later.question_vector(SEA), graph.question_vector(SEA))
    assert capsys.readouterr().err == "Reading with model on cpu in float32, by ONNX Runtime.\n"


@pytest.mark.long
def test_changed_weights_have_another_graph(toy_encoder_path, settled, tmp_path):
    """Also if the size and the time of the file are as before."""
    folder = shutil.copytree(toy_encoder_path, tmp_path / "encoder")
    [weights] = folder.rglob("model.safetensors")
    before = SearchModel(str(folder), cache_dir=tmp_path).vectors.question_vector(SEA)
    status = weights.stat()
    tensors = {
        name: values + 0.5 * torch.randn_like(values) for name, values in load_file(weights).items()
    }

    save_file(tensors, weights, metadata={"format": "pt"})
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert weights.stat().st_size == status.st_size
    after = SearchModel(str(folder), cache_dir=tmp_path).vectors.question_vector(SEA)
    expected = TorchEncoder(open_model(str(folder))).question_vector(SEA)
    np.testing.assert_allclose(after, expected, atol=1e-5)
    assert not np.allclose(after, before, atol=1e-2)


@pytest.mark.parametrize("options", [{"device": "meta"}, {"dtype": "bfloat16"}])
def test_other_devices_and_precisions_stay_in_torch(toy_encoder_path, tmp_path, options):
    model = SearchModel(toy_encoder_path, cache_dir=tmp_path, **options)

    assert isinstance(model.vectors, TorchEncoder)


def test_a_gpu_stays_in_torch(graph, toy_encoder_path, exports, monkeypatch):
    """Torch says whether it can use a GPU for which there is a driver."""
    monkeypatch.setattr(choice, "_DRIVERS", (__file__,))
    model = SearchModel(toy_encoder_path, cache_dir=exports)
    assert isinstance(model.vectors, OnnxEncoder)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))

    on_gpu = SearchModel(toy_encoder_path, cache_dir=exports)
    on_cpu = SearchModel(toy_encoder_path, device="cpu", cache_dir=exports)

    assert isinstance(on_gpu.vectors, TorchEncoder)
    assert isinstance(on_cpu.vectors, OnnxEncoder)


def test_eight_bits(graph, toy_encoder_path, exports):
    """A vector does not depend on what is read beside it, as it would in a batch."""
    model = SearchModel(toy_encoder_path, dtype="int8", cache_dir=exports)
    texts = [SEA, KITCHEN, COURT]

    together = model.vectors.encode(texts).plain

    alone = np.concatenate([model.vectors.encode([text]).plain for text in texts])
    np.testing.assert_array_equal(together, alone)
    exact = graph.encode(texts).plain
    assert 0.9 < np.einsum("nd,nd->n", together, exact).min() < 0.99999
    assert model.vectors.encoder_recipe == graph.encoder_recipe | {"dtype": "int8"}


def test_chunks_of_one_length_share_a_batch():
    batches = batches_by_length(np.array([4, 9, 4, 2, 4, 9]), tokens_per_batch=8)

    assert [batch.tolist() for batch in batches] == [[3], [0, 2], [4], [1], [5]]


def texts_of_books() -> list[str]:
    return [book.text[:2_500] for book in read_documents("example-books")]


def test_the_installed_minilm_is_near_to_torch(minilm_path):
    texts = texts_of_books()
    installed = SearchModel("minilm", dtype="int8").vectors
    expected = TorchEncoder(open_model(minilm_path))

    encoded = installed.encode(texts).plain

    cosines = np.einsum("nd,nd->n", encoded, expected.encode(texts).plain)
    assert len(cosines) > 12
    assert cosines.min() >= 0.985
    question = "why do people want to look at the sea?"
    assert installed.question_vector(question) @ expected.question_vector(question) >= 0.985


@pytest.mark.long
def test_the_installed_minilm_is_what_its_script_writes(minilm_path, tmp_path, monkeypatch):
    monkeypatch.setattr("nextlevelbert.search.encoders.export.MINILM", tmp_path)

    write_installed()

    written = OnnxEncoder(tmp_path, "int8")
    installed = OnnxEncoder(MINILM, "int8")
    texts = texts_of_books()
    np.testing.assert_allclose(
        written.encode(texts).plain, installed.encode(texts).plain, atol=1e-5
    )
    assert written.encoder_recipe == installed.encoder_recipe


def imported_by_a_search(temporary, *options) -> tuple[str, set[str]]:
    """Searches in a process of its own: what it printed, and the modules that it imported."""
    temporary.mkdir()
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "nextlevelbert", "search", *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout, {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}


def test_a_further_search_imports_neither_torch_nor_transformers(
    graph, toy_encoder_path, exports, tmp_path
):
    """After the encoder was exported."""
    (tmp_path / "sea.txt").write_text(SEA)

    printed, imported = imported_by_a_search(
        tmp_path / "temporary",
        tmp_path / "sea.txt",
        QUESTION,
        "--model",
        toy_encoder_path,
        "--cache_dir",
        exports,
    )

    assert "The captain hunts it over the sea" in printed
    assert "onnxruntime" in imported
    assert imported.isdisjoint({"torch", "transformers", "sentence_transformers", "onnx"})


def test_the_default_with_minilm_imports_neither_torch_nor_transformers(tmp_path):
    """It leaves nothing in the temporary folder, where onnxruntime's telemetry would write."""
    (tmp_path / "sea.txt").write_text(SEA)
    temporary = tmp_path / "temporary"

    printed, imported = imported_by_a_search(
        temporary, tmp_path / "sea.txt", QUESTION, "--json", "--cache_dir", tmp_path / "cache"
    )

    assert list(temporary.iterdir()) == []

    assert json.loads(printed)["passages"][0]["rerank_cosine"] > 0
    assert "onnxruntime" in imported
    assert imported.isdisjoint({"torch", "transformers", "sentence_transformers", "onnx"})
