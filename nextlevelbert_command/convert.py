"""The options of ``nextlevelbert convert``."""

from __future__ import annotations

import argparse

from .options import new_folder, whole_number

ABOUT = """\
Converts a checkpoint of NextLevelBERT's authors into one of this package."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument(
        "source", metavar="SOURCE", help="folder or Hub name of the authors' checkpoint"
    )
    parser.add_argument(
        "output", metavar="OUTPUT", type=new_folder, help="folder to write, new or empty"
    )
    parser.add_argument(
        "--chunk_encoder",
        metavar="MODEL",
        help="folder or name of the chunk encoder (default: the one that config.json names)",
    )
    parser.add_argument(
        "--chunk_size",
        metavar="N",
        type=whole_number,
        help=(
            "tokens in a chunk (default: the value in config.json); 0 makes each sentence a chunk"
        ),
    )
    parser.add_argument(
        "--revision",
        metavar="NAME",
        help=(
            "version of the checkpoint on the Hub: a branch, a tag, a commit, or a pull request"
            " such as refs/pr/1"
        ),
    )
