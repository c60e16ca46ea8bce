"""The help of `nextlevelbert`, and the start of the sub-command that was asked for.

Importing torch and transformers takes seconds. Neither the help nor a wrong option needs them, nor
does a further question to a static model. A module for each sub-command declares its options; each
option is an argument of `run` in a module of ``nextlevelbert.search``. The options of trainings are
declared in `pretraining/options.py` and `finetuning/options.py`.
"""

from __future__ import annotations

import argparse
import importlib
import platform
from collections.abc import Sequence
from typing import Any

from . import app, cache, embed, fit, search
from .options import check_models, open_options
from .parser import Parser, nearest

# Sub-commands by name: their options, and the module with their function `run`.
_COMMANDS: dict[str, tuple[Any, str]] = {
    "search": (search, "nextlevelbert.search.answers"),
    "app": (app, "nextlevelbert.search.page.layout"),
    "embed": (embed, "nextlevelbert.search.embed"),
    "fit": (fit, "nextlevelbert.search.fit"),
    "cache": (cache, "nextlevelbert.search.cache"),
}
# What the trainings do, by their names, which are those of their modules, too.
_TRAININGS = {
    "pretrain": "Pretrains a model on documents.",
    "finetune": "Trains a model on a labelled task.",
}


def build_parser() -> Parser:
    """Builds the parser of the command itself, which lists the sub-commands."""
    summaries = {name: module.ABOUT.splitlines()[0] for name, (module, _) in _COMMANDS.items()}
    summaries |= _TRAININGS
    listed = "\n".join(f"  {name:10}{summary}" for name, summary in summaries.items())
    parser = Parser(
        prog="nextlevelbert",
        usage="%(prog)s COMMAND [options]",
        description=(
            "Search and embed long documents, and train the models that do it.\n\n"
            f"commands:\n{listed}"
        ),
        epilog=(
            "Each command has its own help: nextlevelbert search --help\n"
            'To try it: nextlevelbert search example-books "a letter from the king of Bohemia"'
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=_versions(), help="show the versions and exit"
    )
    parser.add_argument("command", metavar="COMMAND", nargs="?", help=argparse.SUPPRESS)
    return parser


def command_parser(name: str) -> Parser:
    """Builds the parser of a sub-command that is no training."""
    module, _ = _COMMANDS[name]
    parser = Parser(
        prog=f"nextlevelbert {name}",
        description=module.ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_options(parser)
    parser.usage = f"{parser.prog} {parser.required_arguments()} [options]"
    return parser


def _versions() -> str:
    """Returns the versions that a report of a bug needs; nothing is imported."""
    from importlib import metadata  # a third of the time that numpy takes

    packages = ("nextlevelbert", "torch", "transformers", "sentence-transformers")
    versions = [f"{package} {metadata.version(package)}" for package in packages]
    return f"{', '.join(versions)}, Python {platform.python_version()}, {platform.system()}"


def run(argv: Sequence[str]) -> None:
    """Runs the sub-command of a command line; without one, prints the help."""
    name = next(iter(argv), "--help")
    if name in _TRAININGS:
        importlib.import_module(f".{name}", __package__).run(argv[1:])
        return
    if name not in _COMMANDS:
        parser = build_parser()
        parser.parse_args([name])
        parser.error(f"There is no command {name!r}.{nearest(name, [*_COMMANDS, *_TRAININGS])}")

    options = vars(command_parser(name).parse_args(argv[1:]))
    check_models(options)
    if name not in ("search", "app", "cache"):  # which open a model only to encode something
        notes = importlib.import_module("nextlevelbert.search.notes").Notes()  # printed later
        importlib.import_module("nextlevelbert.search.reading").list_files(options["source"], notes)
        importlib.import_module("nextlevelbert.public")  # registers the models
    _, module_name = _COMMANDS[name]
    command = importlib.import_module(module_name)
    if "dtype" in options:
        open_options(options)
    command.run(**options)
