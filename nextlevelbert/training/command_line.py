"""The command line of both scripts: grouped help, errors before usage, and options from a YAML or JSON file."""

from __future__ import annotations

import argparse
import copy
import difflib
import dis
import functools
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn, get_type_hints

import yaml
from transformers import HfArgumentParser

_PACKAGE = Path(__file__).parents[1]
_RAISE = dis.opmap["RAISE_VARARGS"]  # what a `raise` statement is compiled to
_FILES = (".yaml", ".yml", ".json")
_ORDER = {title: number for number, title in enumerate(("model", "adapters", "data"))}  # the others follow


def stoppable(main: Callable[[], None]) -> Callable[[], None]:
    """A script's `main` that Ctrl-C ends with one line, and the exit status 130 that shells expect.

    What this package itself raises is told in its own words only, with the exit status 1.
    """

    @functools.wraps(main)
    def run() -> None:
        sys.excepthook = _tell
        try:
            main()
        except KeyboardInterrupt:
            print("\nStopped. Start the same command again: it goes on from what is stored.", file=sys.stderr)
            sys.exit(130)

    return run


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A `sys.excepthook` without a traceback for an error that a `raise` statement of this package has raised.

    Its message says what to do, and one of the system names the file. Others need the traceback.
    """
    assert trace is not None  # it is None for errors that were never raised
    while trace.tb_next:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    ours = Path(code.co_filename).is_relative_to(_PACKAGE) and code.co_code[trace.tb_lasti] == _RAISE
    if isinstance(error, OSError) or (ours and isinstance(error, (ValueError, TypeError, ImportError))):
        print(f"error: {error}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, error.__traceback__)


class _Help(argparse.RawDescriptionHelpFormatter):
    """One spelling of each option (with underscores), and no value where none is needed."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs in (0, "?"):
            return ", ".join(action.option_strings[:1]) or super()._format_action_invocation(action)
        return f"{action.option_strings[0]} {self._format_args(action, action.dest.upper())}"


class OptionParser(HfArgumentParser):
    """An `HfArgumentParser` whose help is short and whose errors say first what is wrong.

    The fields of a dataclass are grouped by the class that declares them: its `_argument_group_name` is their title.
    Those of classes without one (such as `TrainingArguments`) are only named at the end of the help.
    Abbreviated options are refused.

    Args:
        dataclass_types: what the options are made into.
        start: the beginning of the usage line, such as ``run_finetune.py --task ranking``.
        description: what the help begins with.
        others: option classes by the choice that leads to them, such as ``--model_type hate``; an option that only
            they have is answered with that choice.
    """

    def __init__(
        self,
        dataclass_types: Sequence[type[Any]],
        start: str,
        description: str = "",
        others: Mapping[str, Sequence[type[Any]]] | None = None,
    ) -> None:
        self._others = others or {}
        self._brief: list[str] = []
        self._groups: dict[str | None, Any] = {}
        required = [
            f"--{each.name} {each.name.upper()}"
            for kind in dataclass_types
            for each in fields(kind)
            if each.init
            and each.default is MISSING
            and each.default_factory is MISSING
            and f"--{each.name} " not in start
        ]
        super().__init__(
            dataclass_types,
            prog=start.split()[0],
            usage=" ".join([start, *required, "[further options]"]),
            description=description,
            formatter_class=_Help,
            allow_abbrev=False,
        )
        if self._brief:
            names = textwrap.fill(" ".join(self._brief), 110, break_on_hyphens=False)
            self.epilog = f"Also accepted (see TrainingArguments in the transformers documentation):\n{names}"

    def _add_dataclass_arguments(self, dtype: Any) -> None:
        hints = get_type_hints(dtype)
        titles = [group_of(dtype, each.name) for each in fields(dtype) if each.init]
        for title in sorted(dict.fromkeys(titles), key=lambda title: _ORDER.get(title or "", len(_ORDER))):
            if title is not None and title not in self._groups:
                self._groups[title] = self.add_argument_group(title)
        for each in map(copy.copy, fields(dtype)):
            if not each.init:
                continue
            each.type = hints[each.name]
            title = group_of(dtype, each.name)
            if title is None:
                self._brief.append(f"--{each.name}")
                each.metadata = MappingProxyType({**each.metadata, "help": argparse.SUPPRESS})
            self._parse_dataclass_field(self._groups.get(title, self), each)
            opposite = self._option_string_actions.get(f"--no_{each.name}")
            if opposite is not None and opposite.help != argparse.SUPPRESS:
                opposite.help = f"The opposite of --{each.name}."

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}\n{self.format_usage()}For all options: --help", file=sys.stderr)
        raise SystemExit(2)

    def read(self, words: Sequence[str]) -> tuple[Any, ...]:
        """One object for each dataclass; options that do not exist, or whose values are refused, end the program.

        Args:
            words: of the command line, see `words_of`.
        """
        known = self._option_string_actions
        if unknown := [word for word in words if word.startswith("--") and word.split("=")[0] not in known]:
            self.error(" ".join(map(self._about, unknown)))
        if left := self.parse_known_args(words)[1]:
            self.error(f"{left[0]!r} does not belong to any option.")
        try:
            return self.parse_args_into_dataclasses(words, look_for_args_file=False)
        except ValueError as error:
            self.error(str(error))

    def _about(self, word: str) -> str:
        """What to say of an option that is not there."""
        option = word.split("=")[0]
        name = option.lstrip("-").replace("-", "_")
        choices = [
            choice
            for choice, kinds in self._others.items()
            if name in {each.name for kind in kinds for each in fields(kind) if each.init}
        ]
        if choices:
            return f"There is no {option} here; it is an option of {', '.join(choices)}."
        close = difflib.get_close_matches(option, self._option_string_actions, 1)
        return f"There is no option {option} here" + (f"; did you mean {close[0]}?" if close else ".")


def words_of(argv: Sequence[str]) -> list[str]:
    """The words of a command line; a YAML or JSON file at its beginning is replaced by the options that it holds.

    Raises:
        SystemExit: for a file that is missing or holds no options by name.

    Example:
        >>> words_of(["--seeds", "1", "2"])
        ['--seeds', '1', '2']
    """
    if not argv or argv[0].startswith("-"):
        return list(argv)
    path = Path(argv[0])
    if path.suffix not in _FILES:
        refuse(f"{argv[0]!r} does not belong to any option. A file of options must end in {', '.join(_FILES)}.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse(f"{path} cannot be read: {error}")
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        refuse(f"{path} must hold options by name, such as 'seeds: [0, 1]'; got {type(values).__name__}.")
    return [word for name, value in values.items() for word in _words(name, value)] + list(argv[1:])


def _words(name: str, value: object) -> Iterable[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}={json.dumps(value) if isinstance(value, (dict, bool)) else value}"]


def peek(words: Sequence[str], *names: str) -> list[str | None]:
    """The values of some options before the others are looked at; None for one that is not given.

    Example:
        >>> peek(["--task=ranking", "--k", "10"], "task", "model_type")
        ['ranking', None]
    """
    parser = OptionParser((), Path(sys.argv[0]).name)
    for name in names:
        parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}")
    known, _ = parser.parse_known_args([word for word in words if word not in ("-h", "--help")])
    return [getattr(known, name) for name in names]


def refuse(message: str) -> NoReturn:
    """Ends the program with an error and a line of usage."""
    OptionParser((), Path(sys.argv[0]).name).error(message)


def group_of(kind: type, name: str) -> str | None:
    """The title of a dataclass's field in the help; None for fields that are only named at its end."""
    declaring = [cls for cls in kind.__mro__ if name in inspect.get_annotations(cls)]
    titles = [getattr(cls, "_argument_group_name", None) for cls in declaring]
    return next((title for title in reversed(titles) if title is not None), None)
