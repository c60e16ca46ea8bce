"""How much of the package a reader passes who follows one call: `encode`, pretraining on novels, multiple choice.

Each walk runs in a process of its own on made texts, and every function of the package that it enters is counted,
with the file it stands in; what only runs while modules are imported is left out.

    python -m benchmarks.studies.three_walks --encoder FOLDER [--files]

FOLDER is a sentence-transformers model, such as all-MiniLM-L6-v2.
"""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

WALKS = ("encode", "pretraining", "multiple_choice")
ROOT = Path(__file__).parents[2]


class Footsteps:
    """Collects the code objects of the package that are entered while it is on, in their order."""

    def __init__(self, package: Path) -> None:
        self.roots = (str(package), str(package.parent / "run_"))
        self.seen: dict[CodeType, None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self.roots):
            self.seen[code] = None

    def __enter__(self) -> Footsteps:
        threading.setprofile(self)
        sys.setprofile(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def functions(self) -> list[tuple[str, str]]:
        """File and qualified name of each function; bodies of modules, classes and comprehensions do not count."""
        return [
            (code.co_filename, code.co_qualname)
            for code in self.seen
            if not code.co_name.startswith("<") and code.co_flags & 0x2  # a class body has no fast locals
        ]


def novels(folder: Path) -> Path:
    """Sixteen made novels of a few hundred sentences, as JSON lines."""
    rows = []
    for number in range(16):
        text = " ".join(f"On day {number * day} the {number}. ship sailed {day} miles." for day in range(200))
        rows.append({"id": f"novel-{number}", "text": text})
    path = folder / "novels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def questions(folder: Path) -> Path:
    """Questions with four candidate answers each, as JSON lines."""
    rows = [
        {"id": f"{n}", "text": f"The keeper of house {n} has {n % 4} cats. " * 40, "question": "How many cats?",
         "candidates": ["none", "one", "two", "three"], "label": n % 4}
        for n in range(16)
    ]  # fmt: skip
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def walk(name: str, encoder: str) -> list[tuple[str, str]]:
    """The functions that a walk enters."""
    import nextlevelbert

    footsteps = Footsteps(Path(nextlevelbert.__file__).parent)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = nextlevelbert.NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=64)
        if name == "encode":
            text = json.loads(novels(folder).read_text().splitlines()[0])["text"]
            with footsteps:
                model.encode(text)
            return footsteps.functions()
        if name == "pretraining":
            script, options = "run_pretraining.py", ["--train_file", str(novels(folder)), "--chunk_encoder", encoder]
            options += ["--chunk_size", "64", "--do_train", "--sequence_length", "64", "--max_steps", "2"]
        else:
            model.save_pretrained(folder / "model")
            script, options = "run_finetune.py", ["--task", "multiple_choice", "--train_file", str(questions(folder))]
            options += ["--model", str(folder / "model"), "--question_column", "question"]
            options += ["--candidates_column", "candidates", "--max_steps", "2", "--validation_share", "0.25"]
        package = Path(nextlevelbert.__file__).parent
        sys.argv = [script, *options, "--output_dir", str(folder / "out"), "--use_cpu"]
        with footsteps:
            runpy.run_path(str(package.parent / script), run_name="__main__")
    return footsteps.functions()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="Folder of a sentence-transformers model.")
    parser.add_argument("--files", action="store_true", help="List the files in the order in which they are entered.")
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.walk:
        functions = walk(args.walk, args.encoder)
        print(json.dumps(functions))
        return
    for name in WALKS:
        command = [sys.executable, __file__, "--encoder", args.encoder, "--walk", name]
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        functions = json.loads(child.stdout.splitlines()[-1])
        files = list(dict.fromkeys(file for file, _ in functions))
        print(f"{name}: {len(files)} files, {len(functions)} functions")
        if args.files:
            for file in files:
                print("  ", file.split("/nextlevelbert/")[-1], *(name for where, name in functions if where == file))


if __name__ == "__main__":
    main()
