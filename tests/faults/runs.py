"""Runs of training that are killed, starved and damaged, started again, and compared with a straight run."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from .harness import Outcome, forked, tree

Run = Callable[[Path], object]
# Files with times in them, and checkpoints, of which a finished run keeps others than one that was killed.
TIMED = ("all_results.json", "eval_results.json", "train_results.json", "trainer_state.json", "result.json")
DAMAGE: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "removed": lambda path: path.unlink(),
}


def results(folder: Path) -> dict[str, bytes]:
    """What a run leaves, but for checkpoints and times."""
    return {name: data for name, data in tree(folder, TIMED).items() if "checkpoint-" not in name}


def ended(outcome: Outcome) -> bool:
    """Whether a run came to its end by itself, and without an error."""
    return outcome.error is None and not outcome.killed and not outcome.stuck


def again(run: Run, folder: Path, straight: dict[str, bytes]) -> str:
    """How starting a run once more ends: the same as a straight run, clear refusal, raw, silent or stuck."""
    outcome = forked(lambda: run(folder), folder)
    if outcome.stuck:
        return "stuck"
    if not ended(outcome):
        return f"raw: {outcome.error}" if outcome.raw else "clear"
    found = results(folder)
    different = [name for name in {**straight, **found} if found.get(name) != straight.get(name)]
    return f"silent: {different}" if different else "same"


def tell(told: Iterable[str]) -> Counter[str]:
    """Counts of what `again` said; shown by ``pytest -rP``."""
    counted = Counter(told)
    print(f"tried {counted.total()}: {dict(counted)}")
    return counted


def states_of_a_kill(run: Run, folder: Path) -> list[Path]:
    """The output folder before every file operation of a run; those that differ in copied code only are one."""
    folder.mkdir()
    assert ended(forked(lambda: run(folder), folder, how="copy"))
    return sorted(folder.with_name(f"{folder.name}-states").iterdir())


def damaged(folder: Path, names: Iterable[str], place: Path, ways: Iterable[str] = DAMAGE) -> Iterable[Path]:
    """Copies of an output folder, one after the other, in each of which one file is damaged in one way."""
    for name in names:
        for way in ways:
            copy = shutil.copytree(folder, place / f"{way}-{name.replace('/', '-')}" / "model")
            DAMAGE[way](copy / name)
            yield copy
            shutil.rmtree(copy)


def uninterrupted(run: Run, place: Path) -> Path:
    """The folder of a run that nothing stops. First one in this process, for its forks to have loaded everything."""
    run(place / "first" / "model")
    assert ended(forked(lambda: run(place / "model"), place))
    return place / "model"


def start_again(run: Run, states: Iterable[Path], wanted: dict[str, bytes], place: Path) -> Counter[str]:
    """Starts a run again in copies of folders; a copy keeps the name of the folder, which is in the card."""
    told = []
    for state in states:
        told.append(again(run, shutil.copytree(state, place / state.name / "model"), wanted))
        print(state.name, told[-1])
        shutil.rmtree(place / state.name)
    return tell(told)


def last_with_two_checkpoints(states: Iterable[Path], seed: str = "") -> tuple[Path, str]:
    """A state with two whole checkpoints side by side, and the place of the newer one."""
    for state in reversed(list(states)):
        # Each has the files of the other, the last of them written.
        files = [tree(path) for path in sorted(state.joinpath(seed).glob("checkpoint-*"))]
        if len(files) == 2 and files[0].keys() == files[1].keys() and files[1].get("trainer_state.json"):
            return state, str(max(state.joinpath(seed).glob("checkpoint-*")).relative_to(state))
    raise AssertionError("no state has two whole checkpoints")
