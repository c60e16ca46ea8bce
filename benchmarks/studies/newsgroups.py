"""Two tasks from 20 Newsgroups: the group of a post (20 classes), and every level of its name (several labels).

Reads JSON lines with ``id``, ``label`` (the group) and ``text``, a whole post, whose headers end at ``body_start``.
Headers give the group away, so they are left out. Posts without a body are left out, too, and counted. Writes one file
for each split, for `run_finetune.py`: ``label`` is "comp.graphics", ``levels`` is ["comp", "graphics"].

    python -m benchmarks.studies.newsgroups --train_file train.jsonl.gz --test_file validation.jsonl.gz \\
        --output_dir posts
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nextlevelbert.data.rows import file_rows


def prepare(posts: Iterable[dict[str, Any]], per_class: int | None) -> tuple[list[dict[str, object]], int]:
    """Posts without their headers, the first of each group by the order of their hash; and how many had no body."""
    groups: dict[str, list[dict[str, object]]] = defaultdict(list)
    blank = 0
    for post in sorted(posts, key=lambda post: hashlib.sha256(post["id"].encode()).digest()):
        body, group = post["text"][post["body_start"] :].strip(), post["label"]
        blank += not body
        if body and (per_class is None or len(groups[group]) < per_class):
            groups[group].append({"id": post["id"], "text": body, "label": group, "levels": group.split(".")})
    return [row for group in sorted(groups) for row in groups[group]], blank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=Path, required=True)
    parser.add_argument("--test_file", type=Path, required=True)
    parser.add_argument("--per_class", type=int, help="training posts of each group; by default all")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for name, path, per_class in (("train", args.train_file, args.per_class), ("test", args.test_file, None)):
        rows, blank = prepare(file_rows(path), per_class)
        with (args.output_dir / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        groups = len({str(row["label"]) for row in rows})
        print(f"{name}: {len(rows)} posts of {groups} groups; {blank} posts without a body left out")


if __name__ == "__main__":
    main()
