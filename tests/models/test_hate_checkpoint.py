"""The HATE over static sentence vectors: one small folder, and nothing else needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModel
from transformers.dynamic_module_utils import get_relative_import_files

from nextlevelbert import HateModel
from nextlevelbert.models import modeling_hate

from .test_static_checkpoint import ELSEWHERE

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "hate-static"
TEXTS = ["Call me Ishmael. I went to sea. " * 200, "It is a truth universally acknowledged."]


def test_it_is_small_and_holds_its_sentence_encoder():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 10e6
    weights = load_file(CHECKPOINT / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert [tuple(tensor.shape) for name, tensor in weights.items() if "chunk_encoder" in name] == [(30522, 128)]


def test_its_code_is_the_code_of_this_package():
    """`make checkpoint-code` copies it."""
    source = Path(modeling_hate.__file__)
    files = {source, *map(Path, get_relative_import_files(source))}
    assert {file.name for file in CHECKPOINT.glob("*.py")} == {file.name for file in files}
    assert [file.name for file in files if file.read_text() != (CHECKPOINT / file.name).read_text()] == []


def test_it_opens_by_itself_where_the_package_is_missing(tmp_path):
    model = AutoModel.from_pretrained(CHECKPOINT)
    assert isinstance(model, HateModel)
    books = model.encode(TEXTS)
    assert [len(book.chunks) for book in books] == [400, 1]  # sentences
    process = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(CHECKPOINT), json.dumps(TEXTS)],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found = torch.tensor(json.loads(process.stdout.splitlines()[-1]))
    torch.testing.assert_close(found, torch.stack([book.document for book in books]), atol=1e-6, rtol=0)


def test_a_sentence_is_read_in_its_context():
    """The layers do something: the same sentence has other vectors beside other sentences, and one plain vector."""
    model = AutoModel.from_pretrained(CHECKPOINT)
    one, other = model.encode(["It rained. We stayed at home.", "It rained. The war was lost."])
    torch.testing.assert_close(one.plain[0], other.plain[0])
    assert not torch.allclose(one.chunks[0], other.chunks[0], atol=0.05)
