"""Names the places of rows of a table, and leaves out columns that hold no text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..messages import short

if TYPE_CHECKING:
    import pyarrow as pa

_MEDIA = "struct<bytes: binary, path: string>"  # as `datasets` stores pictures, sound and video


class RowLocation(NamedTuple):
    """Names the place of a row for errors, such as ``RowLocation("books.jsonl", "line 3")``."""

    source: str
    row: str

    def error(self, column: str, message: str) -> ValueError:
        """Returns an error that names the place of the row and the column."""
        return ValueError(f"{self.source}, {self.row}, column {column!r}: {message}")

    def column(self, values: Mapping[str, Any], column: str, option: str) -> Any:
        """Returns the value of a column.

        Raises:
            ValueError: if the row has no such column.
        """
        if column not in values:
            raise self.error(
                column,
                f"is not among {', '.join(map(str, values))}. Name the right one with {option}.",
            )
        return values[column]

    def text(self, values: Mapping[str, Any], column: str, option: str) -> str:
        """Returns the text of a column; see `column` and `require_text`."""
        return self.require_text(self.column(values, column, option), column)

    def require_text(self, text: Any, column: str) -> str:
        """Returns a value of a column that must be text, and not blank.

        Raises:
            ValueError: for anything but text.
        """
        if not isinstance(text, str) or not text.strip():
            raise self.error(
                column, f"must be text, got {short(text)}. Correct the row, or leave it out."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.error(column, "is not valid Unicode. Correct the row.") from error
        return text


class NoDocumentError(ValueError):
    """Says that a row is no document: it has no column of the text, or no columns at all."""


def without_media(documents: Any, column: str) -> Any:
    """Leaves pictures, sound and video out of a data set of `datasets` that has a column.

    `datasets` opens them when it reads a row, and fetches those that are stored as an address.
    """
    features = getattr(documents, "features", None)
    if not isinstance(features, Mapping) or column not in features:
        return documents  # a column, too, whose features are its type

    return documents.select_columns(columns_without_media(documents.features.arrow_schema))


def columns_without_media(schema: pa.Schema) -> list[str]:
    """Returns all columns but those with pictures, sound or video, perhaps in lists."""
    return [field.name for field in schema if _MEDIA not in str(field.type)]
