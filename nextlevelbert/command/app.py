"""The options of ``nextlevelbert app``."""

from __future__ import annotations

import argparse

from .options import (
    KEEPS,
    READS,
    add_cache_option,
    add_model_options,
    add_rerank_option,
    add_source_options,
    whole_number,
)

ABOUT = f"""\
Serves a page that searches a folder and shows the passages in their texts.

Only this machine can reach the page, unless --host says otherwise. The page needs Starlette, which
the extra 'app' installs.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help=(
            "address to listen on; at 0.0.0.0, everyone who can reach this machine can read the"
            " documents (default: 127.0.0.1)"
        ),
    )
    parser.add_argument(
        "--port",
        type=whole_number,
        metavar="N",
        help="port to listen on (default: the first free one from 7860)",
    )
    add_rerank_option(parser)
    add_model_options(parser)
    add_cache_option(parser)
