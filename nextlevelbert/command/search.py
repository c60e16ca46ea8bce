"""The options of ``nextlevelbert search``."""

from __future__ import annotations

import argparse

from .options import (
    KEEPS,
    READS,
    add_cache_option,
    add_model_options,
    add_rerank_option,
    add_source_options,
    count,
)

ABOUT = f"""\
Finds the passages and documents of a folder that are nearest to a question.

A passage is a chunk of a document, about half a page, widened to whole sentences. The score of a
passage is the mean of two scores, one by vectors and one by words (BM25). The score of a document
is the mean of its three best passages.

Scores are relative to the folder: a high score is no sign that the passage holds an answer.

{READS}
{KEEPS}"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_source_options(parser)
    parser.add_argument("question", metavar="QUESTION", help="what to look for, in words")
    parser.add_argument(
        "--documents", type=count, default=5, metavar="N", help="documents to show (default: 5)"
    )
    parser.add_argument(
        "--passages", type=count, default=5, metavar="N", help="passages to show (default: 5)"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    add_rerank_option(parser)
    add_model_options(parser)
    add_cache_option(parser)
