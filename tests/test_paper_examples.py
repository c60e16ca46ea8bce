"""`examples/papers`: one paper each, from texts to a score that beats chance, in at most 80 lines."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from nextlevelbert import static_checkpoint

PAPERS = Path(__file__).parent.parent / "examples" / "papers"


def run(name: str, output: Path, **options) -> dict:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return runpy.run_path(str(PAPERS / f"{name}.py"))["main"]([*words, "--output_dir", str(output)])


def test_each_fits_a_screen():
    assert all(len(path.read_text().splitlines()) <= 80 for path in PAPERS.glob("*.py"))


def test_chunkbert(encoder, tmp_path):
    sizes = {"encoder": encoder, "chunk_size": 32, "learning_rate": 3e-3, "num_train_epochs": 4}
    scores = run("chunkbert", tmp_path, **sizes)
    assert scores["accuracy"] > 0.8
    assert scores["accuracy on more than 512 tokens"] > 0.8
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.num_labels == 2


def test_bert_al(encoder, tmp_path):
    sizes = {"encoder": encoder, "segment_length": 32, "learning_rate": 1e-2, "num_train_epochs": 20}
    sizes |= {"recurrence": "residual"}
    scores = run("bert_al", tmp_path / "made", **sizes)
    assert scores["BERT-AL"]["rouge2"] > scores["lead-3"]["rouge2"] + 0.2
    rows = [{"text": "Rain fell. Tea was served. The match was off.", "summary": "Rain fell."}] * 2
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    options = {"train_file": file, "test_file": file, "num_train_epochs": 1}
    assert run("bert_al", tmp_path / "read", **{**sizes, **options})["lead-3"]["rouge1"] > 0.1


def run_with(encoder: str, name: str, output: Path) -> dict:
    return runpy.run_path(str(PAPERS / f"{name}.py"))["main"](encoder, str(output))


def test_nextlevelbert(toy_encoder_path, tmp_path):
    before, after = run_with(toy_encoder_path, "next_level_bert", tmp_path)["pretrained"]
    assert after < before
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier").config.num_labels == 2


@pytest.mark.long
def test_nextlevelbert_with_minilm(minilm_path, tmp_path):
    """With the defaults of TrainingArguments."""
    scores = run_with(minilm_path, "next_level_bert", tmp_path)
    before, after = scores["pretrained"]
    assert after < 0.9 * before
    assert scores["classifier"][1] > 0.8
    assert scores["chooser"][0] < 0.5 < 0.8 < scores["chooser"][1]


def test_hate(tmp_path):
    scores = run_with(static_checkpoint(), "hate", tmp_path)
    before, after = scores["pretrained"]
    assert after < 0.9 * before
    assert scores["classifier"][1] > 0.8


@pytest.mark.long
def test_cdlm_with_minilm(minilm_path, tmp_path):
    assert run("cdlm", tmp_path, encoder=minilm_path, epochs=4, pretraining_epochs=1)["accuracy"] > 0.8


def test_cdlm(encoder, tmp_path):
    rows = [{"documents": [f"{name} was at sea."] * 3} for name in ("Ahab", "Emma", "Nemo")]
    file = tmp_path / "sets.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    options = {"encoder": encoder, "epochs": 1, "pretraining_epochs": 1, "pairs": 8}
    for name, files in (("made", {}), ("read", {"train_file": file, "test_file": file})):
        assert 0 <= run("cdlm", tmp_path / name, **options, **files)["accuracy"] <= 1
        assert AutoModelForSequenceClassification.from_pretrained(tmp_path / name).config.num_labels == 2
