"""The options of ``nextlevelbert plan``."""

from __future__ import annotations

import argparse

from .options import READS, add_model_options, add_source_options

ABOUT = f"""\
Counts tokens, chunks and windows of documents, without encoding them.

{READS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    add_model_options(parser)
