"""The options of ``nextlevelbert map``."""

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
Draws a map of a folder, on which similar documents are close together.

The two axes are principal components of the document vectors.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    add_output_option(parser, "file to write, ending in .png, .svg or .pdf", _picture)
    add_model_options(parser)
    add_cache_option(parser)


def _picture(text: str) -> Path:
    return output_path(text, suffixes=(".png", ".svg", ".pdf"))
