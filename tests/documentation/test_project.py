"""The files around the package: one version, numbers that are in the results, notebooks that run."""

import json
import re
import runpy
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load, load_file

import nextlevelbert
import nextlevelbert_command
from benchmarks.studies import hold_out

from .runner import ROOT

ARGUMENTS = {  # of `docs/notebooks.py`, for models so small that each takes seconds
    "bert_al": "--segment_length 32 --num_train_epochs 1".split(),
    "cdlm": "--epochs 1 --pretraining_epochs 1 --pairs 8".split(),
    "chunkbert": "--chunk_size 32 --num_train_epochs 1".split(),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    changelog = re.search(r"^## (\S+)", read("CHANGELOG.md"), re.MULTILINE)
    assert changelog is not None
    assert changelog[1] == nextlevelbert.__version__
    assert yaml.safe_load(read("CITATION.cff"))["version"] == nextlevelbert.__version__


def test_links_are_made_absolute_for_pypi():
    convert = runpy.run_path(str(ROOT / "docs" / "pypi_readme.py"))["with_absolute_links"]
    page = '[a](docs/x.md#b) [c](#d) [e](https://f.g/h) ![i](docs/j.png) <img src="docs/k.svg">'

    made = convert(page, "https://example.org/r/", "1.0")

    assert made == (
        "[a](https://example.org/r/blob/v1.0/docs/x.md#b) [c](#d) [e](https://f.g/h)"
        " ![i](https://example.org/r/raw/v1.0/docs/j.png)"
        ' <img src="https://example.org/r/raw/v1.0/docs/k.svg">'
    )


def test_the_first_page_is_short():
    """At most 900 words, without code, comments and addresses."""
    text = re.sub(r"```.*?```|<!--.*?-->|\]\([^)]*\)", " ", read("README.md"), flags=re.DOTALL)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 900


CODE = re.compile(r"```.*?```|<!--.*?-->", re.DOTALL)
SCORE = re.compile(r"(?<![\d.,])[01]?(\.\d{3})(?!\d)")
RATE = re.compile(r"\d{1,3}(?:,\d{3})+")
PAGES = [
    "README.md",
    *(
        f"docs/{path.relative_to(ROOT / 'docs').as_posix()}"
        for folder in ("guides", "families", "jobs")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]


SOURCES = yaml.safe_load(Path(__file__).with_name("sources.yaml").read_text(encoding="utf-8"))


def scores_of_rows(text: str) -> dict[str, set[str]]:
    """The scores in each row of the tables of a page; rows of one name together."""
    rows: dict[str, set[str]] = defaultdict(set)
    for line in text.splitlines():
        if line.startswith("|"):
            name, second = [cell.strip(" *") for cell in line.split("|")][1:3]
            if len(name) < 2:
                name = f"{name} {second}"
            rows[name].update(SCORE.findall(line))
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_the_scores_of_a_page_are_in_the_results(page):
    """Numbers with three decimals are scores. In a table, a score stands in the row of
    `docs/results.md` that it comes from; in a sentence, it stands in any row."""
    results = scores_of_rows(read("docs/results.md"))
    text = CODE.sub("", read(page))
    assert set(SCORE.findall(text)) - set(SCORE.findall(read("docs/results.md"))) == set()
    for name, scores in scores_of_rows(text).items():
        sources = [results[source] for source in SOURCES.get(name, [name])]
        assert scores - set().union(*sources) == set(), name


def test_the_speeds_of_the_first_page_were_measured():
    rows = [line for line in read("README.md").splitlines() if line.startswith("| ")]
    speeds = set(RATE.findall("\n".join(rows)))
    assert len(speeds) >= 5
    assert speeds - set(RATE.findall(read("docs/performance.md"))) == set()


@pytest.mark.long
def test_a_search_prints_what_the_first_page_shows(shared, tmp_path, monkeypatch, capsys):
    """In the 20 novels that were set aside; the page shortens the passage."""
    options = ["--data", f"{shared}/data", "--output_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["hold_out", *options])
    hold_out.main()
    folder = tmp_path / "novels"
    folder.mkdir()
    with (tmp_path / "held_out.jsonl").open(encoding="utf-8") as lines:
        for book in map(json.loads, lines):
            _, title = book["id"].split("_")
            (folder / f"{title}.txt").write_text(book["text"], encoding="utf-8")

    question = "A detective looks for a stolen diamond"
    nextlevelbert_command.main(["search", str(folder), question, "--cache_dir", str(tmp_path)])
    printed = capsys.readouterr().out.splitlines()
    for page in ("README.md", "docs/command_line.md"):
        shown = re.findall(r"^0\.\d{3}  .+\.txt .+$", read(page), re.MULTILINE)
        assert len(shown) == 3
        assert set(shown) <= set(printed)


@pytest.mark.long
def test_a_model_is_pushed_and_opened_as_the_page_says(fresh_process, tmp_path):
    """All blocks but the last, which needs a commit hash, with a Hub on this machine."""
    blocks = re.findall(r"```python\n(.*?)```", read("docs/jobs/publish.md"), re.DOTALL)
    checkpoint = nextlevelbert.static_checkpoint()
    script = "\n".join(blocks[:-1]).replace('"my-model"', repr(checkpoint))
    assert "(1, 384)" in fresh_process(script)


@pytest.mark.long
def test_a_checkpoint_keeps_its_head_and_its_card_when_it_is_uploaded(hub, fresh_process):
    """By the block of the page about releases; each gets the code that opens it."""
    [block] = re.findall(r"```python\n(.*?)```", read("RELEASING.md"), re.DOTALL)
    fresh_process(f"import os\nos.chdir({str(ROOT)!r})\n{textwrap.dedent(block)}")

    folders = {
        "nextlevelbert-static": ROOT / "nextlevelbert" / "static",
        "nextlevelbert-minilm-256": ROOT / "checkpoints" / "nextlevelbert-minilm-256",
        "hate-static": ROOT / "checkpoints" / "hate-static",
    }
    for name, folder in folders.items():
        uploaded = hub.files("model", f"user/{name}")
        assert uploaded["README.md"] == (folder / "README.md").read_bytes()
        assert "modeling_nextlevelbert.py" in uploaded
        stored = load_file(folder / "model.safetensors")
        tensors = load(uploaded["model.safetensors"])
        assert tensors.keys() == stored.keys()
        for key, tensor in tensors.items():
            assert tensor.equal(stored[key]), key


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert_al", "cdlm", "chunkbert", "hate", "next_level_bert"])
def test_a_notebook_runs(name, encoder, toy_encoder_path, tmp_path):
    """But for the cell that installs the package."""
    from nbclient import NotebookClient

    if name in ARGUMENTS:
        arguments = ["--encoder", encoder, "--output_dir", "trained", *ARGUMENTS[name]]
    elif name == "hate":
        arguments = [nextlevelbert.static_checkpoint()]  # its layers are 64 wide, the toy 32
    else:
        arguments = [toy_encoder_path]
    make = runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["notebook"]
    made = make(ROOT / "examples" / "papers" / f"{name}.py", arguments)
    assert made.cells.pop(1).source.startswith("%pip install")

    NotebookClient(made, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert made.cells[-1].outputs
