"""CNN/DailyMail (Hermann et al., 2015; See et al., 2017), as on the Hub: news and highlights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value

from ..tables import Table, open_rows

ARTICLE = "article"
HIGHLIGHTS = "highlights"
_FEATURES = Features(
    {"id": Value("string"), "text": Value("large_string"), "summary": Value("large_string")}
)


def recognises(first: Mapping[str, Any]) -> bool:
    """Returns whether the first row of a table is an article of CNN/DailyMail."""
    return first.keys() >= {ARTICLE, HIGHLIGHTS}


def load(source: str | Path | Table, split: str = "train") -> Dataset:
    """Reads a split.

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.

    Returns:
        Columns ``id``, ``text`` and ``summary``, whose lines are the highlights.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    articles: list[dict[str, str]] = []
    for location, values in open_rows(source, split).rows:
        article = {
            "id": str(values.get("id", len(articles))),
            "text": location.require_text(values.get(ARTICLE), ARTICLE),
            "summary": location.require_text(values.get(HIGHLIGHTS), HIGHLIGHTS),
        }
        articles.append(article)
    return Dataset.from_list(articles, features=_FEATURES)
