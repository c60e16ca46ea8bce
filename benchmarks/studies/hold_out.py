"""Sets 20 novels of the training set aside, by a rule that knows nothing about them, for a last
look at the end.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels

Those with the smallest SHA-256 of their id go to ``held_out.jsonl``, the others to ``train.jsonl``:
what the shipped checkpoints are fitted and trained to.
"""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.common.measuring import write_rows
from nextlevelbert.data.tables import open_rows

BOOKS = 20


def held_out_ids(ids: Iterable[str]) -> set[str]:
    """Returns the ids of the novels that are set aside."""
    by_hash = sorted(ids, key=lambda name: hashlib.sha256(str(name).encode()).hexdigest())
    return set(by_hash[:BOOKS])


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with novels/train.jsonl.gz"
    )
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    rows = [row for _, row in open_rows(args.data / "novels/train.jsonl.gz").rows]
    held_out = held_out_ids(row["id"] for row in rows)
    for name, is_held_out in (("held_out", True), ("train", False)):
        chosen = [row for row in rows if (row["id"] in held_out) == is_held_out]
        kept = [{key: row[key] for key in ("id", "title", "text")} for row in chosen]
        write_rows(args.output_dir / f"{name}.jsonl", kept)
        print(f"{name}: {len(chosen)} novels")


if __name__ == "__main__":
    main()
