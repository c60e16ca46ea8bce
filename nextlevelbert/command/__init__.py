"""The command `nextlevelbert`, whose work is in `command`, and the start of scripts.

Importing this package loads nothing else, so that Ctrl-C ends the command without a traceback also
while its modules are imported.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main", "run_command"]


def main(argv: list[str] | None = None) -> int:
    """Runs the sub-command of a command line; see `run_command`."""

    def run(argv: list[str]) -> None:
        from . import command

        command.run(argv)

    return run_command(run, argv)


def run_command(work: Callable[[list[str]], object], argv: list[str] | None = None) -> int:
    """Runs a command or script; an error of its input is printed in one line.

    Args:
        work: the command, which is called with the arguments.
        argv: the arguments (default: those of this process).

    Returns:
        The exit status.
    """
    if argv is None:
        argv = sys.argv[1:]
    if sys.stdout is None:  # closed by the program that starts this one
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe on Windows may know few characters
        sys.stdout.reconfigure(errors="replace")
    try:
        work(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to continue.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `nextlevelbert search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError, MemoryError, ImportError) as error:  # an extra may be missing
        from ..messages import readable_text

        message = str(error) or "There is not enough memory for these documents and this model."
        print(f"error: {readable_text(message)}", file=sys.stderr)
        return 1
    return 0
