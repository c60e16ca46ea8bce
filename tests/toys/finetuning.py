"""What tests of `run_finetune.py` share: documents about the sea or about bread, and the script in
this process."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parents[2] / "run_finetune.py"
SEA = ("whale", "ship", "harbour", "sail", "captain")
BREAD = ("oven", "flour", "yeast", "crust", "baker")


def sea_rows(count: int, seed: int) -> list[dict]:
    """Short documents about the sea or about bread, with their subject as label."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        label = ("bread", "sea")[number % 2]
        words = draw.choice({"bread": BREAD, "sea": SEA}[label], 24)
        text = " ".join(
            f"The {first} of the {second}."
            for first, second in zip(words[::2], words[1::2], strict=True)
        )
        made.append({"id": f"{seed}-{number}", "text": f"{text} {number}", "label": label})
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
    finally:
        sys.argv = argv
        sys.path = path
