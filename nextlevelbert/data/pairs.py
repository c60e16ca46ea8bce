"""Reads pairs of documents that are related or not."""

from typing import Any

from datasets import ClassLabel, Dataset, Features, Value

from .tables import Table, short

_FEATURES = Features(
    {
        "id": Value("string"),
        "first": Value("large_string"),
        "second": Value("large_string"),
        "label": ClassLabel(names=["unrelated", "related"]),
    }
)


def load_pairs(
    table: Table,
    first_column: str = "text1",
    second_column: str = "text2",
    label_column: str = "label",
) -> Dataset:
    """Reads pairs of documents, the shortest first.

    Args:
        table: rows with named columns.
        first_column: column of the first documents.
        second_column: column of the second documents.
        label_column: column of the labels, 0 or 1 (or false or true).

    Returns:
        Columns ``id``, ``first``, ``second`` and ``label``, which is 1 for related documents.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    pairs: list[dict[str, Any]] = []
    for location, values in table.rows:
        label = location.column(values, label_column, "--label_column")
        label = {"0": 0, "1": 1}.get(str(label).strip(), label)
        if label not in (0, 1):
            raise location.error(
                label_column, f"must be 0 or 1 (or false or true), got {short(label)}."
            )
        pair = {
            "id": str(values.get("id", f"row-{len(pairs):06d}")),
            "first": location.text(values, first_column, "--first_column"),
            "second": location.text(values, second_column, "--second_column"),
            "label": int(label),
        }
        pairs.append(pair)
    pairs.sort(key=lambda pair: len(pair["first"]) + len(pair["second"]))
    return Dataset.from_list(pairs, features=_FEATURES)
