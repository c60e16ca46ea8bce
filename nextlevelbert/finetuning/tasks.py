"""The tasks of `run_finetune.py`; the module of a task is imported when the task runs."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from ..training.options import expand_options_file, pop_option, run_command

TASKS = {
    "classification": "predict a class, or several, for each document",
    "multiple_choice": "choose among candidate answers about a document",
}
"""By name of a task, which is the name of its module: its aim."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the task of a command line.

    Args:
        argv: arguments of the command line (default: those of this process).
    """
    run_command(_main, argv)


def _main(argv: list[str]) -> None:
    argv = expand_options_file(argv)
    task, others = pop_option(argv, "task")
    if task is None and {"-h", "--help"} & set(argv):
        print(f"usage: {Path(sys.argv[0]).name} --task TASK [options]\n\nTasks:")
        for name, about in TASKS.items():
            print(f"  {name:20}{about}")
        print("\nTo see the options of a task: --task TASK --help")
        return
    if task not in TASKS:
        raise ValueError(f"Give --task, one of {', '.join(TASKS)}; got {task}.")
    importlib.import_module(f"{__package__}.{task}").main(others)
