"""The tasks that are not rewritten yet; this file goes with the last of them."""

from __future__ import annotations

import logging
import pkgutil
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ..finetuning.run import run
from ..finetuning.task import Task
from ..training.command_line import OptionParser, peek, refuse, words_of
from ..training.recipes import offer_recipe, with_recipe

TASKS = {
    "retrieval": ("nextlevelbert.tasks.retrieval.task:Retrieval", "search without training, and report scores"),
    "ranking": ("nextlevelbert.tasks.ranking.task:Ranking", "rank documents for queries"),
}


def main(given: list[str]) -> None:
    """Runs the task that the command line asks for."""
    script, words = Path(sys.argv[0]).name, words_of(given)
    name, kind = peek(words, "task", "model_type")
    if name not in TASKS:
        refuse(f"There is no --task {name}. Choose one of: {', '.join(TASKS)}.")
    task_class: Any = pkgutil.resolve_name(TASKS[name][0])
    kinds = {each: cls for cls in task_class.option_classes for each in get_args(get_type_hints(cls)["model_type"])}
    if kind is not None and kind not in kinds:
        refuse(f"--task {name} takes --model_type {', '.join(kinds)}, not {kind}.")
    kind = kind or next(iter(kinds))
    chosen = f"--task {name}" + (f" --model_type {kind}" if kind != next(iter(kinds)) else "")
    about = f"{TASKS[name][1].capitalize()}. Each --model_type has its own options: {', '.join(kinds)}."
    parser = OptionParser(
        (kinds[kind], kinds[kind].arguments),
        f"{script} {chosen}",
        about,
        {f"--model_type {other}": (cls,) for other, cls in kinds.items()},
    )
    parser.add_argument("--task", help="The task.", choices=list(TASKS))
    offer_recipe(parser, f"{name} {kind}")
    options, args, *_ = parser.read(with_recipe(words, f"{name} {kind}"))
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    try:
        task = task_class(options, args)
    except ValueError as error:
        parser.error(str(error))
    if isinstance(task, Task):
        run(task)
    else:
        task.search()
