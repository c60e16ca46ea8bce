"""The tasks of `run_finetune.py`, a `main` each, whose module is imported when it is asked for."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ..training.trainer import run_command, take_option, words_of

TASKS = {
    "classification": ("classification:main", "predict a class, or several, for each document"),
    "multiple_choice": (
        "classification:main_multiple_choice",
        "choose among candidate answers about a document",
    ),
    "retrieval": ("retrieval:main", "search without training, and report scores"),
    "ranking": ("ranking:main", "rank documents for queries"),
    "summarization": ("summarization:main", "select the sentences of a summary"),
    "document_matching": ("document_matching:main", "decide whether two documents are related"),
    "coreference": ("coreference:main", "link mentions of the same event across documents"),
    "multihop_qa": ("multihop_qa:main", "answer questions from ten paragraphs"),
}
"""By name of the task: its function, which takes the words of a command line without ``--task``;
what it does."""


def main(words: Sequence[str] | None = None) -> None:
    """Runs the task that a command line asks for: by default, that of this process."""
    run_command(_main, words)


def _main(words: list[str]) -> None:
    words = words_of(words)
    task, rest = take_option(words, "task")
    if task is None and {"-h", "--help"} & set(words):
        listed = "\n".join(f"  {name:20}{about}" for name, (_, about) in TASKS.items())
        usage = f"{Path(sys.argv[0]).name} --task TASK [options]"
        print(f"usage: {usage}\n\nTasks:\n{listed}\n\nThe options of a task: --task TASK --help")
    elif task not in TASKS:
        got = "none was given" if task is None else f"got {task}"
        raise ValueError(f"--task is one of {', '.join(TASKS)}; {got}.")
    else:
        pkgutil.resolve_name(f"{__name__}.{TASKS[task][0]}")(rest)
