"""The options of ``nextlevelbert fit``."""

from __future__ import annotations

import argparse

from .options import READS, add_device_option, add_output_option, add_source_options, new_folder

ABOUT = f"""\
Fits a model to a folder, without training: whitened token vectors and TF-IDF.

The model opens like any other: nextlevelbert app my_books --model my-model

{READS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    add_output_option(parser, "folder to write, new or empty", new_folder)
    parser.add_argument(
        "--model",
        help=(
            "folder or name of the sentence encoder to start from; minilm is short for"
            " all-MiniLM-L6-v2 (default: the installed one, which is static)"
        ),
    )
    add_device_option(parser)
