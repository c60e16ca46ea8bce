"""Sentence encoders of many families, exported and compared with torch."""

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch

from nextlevelbert import NextLevelBertModel
from nextlevelbert.search.encoders import export as exporting
from nextlevelbert.search.encoders.export import export, make_export
from nextlevelbert.search.encoders.onnx import MINILM, Export, OnnxEncoder
from nextlevelbert.search.encoders.torch import TorchEncoder, open_model

from ...toys.encoders import CONFIGS, TEXT, save_encoder

QUESTION = "where did the red dog go ?"
TEXTS = [TEXT, "", "the cat .", f"{TEXT} {TEXT}", "unheard words"]
FAMILIES = [
    "bert",
    "mpnet",
    *(
        pytest.param(name, marks=pytest.mark.long)
        for name in (
            "roberta",
            "xlm-roberta",
            "distilbert",
            "modernbert",
            "electra",
            "t5",
            "deberta-v2",
        )
    ),
]
PROMPTS = {"query": "query : ", "document": "passage : "}


class Exported(NamedTuple):
    """An encoder in torch, its files, and its export."""

    model: NextLevelBertModel
    path: str
    folder: Path


@pytest.fixture(scope="module", params=FAMILIES)
def exported(request, tmp_path_factory) -> Exported:
    folder = tmp_path_factory.mktemp(request.param)
    path = save_encoder(folder, CONFIGS[request.param], prompts=PROMPTS)
    model = open_model(path)
    export(model, folder / "export")
    return Exported(model, path, folder / "export")


@pytest.mark.filterwarnings("ignore:.* contain no token")
def test_a_graph_has_the_vectors_of_torch(exported):
    """For documents of other numbers of chunks, and for chunks of other lengths."""
    graph = OnnxEncoder(exported.folder, "float32")

    encoded = graph.encode(TEXTS)

    expected = TorchEncoder(exported.model)
    by_torch = expected.encode(TEXTS)
    for spans, spans_by_torch in zip(encoded.spans, by_torch.spans, strict=True):
        np.testing.assert_array_equal(spans, spans_by_torch)
    np.testing.assert_allclose(encoded.plain, by_torch.plain, atol=1e-5)
    np.testing.assert_allclose(encoded.documents, by_torch.documents, atol=1e-5)
    vector = graph.question_vector(QUESTION)
    np.testing.assert_allclose(vector, expected.question_vector(QUESTION), atol=1e-5)


def test_a_graph_names_no_file_of_the_machine(exported):
    graph = (exported.folder / "float32.onnx").read_bytes()

    assert b'.py", line' not in graph
    assert b'.py", line' not in (MINILM / "int8.onnx").read_bytes()


@torch.no_grad()
def test_a_graph_reads_padding_as_torch_does(exported):
    ids = torch.randint(5, 20, (4, 31), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(31) < torch.tensor([31, 2, 17, 8])[:, None]).long()
    session = onnxruntime.InferenceSession(exported.folder / "float32.onnx")

    [padded] = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})

    expected = exported.model.get_chunk_encoder()(ids, mask)
    np.testing.assert_allclose(padded, expected.numpy(), atol=1e-5)


def test_what_is_stored_beside_vectors_is_the_same(exported):
    graph = OnnxEncoder(exported.folder, "float32")
    expected = TorchEncoder(exported.model)

    assert graph.encoder_recipe == expected.encoder_recipe
    assert graph.fingerprint() == expected.fingerprint()
    assert graph.rule == expected.rule
    assert graph.rule.prompt == "passage : "
    assert graph.question_vector("\u200b") is expected.question_vector("\u200b") is None


@pytest.fixture
def unexported(settled, tmp_path) -> Exported:
    """An encoder without an export."""
    path = save_encoder(tmp_path, CONFIGS["albert"])
    return Exported(open_model(path), path, tmp_path / "cache")


def test_other_vectors_than_those_of_torch_are_refused(unexported, exported, monkeypatch, capsys):
    """A line says so, the encoder runs in torch, and nothing is left in the cache."""
    made = Export(Path(unexported.path), unexported.folder)

    def write_another_graph(encoder, path, batch):
        shutil.copy(exported.folder / "float32.onnx", path)

    monkeypatch.setattr(exporting, "_write_graph", write_another_graph)

    assert not make_export(unexported.model, made)

    line = "runs in torch, because it has no export: ValueError: the vectors of its graph differ"
    assert line in capsys.readouterr().err
    assert not made.is_made
    assert not list(unexported.folder.rglob("*.onnx"))


def test_without_the_exporter_a_line_says_what_to_install(unexported, monkeypatch, capsys):
    monkeypatch.setattr(exporting, "_PACKAGES", ("onnx", "nowhere"))

    assert not make_export(unexported.model, Export(Path(unexported.path), unexported.folder))

    assert "pip install 'nextlevelbert[onnx]'" in capsys.readouterr().err


def test_a_prompt_that_pooling_leaves_out_is_not_exported(settled, tmp_path, capsys):
    path = save_encoder(tmp_path, CONFIGS["bert"], prompts=PROMPTS, include_prompt=False)

    assert not make_export(open_model(path), Export(Path(path), tmp_path / "cache"))

    assert "its pooling leaves out the prompt" in capsys.readouterr().err


def test_an_encoder_that_may_still_change_is_not_exported(unexported, monkeypatch):
    """Its next change might have the same time stamp."""
    monkeypatch.setattr("nextlevelbert.search.reading._COARSEST_TIME", 10**16)

    assert not make_export(unexported.model, Export(Path(unexported.path), unexported.folder))

    assert not unexported.folder.exists()


def test_models_with_layers_over_chunks_are_not_exported(toy_checkpoint, settled, tmp_path, capsys):
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    capsys.readouterr()

    assert not make_export(model, Export(Path(toy_checkpoint), tmp_path))

    assert capsys.readouterr().err == ""
