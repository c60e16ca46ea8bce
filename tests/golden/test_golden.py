"""Files that release 0.1.0 wrote: every later release opens them and gets the same numbers from them."""

from __future__ import annotations

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

from nextlevelbert import load_chunk_encoder

from .inputs import CLASSES, DOCUMENTS, FOLDER
from .outputs import outputs_of


@pytest.fixture(scope="module")
def expected():
    return load_file(FOLDER / "expected.safetensors")


@pytest.fixture(scope="module")
def source():
    return load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")


def agree(found, expected, name):
    wanted = {key.removeprefix(f"{name}/"): values for key, values in expected.items() if key.startswith(f"{name}/")}
    assert found.keys() == wanted.keys()
    for key, values in found.items():
        torch.testing.assert_close(values, wanted[key], atol=1e-5, rtol=1e-5, msg=lambda why, key=key: f"{key}: {why}")


@pytest.mark.parametrize("name", CLASSES)
def test_a_checkpoint_opens_whole_and_computes_the_same(name, expected):
    model, report = CLASSES[name].from_pretrained(FOLDER / name, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    agree(outputs_of(name, model), expected, name)


@pytest.mark.parametrize("name", CLASSES)
def test_a_checkpoint_is_saved_again_as_it_was(name, tmp_path):
    model = CLASSES[name].from_pretrained(FOLDER / name)
    model.save_pretrained(tmp_path)
    before, after = load_file(FOLDER / name / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    if name == "nextlevelbert-contrastive":  # it had a head for masked vectors, which nothing used
        before = {key: values for key, values in before.items() if not key.startswith("head.")}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    ours = {"processor_config.json"}  # saved by the processor, not by the model
    assert {file.name for file in FOLDER.joinpath(name).iterdir()} - ours <= {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["nextlevelbert", "hate", "chunkbert", "bert-al", "cdlm"])
def test_the_auto_class_opens_the_bare_model(name):
    assert type(AutoModel.from_pretrained(FOLDER / name)) is CLASSES[name]


def test_the_processor_opens():
    processor = AutoProcessor.from_pretrained(FOLDER / "cdlm-matching")
    assert type(processor).__name__ == "CdlmProcessor"
    assert processor.max_length == 60
    assert sum(processor.cluster([document.text for document in DOCUMENTS[:2]])["attention_mask"]) == 60


def test_an_adapter_opens_on_its_checkpoint(expected):
    name = "nextlevelbert-classification"
    adapted = PeftModel.from_pretrained(CLASSES[name].from_pretrained(FOLDER / name), FOLDER / "adapter")
    agree(outputs_of(name, adapted.get_base_model()), expected, "adapter")
    assert not torch.allclose(expected["adapter/logits"], expected[f"{name}/logits"], atol=1e-2)
