"""The checkpoint that comes with the project: small, whole, and better than the mean on books that it never saw."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification

import nextlevelbert
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "nextlevelbert-minilm-256"
WORDS = 1_000


@pytest.fixture(scope="module")
def model(minilm):
    model = AutoModel.from_pretrained(CHECKPOINT)
    assert isinstance(model, nextlevelbert.NextLevelBertModel)
    model.attach_chunk_encoder(minilm)  # a reader with the Hub does not need this
    return model


def test_it_is_small_and_holds_no_chunk_encoder_and_no_code():
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 25e6
    weights = load_file(CHECKPOINT / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert not [name for name in weights if "chunk_encoder" in name]
    assert not list(CHECKPOINT.glob("*.py"))  # with the package it needs none; a copy would grow old
    assert "auto_map" not in json.loads((CHECKPOINT / "config.json").read_text())


@pytest.mark.long
def test_it_finds_excerpts_of_unseen_books_better_than_the_mean(model, shared):
    with gzip.open(shared / "data/novels/validation.jsonl.gz", "rt", encoding="utf-8") as lines:
        books = [json.loads(line) for line, _ in zip(lines, range(5), strict=False)]
    excerpts = {}
    for book in books:
        words = book["text"].split()
        for part in range(1, 5):  # from all over the book, a fifth of it apart
            start = part * len(words) // 5
            excerpts[f"{book['id']}#{part}"] = " ".join(words[start : start + WORDS])
    relevant = {
        one: {other: 1 for other in excerpts if other != one and other.split("#")[0] == one.split("#")[0]}
        for one in excerpts
    }
    task = RetrievalTask("excerpts", excerpts, excerpts, relevant)
    found = model.encode(list(excerpts.values()), dtype=torch.bfloat16)
    documents = torch.stack([embedding.document for embedding in found])
    means = torch.stack([embedding.plain.mean(dim=0) for embedding in found])
    ours, theirs = (retrieval_scores(rank_documents(task, rows, rows))["map"] for rows in (documents, means))
    assert ours > theirs + 0.05
    assert ours > 0.7


def test_sentence_transformers_opens_it(model, minilm):
    texts = ["Call me Ishmael. " * 100, "It is a truth universally acknowledged."]
    opened = SentenceTransformer(str(CHECKPOINT), device="cpu")
    opened[0].auto_model.attach_chunk_encoder(minilm)
    vectors = torch.from_numpy(opened.encode(texts))
    torch.testing.assert_close(vectors, torch.stack([e.document for e in model.encode(texts)]), atol=1e-5, rtol=0)
    assert vectors.norm(dim=1).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_it_is_fine_tuned_with_the_chunk_encoder_that_is_given(run_script, minilm_path, tmp_path):
    rows = [
        {"text": f"The {thing} was {n} years old.", "label": thing} for n in range(8) for thing in ("whale", "oven")
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_script(
        CHECKPOINT.parents[1] / "run_finetune.py", "--task", "classification", "--model", str(CHECKPOINT),
        "--chunk_encoder", minilm_path, "--train_file", str(tmp_path / "train.jsonl"), "--validation_share", "0.25",
        "--num_train_epochs", "1", "--output_dir", str(tmp_path / "classifier"),
    )  # fmt: skip
    tuned = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    assert tuned.config.include_chunk_encoder  # what is published needs nothing else
    assert tuned.model.config.pooling == "residual"
    assert tuned.model.encode("An old whale.").document.shape == (384,)
