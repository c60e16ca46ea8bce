"""Writes EURLEX-57K (Chalkidis et al., 2019) as JSON lines: laws with their concepts.

    python examples/chunkbert/prepare_eurlex.py dataset eurlex
    nextlevelbert finetune --task classification --model_type chunkbert --recipe paper \\
        --model google-bert/bert-base-uncased --label_names_file eurlex/labels.json \\
        --train_file eurlex/train.jsonl --validation_file eurlex/validation.jsonl \\
        --test_file eurlex/test.jsonl --output_dir table

`dataset` is the unpacked archive, whose folders `train`, `dev` and `test` hold a JSON file for each
law. `--inverted` puts the main body first (Inverted-EURLEX of Park et al., 2022): header and
recitals carry most of the information.
"""

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextlevelbert.command import run_command
from nextlevelbert.data import RowLocation, open_rows

FOLDERS = {"train": "train", "validation": "dev", "test": "test"}
COLUMNS = ("celex_id", "concepts", "header", "recitals", "main_body")


def main(argv: Sequence[str] | None = None) -> None:
    # 1. The options.
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path, help="folder with the folders train, dev and test")
    parser.add_argument("output_dir", type=Path, help="folder for the files to write")
    parser.add_argument("--inverted", action="store_true", help="put the main body first")
    args = parser.parse_args(argv)
    args.output_dir.mkdir(parents=True, exist_ok=True)

    # 2. A file for each set, with a row for each law.
    concepts: set[str] = set()
    for name, folder in FOLDERS.items():
        rows = []
        for location, law in open_rows(args.dataset / folder / "*.json").rows:
            row = law_row(location, law, inverted=args.inverted)
            rows.append(json.dumps(row, ensure_ascii=False))
            concepts.update(row["label"])
        (args.output_dir / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
        print(f"{name}: {len(rows)} laws")

    # 3. The classes: the concepts of all sets, because the training set lacks some.
    labels = json.dumps(sorted(concepts), indent=0)
    (args.output_dir / "labels.json").write_text(labels, encoding="utf-8")
    print(f"{len(concepts)} concepts")


def law_row(location: RowLocation, law: dict[str, Any], *, inverted: bool) -> dict[str, Any]:
    """Makes a row of a law: its id, its text, and the list of its concepts."""
    for column in COLUMNS:
        if column not in law:
            raise location.error(column, "is missing. Give the files as they are published.")

    body = law["main_body"]
    if not isinstance(body, list):
        body = [body]
    parts = [law["header"], law["recitals"], *body]
    if inverted:
        parts = [*body, law["recitals"], law["header"]]
    stripped = [part.strip() for part in parts if isinstance(part, str)]
    text = " ".join(filter(None, stripped))
    return {"id": law["celex_id"], "text": text, "label": law["concepts"]}


if __name__ == "__main__":
    raise SystemExit(run_command(main))
