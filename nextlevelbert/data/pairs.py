"""Reads pairs of queries and relevant documents."""

from datasets import Dataset, Features, Value

from .tables import Table


def load_queries(
    table: Table, query_column: str = "query", document_column: str = "document"
) -> Dataset:
    """Reads pairs of a query and a relevant document.

    Args:
        table: rows with named columns.
        query_column: column of the queries.
        document_column: column of the documents.

    Returns:
        Columns ``query`` and ``document``.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    pairs = []
    for location, values in table.rows:
        pair = {
            "query": location.text(values, query_column, "--query_column"),
            "document": location.text(values, document_column, "--document_column"),
        }
        pairs.append(pair)
    text = Value("large_string")
    return Dataset.from_list(pairs, features=Features({"query": text, "document": text}))
