"""The plan of the house: who may import whom, and how plain the code is."""

import ast
import importlib
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from .support.plainness import count
from .support.walks import imported_files, reached

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nextlevelbert"
# A part imports only what stands before it; parts of one row may import each other.
ORDER = (
    ("messages", "bundled"),
    ("models", "databases"),
    ("data",),
    ("word_lookup", "whitening", "fitting", "spans", "corpus", "vector_cache"),
    ("evaluation",),
    ("training",),
    ("pretraining", "finetuning"),
    # The line: nothing above imports search or the command.
    ("search",),
    ("command",),
    ("public", "__main__", "__init__"),
)


def row(path: Path) -> int:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return next((number for number, parts in enumerate(ORDER) if part in parts), -1)


def test_no_import_points_up():
    """But for the optional accelerator, which models try to import: transformers follows no import
    in `try`."""
    upward = []
    for path in PACKAGE.rglob("*.py"):
        assert row(path) >= 0, f"{path}: where does it belong?"
        upward += [file.name for file in imported_files(path) if row(file) > row(path)]

    assert upward == ["word_lookup.py"]


def test_no_file_imports_itself_around_a_corner():
    """Imports within functions count, too."""
    graph = {path: imported_files(path) for path in PACKAGE.rglob("*.py")}
    TopologicalSorter(graph).prepare()  # an error names the circle


def test_pretraining_on_vectors_imports_no_file_of_cdlm():
    """But for the registration of all models in `nextlevelbert/public.py`."""
    loaded = reached(PACKAGE / "pretraining" / "pretrain.py")
    loaded |= {path.with_name("__init__.py") for path in loaded}  # Python loads folders, too

    assert PACKAGE / "pretraining" / "datasets.py" in loaded
    for path in loaded:
        assert "cdlm" not in path.name
        assert path.name != "document_sets.py"


def test_a_configuration_imports_neither_torch_nor_a_model():
    for path in (PACKAGE / "models").glob("configuration_*.py"):
        assert "import torch" not in path.read_text(encoding="utf-8")
        for file in imported_files(path):
            assert file.stem in ("chunking", "prompts") or file.stem.startswith("configuration")


@pytest.mark.long
def test_opening_a_model_loads_no_trainer():
    """`import nextlevelbert` costs what torch and transformers cost: no datasets, peft or
    sentence-transformers."""
    heavy = {
        "transformers.trainer",
        "datasets",
        "peft",
        "sentence_transformers",
        "matplotlib",
        "sklearn",
    }
    code = f"import sys, nextlevelbert\nprint(sorted({heavy} & set(sys.modules)))"

    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "[]\n"


def test_what_a_checkpoint_carries_imports_its_siblings_only():
    """transformers copies what `from .name import` names, and nothing else."""
    siblings = {path.stem for path in (PACKAGE / "models").glob("*.py")}
    for path in (PACKAGE / "models").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, f"{path.name}: {ast.unparse(node)}"
                assert node.module in siblings, f"{path.name}: {ast.unparse(node)}"


def test_a_checkpoint_carries_at_most_eighteen_files():
    from transformers.dynamic_module_utils import get_relative_import_files

    source = PACKAGE / "models" / "modeling_nextlevelbert.py"
    files = {source, *map(Path, get_relative_import_files(source))}
    assert len(files) <= 18


SHORT = 60  # lines
# Modules whose tests have another name, and the file that tests them.
TESTED_ELSEWHERE = {
    # A configuration is built, refused and saved with the model that it describes.
    "models/configuration_cdlm.py": "models/test_modeling_cdlm.py",
    "models/configuration_nextlevelbert.py": "models/test_modeling_nextlevelbert.py",
    "models/configuration_token_document.py": "models/test_modeling_chunkbert.py",
    # A base class: each promise is tested in both of its families.
    "models/token_document.py": "models/test_modeling_chunkbert.py",
    # Static encoders are made by a fit, and compared with scikit-learn after it.
    "models/static_encoders.py": "test_fitting.py",
    # A command line is read by these together.
    "command/options.py": "command/test_command.py",
    "command/parser.py": "command/test_command.py",
    "command/option_files.py": "command/test_trainings.py",
    "command/finetune.py": "command/test_command.py",
    # A base class: each promise is tested in both of its encoders.
    "search/encoders/files.py": "search/encoders/test_static.py",
}


def test_the_test_of_a_module_is_found_by_its_name():
    """tests/<folder>/test_<module>.py; there may be further files on a subject of its own."""
    missing = set()
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE)
        is_long = len(path.read_text(encoding="utf-8").splitlines()) > SHORT
        test = ROOT / "tests" / module.parent / f"test_{module.name}"
        if is_long and path.name != "__init__.py" and not test.exists():
            missing.add(module.as_posix())

    assert missing == set(TESTED_ELSEWHERE)

    for test in TESTED_ELSEWHERE.values():
        assert (ROOT / "tests" / test).exists(), test


EXAMPLES = sorted((ROOT / "examples").glob("*/*.py"))
LONGEST_EXAMPLE = 400


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_an_example_is_short_and_imports_public_names_only(path):
    """A public name is in the `__all__` of the package, or of one of its folders."""
    source = path.read_text(encoding="utf-8")

    assert len(source.splitlines()) <= LONGEST_EXAMPLE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nextlevelbert"):
            public = importlib.import_module(str(node.module)).__all__
            for alias in node.names:
                assert alias.name in public, f"{node.module} does not export {alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("nextlevelbert."), ast.unparse(node)


# The law is about shape: how large the package is decides no test.
CEILINGS = {
    "nodes per code line": 5.5,
    "hidden branches of all branches": 0.20,
    "tuple assignments per 1,000": 3.0,
    "walruses per 1,000": 2.0,
    "products with a flag per 1,000": 0.0,
    "calls by position per 1,000": 3.0,
    "half sentences of all comments": 0.02,
}
LEAST_BLANK_LINES = 0.055  # of the lines in the bodies of functions
NODES_PER_LINE_OF_SCRIPTS = 6.1
MOST_TUPLE_ASSIGNMENTS = 1  # in a script
NODES_PER_LINE_OF_TESTS = 6.3
DENSEST_FILE = 7.0
LONGEST_FILE = 900  # lines
LARGEST_FILE = 2_800  # nodes


def measures(counts: Counter[str]) -> dict[str, float]:
    """The shares and rates that the law names."""
    branches = counts["branches"] + counts["hidden branches"]
    rates = {
        "nodes per code line": counts["nodes"] / counts["code lines"],
        "hidden branches of all branches": counts["hidden branches"] / branches,
        "half sentences of all comments": counts["half sentences"] / counts["comments"],
    }
    for name in ("tuple assignments", "walruses", "products with a flag", "calls by position"):
        rates[f"{name} per 1,000"] = 1_000 * counts[name] / counts["code lines"]
    return rates


@pytest.fixture(scope="module")
def package_counts() -> dict[Path, Counter[str]]:
    return {path: count(path) for path in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize("name", CEILINGS)
def test_the_package_is_plain(name, package_counts):
    assert measures(sum(package_counts.values(), Counter()))[name] <= CEILINGS[name]


def test_blank_lines_divide_the_bodies_of_functions(package_counts):
    counts = sum(package_counts.values(), Counter())

    assert counts["blank lines in bodies"] >= LEAST_BLANK_LINES * counts["lines in bodies"]


def test_no_file_is_dense(package_counts):
    dense = []
    for path, counts in package_counts.items():
        is_code = counts["code lines"] > 0
        if is_code and counts["nodes"] > DENSEST_FILE * counts["code lines"]:
            dense.append(path.name)

    assert dense == []


def test_no_file_is_long(package_counts):
    """A modelling file holds a whole family, as in transformers."""
    long_files = []
    for path, counts in package_counts.items():
        lines = path.read_text(encoding="utf-8").count("\n")
        is_long = lines > LONGEST_FILE or counts["nodes"] > LARGEST_FILE
        if is_long and not path.name.startswith("modeling_"):
            long_files.append(path.name)

    assert long_files == []


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "metrics"])
def test_scripts_are_plain(folder):
    """Ruff holds their functions to the package's complexity, branches, statements and width."""
    counts: Counter[str] = Counter()
    for path in (ROOT / folder).rglob("*.py"):
        of_file = count(path)
        assert path.read_text(encoding="utf-8").count("\n") <= LONGEST_FILE, path.name
        assert of_file["tuple assignments"] <= MOST_TUPLE_ASSIGNMENTS, path.name
        counts += of_file

    assert counts["nodes"] <= NODES_PER_LINE_OF_SCRIPTS * counts["code lines"]


def test_tests_are_plain():
    counts: Counter[str] = Counter()
    for path in (ROOT / "tests").rglob("*.py"):
        counts += count(path)

    assert counts["nodes"] <= NODES_PER_LINE_OF_TESTS * counts["code lines"]


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def test_a_test_has_at_most_one_comprehension_and_no_conditional_expression():
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                kinds = Counter(map(type, ast.walk(node)))
                place = f"{path.name}: {node.name}"
                assert kinds[ast.IfExp] == 0, place
                assert sum(map(kinds.__getitem__, COMPREHENSIONS)) <= 1, place


def test_hidden_decisions_are_counted(tmp_path):
    """Each line of this file holds what its comment says."""
    path = tmp_path / "dense.py"
    path.write_text(
        "a, b = x, y  # a tuple assignment\n"
        "a, b = b, a  # a swap\n"
        "c = a or b  # a hidden branch\n"
        "d = [c] * (a == b)  # a hidden branch, a product with a flag\n"
        "if a or b:  # a branch\n"
        "    f(a, b, c, d)  # a call by position\n"
        "g = (h := a) if b else c  # a hidden branch, a walrus\n",
        encoding="utf-8",
    )
    counts = count(path)

    assert counts["code lines"] == 7
    assert counts["branches"] == 1
    assert counts["hidden branches"] == 3
    assert counts["tuple assignments"] == 1
    assert counts["products with a flag"] == 1
    assert counts["calls by position"] == 1
    assert counts["walruses"] == 1
