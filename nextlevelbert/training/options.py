"""Options: dataclasses from a command line, files of options, recipes of the papers, and errors."""

import argparse
import difflib
import glob
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, NoReturn

import datasets
import transformers
import yaml
from transformers import AutoConfig, HfArgumentParser, PreTrainedConfig, TrainingArguments

from ..data.documents import BUNDLED
from ..data.files import readable_text

RECIPES = Path(__file__).with_name("recipes")
# Of transformers' own options, those that the help shows.
HELP = {
    "max_steps": "Number of steps; if it is above 0, it replaces --num_train_epochs.",
    "per_device_train_batch_size": "Batch size per device in training.",
    "per_device_eval_batch_size": "Batch size per device in evaluation.",
    "gradient_accumulation_steps": "Number of batches whose gradients are added up for one step.",
    "bf16": "Train in mixed precision with bfloat16.",
    "seed": "Seed of the training.",
    "use_cpu": "Use the CPU even if there is an accelerator.",
}


def option(default: object, help: str, **metadata: object) -> Any:
    """Makes a field of a dataclass of options.

    Args:
        default: default value, or `dataclasses.MISSING` for an option that is required.
        help: text for ``--help``, which adds the default.
        **metadata: further metadata for `HfArgumentParser`, such as ``choices``.
    """
    return field(default=default, metadata={"help": help, **metadata})


def fixed(default: object, reason: str) -> Any:
    """Makes a field that is no option, because a training here decides it.

    Args:
        default: value of the field.
        reason: a clause that says why, for the error if somebody gives it as an option.
    """
    return field(init=False, default=default, metadata={"reason": reason})


def fixed_fields(classes: Iterable[type[Any]]) -> dict[str, str]:
    """Returns the arguments of transformers that are no options here, each with its reason."""
    reasons = {}
    for dataclass in classes:
        for one_field in fields(dataclass):
            if "reason" in one_field.metadata:
                reasons[one_field.name] = one_field.metadata["reason"]
    return reasons


def inherited(classes: Iterable[type[Any]]) -> set[str]:
    """Returns the arguments of transformers that none of the classes declares anew."""
    names = {argument.name for argument in fields(TrainingArguments)}
    for dataclass in classes:
        for base in dataclass.__mro__:
            if base is not TrainingArguments:
                names -= inspect.get_annotations(base).keys()
    return names


class OptionParser(HfArgumentParser):
    """Prints the error first, then the usage.

    The help shows only those options of `TrainingArguments` that `HELP` describes.

    Args:
        classes: dataclasses of options, see `parse`.
        prog: options that led here, after the name of the command.
        about: text above the options in the help.
        recipes: true to add ``--recipe``.
    """

    def __init__(
        self,
        classes: Sequence[type[Any]],
        prog: str = "",
        about: str | None = None,
        *,
        recipes: bool = False,
    ) -> None:
        command = Path(sys.argv[0]).name
        self.reasons = fixed_fields(classes)
        refused = ", ".join(f"--{name}" for name in self.reasons)
        super().__init__(
            classes,
            prog=f"{command} {prog}".strip(),
            usage="%(prog)s [options]",
            description=about,
            epilog=(
                f"The other arguments of transformers' TrainingArguments work, except {refused}."
                " Options may come from a YAML or JSON file at the beginning: options.yaml --seed 1"
            ),
            allow_abbrev=False,
        )
        if recipes:
            self.add_argument(
                "--recipe",
                choices=["paper"],
                default=argparse.SUPPRESS,
                help="Use the settings of the paper on this --model_type; the options that you give"
                " override them.",
            )

        transformers_options = inherited(classes)
        for action in self._actions:
            if action.dest in transformers_options:
                action.help = HELP.get(action.dest, argparse.SUPPRESS)
            elif action.const is False and action.help != argparse.SUPPRESS:
                action.help = f"Turns off --{action.dest}.%(default).0s"
            elif action.default is None:
                action.help = f"{action.help}%(default).0s"  # in place of "(default: None)"
            if action.dest != "help":
                # The help shows the first spelling; all spellings are accepted.
                action.option_strings = action.option_strings[:1]

    def describe_unknown(self, name: str) -> str:
        """Says why an option does not exist, or names the nearest one."""
        name, _, _ = name.partition("=")
        reason = self.reasons.get(name.lstrip("-").replace("-", "_"))
        if reason is not None:
            return f"{name} is no option here: {reason}."
        similar = difflib.get_close_matches(name, self._option_string_actions, n=1)
        if not similar:
            return f"There is no option {name}."
        return f"There is no option {name}. Did you mean {similar[0]}?"

    def error(self, message: str) -> NoReturn:
        """Prints an error and the usage, and exits with status 2."""
        print(f"error: {message}", file=sys.stderr)
        print(f"usage: {self.prog} [options]; --help describes them", file=sys.stderr)
        raise SystemExit(2)


def parse(
    classes: Sequence[type[Any]],
    argv: Sequence[str],
    prog: str = "",
    about: str | None = None,
    recipes: str | None = None,
) -> tuple[Any, ...]:
    """Parses a command line into dataclasses; a mistake ends the program with an error.

    Args:
        classes: dataclasses, whose `_argument_group_name` is the title of their options in the
            help.
        argv: arguments of the command line. A YAML or JSON file at the beginning stands for the
            options that it holds.
        prog: options that led here, after the name of the command.
        about: text above the options in the help.
        recipes: prefix of the files in ``recipes/`` for ``--recipe paper``. The name of a file is
            this prefix and the ``--model_type``. Explicit options override the recipe.
    """
    if recipes and not prog:
        prog = f"--task {recipes[:-1]}"

    parser = OptionParser(classes, prog, about, recipes=recipes is not None)
    try:
        argv = expand_options_file(argv)
        if recipes is not None:
            argv = _with_recipe(argv, recipes, parser.get_default("model_type"))

        namespace, unknown = parser.parse_known_args(argv)
        if unknown:
            raise ValueError(parser.describe_unknown(unknown[0]))
        check_files(vars(namespace))
        parsed = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return parsed[: len(classes)]


def check_files(options: Mapping[str, Any]) -> None:
    """Refuses an option that names a file to read which is not there.

    Args:
        options: values of the options by name; those ending in ``_file`` name a file or folder to
            read, a pattern, or documents that are always there (`BUNDLED`).

    Raises:
        ValueError: if there is nothing at the path.
    """
    for name, value in options.items():
        if name.endswith("_file") and value is not None and value not in BUNDLED:
            if not glob.has_magic(value) and not Path(value).exists():
                raise ValueError(f"--{name}: there is no file or folder {value!r}.")


def pop_option(
    argv: Sequence[str], name: str, default: str | None = None
) -> tuple[str | None, list[str]]:
    """Removes an option from a command line.

    Args:
        argv: arguments of the command line.
        name: name of the option.
        default: value if the option is not there.

    Returns:
        The value of the option, and the other arguments.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    spellings = [f"--{name}", f"--{name.replace('_', '-')}"]
    parser.add_argument(*spellings, nargs="?", default=default, dest="value")
    namespace, others = parser.parse_known_args(argv)
    return namespace.value, others


def expand_options_file(argv: Sequence[str]) -> list[str]:
    """Replaces a file of options at the beginning of a command line by the options in it.

    Args:
        argv: arguments of the command line.

    Raises:
        ValueError: for a file that holds no options, and another argument at the beginning.
    """
    if not argv or argv[0].startswith("-"):
        return list(argv)
    path = Path(argv[0])
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise ValueError(
            f"{argv[0]!r} is not an option; a file of options ends in .yaml, .yml or .json."
        )
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{path} must hold options by name, such as 'seeds: [0, 1]'; got"
            f" {type(values).__name__}."
        )
    return [*_as_argv(values), *argv[1:]]


def _as_argv(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields options as arguments of a command line."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, list):
            yield f"--{name}"
            yield from map(str, value)
        elif isinstance(value, dict | bool):
            yield f"--{name}={json.dumps(value)}"
        else:
            yield f"--{name}={value}"


def _with_recipe(argv: list[str], recipes: str, default_type: str) -> list[str]:
    """Replaces ``--recipe paper`` by the paper's options, which come first.

    The last of two equal options counts, so explicit options override the recipe.

    Args:
        argv: arguments of the command line.
        recipes: prefix of the names of the files of recipes.
        default_type: value of ``--model_type`` if none is given.

    Raises:
        ValueError: if no paper names settings for the model type, or the batch of one device does
            not divide the paper's batch.
    """
    recipe, others = pop_option(argv, "recipe")
    if recipe != "paper":
        return argv  # the parser rejects any other value

    model_type, _ = pop_option(others, "model_type", default_type)
    path = RECIPES / f"{recipes}{model_type}.yaml"
    if not path.exists():
        names = ", ".join(sorted(file.stem for file in RECIPES.glob(f"{recipes}*.yaml")))
        raise ValueError(
            f"--recipe paper: no paper names settings for {path.stem}, only for {names}."
        )
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    if os.environ.get("RANK", "0") == "0":
        source = text.splitlines()[0].lstrip("# ")
        print(f"The paper's settings ({source}): {values}", file=sys.stderr)
    if "batch_size" in values:
        # Rows in a batch of all processes and steps together.
        batch_size = values.pop("batch_size")
        device_batch, _ = pop_option(others, "per_device_train_batch_size", "8")
        rows_at_once = int(str(device_batch)) * int(os.environ.get("WORLD_SIZE", "1"))
        if batch_size % rows_at_once > 0:
            raise ValueError(
                f"The paper's batch of {batch_size} needs a --per_device_train_batch_size that"
                " divides it."
            )
        values["per_device_train_batch_size"] = device_batch
        values["gradient_accumulation_steps"] = batch_size // rows_at_once
    return [*_as_argv(values), *others]


def open_config(model: str, others: Sequence[str] = ()) -> PreTrainedConfig:
    """Opens the configuration of ``--model``.

    Args:
        model: folder or name on the Hub.
        others: further values of ``--model``, for the error.

    Raises:
        ValueError: if there is no such model, or the Hub cannot be reached.
    """
    try:
        return AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        message = (
            f"--model {model!r} cannot be opened ({reason}). Give the folder of a model, or a name"
            " on the Hub and a connection to it."
        )
        if others:
            message += f" It may also be {', '.join(others)}."
        raise ValueError(message) from error


def run_command(main: Callable[[list[str]], None], argv: Sequence[str] | None = None) -> None:
    """Runs a command; errors of its input are printed without a traceback.

    Args:
        main: function that runs the command.
        argv: arguments of the command line (default: those of this process).
    """
    level = logging.WARNING
    if os.environ.get("RANK", "0") == "0":
        level = logging.INFO
    logging.basicConfig(level=level, format="%(message)s")
    if not sys.stderr.isatty():  # no bars in a log file
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
    if argv is None:
        argv = sys.argv[1:]
    try:
        main(list(argv))
    except (ValueError, OSError) as error:
        print(f"error: {readable_text(str(error))}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to resume.", file=sys.stderr)
        sys.exit(130)
