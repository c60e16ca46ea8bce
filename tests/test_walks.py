"""How much of the package a reader passes who follows one call: the files that it enters, counted on toy runs."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import nextlevelbert

ROOT = Path(__file__).parents[1]
PACKAGE = Path(nextlevelbert.__file__).parent
# Files of the package that a walk may enter; they may go down, never up.
CEILINGS = {"encode": 7, "pretraining": 18, "multiple choice": 25}


class Footsteps:
    """Collects the functions of the package that are entered while it is on, and not by an import."""

    def __init__(self) -> None:
        self.seen: dict[CodeType, None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code not in self.seen and code.co_filename.startswith(str(PACKAGE)):
            if code.co_flags & 0x2 and not by_import(frame):  # bodies of modules and classes have no fast locals
                self.seen[code] = None

    def __enter__(self) -> Footsteps:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def files(self) -> list[str]:
        """Files in the order in which they were entered."""
        return list(dict.fromkeys(str(Path(code.co_filename).relative_to(PACKAGE)) for code in self.seen))


def by_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def check(walk: str, footsteps: Footsteps, *passed: str) -> None:
    """At most as many files as allowed, among them those that every such walk must pass."""
    files = footsteps.files()
    assert set(passed) <= set(files)
    assert len(files) <= CEILINGS[walk], f"{walk} passes {len(files)} files: {', '.join(files)}"


def written(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_encode(toy_checkpoint):
    model = nextlevelbert.NextLevelBertModel.from_pretrained(toy_checkpoint)
    with Footsteps() as footsteps:
        model.encode("A ship sailed many miles. " * 40)
    check("encode", footsteps, "models/chunking.py", "models/chunk_encoder.py")


def test_pretraining(toy_encoder_path, tmp_path, run_script):
    novels = [
        {"id": f"{n}", "text": " ".join(f"On day {n * day} the ship sailed {day} miles." for day in range(100))}
        for n in range(8)
    ]
    words = ["--train_file", written(tmp_path / "novels.jsonl", novels), "--chunk_encoder", toy_encoder_path]
    words += ["--chunk_size", "16", "--do_train", "--sequence_length", "32", "--max_steps", "2", "--use_cpu"]
    with Footsteps() as footsteps:
        run_script(ROOT / "run_pretraining.py", *words, "--output_dir", str(tmp_path / "out"))
    check("pretraining", footsteps, "pretraining/sequences.py", "pretraining/vectors.py")


def test_multiple_choice(toy_checkpoint, tmp_path, run_script):
    questions = [
        {"id": f"{n}", "text": f"The keeper of house {n} has {n % 4} cats. " * 20, "question": "How many cats?",
         "candidates": ["none", "one", "two", "three"], "label": n % 4}
        for n in range(16)
    ]  # fmt: skip
    words = ["--task", "multiple_choice", "--train_file", written(tmp_path / "questions.jsonl", questions)]
    words += ["--model", toy_checkpoint, "--question_column", "question", "--candidates_column", "candidates"]
    words += ["--max_steps", "2", "--validation_share", "0.25", "--use_cpu", "--output_dir", str(tmp_path / "out")]
    with Footsteps() as footsteps:
        run_script(ROOT / "run_finetune.py", *words)
    check("multiple choice", footsteps, "models/modeling_nextlevelbert.py", "models/pooling.py")
