"""Files that are changed after they were written: the ways to change them, and what came of each."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .harness import forked


def damages(content: bytes, flips: int, cuts: int, seed: int = 0) -> Iterator[tuple[str, bytes | None]]:
    """What can become of a file: single bits flipped, its end cut off, emptied, removed.

    Args:
        content: of the file.
        flips, cuts: how many, at places drawn from `seed`; half of the flips lie in the first kilobyte.
    """
    draw = np.random.default_rng(seed)
    heads = draw.integers(0, min(1024, len(content)), flips // 2)
    for place in [*heads, *draw.integers(0, len(content), flips - flips // 2)]:
        bit = int(draw.integers(8))
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)
    for place in draw.integers(1, len(content), cuts):
        yield f"cut to {place} bytes", content[:place]
    yield "emptied", b""
    yield "removed", None


class Tally:
    """Counts what became of damaged files, by kind of file.

    An outcome is *clear* (an error of this package's that says what is wrong), *same* (the result is that of the
    whole file), *warned* (another result, with a warning), *silent* (another result without one), *raw* (an error from
    inside another library) or *stuck*.
    """

    def __init__(self, expected: Any) -> None:
        self.expected = expected
        self.counts: dict[str, Counter[str]] = {}
        self.bad: list[str] = []

    def note(self, kind: str, what: str, outcome: Any, harmless: bool = False, warned: bool = False) -> str:
        """Sorts one outcome of `forked`.

        Args:
            kind, what: the file, and what was done to it.
            outcome: of the call that reads it.
            harmless: whether another result is no fault.
            warned: whether a warning came with it.
        """
        if outcome.stuck:
            result = "stuck"
        elif outcome.killed or outcome.raw:
            result = "raw"
        elif outcome.error:
            result = "clear"
        else:
            same = harmless or outcome.value == self.expected
            result = "same" if same else "warned" if warned else "silent"
        self.counts.setdefault(kind, Counter())[result] += 1
        if result in ("stuck", "raw", "silent"):
            self.bad.append(f"{result}: {kind} {what}: {outcome.error or outcome.value!r:.300}")
        return result

    def __str__(self) -> str:
        rows = [f"{kind}: {sum(count.values())} tried, {dict(count)}" for kind, count in sorted(self.counts.items())]
        return "\n".join([*rows, *self.bad])


def each_damage(whole: Path, work: Path, names: list[str], flips: int, cuts: int) -> Iterator[tuple[str, str, Path]]:
    """Copies of a folder, in each of which one file is damaged one way: the name, what was done, and the copy."""
    for name in names:
        content = (whole / name).read_bytes()
        for what, damaged in damages(content, flips, cuts):
            folder = shutil.copytree(whole, work / "copy")
            if damaged is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(damaged)
            yield name, what, folder
            shutil.rmtree(folder)


def try_each(read: Callable[[Path], Any], whole: Path, work: Path, names: list[str], flips: int, cuts: int) -> Tally:
    """Damages every file in every way and reads the folder in a fork."""
    tally = Tally(read(whole))
    for name, what, folder in each_damage(whole, work, names, flips, cuts):
        tally.note(name, what, forked(lambda folder=folder: read(folder), work))
    return tally
