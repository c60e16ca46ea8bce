"""README, docs and cards: what their blocks import, the files they link to, and the options of
their commands."""

import ast
import contextlib
import importlib
import io
import re
import shlex
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import HfArgumentParser

from benchmarks.studies import trained_rows
from nextlevelbert.command import command as command_line
from nextlevelbert.data import open_rows
from nextlevelbert.data.labelled import load_choices, load_classes
from nextlevelbert.training.cards import CITATIONS, CardText, RunReport, model_card

from .examples.scripts import load_script

ROOT = Path(__file__).parent.parent
CARDS = [*ROOT.glob("model_cards/*/README.md"), *ROOT.glob("checkpoints/*/README.md")]
CARDS.append(ROOT / "nextlevelbert" / "static" / "README.md")
PAGES = sorted(
    [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "llms.txt", *ROOT.glob("docs/**/*.md"), *CARDS]
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_and_links(page):
    """Each name that a block takes from the package is there; links lead somewhere."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nextlevelbert"):
                module = importlib.import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in link or (page.parent / link).exists(), link
    for path in re.findall(
        r"`((?:benchmarks|checkpoints|docs|examples|tests|nextlevelbert)/[\w./-]*\w)`", text
    ):
        assert (ROOT / path).exists(), path
    for path in re.findall(
        r"`((?:corpus|data|evaluation|finetuning|models|pretraining|search|training)/\w+\.py)`",
        text,
    ):
        assert (ROOT / "nextlevelbert" / path).exists(), path


def heading_anchor(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page):
    """mkdocs checks the links among pages of docs only, not those from and to README.md."""
    for link, anchor in re.findall(
        r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")
    ):
        target = page
        if link:
            target = page.parent / link
        text = re.sub(r"```.*?```", "", target.read_text(encoding="utf-8"), flags=re.DOTALL)
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)

        assert anchor in map(heading_anchor, headings), f"{link}#{anchor}"


# A file or folder of the repository, with placeholders left out.
NAMED = re.compile(r"`((?:[a-z_]+/)*[a-z_*-]+\.(?:py|yaml|toml|txt)|(?:[a-z_]+/)+)`")


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_each_file_that_a_page_about_the_code_names_exists(page):
    """Below the root, the package or a folder of the package."""
    package = ROOT / "nextlevelbert"
    places = [ROOT, package, *filter(Path.is_dir, package.iterdir())]
    names = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))

    assert len(names) > 20
    for name in names:
        assert any(next(place.glob(name.rstrip("/")), None) for place in places), name


CARD_PARTS = re.compile(
    r"# (?P<name>[^\n]+)\n\n(?P<summary>.+)\n\nThe package opens the model: [^\n]+\n\n"
    r"```python\n(?P<snippet>.+?)\n```\n\n(?P<note>[^#]*?)\n*"
    r"(?:## What it is\n\n\| property \| value \|\n\| --- \| --- \|\n(?P<model>.+?)\n\n)?"
    r"## How it was trained\n\n\| argument \| value \|\n\| --- \| --- \|\n(?P<training>.+?)\n\n"
    r"(?P<training_note>.+?)\n\n(?:!\[(?P<caption>[^]]+)\]\((?P<picture>[^)]+)\)\n\n)?"
    r"## What was measured\n\n(?P<measured>.+?)\n\n(?P<table>\| .+?)\n\n"
    r"## Limits\n\n- (?P<limits>.+?)\n\n## Citation\n\n```bibtex\n(?P<citation>.+)\n```",
    re.DOTALL,
)
# Of https://github.com/huggingface/hub-docs/blob/main/modelcard.md: those that each card has, and
# others.
NEEDED_KEYS = {"base_model", "language", "license", "pipeline_tag", "tags"}
HUB_KEYS = NEEDED_KEYS | {"datasets", "widget"}
TEXTS = ("summary", "measured", "snippet", "note", "training_note", "caption")


def facts(rows: str, fence: str = "") -> dict[str, str]:
    """The rows of a table of two columns, whose values may stand in fences."""
    return dict(re.findall(rf"^\| ([^|]+) \| {fence}(.+?){fence} \|$", rows, re.MULTILINE))


@pytest.mark.parametrize("page", CARDS, ids=lambda page: page.parent.name)
def test_a_card_is_what_the_writer_makes_of_its_parts(page):
    """It is taken apart and written again; its keys are the Hub's, its paper one of the five."""
    card = ModelCard.load(page)
    match = CARD_PARTS.fullmatch(card.text.strip())
    assert match is not None, "not of the form of nextlevelbert/training/card_template.md"
    parts = match.groupdict(default="")
    metadata = card.data.to_dict()
    assert metadata.pop("library_name") == "nextlevelbert"
    metadata.pop("model-index", None)  # made of `eval_results`
    assert NEEDED_KEYS <= set(metadata) <= HUB_KEYS
    assert parts["citation"] in CITATIONS.values()

    results = card.data.eval_results or ()
    written = model_card(
        CardText(
            limits=parts.pop("limits").split("\n- "),
            widget=metadata.pop("widget", ()),
            pipeline_tag=metadata.pop("pipeline_tag"),
            tags=metadata.pop("tags"),
            **{name: parts.pop(name) for name in TEXTS},
        ),
        RunReport(
            training=facts(parts.pop("training"), fence="`"),
            model_rows=facts(parts.pop("model")),
            table=parts.pop("table"),
            scores=dict(map(attrgetter("metric_type", "metric_value"), results)),
            dataset="".join(set(map(attrgetter("dataset_name"), results))),
            citation=parts.pop("citation"),
            base_model=metadata.pop("base_model"),
        ),
        pictures=parts.pop("picture").split(),
        **parts,  # name
        **metadata,  # license, language, perhaps datasets
    )
    assert str(written) == page.read_text(encoding="utf-8")


class Understood(Exception):
    """The options of a command were read; nothing is run."""


def run_example() -> None:
    """Runs the script of `examples` that `sys.argv` names."""
    load_script(sys.argv[0].removeprefix("examples/")).main(sys.argv[1:])


def run_training(name: str) -> None:
    """Runs a training with the options of `sys.argv`."""
    command_line.run([name, *sys.argv[1:]])


ecbplus = load_script("cdlm/ecbplus.py")
match_documents = load_script("cdlm/match_documents.py")
pretrain_cdlm = load_script("cdlm/pretrain.py")
questions = load_script("cdlm/questions.py")
summarize = load_script("bert_al/summarize.py")
SCRIPTS = {
    "examples/bert_al/summarize.py": run_example,
    "examples/cdlm/coreference.py": run_example,
    "examples/cdlm/ecbplus.py": run_example,
    "examples/cdlm/match_documents.py": run_example,
    "examples/cdlm/pretrain.py": run_example,
    "examples/cdlm/questions.py": run_example,
    "examples/chunkbert/prepare_book_summaries.py": run_example,
    "examples/chunkbert/prepare_eurlex.py": run_example,
    "examples/hate/rank_documents.py": run_example,
    "examples/next_level_bert/masking.py": run_example,
    "examples/next_level_bert/prepare_muld.py": run_example,
    "examples/next_level_bert/prepare_quality_race.py": run_example,
    "examples/next_level_bert/retrieve_booksum.py": run_example,
    "pretrain": partial(run_training, "pretrain"),
    "run_pretraining.py": partial(run_training, "pretrain"),
    "finetune": partial(run_training, "finetune"),
    "run_finetune.py": partial(run_training, "finetune"),
}


def commands(text: str) -> Iterator[list[str]]:
    """The trainings in a page's shell blocks, word by word."""
    for block in re.findall(r"```(?:ba)?sh(?:ell)?\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            argv = shlex.split(line.replace("$kind", "chunkbert"), comments=True)
            if argv[:1] in (["python"], ["nextlevelbert"]):
                argv = argv[1:]
            if argv and argv[0] in SCRIPTS:
                yield argv


def refused(argv: list[str]) -> str:
    """What a command says of its options; nothing if each exists, belongs to the task and model,
    and may be so."""
    read = HfArgumentParser.parse_args_into_dataclasses
    read_values = HfArgumentParser.parse_dict
    read_plain = ArgumentParser.parse_args

    def read_only(self, *args, **kwargs):
        read(self, *args, **kwargs)
        raise Understood

    def read_values_only(self, *args, **kwargs):
        read_values(self, *args, **kwargs)
        raise Understood

    def read_plain_only(self, *args, **kwargs):
        read_plain(self, *args, **kwargs)
        raise Understood

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(io.StringIO()) as errors:
        patch.setattr(HfArgumentParser, "parse_args_into_dataclasses", read_only)
        patch.setattr(HfArgumentParser, "parse_dict", read_values_only)
        patch.setattr(ArgumentParser, "parse_args", read_plain_only)
        patch.setattr("nextlevelbert.models.model_names.model_path", str)  # no model is opened
        patch.setattr(sys, "argv", argv)
        with pytest.raises((Understood, SystemExit, ValueError)) as end:
            SCRIPTS[argv[0]]()
    if end.type is Understood:
        return ""
    return f"{errors.getvalue()}{end.value}"


def make_files(argv: list[str]) -> None:
    """Makes the files and folders that a command reads, which must be there."""
    for option, value in pairwise(argv):
        path = Path(value)
        if option == "--train_file" and not path.suffix:
            path.mkdir(parents=True, exist_ok=True)  # splits are for folders and the Hub
            (path / "a.txt").touch()
        elif option.startswith("--") and option.endswith("_file"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


COMMANDS = [(page, argv) for page in PAGES for argv in commands(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "argv"), COMMANDS, ids=[page.stem for page, _ in COMMANDS])
def test_commands(page, argv, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # which holds the recipes
    make_files(argv)

    assert refused(argv) == ""


TRAINED = [words for family in trained_rows.COMMANDS.values() for words in family.values()]


@pytest.mark.parametrize("command", TRAINED)
def test_commands_of_the_results(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # which holds the scripts
    argv = shlex.split(command.format(data="data", encoder="minilm", folder="runs"))[1:]
    make_files(argv)

    assert refused([*argv, "--output_dir", "runs/row"]) == ""


PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "section", [part for part in PAPERS.split("\n## ") if "```bash" in part], ids=str.splitlines
)
def test_options_in_the_cells_of_the_papers(section, monkeypatch, tmp_path):
    """Each is understood by one of the commands above its table, some without a value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")  # which holds the recipes
    for folder in ("MSMARCO", "ECB+"):
        Path(folder).mkdir()
    cells = re.sub(r"```bash.*?```", "", section, flags=re.DOTALL)
    for option in re.findall(r"`(--[^`]+)`", cells):
        argv = shlex.split(re.sub(r"\bN\b", "256", option))
        make_files(argv)
        answers = []
        for command in commands(section):
            make_files(command)
            answers.append(refused([*command, *argv]))
            answers.append(refused([*command, *argv, "256"]))
        assert not all(answers), option


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_papers_are_answered():
    """`--recipe paper` stands in a command of every family, and no cell of the table is empty."""
    assert len([argv for argv in commands(PAPERS) if "--recipe" in argv]) >= 10

    rows = rows_of(PAPERS)

    assert len(rows) > 60

    for row in rows:
        assert all(row) or not row[0], row


INPUTS = [
    row
    for row in rows_of((ROOT / "docs" / "inputs.md").read_text(encoding="utf-8"))
    if row[-1][:2] == "`{"
]


def read_documents_with_summaries(source):
    arguments = summarize.SummaryArguments(model="", train_file=source, validation_file=source)
    return summarize.read_documents(arguments, seed=0)["train"]


READERS = {
    "—": lambda source: load_classes(open_rows(source)),
    "multiple_choice": lambda source: load_choices(open_rows(source)),
    "examples/bert_al/summarize.py": read_documents_with_summaries,
    "examples/cdlm/match_documents.py": match_documents.read_pairs,
    "examples/cdlm/coreference.py": ecbplus.read_documents,
    "examples/cdlm/questions.py": questions.read_questions,
    "examples/cdlm/pretrain.py": lambda source: pretrain_cdlm.read_table(source, "event"),
}


@pytest.mark.parametrize(("task", "row"), [(row[0].strip("`"), row[-1]) for row in INPUTS])
def test_the_rows_of_the_page_of_inputs_are_read(task, row, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text(
        "\n".join([row.strip("`")] * (1 + task.endswith("pretrain.py")))
    )  # of documents of one set, two

    assert len(READERS.get(task, READERS["—"])(str(source))) == 1
