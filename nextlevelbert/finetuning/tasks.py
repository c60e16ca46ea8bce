"""The tasks of `run_finetune.py`; the module of a task is imported when the task runs."""

import importlib
from collections.abc import Sequence

from ..training.options import pop_option, run_command

TASKS = {
    "classification": "predict a class, or several, for each document",
    "multiple_choice": "choose among candidate answers about a document",
}
"""By name of a task, which is the name of its module: its aim."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the task of a command line."""
    run_command(_main, argv)


def _main(argv: list[str]) -> None:
    task, others = pop_option(argv, "task")
    if task not in TASKS:
        raise ValueError(f"Give --task, one of {', '.join(TASKS)}; got {task}.")
    importlib.import_module(f"{__package__}.{task}").main(others)
