"""The model of a search: not opened, and torch not imported, unless something is encoded."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

import nextlevelbert
from nextlevelbert import static_checkpoint
from nextlevelbert.search.encoders import torch as torch_encoders
from nextlevelbert.search.encoders.choice import SearchModel
from nextlevelbert.search.reading import ReadingOptions
from nextlevelbert.search.store import Store

HEAVY = {"torch", "transformers", "sentence_transformers", "datasets", "pandas", "scipy"}
# Only reading files and texts needs these.
FOR_READING = {"pyarrow", "tqdm", "asyncio", "importlib.metadata"}
SCRIPT = Path(sysconfig.get_path("scripts"), "nextlevelbert")


@pytest.mark.parametrize("start", [["-m", "nextlevelbert"], [SCRIPT]])
def test_a_search_imports_only_what_it_needs(start, books, tmp_path):
    """In new processes: one reads the folder, and one asks again."""
    words = ["search", str(books), "Who hunts the whale?", "--json", "--model", static_checkpoint()]
    answers = []
    for heavy in (HEAVY, HEAVY | FOR_READING):
        said = subprocess.run(
            [sys.executable, "-X", "importtime", *start, *words],
            cwd=Path(nextlevelbert.__file__).parents[1],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(said.stdout))

        for line in said.stderr.splitlines():
            assert line.startswith("import time:")
            assert line.rpartition("|")[2].strip() not in heavy
    assert answers[0] == answers[1]
    assert answers[0]["passages"][0]["late_interaction"] > 0


def test_the_store_of_a_model_belongs_to_its_files_and_to_the_columns(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(static_checkpoint(), copy)
    (tmp_path / "a.txt").write_text("The whale.")
    reading = ReadingOptions(cache_dir=tmp_path)

    def path(model: str, reading: ReadingOptions = reading) -> Path:
        return Store(str(tmp_path / "a.txt"), SearchModel(model), reading).path

    first = path(static_checkpoint())
    of_copy = path(str(copy))
    (copy / "tokenizer_config.json").write_text("{}")
    of_changed_copy = path(str(copy))
    other_column = ReadingOptions(cache_dir=tmp_path, text_column="body")
    of_column = path(static_checkpoint(), other_column)

    assert of_copy == first
    assert len({first, of_changed_copy, of_column}) == 3


@pytest.mark.parametrize(
    "options", [{"chunk_encoder": "another"}, {"device": "cuda"}, {"dtype": "bfloat16"}]
)
def test_a_model_with_other_options_is_opened(monkeypatch, options):
    opened = []
    model = SimpleNamespace(get_chunk_encoder=lambda: SimpleNamespace(has_layers=False))

    def spy(name, **given):
        opened.append(given)
        return model

    monkeypatch.setattr(torch_encoders, "open_model", spy)
    expected = {"chunk_encoder": None, "device": "auto", "dtype": "auto", **options}

    assert SearchModel(static_checkpoint(), **options).model is model

    assert opened == [expected]
