"""Runs a script: its errors are printed without a traceback."""

import logging
import os
import sys
from collections.abc import Callable, Sequence

import datasets
import transformers

from ..messages import readable_text
from .runs import HELD_FOLDERS


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
