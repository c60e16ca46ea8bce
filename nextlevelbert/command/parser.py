"""The parser of every command: two spellings of an option, and errors that name the nearest one."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

# Words of other programs for options of the commands.
_SYNONYMS = {
    "k": "passages",
    "n": "passages",
    "top": "passages",
    "top_k": "passages",
    "limit": "passages",
    "results": "passages",
    "data": "train_file",
    "input": "train_file",
    "gpu": "device",
    "cuda": "device",
    "cpu": "device",
    "lr": "learning_rate",
}


class Parser(argparse.ArgumentParser):
    """A parser that prints the error first, then a line of usage.

    The help shows one spelling of an option; it may also be written with hyphens.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)
        self._has_options = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parses a command line; an option may be written with hyphens in place of underscores."""
        for name, action in list(self._option_string_actions.items()):
            self._option_string_actions[name.replace("_", "-")] = action
        self._has_options = any(word.startswith("-") for word in args or ())
        return super().parse_known_args(args, namespace)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parses a command line, and names what it does not understand."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self.describe_unknown(unknown))
        return parsed

    def required_arguments(self) -> str:
        """Returns the arguments that must be given, as a line of usage names them."""
        words = []
        for action in self._actions:
            if action.required:
                names = [*action.option_strings[:1], action.metavar or action.dest.upper()]
                words.append(" ".join(map(str, names)))
        return " ".join(words)

    def describe_unknown(self, unknown: Sequence[str]) -> str:
        """Names the options that there are not, each with the nearest one; else the first argument.

        Args:
            unknown: the arguments that no option or position takes.
        """
        names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if names:
            return " ".join(map(self.describe_option, dict.fromkeys(names)))
        return (
            f"There is one argument too many: {unknown[0]!r}. Write an argument that holds spaces"
            " in quotation marks."
        )

    def describe_option(self, name: str) -> str:
        """Says that there is no option of a name, and which one is nearest."""
        return f"There is no option {name}.{nearest(name, self._option_string_actions)}"

    def error(self, message: str) -> NoReturn:
        """Prints an error and the usage, and exits with status 2."""
        if "QUESTION" in message and self._has_options:
            message += '. If the question begins with a hyphen, write -- before it: -- "--option"'
        print(f"error: {message}", file=sys.stderr)
        print(f"{self.format_usage().strip()}; --help describes them", file=sys.stderr)
        raise SystemExit(2)


def pop_option(argv: Sequence[str], name: str, default: str = "") -> tuple[str, list[str]]:
    """Removes an option from a command line; returns its value and the other arguments."""
    parser = Parser(add_help=False)
    parser.add_argument(f"--{name}", nargs="?", default=default, dest="value")
    namespace, others = parser.parse_known_args(argv)
    return namespace.value, others


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns a question that names the word nearest to a wrong one, or an empty text.

    A word of other programs comes first, then a word that begins with the wrong one or has it
    behind an underscore, a word that the wrong one contains, and a word of similar letters.
    """
    choices: dict[str, str] = {}
    for other in names:
        choices.setdefault(plain_name(other), other)
    word = plain_name(name)
    similar = [_SYNONYMS.get(word, "")]
    if len(word) > 1:
        similar += [other for other in choices if other.startswith(word)]
        similar += [other for other in choices if f"_{word}" in other]
    similar += [other for other in choices if len(other) > 3 and other in word]
    similar += difflib.get_close_matches(word, choices, n=1, cutoff=0.7)
    for other in similar:
        if other in choices:
            return f" Did you mean {choices[other]}?"
    return ""


def plain_name(option: str) -> str:
    """Returns the name of an option without hyphens."""
    return option.lstrip("-").replace("-", "_")
