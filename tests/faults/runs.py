"""Runs that are killed, started again, and compared with a straight run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from .harness import Outcome, forked, tree

Run = Callable[[Path], object]
# Files with times in them, and checkpoints, of which a finished run keeps others than one that was killed.
TIMED = ("all_results.json", "eval_results.json", "train_results.json", "trainer_state.json", "result.json")


def results(folder: Path) -> dict[str, bytes]:
    """What a run leaves, but for checkpoints, copies of vectors to map into memory, and times."""
    files = tree(folder, TIMED).items()
    return {name: data for name, data in files if "checkpoint-" not in name and "/.vectors/" not in name}


def finished(outcome: Outcome) -> bool:
    """Whether a run came to its end by itself, and without an error."""
    return outcome.error is None and not outcome.killed and not outcome.stuck


def straight_run(run: Run, place: Path) -> int:
    """A run into ``PLACE/model`` that nothing stops; its number of file operations.

    Before it one in this process, for its forks to have loaded everything.
    """
    run(place / "first" / "model")
    outcome = forked(lambda: run(place / "model"), place)
    assert finished(outcome), outcome
    return outcome.operations


def states_of_a_kill(run: Run, folder: Path) -> list[Path]:
    """The output folder before every file operation of a run; those that differ in copied code only are one."""
    folder.mkdir()
    assert finished(forked(lambda: run(folder), folder, how="copy"))
    return sorted(folder.with_name(f"{folder.name}-states").iterdir())


def differences_after_a_restart(run: Run, states: Iterable[Path], expected: dict[str, bytes], place: Path) -> dict:
    """Starts a run again in copies of folders; by state, its error, or the files that differ from a straight run's."""
    different = {}
    for state in states:
        folder = shutil.copytree(state, place / state.name / "model")  # the folder's name is in the card
        outcome = forked(lambda folder=folder: run(folder), folder)
        left = results(folder)
        names = [name for name in {**expected, **left} if left.get(name) != expected.get(name)]
        if not finished(outcome) or names:
            different[state.name] = outcome.error or names
        shutil.rmtree(place / state.name)
    return different
