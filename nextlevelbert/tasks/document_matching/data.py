"""Document matching: pairs of documents and whether they are related.

As in the benchmark of Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC, S2ORC), is a
document plagiarised from the other (PAN).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data._old import read_csv
from ...data.labels import Labels, all_labelled
from ...data.rows import Place, Rows, open_rows, short

_CITATION = "\x01"
_CSV_COLUMNS = ("label", "first", "second")
_CSV_LABELS = {"0": 0, "1": 1}


@dataclass(frozen=True)
class DocumentPair:
    """Two documents.

    Attributes:
        id: from the column ``id``, else ``"row-000012"``, the number of the row, from 0.
        first, second: the texts. In citation data the first cites, or does not cite, the second.
        label: 1 if they are related, else 0; None where it is not known.
    """

    id: str
    first: str
    second: str
    label: int | None


@dataclass(frozen=True)
class DocumentPairData:
    """A set of pairs: all have a label or none has, and no id comes twice.

    Attributes:
        pairs: in the order of the rows.
        source: what it was read from (without folders).
    """

    pairs: list[DocumentPair]
    source: str

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        return ([pair.id, pair.first, pair.second, pair.label] for pair in self.pairs)


def read_document_pairs(
    source: str | Path,
    first_column: str = "text1",
    second_column: str = "text2",
    label_column: str = "label",
    split: str = "train",
    dataset_config: str | None = None,
) -> DocumentPairData:
    """Reads pairs of documents from named columns, or from files as Zhou et al. have them.

    Those files are ``.csv`` without a header: label, first text, second text, as their published code reads them
    (columns after these are not looked at). The character U+0001, by which they mark places where a paper cites, is
    taken out of the texts; the names of columns mean nothing there.

    Args:
        source: a .jsonl, .json, .parquet or .csv (also .gz), or a dataset on the Hub.
        first_column, second_column: the texts.
        label_column: 0 or 1, or false or true. Without the column, or where all of it is null (or -1 of a
            `ClassLabel`, as in test sets), the labels are None.
        split, dataset_config: of a dataset on the Hub.

    Raises:
        FileNotFoundError: for a file that is not there.
        ValueError: naming row and column, for a blank text, another label, labels in some rows only, a repeated id
            or a line that cannot be read.
    """
    path, unknown = Path(source), False  # whether -1 says that a label is not known
    rows: Rows
    if (path.stem if path.suffix == ".gz" else path.name).endswith(".csv"):
        name, listed = path.name, _csv_rows(path)
        first, rows = listed[0][1], iter(listed)
        label_column, first_column, second_column = _CSV_COLUMNS
    else:
        name, first, rows, class_names = open_rows(source, split, dataset_config)
        unknown = label_column in class_names
    pairs: list[DocumentPair] = []
    labels: Labels = []
    places: dict[str, Place] = {}
    for place, values in rows:
        number = f"row-{len(pairs):06d}" if values.get("id") is None else str(values["id"])
        if number in places:
            raise place.error("id", f"the id {number!r} is taken by {places[number].row}; ids must differ.")
        places[number] = place
        texts = [
            place.checked(place.value(values, column, option), column)
            for column, option in ((first_column, "first_column"), (second_column, "second_column"))
        ]
        label = _label(place, values.get(label_column), label_column, unknown)
        labels.append((place, label))
        pairs.append(DocumentPair(number, texts[0], texts[1], label))
    all_labelled(labels, label_column, first)
    return DocumentPairData(pairs, name)


def _label(place: Place, label: Any, column: str, unknown: bool) -> int | None:
    """A label as 0, 1 or None; `unknown` says that -1 means an unknown one."""
    if label is None or (unknown and label == -1):
        return None
    if not isinstance(label, int) or label not in (0, 1):
        raise place.error(column, f"must be 0 or 1 (or false or true), got {short(label)}.")
    return int(label)


def _csv_rows(path: Path) -> list[tuple[Place, dict[str, Any]]]:
    """Rows of a file of label, first text, second text; blank lines are left out."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    places = ((Place(path.name, f"line {line}"), fields) for line, fields in read_csv(path))
    rows = [(place, _csv_values(place, fields)) for place, fields in places]
    if not rows:
        raise ValueError(f"{path.name} is empty: it has no rows.")
    return rows


def _csv_values(place: Place, fields: list[str]) -> dict[str, Any]:
    if len(fields) < len(_CSV_COLUMNS):
        raise ValueError(
            f"{place} has {len(fields)} columns; a .csv holds label, first text "
            "and second text, without a header. Give named columns as .jsonl or .parquet."
        )
    label, *texts = fields[: len(_CSV_COLUMNS)]
    values = [_CSV_LABELS.get(label.strip(), label), *(text.replace(_CITATION, "") for text in texts)]
    return dict(zip(_CSV_COLUMNS, values, strict=True))
