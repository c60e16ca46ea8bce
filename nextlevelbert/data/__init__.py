"""Reads documents, tables, and rows of labelled tasks."""

from .tables import RowLocation, Table, columns_of, hub_dataset, open_rows

__all__ = [
    "RowLocation",
    "Table",
    "columns_of",
    "hub_dataset",
    "open_rows",
]
