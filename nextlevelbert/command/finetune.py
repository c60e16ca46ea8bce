"""The start of ``nextlevelbert finetune``."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence

from ..finetuning.options import GROUPS, FinetuningOptions
from ..training.options import pop_option
from .parser import Parser, nearest
from .trainings import checked_line, read_line

# For each task, what it does in a list of all, and in its own help.
_TASKS = {
    "classification": (
        "predict a class, or several, for each document",
        "Trains a classifier of documents. Models that read tokens have other options than the ones"
        " below: add --model_type chunkbert or truncated to --help to see them.",
    ),
    "multiple_choice": (
        "choose among candidate answers about a document",
        "Chooses among answers to questions about documents.",
    ),
}
_PROG = "nextlevelbert finetune"


def read_options(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of the training, after a check; see `checked_line`."""
    task, others = _choose_task(read_line(_PROG, argv))
    _, about = _TASKS[task]
    groups = {}
    for model_type, dataclasses in GROUPS[task].items():
        groups[model_type] = (*dataclasses, FinetuningOptions)
    options = checked_line(f"{_PROG} --task {task}", others, about=about, groups=groups, task=task)
    return ["--task", task, *options]


def run(argv: Sequence[str]) -> None:
    """Fine-tunes as a command line says."""
    options = read_options(argv)
    importlib.import_module("nextlevelbert.public")  # registers the models
    importlib.import_module("nextlevelbert.finetuning.tasks").main(options)


def _choose_task(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the value of ``--task``, and the other arguments."""
    listed = "\n".join(f"  {name:20}{aim}" for name, (aim, _) in _TASKS.items())
    parser = Parser(
        prog=_PROG,
        usage="%(prog)s --task TASK [options]",
        description=(
            f"Trains a model on a labelled task.\n\ntasks:\n{listed}\n\n"
            "To see the options of a task: nextlevelbert finetune --task classification --help"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    task, others = pop_option(argv, "task")
    if task == "" and {"-h", "--help"} & set(others):
        parser.print_help()
        raise SystemExit(0)
    if task not in _TASKS:
        message = f"Give --task, one of {', '.join(_TASKS)}."
        if task:
            message = f"There is no task {task!r}.{nearest(task, _TASKS)} {message}"
        parser.error(message)
    return task, others
