"""Options: dataclasses from a command line that `nextlevelbert_command` has checked."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import datasets
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, HfArgumentParser, PreTrainedConfig

from ..data.messages import readable_text
from ..models.model_names import full_name
from .runs import HELD_FOLDERS


def option(default: object, help: str, **metadata: object) -> Any:
    """Makes a field of a dataclass of options.

    Args:
        default: default value, or `dataclasses.MISSING` for an option that is required.
        help: text for ``--help``, which adds the default.
        **metadata: further metadata for `HfArgumentParser`, such as ``choices``.
    """
    return field(default=default, metadata={"help": help, **metadata})


def fixed(default: object, reason: str) -> Any:
    """Makes a field that is no option, because a training here decides it."""
    return field(init=False, default=default, metadata={"reason": reason})


def parse(classes: Sequence[type[Any]], argv: Sequence[str]) -> tuple[Any, ...]:
    """Parses a command line into dataclasses, whose `_argument_group_name` is a title in the help.

    Raises:
        ValueError: for an unknown option, and a value that a dataclass refuses.
    """
    parser = HfArgumentParser(classes, allow_abbrev=False)
    return parser.parse_args_into_dataclasses(argv, look_for_args_file=False)


def pop_option(
    argv: Sequence[str], name: str, default: str | None = None
) -> tuple[str | None, list[str]]:
    """Removes an option from a command line; returns its value and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    spellings = [f"--{name}", f"--{name.replace('_', '-')}"]
    parser.add_argument(*spellings, nargs="?", default=default, dest="value")
    namespace, others = parser.parse_known_args(argv)
    return namespace.value, others


def open_config(model: str, others: Sequence[str] = ()) -> PreTrainedConfig:
    """Opens the configuration of ``--model``.

    Raises:
        ValueError: if neither a folder here nor the Hub gives a model of that name.
    """
    try:
        return AutoConfig.from_pretrained(full_name(model))
    except (OSError, ValueError, StrictDataclassError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        message = (
            f"--model {model!r} cannot be opened ({reason}). Give the folder of a model, or a name"
            " on the Hub and a connection to it."
        )
        if others:
            message += f" It may also be {', '.join(others)}."
        raise ValueError(message) from error


def run_command(main: Callable[[list[str]], object], argv: Sequence[str] | None = None) -> None:
    """Runs a command; errors of its input are printed without a traceback."""
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
        with HELD_FOLDERS:
            main(list(argv))
    except (ValueError, OSError, ImportError) as error:  # the package of an option may be missing
        print(f"error: {readable_text(str(error))}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to resume.", file=sys.stderr)
        sys.exit(130)
