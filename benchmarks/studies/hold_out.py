"""Sets 20 novels of the training set aside, by a rule that knows nothing about them, for a last look at the end.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels

Those with the smallest SHA-256 of their id go to ``held_out.jsonl``, the others to ``train.jsonl``. What the study of
static encoders trains or fits has seen only the latter (docs/study.md).

The 20 that come next are in ``development.jsonl``, too, and the others of ``train.jsonl`` in ``rest.jsonl``: what is
trained on the rest can be chosen by them.
"""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from benchmarks.common.studies import data_folder
from nextlevelbert.data.rows import file_rows

BOOKS = 20


def in_order(data: Path) -> list[str]:
    """Ids of the training novels by their SHA-256; the first `BOOKS` are set aside."""
    names = [row["id"] for row in file_rows(data / "novels/train.jsonl.gz")]
    return sorted(names, key=lambda name: hashlib.sha256(str(name).encode()).hexdigest())


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=data_folder, required=True, help="folder with novels/")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    rows = list(file_rows(args.data / "novels/train.jsonl.gz"))
    ids = in_order(args.data)
    files = {
        "held_out": ids[:BOOKS],
        "train": ids[BOOKS:],
        "development": ids[BOOKS : 2 * BOOKS],
        "rest": ids[2 * BOOKS :],
    }
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for name, wanted in files.items():
        with open(args.output_dir / f"{name}.jsonl", "w", encoding="utf-8") as file:
            for row in rows:
                if row["id"] in wanted:
                    file.write(json.dumps({key: row[key] for key in ("id", "text")}, ensure_ascii=False) + "\n")
        print(f"{name}: {len(wanted)} novels")


if __name__ == "__main__":
    main()
