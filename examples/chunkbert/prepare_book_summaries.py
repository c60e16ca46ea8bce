"""Writes the CMU Book Summary Corpus (Bamman and Smith, 2013) as JSON lines: books with genres.

    python examples/chunkbert/prepare_book_summaries.py booksummaries.txt books
    nextlevelbert finetune --task classification --model_type chunkbert --recipe paper \\
        --model google-bert/bert-base-uncased --label_names_file books/labels.json \\
        --train_file books/train.jsonl --validation_file books/validation.jsonl \\
        --test_file books/test.jsonl --output_dir table

The corpus has no splits: the SHA-256 of a book's id puts the book into `train` (80 %),
`validation` or `test` (10 % each). Books without a genre are left out. `--paired` makes one
document of every two books, with the genres of both (Paired Book Summary of Park et al., 2022).
"""

import hashlib
import json
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nextlevelbert.command import run_command
from nextlevelbert.data import columns_of

SETS = ["train"] * 8 + ["validation", "test"]  # by the last digit of the hash


def main(argv: Sequence[str] | None = None) -> None:
    # 1. The options.
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="booksummaries.txt")
    parser.add_argument("output_dir", type=Path, help="folder for the files to write")
    parser.add_argument("--paired", action="store_true", help="join every two books")
    args = parser.parse_args(argv)
    args.output_dir.mkdir(parents=True, exist_ok=True)

    # 2. The books, set by set.
    sets: dict[str, list[dict[str, Any]]] = {"train": [], "validation": [], "test": []}
    genres: set[str] = set()
    left_out = 0
    for book in read_books(args.file):
        digest = int(hashlib.sha256(book["id"].encode()).hexdigest(), 16)
        genres.update(book["label"])
        if book["label"]:
            sets[SETS[digest % 10]].append(book)
        else:
            left_out += 1
    print(f"{left_out} books have no genre and are left out")

    # 3. A file for each set.
    for name, books in sets.items():
        rows = books
        if args.paired:
            rows = [join(*pair) for pair in zip(books[::2], books[1::2], strict=False)]
            print(f"{name}: {len(books) - 2 * len(rows)} books have no partner and are left out")
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (args.output_dir / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        print(f"{name}: {len(rows)} documents")

    # 4. The classes: the genres of all sets, because the training set lacks some.
    labels = json.dumps(sorted(genres), ensure_ascii=False, indent=0)
    (args.output_dir / "labels.json").write_text(labels, encoding="utf-8")
    print(f"{len(genres)} genres")


def read_books(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the id, the summary and the genres of each book: fields 1, 7 and 6 between tabs."""
    for location, fields in columns_of(path, delimiter="\t", count=7):
        genres = {}
        if fields[5]:
            try:
                genres = json.loads(fields[5])
            except json.JSONDecodeError as error:
                raise location.error("genres", f"is not JSON ({error.msg}).") from error
        yield {"id": fields[0], "text": fields[6].strip(), "label": list(genres.values())}


def join(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Makes one document of two books."""
    return {
        "id": f"{one['id']}+{other['id']}",
        "text": f"{one['text']}\n{other['text']}",
        "label": list(dict.fromkeys(one["label"] + other["label"])),
    }


if __name__ == "__main__":
    raise SystemExit(run_command(main))
