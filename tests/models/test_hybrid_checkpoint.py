"""The hybrid checkpoint: one small folder, nothing else needed, and both halves earn their place."""

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

from .test_static_checkpoint import ELSEWHERE

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "nextlevelbert-hybrid"
TEXTS = ["Call me Ishmael. " * 100, "It is a truth universally acknowledged."]
DIMENSIONS, PLACES = 384, 4_096
CHARACTERS = 10_000


@pytest.fixture(scope="module")
def model():
    model = AutoModel.from_pretrained(CHECKPOINT)
    assert isinstance(model, nextlevelbert.NextLevelBertModel)
    return model.eval()


def test_it_is_small_and_holds_what_it_needs_and_no_more():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 30e6
    weights = load_file(CHECKPOINT / "model.safetensors")
    assert {name.removeprefix("chunk_encoder."): tuple(tensor.shape) for name, tensor in weights.items()} == {
        "special_embeddings.weight": (4, DIMENSIONS + PLACES),
        "model.weights": (2,),
        "model.parts.0.model.embedding.weight": (30_522, DIMENSIONS),
        "model.parts.1.model.places": (30_522,),
        "model.parts.1.model.weight": (30_522,),
        "model.whitenings.0.mean": (DIMENSIONS,),
        "model.whitenings.0.weight": (DIMENSIONS, DIMENSIONS),
        "model.whitenings.1.mean": (PLACES,),
    }
    assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {torch.float16}


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


def test_its_document_vector_is_the_mean_of_both_halves(model):
    book = model.encode(TEXTS[0])
    assert len(book.plain) == 3
    lengths = torch.stack([part.norm(dim=1) for part in book.plain.split([DIMENSIONS, PLACES], dim=1)])
    torch.testing.assert_close(lengths[0], torch.full((3,), 0.2**0.5), atol=1e-3, rtol=0)
    torch.testing.assert_close(lengths[1], torch.full((3,), 0.8**0.5), atol=1e-3, rtol=0)
    mean = book.plain.mean(dim=0)
    torch.testing.assert_close(book.document, mean / mean.norm())


def test_both_halves_find_excerpts_of_unseen_books_better_than_either(model, shared):
    with gzip.open(shared / "data/novels/validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        books = [json.loads(line) for line in lines]
    excerpts = {
        f"{book['id']}#{part}": book["text"][part * len(book["text"]) // 9 :][:CHARACTERS]
        for book in books
        for part in range(1, 9)  # from all over the book
    }
    relevant = {
        one: {other: 1 for other in excerpts if other != one and other.split("#")[0] == one.split("#")[0]}
        for one in excerpts
    }
    task = RetrievalTask("excerpts", excerpts, excerpts, relevant)
    means = torch.stack([book.plain.mean(dim=0) for book in model.encode(list(excerpts.values()))])
    scores = [
        retrieval_scores(rank_documents(task, vectors, vectors))["map"]
        for vectors in (means, *means.split([DIMENSIONS, PLACES], dim=1))
    ]
    assert scores[0] > max(scores[1:]) + 0.005
    assert scores[0] > 0.9
