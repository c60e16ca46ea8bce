"""The options of ``nextlevelbert app``."""

from __future__ import annotations

import argparse

from .options import KEEPS, READS, add_cache_option, add_model_options, add_source_options

ABOUT = f"""\
Serves a page with search, a map, and the question's score along each document.

Only this machine can reach the page. It needs Gradio, which the extra 'app' installs.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    add_model_options(parser)
    add_cache_option(parser)
