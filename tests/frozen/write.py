"""Writes the frozen numbers: `python -m tests.frozen.write`. Commit 628dc2e wrote those that are here."""

from __future__ import annotations

import tempfile
from pathlib import Path

from safetensors.torch import save_file

from .cases import CASES, numbers_of

FILE = Path(__file__).with_name("numbers.safetensors")


def main() -> None:
    tensors = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            tensors |= {f"{name}/{key}": v.clone() for key, v in numbers_of(name, Path(folder) / name).items()}
            print(name, flush=True)
    save_file(tensors, FILE)
    print(f"{len(tensors)} tensors, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
