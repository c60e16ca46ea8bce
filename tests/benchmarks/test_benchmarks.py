"""Every benchmark starts."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from benchmarks.speed import gpu_throughput

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(
    f"{path.parent.name}.{path.stem}" for path in FOLDER.glob("s*/*.py") if path.stem != "__init__"
)


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
    makefile = (FOLDER.parent / "Makefile").read_text()
    made = set(re.findall(r"-m benchmarks\.([\w.]+)", makefile))

    assert made
    assert made <= set(NAMES)


@pytest.mark.long
def test_the_script_for_a_gpu_runs_on_a_cpu(toy_encoder_path, monkeypatch, capsys):
    words = ["--encoder", toy_encoder_path, "--device", "cpu", "--tiny"]
    monkeypatch.setattr(sys, "argv", ["gpu_throughput", *words])

    gpu_throughput.main()

    shown = capsys.readouterr().out
    assert "failed" not in shown
    for row in ("BERT-AL", "loss alone", "encode from text", "CDLM", "Trainer"):
        assert row.lower() in shown.lower()
