"""A model that is fitted to each kind of text, on toys."""

import json
import sys

import pytest

from benchmarks.studies import fit_by_kind

from ..toys.finetuning import write


def texts(count):
    """Texts of two subjects, so long that their excerpts are whole sentences."""
    rows = []
    for number in range(count):
        text = f"The whale number {number} swims in the cold sea. " * 90
        if number % 2:
            text = f"A train departs from station {number} on time. " * 90
        rows.append({"id": f"text#{number}", "text": text})
    return rows


def test_a_document_finds_its_own_excerpts(tmp_path):
    write(tmp_path / "toys.jsonl", texts(2))

    task = fit_by_kind.excerpts_task(tmp_path / "toys.jsonl")

    assert [*task.queries] == ["0#0", "0#1", "0#2", "0#3", "1#0", "1#1", "1#2", "1#3"]
    assert task.relevant["1#3"] == {"1#0": 1, "1#1": 1, "1#2": 1}


def test_every_kind_has_a_model_of_its_own(monkeypatch, tmp_path):
    for split in ("train", "held_out"):
        (tmp_path / split).mkdir()
    write(tmp_path / "train" / "toys.jsonl", texts(6))
    write(tmp_path / "held_out" / "toys.jsonl", texts(2))
    figures = tmp_path / "figures.json"
    options = ["--kinds", str(tmp_path), "--json", str(figures)]
    monkeypatch.setattr(sys, "argv", ["fit_by_kind", *options])

    fit_by_kind.main()

    toys = json.loads(figures.read_text())["rows"]["toys"]
    assert toys["n"] == 8
    for row in fit_by_kind.ROWS:
        assert toys[row][0] == pytest.approx(1)  # two subjects without a word in common
        assert toys[f"{row}, minus fit"][0] == pytest.approx(0)
