"""Writes the ranking task that stands in for MS MARCO here: an answer to a question about a story finds the story.

    python -m benchmarks.studies.squality_ranking --data DATA --output_dir pairs --names_masked
    python run_finetune.py --task ranking --model MODEL --train_file pairs/train.jsonl \\
        --test_file pairs/validation.jsonl --output_dir ranker

Of SQuALITY the 50 training and the 25 validation stories, five questions each with four answers; the best epoch is
chosen on answers to training stories that are held out. With ``--names_masked`` words that are mostly written with a
capital are deleted from answers and stories, since names alone give the story away.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from benchmarks.common.retrieval_tasks import mostly_capitalised, without
from nextlevelbert.data.rows import file_rows


def pairs(stories: list[dict[str, Any]], names_masked: bool) -> list[dict[str, str]]:
    """One row for each answer: the answer as ``query``, its story as ``document``."""
    names = mostly_capitalised(story["text"] for story in stories) if names_masked else set()
    rows = []
    for story in stories:
        text = without(story["text"], names)
        answers = [answer for question in story["questions"] for answer in question["responses"]]
        rows += [{"query": without(answer, names), "document": text} for answer in answers]
    return rows


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with squality/")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--names_masked", action="store_true")
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for split in ("train", "validation"):
        rows = pairs(list(file_rows(args.data / f"squality/{split}.jsonl.gz")), args.names_masked)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (args.output_dir / f"{split}.jsonl").write_text(text)
        print(f"{split}: {len(rows)} answers to {len({row['document'] for row in rows})} stories")


if __name__ == "__main__":
    main()
