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
Writes the vectors of documents or chunks to a file: Parquet, CSV, JSON Lines or NumPy.

Each row has the name of its document and its vector, and for a chunk its characters and its text.
In CSV, the vector has a column for each value. A NumPy file holds the vectors only, in the order of
the rows of the other formats.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    add_output_option(
        parser, "file to write, ending in .parquet, .csv, .jsonl or .npy", _vectors_file
    )
    parser.add_argument(
        "--rows",
        choices=("documents", "chunks"),
        default="chunks",
        help="what each row of the file describes (default: chunks)",
    )
    add_model_options(parser)
    add_cache_option(parser)


def _vectors_file(text: str) -> Path:
    return output_path(text, suffixes=(".parquet", ".csv", ".jsonl", ".npy"))
