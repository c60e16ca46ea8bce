"""What `pip install nextlevelbert` gives: every folder, the card's template, and the console scripts, which run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from .finetuning_toys import sea_rows, write

ROOT = Path(__file__).parents[1]
# For the papers whose defaults take minutes.
QUICK = {
    "chunkbert": ["--chunk_size", "32", "--num_train_epochs", "1"],
    "bert_al": ["--segment_length", "32", "--num_train_epochs", "1"],
    "cdlm": ["--epochs", "1", "--pretraining_epochs", "1"],
}


def run(*command: object, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    finished = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**environment, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, because setuptools leaves folders beside what it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "nextlevelbert", folder / "nextlevelbert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "nextlevelbert_command.py"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    run(*command, "--wheel-dir", folder / "dist", folder, cwd=folder)
    [path] = (folder / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel, and its dependencies from the environment of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    run(*command, wheel, cwd=folder)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    Path(paths["purelib"], "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python.parent


def test_the_wheel_holds_every_file_of_the_package(wheel):
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "nextlevelbert").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("nextlevelbert/")}
    assert packed == here


def test_the_checkpoint_is_installed_and_opens_offline(installed, tmp_path):
    """Away from the sources, a text becomes a vector with what pip put there."""
    program = (
        "import nextlevelbert; from transformers import AutoModel; folder = nextlevelbert.static_checkpoint();"
        "print(folder); print(AutoModel.from_pretrained(folder).encode('A whale.').document.norm().item())"
    )
    folder, norm = run(installed / "python", "-c", program, cwd=tmp_path).splitlines()[-2:]
    assert Path(folder).is_relative_to(installed.parent)
    assert float(norm) > 0


@pytest.mark.long
def test_the_console_scripts_run_from_an_installed_wheel(installed, toy_encoder_path, tmp_path):
    """Documents to a pretrained model, and that to a classifier, away from the sources."""
    where = run(installed / "python", "-c", "import nextlevelbert; print(nextlevelbert.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    write(tmp_path / "rows.jsonl", sea_rows(16, 0))
    run(
        installed / "nextlevelbert-pretrain", "--train_file", "rows.jsonl", "--chunk_encoder", toy_encoder_path,
        "--output_dir", "model", "--do_train", "--sequence_length", 16, "--max_steps", 2, "--use_cpu",
        "--chunk_size", 12, cwd=tmp_path,
    )  # fmt: skip
    assert "nextlevelbert" in (tmp_path / "model" / "README.md").read_text()
    printed = run(
        installed / "nextlevelbert-finetune", "--task", "classification", "--model", "model", "--train_file",
        "rows.jsonl", "--max_steps", 2, "--output_dir", "classifier", "--use_cpu", cwd=tmp_path,
    )  # fmt: skip
    assert "accuracy" in printed
    assert (tmp_path / "classifier" / "model.safetensors").exists()
    words = ["search", "rows.jsonl", "a whale that swims", "--cache_dir", "cache"]
    assert "rows.jsonl#" in run(installed / "nextlevelbert", *words, cwd=tmp_path)  # by the installed checkpoint


@pytest.mark.long
@pytest.mark.parametrize("paper", ["next_level_bert", "hate", "chunkbert", "bert_al", "cdlm"])
def test_the_papers_run_from_an_installed_wheel(installed, minilm_path, encoder, paper, tmp_path):
    """Each example in an empty folder and without network; the first two as they stand, with MiniLM."""
    shutil.copy(ROOT / "examples" / "papers" / f"{paper}.py", tmp_path)
    words = ["--encoder", encoder, *QUICK[paper]] if paper in QUICK else [minilm_path]
    assert run(installed / "python", f"{paper}.py", *words, cwd=tmp_path)
