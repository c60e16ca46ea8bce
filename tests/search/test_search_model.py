"""The model of a search: not opened, and torch not imported, unless something is encoded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import nextlevelbert_command
from nextlevelbert import static_checkpoint
from nextlevelbert.search import open_model
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.search_model import SearchModel, named_model

HEAVY = {"torch", "transformers", "sentence_transformers", "datasets", "scipy", "pandas"}
START = "import sys, nextlevelbert_command\nsys.exit(nextlevelbert_command.main())"


@pytest.mark.parametrize("start", [["-m", "nextlevelbert"], ["-c", START]])
def test_a_further_question_imports_only_what_it_needs(start, command, books, tmp_path):
    """In a new process, over a folder that has not changed."""
    words = ["search", str(books), "Who hunts the whale?", "--json", "--model", static_checkpoint()]
    first = command(*words)

    further = subprocess.run(
        [sys.executable, "-X", "importtime", *start, *words],
        cwd=Path(nextlevelbert_command.__file__).parents[1],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )

    for line in further.stderr.splitlines():
        assert line.startswith("import time:")
        assert line.rpartition("|")[2].strip() not in HEAVY
    passages = json.loads(further.stdout)["passages"]
    for passage, expected in zip(passages, first.json["passages"], strict=True):
        assert passage["text"] == expected["text"]
        assert passage["score"] == pytest.approx(expected["score"], abs=1e-6)


def test_the_shelf_of_a_static_model_is_known_without_opening_it(settled, tmp_path):
    reading = ReadingOptions(cache_dir=tmp_path)
    key = named_model(static_checkpoint()).shelf_key(reading)

    def refuse():
        raise AssertionError("the model is opened")

    closed = SearchModel(refuse, folder=Path(static_checkpoint()))

    assert closed.shelf_key(reading) == key
    assert closed.question_vector("Who hunts the whale?").shape == (384,)
    with pytest.raises(AssertionError, match="is opened"):
        closed.shelf_key(ReadingOptions(cache_dir=tmp_path, text_column="body"))


@pytest.mark.parametrize(
    "options", [{"chunk_encoder": "another"}, {"device": "cuda"}, {"dtype": "bfloat16"}]
)
def test_a_model_with_other_options_is_opened(monkeypatch, options):
    opened = []
    model = SimpleNamespace(get_chunk_encoder=lambda: SimpleNamespace(has_layers=False))

    def spy(name, **given):
        opened.append(given)
        return model

    monkeypatch.setattr(open_model, "open_model", spy)
    expected = {"chunk_encoder": None, "device": "auto", "dtype": "auto", **options}

    assert named_model(static_checkpoint(), **options).model is model

    assert opened == [expected]
