"""Both scripts, stopped at every file operation: started again, they leave the bytes of a straight run."""

from __future__ import annotations

import io
import re
import runpy
import sys
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import pytest

from tests.finetuning_toys import sea_rows, write

from .harness import Outcome, forked
from .runs import differences_after_a_restart, finished, results, states_of_a_kill, straight_run

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
QUIET = "--use_cpu --disable_tqdm true --report_to none --logging_strategy steps --logging_steps 1".split()
STEPS = ["--max_steps", "3", "--save_strategy", "steps", "--save_steps", "1", "--save_total_limit", "1",
         "--eval_strategy", "steps", "--eval_steps", "2", "--validation_share", "0.2"]  # fmt: skip
EPOCHS = ["--num_train_epochs", "3", "--per_device_train_batch_size", "4"]
LORA = ["--lora", "--lora_target_modules", "all-linear"]


def script(name: str, *words: str) -> None:
    """Runs a script in this process; what it says before it exits becomes a part of the error."""
    before, sys.argv = sys.argv, [name, *words]
    try:
        with redirect_stderr(io.StringIO()) as said:
            runpy.run_path(str(ROOT / name), run_name="__main__")
    except SystemExit as end:
        raise SystemExit(f"{end.code}\n{said.getvalue()}") from None
    finally:
        sys.argv = before


def summaries(rows):
    """Documents as sentences, of which every third belongs to the summary."""
    made = []
    for row in rows:
        sentences = [f"{sentence}." for sentence in row["text"].split(". ")[:5]]
        made.append({"id": row["id"], "text": sentences, "summary": " ".join(sentences[::3])})
    return made


@pytest.fixture(scope="module")
def runs(toy_encoder_path, toy_checkpoint, encoder, tmp_path_factory):
    """A call for each kind of run, that trains into a folder."""
    data = tmp_path_factory.mktemp("data")
    rows = {"train": sea_rows(8, 1), "validation": sea_rows(4, 2)}
    pairs = {k: [{"query": row["label"] + row["id"], "document": row["text"]} for row in v] for k, v in rows.items()}
    news = [{"document": [row["text"] for row in sea_rows(3, seed)]} for seed in range(6)]
    fine_tuning = {
        "classification": (rows, toy_checkpoint, ["--task", "classification"]),
        "adapter": (rows, toy_checkpoint, ["--task", "classification", *LORA]),
        "ranking": (pairs, toy_checkpoint, ["--task", "ranking"]),
        "summarization": (
            {name: summaries(values) for name, values in rows.items()}, encoder,
            ["--task", "summarization", "--model_type", "bert-al", "--segment_length", "24",
             "--summary_sentences", "2"],
        ),
    }  # fmt: skip
    pretraining = {
        "masked": [
            "--chunk_encoder", toy_encoder_path, "--chunk_size", "12", "--sequence_length", "12", "--do_train",
            "--train_file", write(data / "books.jsonl", sea_rows(8, 3)), "--corpus_dir", str(data / "corpus"),
            "--per_device_train_batch_size", "2",
        ],
        "cdlm": [
            "--model_type", "cdlm", "--do_train", "--model", encoder, "--max_length", "60", "--warmup_steps", "1",
            "--train_file", write(data / "news.jsonl", news), "--per_device_train_batch_size", "1",
        ],
    }  # fmt: skip
    calls = {}
    for name, words in pretraining.items():
        words = ["run_pretraining.py", *words, *STEPS, *QUIET]
        calls[name] = lambda folder, words=words: script(*words, "--output_dir", str(folder))
    for name, (sets, model, words) in fine_tuning.items():
        files = [
            word for part, v in sets.items() for word in (f"--{part}_file", write(data / f"{name}-{part}.jsonl", v))
        ]
        words = ["run_finetune.py", *words, "--model", model, *files, *EPOCHS, *QUIET]
        calls[name] = lambda folder, words=words: script(*words, "--output_dir", str(folder))
    return calls


@pytest.fixture(scope="module")
def straight(runs, tmp_path_factory):
    """The folder of a run that nothing stopped, and its number of file operations, made once."""
    made = {}

    def straight_of(name: str) -> tuple[Path, int]:
        if name not in made:
            place = tmp_path_factory.mktemp(name)
            made[name] = place / "model", straight_run(runs[name], place)
        return made[name]

    return straight_of


RUNS = {"masked": 2, "cdlm": 5, "classification": 2, "adapter": 5, "ranking": 5, "summarization": 5}


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_is_left_alone(runs, straight, name):
    """Started again it does not even write the same bytes."""
    folder, _ = straight(name)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert forked(lambda: runs[name](folder), folder) == Outcome(False, False, None, operations=0)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(("name", "every"), RUNS.items())
def test_every_kill(runs, straight, name, every, tmp_path):
    states = states_of_a_kill(runs[name], tmp_path / "model")
    assert len(states) > 20
    assert differences_after_a_restart(runs[name], states[::every], results(straight(name)[0]), tmp_path) == {}


@pytest.mark.parametrize("name", ["masked", "classification"])
@pytest.mark.parametrize("how", ["full", "SIGINT", "SIGTERM"])
def test_full_disks_and_signals(runs, straight, name, how, tmp_path):
    folder, operations = straight(name)
    for at in range(3, operations - 2, operations // 4):
        place = tmp_path / f"{at}"
        run = partial(runs[name], place / "model")
        first = forked(run, place, at, how)
        assert not finished(first), (at, first)
        if how == "full":  # told in a sentence
            assert re.search(r"^SystemExit: 1\n(.*\n)*error: .*No space left", first.error or ""), (at, first)
        assert finished(forked(run, place)), at
        assert results(place / "model") == results(folder), at
