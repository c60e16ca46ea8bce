"""The CMU Book Summary Corpus (Bamman and Smith, 2013): summaries with the genres of each book.

The corpus has no splits: here the SHA-256 of a book's id puts the book into ``"train"`` (80 %),
``"validation"`` or ``"test"`` (10 % each). Books without a genre are left out and counted.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Unpack

from datasets import Dataset

from ..labelled import ClassOptions, load_classes
from ..tables import Rows, Table, columns_of

logger = logging.getLogger(__name__)

FILE = "booksummaries.txt"
_DIGITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}


def recognises(source: str | Path) -> bool:
    """Returns whether a folder holds the file of the corpus."""
    return (Path(source) / FILE).is_file()


def load(
    source: str | Path, split: str = "train", paired: bool = False, **options: Unpack[ClassOptions]
) -> Dataset:
    """Reads a split.

    Args:
        source: the folder of ``booksummaries.txt``.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        paired: if true, makes one document of every two books, with the genres of both (Paired Book
            Summary of Park et al. 2022).
        **options: options passed on to `load_classes`.

    Returns:
        The columns of `load_classes`, with several labels a row. All genres of the corpus are
        classes.

    Raises:
        ValueError: for another split.
    """
    path = Path(source) / FILE
    if split not in _DIGITS:
        raise ValueError(
            f"{FILE} is split into {', '.join(_DIGITS)} here; give one, got {split!r}."
        )
    rows = _book_rows(path, split)
    if paired:
        rows = _paired_rows(rows)
    table = Table(f"{FILE} ({split})", {}, rows=rows, class_names={"label": genres_of(path)})
    return load_classes(table, **options)


def genres_of(path: Path) -> tuple[str, ...]:
    """Returns all genres of the corpus, which are the classes of each split."""
    names = set()
    for _, row in _all_rows(path):
        names.update(row["label"])
    return tuple(sorted(names))


def _all_rows(path: Path) -> Rows:
    """Yields a row for each book: the first, sixth and seventh of the fields between tabs."""
    for location, fields in columns_of(path, delimiter="\t", count=7):
        genres = {}
        if fields[5]:
            try:
                genres = json.loads(fields[5])
            except json.JSONDecodeError as error:
                raise location.error("genres", f"is not JSON ({error.msg}).") from error
        row = {"id": fields[0], "text": fields[6].strip(), "label": list(genres.values())}
        yield location, row


def _book_rows(path: Path, split: str) -> Rows:
    left_out = 0
    for location, row in _all_rows(path):
        digest = int(hashlib.sha256(row["id"].encode()).hexdigest(), 16)
        if digest % 10 not in _DIGITS[split]:
            continue
        if row["label"]:
            yield location, row
        else:
            left_out += 1
    logger.info("%s, %s: %d books without a genre are left out.", path.name, split, left_out)


def _paired_rows(rows: Rows) -> Rows:
    for location, one in rows:
        _, other = next(rows, (None, None))
        if other is None:
            logger.warning("%s, %s has no partner and is left out.", location.source, location.row)
            return

        row = {
            "id": f"{one['id']}+{other['id']}",
            "text": f"{one['text']}\n{other['text']}",
            "label": list(dict.fromkeys(one["label"] + other["label"])),
        }
        yield location, row
