"""The start of ``nextlevelbert finetune``."""

from __future__ import annotations

import argparse
import importlib
from functools import partial
from typing import Any

from ..finetuning.options import GROUPS, ColumnArguments, DataArguments
from . import trainings
from .parser import Parser, nearest, pop_option

_PROG = "nextlevelbert finetune"
_ABOUT = {
    "classification": (
        "Trains a classifier of documents. Models that read tokens have other options than the ones"
        " below: add --model_type chunkbert or truncated to --help to see them."
    ),
    "multiple_choice": "Chooses among answers to questions about documents.",
}


def read_options(argv: list[str]) -> tuple[str, dict[str, Any]]:
    """Reads the task and its options, or prints the help; see `trainings.read_options`."""
    task, argv = pop_option(trainings.read_line(_PROG, argv), "task")
    if task not in GROUPS:
        _refuse(task, argv)
    options = trainings.read_options(
        argv,
        prog=f"{_PROG} --task {task}",
        about=_ABOUT[task],
        groups=GROUPS[task],
        arguments="nextlevelbert.finetuning.arguments:FinetuningArguments",
        recipes=f"{task}-",
        no_models=("untrained", "tfidf"),
    )
    return task, options


def run(argv: list[str]) -> None:
    """Fine-tunes as a command line says."""
    task, options = read_options(argv)
    importlib.import_module("nextlevelbert.public")  # registers the models
    data = trainings.take_data(options, DataArguments)
    load_sets = partial(
        importlib.import_module("nextlevelbert.finetuning.sets").read_sets,
        task,
        data,
        trainings.take_options(options, ColumnArguments),
        label_names_file=options.pop("label_names_file", None),
    )
    training = importlib.import_module(f"nextlevelbert.finetuning.{task}")
    training.main(options, load_sets, data.dataset_name)


def _refuse(task: str, argv: list[str]) -> None:
    """Prints the help if there is no task, but ``--help``, and else an error."""
    parser = Parser(
        prog=_PROG,
        usage="%(prog)s --task TASK [options]",
        description=(
            "Trains a model on a labelled task.\n\ntasks:\n"
            "  classification      predict a class, or several, for each document\n"
            "  multiple_choice     choose among candidate answers about a document\n\n"
            "To see the options of a task: nextlevelbert finetune --task classification --help"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    message = f"Give --task, one of {', '.join(GROUPS)}."
    if task:
        parser.error(f"There is no task {task!r}.{nearest(task, GROUPS)} {message}")
    parser.parse_known_args(argv)  # prints the help
    parser.error(message)
