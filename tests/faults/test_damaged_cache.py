"""A vector cache whose file is changed or cut, or that processes share and lose: no wrong vector, no raw error."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert import VectorCache
from nextlevelbert.models.vector_cache import FILE_NAME

from .damage import Tally, damages
from .harness import at_once, forked

KEYS = [hashlib.sha256(str(number).encode()).digest() for number in range(3_000)]
VECTORS = np.random.default_rng(0).normal(size=(3_000, 16)).astype(np.float32)


def use(folder: Path) -> None:
    """Opens, reads all, writes some and reads again; a vector that is found has to be the one that was written.

    One that is not found costs time only: a changed bit in the index of the keys hides a row.
    """
    for _ in range(2):
        with VectorCache(folder) as cache:
            found, vectors = cache.read(KEYS, 16)
            assert (vectors[found] == VECTORS[found]).all(), "WRONG"
            cache.write(KEYS[::7], VECTORS[::7])
            found, vectors = cache.read(KEYS, 16)
            assert (vectors[found] == VECTORS[found]).all(), "WRONG"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with VectorCache(folder) as cache:
        cache.write(KEYS, VECTORS)
    return folder


def damage_cache(whole, work, flips, cuts):
    """Beside bits and cuts: whole stretches of other bytes, as a torn disk leaves them."""
    tally = Tally(None)
    content = (whole / FILE_NAME).read_bytes()
    cases = list(damages(content, flips, cuts))
    draw = np.random.default_rng(1)
    for place in draw.integers(0, len(content), cuts):
        cases.append((f"zeros at {place}", content[:place] + bytes(16_384) + content[place + 16_384 :]))
        cases.append((f"noise at {place}", content[:place] + draw.bytes(512) + content[place + 512 :]))
    for what, damaged in cases:
        folder = shutil.copytree(whole, work / "copy")
        (folder / FILE_NAME).unlink()
        if damaged is not None:
            (folder / FILE_NAME).write_bytes(damaged)
        outcome = forked(lambda folder=folder: use(folder), work)
        if "AssertionError" in str(outcome.error):
            tally.bad.append(f"silent: {what}: {outcome.error}")
        tally.note("cache", what, outcome)
        shutil.rmtree(folder)
    print(tally)
    assert tally.bad == [], str(tally)
    assert tally.counts["cache"]["clear"] > len(cases) // 4, str(tally)


@pytest.mark.long
def test_some_damages(whole, tmp_path):
    damage_cache(whole, tmp_path, 30, 5)


@pytest.mark.faults
def test_many_damages(whole, tmp_path):
    damage_cache(whole, tmp_path, 200, 20)


@pytest.mark.faults
def test_processes_that_share_a_cache_and_are_killed(tmp_path):
    """Ten processes write and read; four of them are killed in the middle of it."""

    def work(number):
        def run():
            draw = np.random.default_rng(number)
            with VectorCache(tmp_path / "cache", max_bytes=2**20) as cache:
                for turn in range(40):
                    some = draw.permutation(3_000)[:200]
                    cache.write([KEYS[index] for index in some], VECTORS[some])
                    if number < 4 and turn == 10 * number:
                        os.kill(os.getpid(), signal.SIGKILL)
                    found, vectors = cache.read(KEYS, 16)
                    assert (vectors[found] == VECTORS[found]).all()
            return number

        return run

    outcomes = at_once([work(number) for number in range(10)], tmp_path)
    assert [outcome.killed for outcome in outcomes] == [True] * 4 + [False] * 6, outcomes
    assert [outcome.value for outcome in outcomes[4:]] == [*range(4, 10)], outcomes
    assert forked(lambda: use(tmp_path / "cache"), tmp_path).error is None
