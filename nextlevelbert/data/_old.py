"""For modules that are being rewritten; goes with the last of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .rows import find_paths, open_text, placed_rows, saved_dataset


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_text(path, newline="\n") as file:
        yield from enumerate(file, start=1)


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)
    with open_text(path, newline="") as file:
        reader = csv.reader(file, strict=True)
        for fields in reader:
            yield reader.line_num, fields


def file_rows(path: Path) -> Iterator[dict[str, Any]]:
    return (row for _, row in placed_rows(path))


def open_saved_dataset(path: Path, split: str) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    return {}, iter(saved_dataset(path, split))


def check_source(source: Any) -> None:
    if source is not None and not find_paths(source):
        raise FileNotFoundError(f"No file or folder {str(source)!r}. Check the path.")


def find_packed(path: Path) -> Path | None:
    packed = path.with_name(f"{path.name}.gz")
    return path if path.exists() else packed if packed.exists() else None


def held_out_count(total: int, share: float, what: str) -> int:
    if not 0 < share < 1 or total < 2:
        raise ValueError(f"Cannot hold out a share of {share} of {total} {what}.")
    return min(max(round(share * total), 1), total - 1)
