"""The files around the package: one version, numbers that are in the results, notebooks that run."""

import json
import re
import runpy
import shlex
import sys
import textwrap
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load, load_file

import nextlevelbert
from benchmarks.studies import hold_out
from nextlevelbert.command import main

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


def test_the_page_for_contributors_names_targets_and_files_that_exist():
    text = read("AGENTS.md")
    targets = re.findall(r"^make ([\w-]+)", text, re.MULTILINE)
    files = re.findall(r"pytest (\S+)", text)

    assert len(targets) >= 5
    for target in targets:
        assert f"\n{target}:" in read("Makefile")
    for name in [*files, *re.findall(r"`((?:\w+/)+)`", text)]:
        assert (ROOT / name).exists(), name


BASELINES = (  # values of --model
    "untrained",
    "tfidf",
    "minilm",
    "nextlevelbert-static",
)
SOURCES_THAT_ARE_THERE = {"example-books", "python-manual"}
INPUT_OPTIONS = ("--train_file", "--test_file", "--validation_file", "--label_names_file")
PAGES_THAT_RUN = sorted(
    [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")]
)
# These lead to files of others, which cannot be made here: each page says where they come from.
PUBLISHED = {"papers.md", "results.md", "performance.md", "architecture.md", "scaling.md"}


def inputs_of(argv: list[str]) -> list[str]:
    """The paths that a command of the shell reads."""
    names = [value for option, value in pairwise(argv) if option in INPUT_OPTIONS]
    if argv[1] in ("search", "app", "embed", "fit"):
        names.append(argv[2])
    if "--model" in argv and argv[1] != "fit":
        names.append(argv[argv.index("--model") + 1])
    return names


def outputs_of(argv: list[str]) -> list[str]:
    """The paths that a command of the shell writes."""
    return [value for option, value in pairwise(argv) if option in ("-o", "--output_dir")]


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=lambda page: page.name)
def test_a_command_names_no_path_that_no_block_has_made(page):
    """A path is made if a Python block before names it, or a command writes it."""
    if page.name in PUBLISHED:
        return
    made = set(SOURCES_THAT_ARE_THERE)
    blocks = re.findall(r"```(python|bash|shell)\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    for language, block in blocks:
        if language == "python":
            made.update(re.findall(r"""["']([\w./-]+)["']""", block))
            continue
        for line in block.replace("\\\n", " ").splitlines():
            argv = shlex.split(line, comments=True)
            if argv[:1] != ["nextlevelbert"] or len(argv) < 3:
                continue
            for name in inputs_of(argv):
                is_there = name.rstrip("/") in {path.rstrip("/") for path in made}
                is_named = name in BASELINES or name.startswith("$") or (ROOT / name).exists()
                assert is_there or is_named, f"{page.name}: {line}"
            made.update(outputs_of(argv))


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
PAGES = [
    "README.md",
    "nextlevelbert/static/README.md",
    "checkpoints/nextlevelbert-minilm-256/README.md",
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
    """The last cells of its tables of numbers."""
    speeds = set(re.findall(r"\| \**(\d+\.\d+)\** \|$", read("README.md"), re.MULTILINE))

    assert len(speeds) >= 4
    for speed in speeds:
        assert speed in re.findall(r"\d+\.\d+", read("docs/performance.md"))


def test_the_chart_shows_the_numbers_of_the_first_page():
    """If not: python docs/comparison_chart.py."""
    draw = runpy.run_path(str(ROOT / "docs" / "comparison_chart.py"))["draw"]

    chart = draw(read("README.md"))

    assert chart == read("docs/comparison.svg")
    assert chart.count("<circle") == 2 * 5
    assert "nextlevelbert-static 0.771" in chart


@pytest.mark.long
def test_a_search_prints_what_the_page_shows(shared, tmp_path, monkeypatch, capsys):
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
    main(["search", str(folder), question, "--cache_dir", str(tmp_path)])
    printed = capsys.readouterr().out.splitlines()
    _, block = read("docs/command_line.md").split("$ nextlevelbert search novels/")
    block, _ = block.split("```", 1)
    shown = re.findall(r"^0\.\d{3}  .+\.txt .+$", block, re.MULTILINE)

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
