"""The static checkpoints: small folders, nothing else needed, and what they are for on books that they never saw."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel
from transformers.dynamic_module_utils import get_relative_import_files

import nextlevelbert
from benchmarks.common.passages import PassageJudge, removed_sentences
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores
from nextlevelbert.models import modeling_nextlevelbert

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
NAMES = ["nextlevelbert-static", "nextlevelbert-passages"]
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
def models():
    models = {name: AutoModel.from_pretrained(CHECKPOINTS / name).eval() for name in NAMES}
    assert all(isinstance(model, nextlevelbert.NextLevelBertModel) for model in models.values())
    return models


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small_and_holds_its_chunk_encoder(name):
    assert sum(file.stat().st_size for file in (CHECKPOINTS / name).iterdir()) <= 30e6
    weights = load_file(CHECKPOINTS / name / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert [tuple(tensor.shape) for label, tensor in weights.items() if "chunk_encoder" in label] == [(30522, 384)]


@pytest.mark.parametrize("name", NAMES)
def test_its_code_is_the_code_of_this_package(name):
    """`make checkpoint-code` copies it."""
    source = Path(modeling_nextlevelbert.__file__)
    files = {source, *map(Path, get_relative_import_files(source))}
    assert {file.name for file in (CHECKPOINTS / name).glob("*.py")} == {file.name for file in files}
    assert [file.name for file in files if file.read_text() != (CHECKPOINTS / name / file.name).read_text()] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_by_itself_where_the_package_is_missing(models, tmp_path, name):
    process = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(CHECKPOINTS / name), json.dumps(TEXTS)],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
        cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found = torch.tensor(json.loads(process.stdout.splitlines()[-1]))
    expected = torch.stack([each.document for each in models[name].encode(TEXTS)])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def unseen_books(shared) -> list[dict[str, str]]:
    with gzip.open(shared / "data/novels/validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_it_finds_excerpts_of_unseen_books_better_than_both_means(models, shared):
    model = models["nextlevelbert-static"]
    books = unseen_books(shared)
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


def test_a_removed_sentence_finds_its_chunk_better_by_what_stands_around_it(models, shared, tmp_path):
    """A sentence taken out of its chunk, among the chunks of its own novel."""
    model = models["nextlevelbert-passages"]
    with open(tmp_path / "books.jsonl", "w", encoding="utf-8") as file:
        for book in unseen_books(shared)[:4]:
            file.write(json.dumps({"id": book["id"], "text": book["text"][:120_000]}) + "\n")
    source = nextlevelbert.load_chunk_encoder(CHECKPOINTS / "nextlevelbert-passages")
    judge = PassageJudge([removed_sentences(str(tmp_path / "books.jsonl"), source, 128)], source, 128)
    contextual, _ = judge.vectors(lambda documents: model.contextualize(documents)[0])
    whitened, _ = judge.vectors(lambda documents: [model.prepare_chunks(chunks) for chunks in documents])
    assert np.mean(contextual["own novel"]) > 1.2 * np.mean(whitened["own novel"])
