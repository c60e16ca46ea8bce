"""What tests of `run_finetune.py` share: documents about the sea or about bread, and the script in
this process."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from nextlevelbert.command import main
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.models.files import read_json

SCRIPT = Path(__file__).parents[2] / "run_finetune.py"
SEA = ("whale", "ship", "harbour", "sail", "captain")
BREAD = ("oven", "flour", "yeast", "crust", "baker")


def sea_rows(count: int, seed: int) -> list[dict]:
    """Short documents about the sea or about bread, with their subject as label."""
    draw = np.random.default_rng(seed)
    made = []
    for index in range(count):
        label = ("bread", "sea")[index % 2]
        words = draw.choice({"bread": BREAD, "sea": SEA}[label], 24)
        text = " ".join(
            f"The {first} of the {second}."
            for first, second in zip(words[::2], words[1::2], strict=True)
        )
        made.append({"id": f"{seed}-{index}", "text": f"{text} {index}", "label": label})
    return made


def write(path: Path, made: list[dict]) -> str:
    """JSON lines."""
    path.write_text("\n".join(json.dumps(row) for row in made))
    return str(path)


def predictions(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_here(*words: str, script: Path = SCRIPT) -> None:
    """Runs the script in this process; as from a command line, it may import its neighbours."""
    argv = sys.argv
    path = sys.path
    sys.argv = [str(script), *words]
    sys.path = [str(script.parent), *path]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code != 0:
            raise
    finally:
        sys.argv = argv
        sys.path = path


def arguments(folder: Path, **more: object) -> FinetuningArguments:
    """Returns arguments of a quiet training on the CPU."""
    return FinetuningArguments(
        output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, **more
    )


def run_task(
    output: Path, *argv: str, task: str = "classification", **options: object
) -> dict[str, Any]:
    """Runs a task in this process; returns the content of its ``results.json``."""
    command = ["--task", task, "--output_dir", str(output)]
    command += ["--disable_tqdm", "true", "--use_cpu", *argv]
    for option, value in options.items():
        command += [option, str(value)]
    status = main(["finetune", *command])
    if status:
        raise SystemExit(status)
    return read_json(output / "results.json")
