"""The static checkpoint: one small folder, nothing else needed, better than the mean on books that it never saw."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel
from transformers.dynamic_module_utils import get_relative_import_files

import nextlevelbert
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores
from nextlevelbert.models import modeling_nextlevelbert

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "nextlevelbert-static"
TEXTS = ["Call me Ishmael. " * 100, "It is a truth universally acknowledged."]
CHARACTERS = 10_000

# A user who has sentence-transformers, and not this package.
ELSEWHERE = """
import json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "nextlevelbert":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Hidden())
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
assert "nextlevelbert" not in sys.modules
print(json.dumps(model.encode(json.loads(sys.argv[2])).tolist()))
"""


@pytest.fixture(scope="module")
def model():
    model = AutoModel.from_pretrained(CHECKPOINT)
    assert isinstance(model, nextlevelbert.NextLevelBertModel)
    return model.eval()


def test_it_is_small_and_holds_its_chunk_encoder():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 30e6
    weights = load_file(CHECKPOINT / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert [tuple(tensor.shape) for name, tensor in weights.items() if "chunk_encoder" in name] == [(30522, 384)]


def test_its_code_is_the_code_of_this_package():
    """`make checkpoint-code` copies it."""
    source = Path(modeling_nextlevelbert.__file__)
    files = {source, *map(Path, get_relative_import_files(source))}
    assert {file.name for file in CHECKPOINT.glob("*.py")} == {file.name for file in files}
    assert [file.name for file in files if file.read_text() != (CHECKPOINT / file.name).read_text()] == []


def test_it_opens_by_itself_where_the_package_is_missing(model, tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(CHECKPOINT), json.dumps(TEXTS)],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found = torch.tensor(json.loads(process.stdout.splitlines()[-1]))
    torch.testing.assert_close(found, torch.stack([e.document for e in model.encode(TEXTS)]), atol=1e-6, rtol=0)


def test_it_finds_excerpts_of_unseen_books_better_than_both_means(model, shared):
    with gzip.open(shared / "data/novels/validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        books = [json.loads(line) for line in lines]
    excerpts = {}
    for book in books:
        for part in range(1, 9):  # from all over the book
            start = part * len(book["text"]) // 9
            excerpts[f"{book['id']}#{part}"] = book["text"][start : start + CHARACTERS]
    relevant = {
        one: {other: 1 for other in excerpts if other != one and other.split("#")[0] == one.split("#")[0]}
        for one in excerpts
    }
    task = RetrievalTask("excerpts", excerpts, excerpts, relevant)
    found = model.encode(list(excerpts.values()))
    rows = {
        "checkpoint": [book.document for book in found],
        "whitened mean": [model.prepare_chunks(book.plain).mean(dim=0) for book in found],
        "mean": [book.plain.mean(dim=0) for book in found],
    }
    scores = {
        name: retrieval_scores(rank_documents(task, torch.stack(vectors), torch.stack(vectors)))["map"]
        for name, vectors in rows.items()
    }
    assert scores["checkpoint"] > scores["whitened mean"] + 0.005
    assert scores["whitened mean"] > scores["mean"] + 0.2
    assert scores["checkpoint"] > 0.9
