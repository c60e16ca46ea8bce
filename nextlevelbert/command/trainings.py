"""Reads the command lines of ``nextlevelbert pretrain`` and ``finetune``.

The options are fields of dataclasses, in files that import neither torch nor transformers.
transformers is imported only if a command line names another option.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from .option_files import expand_options_file, with_recipe
from .options import check_models, number, source, truth, whole_number
from .parser import Parser, nearest, plain_name, pop_option

_TYPES: dict[Any, Any] = {
    bool: truth,
    bool | None: truth,
    float: number,
    float | None: number,
    int: whole_number,
    int | None: whole_number,
    list[int]: whole_number,
}


def read_line(prog: str, argv: list[str]) -> list[str]:
    """Replaces a file of options at the beginning of a command line by the options in it."""
    try:
        return expand_options_file(argv)
    except (ValueError, OSError) as error:
        Parser(prog=prog, usage="%(prog)s [options]").error(str(error))


def read_options(
    argv: list[str],
    *,
    prog: str,
    about: str,
    groups: Mapping[str, Sequence[type[Any]]],
    arguments: str,
    recipes: str = "",
    no_models: Sequence[str] = (),
) -> dict[str, Any]:
    """Reads the command line of a training, or prints the help; a wrong option ends the process.

    Args:
        argv: the arguments after `prog`.
        prog: the words that start the training.
        about: what it does, for the help.
        groups: the dataclasses of options by ``--model_type``, the usual one first.
        arguments: module and name of the dataclass of the other arguments of transformers.
        recipes: beginning of the names of its recipes.
        no_models: values of ``--model`` that are no model.

    Returns:
        The options by name; those without a default only if they are given.

    Raises:
        FileNotFoundError: for a model that is not on this machine if asking the Hub fails.
    """
    model_type, _ = pop_option(argv, "model_type", next(iter(groups)))
    parser = TrainingParser(prog, about, groups.get(model_type, ()), arguments)
    if model_type not in groups:
        parser.error(
            f"argument --model_type: there is no {model_type!r}.{nearest(model_type, groups)} Give"
            f" one of {', '.join(groups)}."
        )
    try:
        argv = with_recipe(argv, f"{recipes}{model_type}")
    except ValueError as error:
        parser.error(str(error))
    options = vars(parser.parse_args(argv))
    if not {"train_file", "dataset_name", "corpus_dir"} & options.keys():
        parser.error("Give the documents with --train_file or --dataset_name.")
    only_encodes = "corpus_dir" in options and not options["do_train"]
    if "output_dir" not in options and not only_encodes:
        parser.error("Give a folder to write the model to with --output_dir.")
    check_models(options, no_models)
    return options


def take_options(options: dict[str, Any], group: type[Any]) -> Any:
    """Takes the options of a group out of those of a command line."""
    names = [option.name for option in fields(group) if option.name in options]
    return group(**{name: options.pop(name) for name in names})


def take_data(options: dict[str, Any], group: type[Any]) -> Any:
    """Takes the options of the data out of a command line; the card names a data set of the Hub."""
    data = take_options(options, group)
    if data.dataset_name is not None:
        options.setdefault("datasets", [data.dataset_name])
    return data


class TrainingParser(Parser):
    """A parser of the options that dataclasses declare, and of other arguments of transformers."""

    def __init__(self, prog: str, about: str, groups: Sequence[type[Any]], arguments: str) -> None:
        super().__init__(
            prog=prog,
            description=about,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        self._groups = groups
        self._arguments = arguments
        self._reasons: dict[str, str] = {}
        for group in groups:
            container = self.add_argument_group(group._argument_group_name)
            for option in fields(group):
                if "reason" in option.metadata:
                    self._reasons[option.name] = option.metadata["reason"]
                elif option.init:
                    _add_option(container, option)
        self.add_argument(
            "--recipe",
            choices=["paper"],
            default=argparse.SUPPRESS,
            help=(
                "Use the settings of the paper on this --model_type; the options that you give"
                " override them."
            ),
        )
        needed = f"{self.required_arguments()} --train_file FILE --output_dir FOLDER".lstrip()
        self.usage = f"{prog} {needed} [options]"
        self.epilog = (
            "--no_NAME turns off an option that is on. The other arguments of"
            f" transformers.TrainingArguments work, except --{', --'.join(self._reasons)}. Options"
            " may come from a YAML or JSON file at the beginning: options.yaml --seed 1"
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses a command line; transformers reads ``--no_NAME`` and what is not declared here."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if not unknown:
            return parsed, unknown
        transformers = importlib.import_module("transformers")
        others = transformers.HfArgumentParser(
            (*self._groups[:-1], pkgutil.resolve_name(self._arguments)),
            prog=self.prog,
            usage=self.usage,
            add_help=False,
            allow_abbrev=False,
        )
        others.error = self.error  # the error first, then the usage
        for action in others._actions:
            action.default = argparse.SUPPRESS
            action.required = False
            self._option_string_actions |= dict.fromkeys(action.option_strings, action)
        return others.parse_known_args(unknown, parsed)

    def describe_option(self, name: str) -> str:
        """Says why a name is no option, or that there is none of that name."""
        reason = self._reasons.get(plain_name(name))
        if reason is None:
            return super().describe_option(name)
        return f"{name} is no option here: {reason}."


def _add_option(container: Any, option: Field[Any]) -> None:
    """Adds an option that a field of a dataclass declares, as `HfArgumentParser` does."""
    settings = {"default": option.default, **option.metadata}
    if option.default_factory is not MISSING:
        settings["default"] = option.default_factory()
    elif option.default is MISSING:
        settings["required"] = True
    if settings["default"] in (None, MISSING):
        settings["default"] = argparse.SUPPRESS  # the help names no default
    if option.type in (bool, bool | None):
        settings |= {"nargs": "?", "const": True}
    settings["type"] = _TYPES.get(option.type, str)
    if option.name.endswith("_file"):
        settings["type"] = source
    container.add_argument(f"--{option.name}", **settings)
