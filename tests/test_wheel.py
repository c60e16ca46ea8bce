"""What `pip install nextlevelbert` gives: every folder, the card's template, and the console
scripts, which run."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from nextlevelbert import static_checkpoint

from .toys.finetuning import sea_rows, write
from .training.test_training_runs import RUNS, fine_tuning, toys  # noqa: F401

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://example.org/somebody/nextlevelbert"
METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def run(*command, cwd):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    finished = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        check=False,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The folder with wheel and source archive, made of the tracked files as the workflow does it,
    with a made-up address of the repository."""
    folder = tmp_path_factory.mktemp("release")
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if not name.startswith(("benchmarks/", "checkpoints/", "examples/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    settings = folder / "pyproject.toml"
    address = f'[project.urls]\nRepository = "{REPOSITORY}"\n'
    text = settings.read_text(encoding="utf-8").replace("[project.urls]\n", address)
    settings.write_text(text, encoding="utf-8")

    run(sys.executable, "docs/pypi_readme.py", cwd=folder)
    run(sys.executable, "-m", "build", "--no-isolation", cwd=folder)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(release):
    [path] = release.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(release, tmp_path_factory):
    """The programs of an environment that has the wheel, and its dependencies from the environment
    of the tests. The package is installed by its name, with the folder as the only index."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    argv = f"-m pip --python {python} install --quiet --no-deps --no-index"
    argv += f" --find-links {release} nextlevelbert"
    run(sys.executable, *argv.split(), cwd=folder)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python.parent


@pytest.mark.long
def test_pypi_accepts_both_files_and_shows_no_dead_link(release, wheel):
    run(sys.executable, "-m", "twine", "check", "--strict", *release.iterdir(), cwd=release)

    [name] = filter(METADATA.fullmatch, zipfile.ZipFile(wheel).namelist())
    page = zipfile.ZipFile(wheel).read(name).decode()
    targets = re.findall(r"""(?:\]\(|src(?:set)?=")([^)"\s]+)""", page)
    files = [target for target in targets if target.startswith(f"{REPOSITORY}/")]

    assert len(files) >= 10
    for target in targets:
        assert target.startswith(("https://", "#")), target
    for target in files:
        path, _, _ = target.removeprefix(f"{REPOSITORY}/").partition("#")
        _, _, file = path.split("/", 2)  # blob or raw, and the tag
        assert (ROOT / file).exists(), target


@pytest.mark.long
def test_the_source_archive_holds_the_package_and_no_tests(release):
    """A wheel can be built from the archive: `release` builds it so."""
    [path] = release.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        parts = [PurePosixPath(name).parts[1:] for name in archive.getnames()]

    folders = set()
    for first, *others in parts[1:]:
        if others:
            folders.add(first)
    assert folders == {"nextlevelbert", "nextlevelbert.egg-info"}
    assert {("NOTICE",), ("LICENSE",), ("CHANGELOG.md",)} <= {*parts}


@pytest.mark.long
def test_the_wheel_holds_every_file_of_the_package(wheel):
    packed = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "nextlevelbert").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            name = str(path.relative_to(ROOT))
            assert name in packed
            packed.remove(name)

    assert not [name for name in packed if name.startswith("nextlevelbert/")]


@pytest.mark.long
def test_the_console_scripts_run_from_an_installed_wheel(installed, tmp_path):
    assert "--model_type" in run(installed / "nextlevelbert", "pretrain", "--help", cwd=tmp_path)
    assert "multiple_choice" in run(installed / "nextlevelbert", "finetune", "--help", cwd=tmp_path)
    assert "nextlevelbert" in run(installed / "nextlevelbert", "--version", cwd=tmp_path)

    write(tmp_path / "rows.jsonl", sea_rows(16, 0))
    argv = ["search", "rows.jsonl", "a whale that swims", "--cache_dir", "cache"]

    assert "rows.jsonl#" in run(
        installed / "nextlevelbert", *argv, cwd=tmp_path
    )  # by the installed checkpoint


EVERY_RUN = """
import json, sys
from nextlevelbert.command import main
for script, *words in json.loads(sys.argv[1]):
    name = "pretrain" if script == "run_pretraining.py" else "finetune"
    assert main([name, *words]) == 0
"""


KINDS = {
    **{row.name: row.words for row in RUNS},
    "truncated": fine_tuning("classification", "--model_type", "truncated", "--model", "{encoder}"),
    "hate classes": fine_tuning(
        "classification",
        "--model_type",
        "hate",
        "--model",
        "untrained",
        "--chunk_encoder",
        "{sentence_encoder}",
    ),
}


@pytest.mark.long
def test_every_task_and_model_type_runs_to_its_end(installed, toys, tmp_path):  # noqa: F811
    """Two steps each, in a process that has the wheel."""
    calls = []
    for name, words in KINDS.items():
        line = " ".join([*words, "--max_steps 2 --use_cpu --output_dir"]).format(**toys)
        calls.append([*line.split(), name])
    run(installed / "python", "-c", EVERY_RUN, json.dumps(calls), cwd=tmp_path)

    assert {path.parent.name for path in tmp_path.glob("*/results.json")} == {*KINDS}


@pytest.mark.long
@pytest.mark.parametrize(
    ("paper", "options"),
    [
        # With MiniLM, both run in tests/examples/test_examples.py.
        ("next_level_bert", "{sentence_encoder}"),
        ("hate", "{static}"),
        # Those whose defaults take minutes.
        ("chunkbert", "--encoder {encoder} --chunk_size 32 --num_train_epochs 1"),
        ("bert_al", "--encoder {encoder} --segment_length 32 --num_train_epochs 1"),
        ("cdlm", "--encoder {encoder} --epochs 1 --pretraining_epochs 1"),
    ],
)
def test_the_papers_run_from_an_installed_wheel(
    installed, toy_encoder_path, encoder, paper, options, tmp_path
):
    """Each example in an empty folder and without network."""
    shutil.copy(ROOT / "examples" / "papers" / f"{paper}.py", tmp_path)
    encoders = {"sentence_encoder": toy_encoder_path, "static": static_checkpoint()}
    words = options.format(encoder=encoder, **encoders).split()

    assert run(installed / "python", f"{paper}.py", *words, cwd=tmp_path)
