"""For modules that are being rewritten; goes with the last of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .rows import find_paths, open_text


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(2**31 - 1)
    with open_text(path, newline="") as file:
        reader = csv.reader(file, strict=True)
        for fields in reader:
            yield reader.line_num, fields


def check_source(source: Any) -> None:
    if source is not None and not find_paths(source):
        raise FileNotFoundError(f"No file or folder {str(source)!r}. Check the path.")
