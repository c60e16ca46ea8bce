"""EURLEX-57K (Chalkidis et al., 2019): laws of the EU with the list of their EUROVOC concepts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from datasets import Dataset

from ..labelled import ClassOptions, load_classes
from ..tables import Rows, Table, open_rows

COLUMNS = {"celex_id", "concepts", "header", "recitals", "main_body"}


def recognises(first: Mapping[str, Any]) -> bool:
    """Returns whether the first row of a table is a law of EURLEX-57K."""
    return first.keys() >= COLUMNS


def load(
    source: str | Path | Table,
    split: str = "train",
    inverted: bool = False,
    **options: Unpack[ClassOptions],
) -> Dataset:
    """Reads a split.

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.
        inverted: if true, moves header and recitals, which carry most of the information, behind
            the main body (Inverted-EURLEX of Park et al. 2022, which the ChunkBERT paper uses).
        **options: options passed on to `load_classes`.

    Returns:
        The columns of `load_classes`, with several labels a row.
    """
    table = open_rows(source, split)
    laws = table._replace(rows=_law_rows(table.rows, inverted=inverted))
    return load_classes(laws, **options)


def _law_rows(rows: Rows, *, inverted: bool) -> Rows:
    for location, values in rows:
        absent = COLUMNS - values.keys()
        if absent:
            raise location.error(min(absent), "is missing, unlike in the first row.")

        body = values["main_body"]
        if not isinstance(body, list):
            body = [body]
        if inverted:
            parts = [*body, values["recitals"], values["header"]]
        else:
            parts = [values["header"], values["recitals"], *body]
        stripped = [part.strip() for part in parts if isinstance(part, str)]
        text = " ".join(filter(None, stripped))
        yield location, {"id": values["celex_id"], "text": text, "label": values["concepts"]}
