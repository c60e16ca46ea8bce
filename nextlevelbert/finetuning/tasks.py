"""The tasks of `run_finetune.py`; the module of a task is imported when the task runs."""

import importlib
from collections.abc import Sequence

from ..training.command_line import run_command
from ..training.options import pop_option
from .options import GROUPS


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the task of a command line."""
    run_command(_main, argv)


def _main(argv: list[str]) -> None:
    task, others = pop_option(argv, "task")
    if task not in GROUPS:
        raise ValueError(f"Give --task, one of {', '.join(GROUPS)}; got {task}.")
    importlib.import_module(f"{__package__}.{task}").main(others)
