"""Both scripts, stopped at every file operation: started again, they leave the bytes of a straight
run."""

import functools
import io
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from ..toys.finetuning import run_here, sea_rows, write
from .harness import forked, tree

pytestmark = pytest.mark.faults
Run = Callable[[Path], object]
# Files with times in them, and checkpoints, of which a finished run keeps others than one that was
# killed.
TIMED = (
    "all_results.json",
    "eval_results.json",
    "train_results.json",
    "trainer_state.json",
    "result.json",
)
ROOT = Path(__file__).parents[2]
QUIET = "--use_cpu --disable_tqdm true --report_to none --logging_strategy steps --logging_steps 1".split()
STEPS = (
    "--max_steps 3 --save_strategy steps --save_steps 1 --save_total_limit 1"
    " --eval_strategy steps --eval_steps 2 --validation_share 0.2"
)
EPOCHS = "--num_train_epochs 3 --per_device_train_batch_size 4"


def script(name, *argv):
    """Runs a script in this process; what it says before it exits becomes a part of the error."""
    try:
        with redirect_stderr(io.StringIO()) as said:
            run_here(*argv, script=ROOT / name)
    except SystemExit as end:
        raise SystemExit(f"{end.code}\n{said.getvalue()}") from None


def results(folder):
    """What a run leaves, but for checkpoints, copies of vectors to map into memory, and times."""
    files = tree(folder, TIMED).items()
    return {
        name: data for name, data in files if "checkpoint-" not in name and "/.vectors/" not in name
    }


def finished(outcome):
    """Whether a run came to its end by itself, and without an error."""
    return outcome.error is None and not outcome.killed and not outcome.stuck


def states_of_a_kill(run, folder):
    """The output folder before every file operation of a run; those that differ in copied code only
    are one."""
    folder.mkdir()
    assert finished(forked(lambda: run(folder), folder, how="copy"))
    return sorted(folder.with_name(f"{folder.name}-states").iterdir())


def differences_after_a_restart(run, states, expected, place):
    """Starts a run again in copies of folders; by state, its error, or the files that differ from a
    straight run's."""
    different = {}
    for state in states:
        folder = shutil.copytree(
            state, place / state.name / "model"
        )  # the folder's name is in the card
        outcome = forked(lambda folder=folder: run(folder), folder)
        left = results(folder)
        names = [name for name in {**expected, **left} if left.get(name) != expected.get(name)]
        if not finished(outcome) or names:
            different[state.name] = outcome.error or names
        shutil.rmtree(place / state.name)
    return different


@pytest.fixture(scope="module")
def runs(toy_encoder_path, toy_checkpoint, encoder, tmp_path_factory):
    """A call for each kind of run, that trains into a folder."""
    data = tmp_path_factory.mktemp("data")
    calls = {}

    def add(name, program, argv):
        line = [program, *argv.split(), *QUIET]
        calls[name] = lambda folder: script(*line, "--output_dir", str(folder))

    books = write(data / "books.jsonl", sea_rows(8, 3))
    argv = f"--do_train --chunk_encoder {toy_encoder_path} --chunk_size 12 --sequence_length 12"
    argv += f" --train_file {books} --corpus_dir {data}/corpus --per_device_train_batch_size 2"
    add("masked", "run_pretraining.py", f"{argv} {STEPS}")

    for name, model, make, argv in (
        ("classification", toy_checkpoint, list, "--task classification"),
    ):
        train = write(data / f"{name}-train.jsonl", make(sea_rows(8, 1)))
        validation = write(data / f"{name}-validation.jsonl", make(sea_rows(4, 2)))
        files = f"--model {model} --train_file {train} --validation_file {validation}"
        add(name, "run_finetune.py", f"{argv} {files} {EPOCHS}")
    return calls


@pytest.fixture(scope="module")
def straight(runs, tmp_path_factory):
    """The folder of a run that nothing stopped, and its number of file operations, made once.

    Before it comes one in this process, for its forks to have loaded everything.
    """

    @functools.cache
    def straight_of(name):
        place = tmp_path_factory.mktemp(name)
        runs[name](place / "first" / "model")
        outcome = forked(lambda: runs[name](place / "model"), place)
        assert finished(outcome), outcome
        return place / "model", outcome.operations

    return straight_of


# Every second state, shared out among tests that run side by side.
SHARES = [("masked", 0, 4), ("masked", 2, 4)]
SHARES += [("classification", first, 8) for first in range(0, 8, 2)]


@pytest.mark.parametrize(("name", "first", "step"), SHARES)
def test_every_kill(runs, straight, name, first, step, tmp_path):
    states = states_of_a_kill(runs[name], tmp_path / "model")

    assert len(states) > 20
    different = differences_after_a_restart(
        runs[name], states[first::step], results(straight(name)[0]), tmp_path
    )
    assert different == {}


@pytest.mark.parametrize("name", ["masked", "classification"])
@pytest.mark.parametrize("how", ["full", "SIGINT", "SIGTERM"])
def test_full_disks_and_signals(runs, straight, name, how, tmp_path):
    folder, operations = straight(name)
    for at in range(3, operations - 2, operations // 4):
        place = tmp_path / f"{at}"
        run = functools.partial(runs[name], place / "model")
        first = forked(run, place, at, how)
        assert not finished(first), (at, first)
        if how == "full":  # told in a sentence
            assert re.search(r"^SystemExit: 1\n(.*\n)*error: .*No space left", first.error or ""), (
                at,
                first,
            )
        assert finished(forked(run, place)), at
        assert results(place / "model") == results(folder), at
