"""Writes MuLD's character archetypes as rows for `nextlevelbert finetune --task classification`.

In MuLD (Hudson and Al Moubayed, 2022) the first line of ``input`` names a character of a film, and
``output`` says whether the character is a hero or a villain. A row that is written has the columns
``text`` (the rest of the film), ``question`` and ``label``, a list of classes: the class Hero or
none. A classifier of one class that a row has or has not is the paper's: a single output, a
sigmoid with the threshold 0.5, and the F1 of the hero (section 3.2).

A bare name (no "?", at most 6 words) becomes the NextLevelBERT paper's question. This is a rule of
ours, because nothing marks the line; the authors' code uses the line as the name, too, but leaves
it in the document.

    python examples/next_level_bert/prepare_muld.py ghomasHudson/muld train.jsonl \\
        --config "Character Archetype Classification" --split train
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nextlevelbert.command import run_command
from nextlevelbert.data import RowLocation, open_rows

LABELS = {"Villain/Antagonist": [], "Hero": ["Hero"]}
LONGEST_LINE = 200  # characters of a first line
LONGEST_NAME = 6  # words


def character_row(location: RowLocation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the text of a film, the question about a character, and its class."""
    line, _, text = location.require_text(values.get("input"), "input").partition("\n")
    line = line.strip()
    if not line or len(line) > LONGEST_LINE or not text.strip():
        raise location.error(
            "input",
            f"must be a line with the character's name, of at most {LONGEST_LINE} characters, and"
            f" the text of the film below; the first line is {line!r:.60}.",
        )
    question = line
    if "?" not in line and len(line.split()) <= LONGEST_NAME:
        question = f"Is the character {line} behaving like a hero or a villain?"

    output = values.get("output")
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    if not isinstance(output, str) or output not in LABELS:
        raise location.error("output", f"must be {' or '.join(LABELS)}, got {output!r:.60}.")
    return {"text": text, "question": question, "label": LABELS[output]}


def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("source", help="file, or name on the Hub")
    parser.add_argument("output", type=Path, help="JSON lines to write")
    parser.add_argument("--config", help="configuration on the Hub")
    parser.add_argument("--split", default="train", help="split on the Hub")
    args = parser.parse_args(argv)

    # 1. Read and check all characters.
    lines = []
    for location, values in open_rows(args.source, args.split, args.config).rows:
        row = character_row(location, values)
        lines.append(json.dumps(row, ensure_ascii=False))

    # 2. Write a row for each character.
    args.output.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(f"{args.output}: {len(lines)} characters")


if __name__ == "__main__":
    raise SystemExit(run_command(main))
