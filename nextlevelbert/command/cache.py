"""The options of ``nextlevelbert cache``."""

from __future__ import annotations

import argparse

from .options import add_cache_option, count

ABOUT = """\
Lists what searches keep of folders, and exported encoders, with sizes and ages, and removes them.

After a removal, the next search reads the folder or exports the encoder again.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "--remove",
        metavar="SOURCE",
        help="remove what is kept of this folder, file or pattern, or the export of this encoder",
    )
    parser.add_argument(
        "--remove_unused",
        type=count,
        metavar="DAYS",
        help="remove what was not used for so many days",
    )
    add_cache_option(parser)
