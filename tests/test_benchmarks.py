"""The benchmarks: every one starts, and what decides their figures is looked at closely."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.studies import cross_document_context as context
from benchmarks.studies import newsgroups
from nextlevelbert import CdlmModel, CdlmProcessor
from nextlevelbert.pretraining.document_sets import DocumentClusters

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(f"{path.parent.name}.{path.stem}" for path in FOLDER.glob("s*/*.py") if path.stem != "__init__")
SEA = "The ship sailed out of the harbour into the storm. The captain watched the waves. "
KITCHEN = "The cook kneaded the dough for the bread. The oven was hot and the kitchen smelled sweet. "


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_starts(name, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage:")
    assert " ".join(module.__doc__.splitlines()[0].split()) in " ".join(shown.split())


def test_there_is_a_benchmark_for_every_line_of_make_bench():
    lines = [line for line in (FOLDER.parent / "Makefile").read_text().splitlines() if "-m benchmarks." in line]
    made = {line.split("-m benchmarks.")[1].split()[0] for line in lines}
    assert made
    assert made <= set(NAMES)


def test_newsgroups_as_tasks(tmp_path):
    head = "From: a@b.c\nSubject: Sails\n\n"
    posts = [
        {"id": f"rec.boats/{n}", "label": "rec.boats", "text": f"{head}post {n}", "body_start": len(head)}
        for n in range(3)
    ]
    posts.append({"id": "sci.med/9", "label": "sci.med", "text": "Subject: x\n\n \n", "body_start": 12})
    rows, blank = newsgroups.prepare(posts, None)
    assert blank == 1
    assert sorted(row["text"] for row in rows) == ["post 0", "post 1", "post 2"]
    assert rows[0] | {"id": "", "text": ""} == {"id": "", "text": "", "label": "rec.boats", "levels": ["rec", "boats"]}
    assert newsgroups.prepare(posts[::-1], 2)[0] == rows[:2]  # whatever the order in the file


def test_words_are_masked_that_only_the_related_partner_shows(encoder):
    """Cases of three conditions, looked at token by token."""
    model = CdlmModel.from_encoder(encoder, max_length=128, attention_window=16)
    tokenizer = CdlmProcessor.from_model(model).tokenizer
    sea, kitchen = SEA.split(". ")[0], KITCHEN.split(". ")[0]
    clusters = DocumentClusters([[SEA, sea + " near the harbour."], [KITCHEN, kitchen + " again."]], ["a", "b"], "two")
    options = argparse.Namespace(max_length=128, words_per_document=2, seed=0, clusters=None)
    cases, _ = context.build_cases(clusters, tokenizer, options)
    assert len(cases) == 4
    for case in cases:
        made = {condition: context.sequence(case, condition, tokenizer) for condition in context.CONDITIONS}
        true = {name: labels[labels != -100].tolist() for name, (_, labels) in made.items()}
        assert true["related"] == true["unrelated"] == true["alone"] != []
        for ids, labels in made.values():
            assert ((labels != -100) == (ids == tokenizer.mask_token_id)).all()
        one, other = (made[name][0] for name in ("related", "unrelated"))
        assert one.shape == other.shape
        for token, kind in zip(true["related"], case.kinds.values(), strict=True):
            shown = [token in made[name][0] for name in context.CONDITIONS]
            assert shown == [context.KINDS[kind] == "shared", False, False]
