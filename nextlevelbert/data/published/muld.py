"""The character archetypes of MuLD (Hudson and Al Moubayed, 2022): heroes and villains of films.

The first line of ``input`` is the question. A bare name (no "?", at most 6 words) becomes the
NextLevelBERT paper's question. This is a rule of ours, because nothing marks that line; the
authors' code uses the line as the name, too, but leaves it in the document.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from datasets import Dataset

from ..labelled import ClassOptions, load_classes
from ..tables import Rows, Table, open_rows

# Classes 0 and 1 in the order of MuLD's original code, so that F1 is the score of the hero.
CLASSES = ("Villain/Antagonist", "Hero")


def recognises(first: Mapping[str, Any]) -> bool:
    """Returns whether the first row of a table has an input with a short first line."""
    if "text" in first or "input" not in first or "output" not in first:
        return False
    line, _ = _first_line(str(first["input"]))
    return line != ""


def load(
    source: str | Path | Table, split: str = "train", **options: Unpack[ClassOptions]
) -> Dataset:
    """Reads a split.

    Args:
        source: table to read, as `open_rows` accepts it.
        split: split to read if the source is a data set; a file is read whole.
        **options: options passed on to `load_classes`.

    Returns:
        The columns of `load_classes`: the text of a film, a question about a character, and one of
        `CLASSES`.
    """
    table = open_rows(source, split)
    characters = table._replace(
        first={"question": ""},
        rows=_character_rows(table.rows),
        class_names={"label": CLASSES},
    )
    return load_classes(characters, **options)


def _first_line(text: str) -> tuple[str, str]:
    """Splits off a first line of at most 200 characters, or nothing."""
    line, end, rest = text.partition("\n")
    is_short_line = end != "" and line.strip() != "" and len(line) <= 200
    if is_short_line:
        return line.strip(), rest
    return "", text


def _character_rows(rows: Rows) -> Rows:
    for location, values in rows:
        line, text = _first_line(location.require_text(values.get("input"), "input"))
        if not line:
            raise location.error(
                "input", "has no short first line with the character's name, as the first row has."
            )
        if "?" not in line and len(line.split()) <= 6:
            line = f"Is the character {line} behaving like a hero or a villain?"

        label = values.get("output")
        if isinstance(label, list) and len(label) == 1:
            label = label[0]
        yield location, {"text": text, "question": line, "label": label}
