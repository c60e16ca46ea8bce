"""The options of ``nextlevelbert embed``."""

from __future__ import annotations

import argparse
from pathlib import Path

from .options import (
    KEEPS,
    READS,
    add_cache_option,
    add_model_options,
    add_output_option,
    add_source_options,
    output_path,
)

ABOUT = f"""\
Writes the vectors of documents or chunks to a Parquet file.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    add_output_option(parser, "file to write, ending in .parquet", _parquet)
    parser.add_argument(
        "--rows",
        choices=("documents", "chunks"),
        default="chunks",
        help="what each row of the file describes (default: chunks)",
    )
    add_model_options(parser)
    add_cache_option(parser)


def _parquet(text: str) -> Path:
    return output_path(text, suffixes=(".parquet",))
