"""How much of the package a reader passes who follows one call: the files that it enters, counted on toy runs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nextlevelbert

from .finetuning_toys import run_here, write

ROOT = Path(__file__).parents[1]
PACKAGE = Path(nextlevelbert.__file__).parent
# Files of the package that a walk may enter; they may go down, never up.
CEILINGS = {"encode": 6, "pretraining": 13, "multiple choice": 15}


@contextlib.contextmanager
def walk(name: str, *passed: str) -> Iterator[None]:
    """Counts files whose functions are entered, but by imports; every such walk has `passed` some."""
    codes: set[CodeType] = set()
    files: dict[str, None] = {}

    def step(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in codes and code.co_filename.startswith(str(PACKAGE)):
            if code.co_flags & 0x2 and not by_import(frame):  # bodies of modules and classes have no fast locals
                codes.add(code)
                files[str(Path(code.co_filename).relative_to(PACKAGE))] = None

    threading.setprofile(step)
    sys.setprofile(step)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert set(passed) <= set(files)
    assert len(files) <= CEILINGS[name], f"{name} passes {len(files)} files: {', '.join(files)}"


def by_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def test_encode(toy_checkpoint):
    model = nextlevelbert.NextLevelBertModel.from_pretrained(toy_checkpoint)
    with walk("encode", "models/chunking.py", "models/chunk_encoder.py"):
        model.encode("A ship sailed many miles. " * 40)


def test_pretraining(toy_encoder_path, tmp_path):
    novels = [
        {"id": f"{n}", "text": " ".join(f"On day {n * day} the ship sailed {day} miles." for day in range(100))}
        for n in range(8)
    ]
    words = ["--train_file", write(tmp_path / "novels.jsonl", novels), "--chunk_encoder", toy_encoder_path]
    words += ["--chunk_size", "16", "--do_train", "--sequence_length", "32", "--max_steps", "2", "--use_cpu"]
    with walk("pretraining", "pretraining/sequences.py", "pretraining/vectors.py"):
        run_here(*words, "--output_dir", str(tmp_path / "out"), script=ROOT / "run_pretraining.py")


def test_multiple_choice(toy_checkpoint, tmp_path):
    questions = [
        {"id": f"{n}", "text": f"The keeper of house {n} has {n % 4} cats. " * 20, "question": "How many cats?",
         "choices": ["none", "one", "two", "three"], "label": n % 4}
        for n in range(16)
    ]  # fmt: skip
    words = ["--task", "multiple_choice", "--train_file", write(tmp_path / "questions.jsonl", questions)]
    words += ["--model", toy_checkpoint]
    words += ["--max_steps", "2", "--validation_share", "0.25", "--use_cpu", "--output_dir", str(tmp_path / "out")]
    with walk("multiple choice", "models/modeling_nextlevelbert.py", "models/chunking.py"):
        run_here(*words)
