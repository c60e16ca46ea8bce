"""BookSum (Kryściński et al., 2022), as on the Hub (kmfoda/booksum): chapters and summaries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..pairs import load_queries
from ..tables import Table, open_rows

CHAPTER = "chapter"
SUMMARY = "summary_text"
ALL_SPLITS = "train+validation+test"


def recognises(first: Mapping[str, Any]) -> bool:
    """Returns whether the first row of a table is a chapter of BookSum."""
    return first.keys() >= {"bid", "summary_id", CHAPTER, SUMMARY}


def load(
    source: str | Path | Table,
    split: str = ALL_SPLITS,
    query_column: str = CHAPTER,
    document_column: str = SUMMARY,
) -> Dataset:
    """Reads a split: a chapter is the query for its summaries (NextLevelBERT, section 3.2).

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.
        query_column: column of the queries.
        document_column: column of the documents.

    Returns:
        The columns of `load_queries`.
    """
    return load_queries(open_rows(source, split), query_column, document_column)
