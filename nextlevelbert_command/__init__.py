"""The command `nextlevelbert`: its help, and the start of the sub-command that was asked for.

This package is not a part of `nextlevelbert`: importing that loads torch and transformers, which
takes seconds, and neither the help nor a wrong option needs them. A module for each sub-command
declares its options; each option is an argument of `run` in a module of ``nextlevelbert.search``.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import app, embed, fit, search
from .options import open_options

# Sub-commands by name: their options, and the module with their function `run`.
_COMMANDS = {
    "search": (search, "nextlevelbert.search.library"),
    "app": (app, "nextlevelbert.search.app.layout"),
    "embed": (embed, "nextlevelbert.search.embed"),
    "fit": (fit, "nextlevelbert.search.fit"),
}
# Sub-commands that parse their own options: (module, what they do).
_DELEGATED = {
    "pretrain": ("nextlevelbert.pretraining.pretrain", "Pretrains a model on documents"),
    "finetune": (
        "nextlevelbert.finetuning.tasks",
        "Trains a model on a labelled task",
    ),
    "convert": (
        "nextlevelbert.convert",
        "Turns a checkpoint of NextLevelBERT's authors into one of this package",
    ),
}


class _Parser(argparse.ArgumentParser):
    """A parser that says how to ask a question that looks like an option."""

    def error(self, message: str) -> NoReturn:
        if "QUESTION" in message:
            message += '. If the question begins with a hyphen, write -- before it: -- "--option"'
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of all sub-commands; those of `_DELEGATED` are only listed."""
    parser = _Parser(
        prog="nextlevelbert",
        description="Search and embed long documents, and train the models that do it.",
        epilog="Each command has its own help: nextlevelbert search --help",
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name, (module, _) in _COMMANDS.items():
        summary, _, _ = module.ABOUT.partition("\n")
        options = commands.add_parser(
            name,
            help=summary,
            description=module.ABOUT,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_options(options)
    for name, (_, about) in _DELEGATED.items():
        commands.add_parser(
            name, help=f"{about} (own options: nextlevelbert {name} --help)", add_help=False
        )
    return parser


def _readable(message: str) -> str:
    """Returns a message in which characters that a terminal would obey are written as escapes.

    `nextlevelbert.data.files` has this, too, but takes seconds to import.
    """
    characters = []
    for character in message:
        if character.isprintable() or character in "\n\t":
            characters.append(character)
        else:
            characters.append(ascii(character)[1:-1])
    return "".join(characters)


def run(argv: Sequence[str]) -> None:
    """Runs the sub-command of a command line."""
    if argv and argv[0] in _DELEGATED:
        sys.argv = [f"nextlevelbert {argv[0]}", *argv[1:]]
        module_name, _ = _DELEGATED[argv[0]]
        importlib.import_module(module_name).main()
        return
    options = vars(build_parser().parse_args(argv))
    _, module_name = _COMMANDS[options.pop("command")]
    command = importlib.import_module(module_name)
    if "cache_dir" in options:
        open_options(options)
    command.run(**options)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sub-command of a command line, by default that of this process.

    Returns:
        The exit status.
    """
    if argv is None:
        argv = sys.argv[1:]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe on Windows may know few characters
        sys.stdout.reconfigure(errors="replace")
    try:
        run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to continue.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `nextlevelbert search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        print(f"error: {_readable(str(error))}", file=sys.stderr)
        return 1
    return 0
