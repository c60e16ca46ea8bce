"""Files that release 0.1.0 wrote: every later release opens them and gets the same numbers from them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

from nextlevelbert import ChunkingRule, VectorCache, load_chunk_encoder, load_int8_chunk_encoder

from .inputs import CLASSES, DOCUMENTS, FOLDER
from .outputs import TEXTS, outputs_of
from .write import TRAIN


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


def test_a_cache_gives_back_what_was_put_in(tmp_path):
    shutil.copytree(FOLDER / "cache", tmp_path / "cache")
    with VectorCache(tmp_path / "cache", max_bytes=2**20) as cache:
        found, vectors = cache.read([bytes([number]) * 32 for number in range(4)], hidden_size=16)
    assert list(found) == [True, True, True, False]
    assert np.array_equal(vectors[:3], np.arange(48, dtype=np.float32).reshape(3, 16))


def test_a_cache_spares_the_chunk_encoder(expected, tmp_path, monkeypatch):
    shutil.copytree(FOLDER / "cache", tmp_path / "cache")
    model = CLASSES["nextlevelbert"].from_pretrained(FOLDER / "nextlevelbert")

    def never(*args, **kwargs):
        raise AssertionError("a vector that is in the cache was computed again")

    monkeypatch.setattr(model.chunk_encoder, "forward", never)
    plain = torch.cat([found.plain for found in model.encode(TEXTS, cache_dir=tmp_path / "cache")])
    torch.testing.assert_close(plain, expected["nextlevelbert/plain"], atol=1e-6, rtol=0)
    with pytest.raises(AssertionError, match="computed again"):
        model.encode(DOCUMENTS[4].text, cache_dir=tmp_path / "cache")


def test_an_int8_encoder_opens(expected, source):
    small = load_int8_chunk_encoder(source, FOLDER / "int8")
    ids = source.tokenizer(DOCUMENTS[2].text, add_special_tokens=False, return_tensors="pt")["input_ids"][:, :30]
    # Processors with VNNI, with bfloat16 and with neither add up in other ways.
    assert torch.cosine_similarity(small.encoder(ids), expected["int8/vectors"]).min() > 0.99
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)
    assert small.encoder.encode(ids[0].numpy(), rule.boundaries(ids[0].numpy()), rule).shape == (3, 16)


def test_a_run_goes_on_at_its_checkpoint(expected, tmp_path):
    """Of six steps three are in the checkpoint; the others end where they ended without the stop between."""
    shutil.copytree(FOLDER / "run", tmp_path / "run")
    shutil.copytree(FOLDER / "corpus", tmp_path / "corpus")
    (tmp_path / "run" / "settings.json").write_text("{}")  # that release stored none
    script = Path(__file__).parents[2] / "run_pretraining.py"
    finished = subprocess.run(
        [sys.executable, str(script), "--chunk_encoder", str(FOLDER / "encoder" / "sentences"), "--corpus_dir",
         str(tmp_path / "corpus"), "--output_dir", str(tmp_path / "run"), *TRAIN],
        check=True, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    weights = load_file(tmp_path / "run" / "model.safetensors")
    agree({key: values for key, values in weights.items() if "chunk_encoder" not in key}, expected, "run")
    assert (tmp_path / "run" / "checkpoint-6").exists()
    assert "'epoch': '0.3333'" in finished.stdout  # step four is the first
    assert "'epoch': '0.25'" not in finished.stdout
