"""Reads documents, tables, and rows of labelled tasks."""

from .rows import RowLocation
from .tables import Table, columns_of, hub_dataset, open_rows

__all__ = [
    "RowLocation",
    "Table",
    "columns_of",
    "hub_dataset",
    "open_rows",
]
