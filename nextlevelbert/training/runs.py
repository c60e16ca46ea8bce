"""Folders of runs: a folder belongs to its options, checkpoints, and files written as a whole."""

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import datasets
import transformers
from accelerate import PartialState

from ..corpus.hold import hold_folder
from ..models.files import read_json, write_whole

logger = logging.getLogger(__name__)
HELD_FOLDERS = ExitStack()  # those of the training that runs
# The files of a checkpoint, beside its state.
_FILES = ("*.safetensors", "optimizer.pt", "scheduler.pt", "rng_state*.pth")


def safe_name(name: str) -> str:
    """Returns a name for a heading and for strings of Python code.

    Args:
        name: any name; every character but letters, digits, spaces and ``_ . - / @ +`` becomes
            ``-``.
    """
    return re.sub(r"[^\w ./@+-]", "-", name)


def write_json_lines(path: str | Path, records: Iterable[object]) -> None:
    """Writes each record as a line of JSON, completely or not at all."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    write_whole(path, "\n".join(lines))


@contextmanager
def logged_run() -> Iterator[None]:
    """Prints what a training logs, without bars in a log file, and lets its folders go at the end.

    Example:
        A training is a function with ``@logged_run()``.
    """
    level = logging.WARNING
    if os.environ.get("RANK", "0") == "0":
        level = logging.INFO
    logging.basicConfig(level=level, format="%(message)s")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
    with HELD_FOLDERS:
        yield


def bind_folder(folder: str | Path, settings: Mapping[str, object]) -> None:
    """Makes a folder the folder of a run with these settings; every process may call it.

    The main process holds the folder until the training ends; see `logged_run`.

    Raises:
        ValueError: for a folder with another run, naming what differs, and for a folder that
            another process holds.
    """
    folder = Path(folder)
    if PartialState().is_main_process:
        HELD_FOLDERS.enter_context(hold_folder(folder))

    settings = json.loads(json.dumps(settings))
    stored = read_json(folder / "settings.json") or {}
    has_run = stored or any(folder.glob("checkpoint-*"))
    if has_run and stored != settings:
        differences = []
        for name in {**stored, **settings}:
            there = stored.get(name)
            now = settings.get(name)
            if there != now:
                differences.append(f"{name}: {there!s:.40} there, {now!s:.40} now")

        raise ValueError(
            f"{folder} holds another run ({', '.join(differences)}). Give another --output_dir, or"
            " remove that folder."
        )

    if PartialState().is_main_process:
        for leftover in folder.glob(".tmp*"):  # of a run that was killed
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:  # of safetensors
                leftover.unlink()

        if not stored:
            write_whole(folder / "settings.json", json.dumps(settings, indent=2))


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """Returns the newest complete ``checkpoint-*`` of a folder, or None.

    The state of a checkpoint is written last; when a checkpoint is deleted, any file may go first.
    """
    steps = {int(path.name.split("-")[1]): path for path in Path(folder).glob("checkpoint-*")}
    for _, path in sorted(steps.items(), reverse=True):
        has_state = read_json(path / "trainer_state.json") is not None
        if has_state and all(any(path.glob(file)) for file in _FILES):
            logger.info("Resuming from %s.", path.name)
            return str(path)
        logger.warning("%s is incomplete and is ignored.", path)
    return None
