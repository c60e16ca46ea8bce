"""Fine-tuning and saving, killed at every file operation, on a full disk, by signals, and with damaged files.

What is started again ends as a straight run, or with a clear refusal.
"""

from __future__ import annotations

import itertools

import pytest

from nextlevelbert import NextLevelBertModel, combine_chunk_encoders, distill_chunk_encoder, load_chunk_encoder
from tests.finetuning_toys import run_here, sea_rows, write
from tests.golden.inputs import DOCUMENTS, FOLDER

from .harness import at_once, forked, tree
from .runs import (
    DAMAGE,
    again,
    damaged,
    last_with_two_checkpoints,
    results,
    start_again,
    states_of_a_kill,
    tell,
    uninterrupted,
)
from .test_damaged_checkpoint import digest

FAST = ["--num_train_epochs", "3", "--per_device_train_batch_size", "4", "--use_cpu", "--disable_tqdm", "true"]
FAST += ["--report_to", "none", "--logging_strategy", "steps", "--logging_steps", "1"]
LORA = ["--lora", "--lora_target_modules", "all-linear"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A call for each task, that fine-tunes into a folder."""
    data = tmp_path_factory.mktemp("data")
    sets = {"train": sea_rows(8, 1), "validation": sea_rows(4, 2)}
    made = {
        "classification": (sets, "nextlevelbert", []),
        "adapter": (sets, "nextlevelbert", LORA),
        "ranking": (
            {name: [{"query": row["label"] + row["id"], "document": row["text"]} for row in rows]
             for name, rows in sets.items()}, "nextlevelbert", [],
        ),
        "summarization": (
            {name: [_summary(row, number) for number, row in enumerate(rows)] for name, rows in sets.items()},
            "bert-al-summarization", ["--label_column", "labels", "--summary_sentences", "2"],
        ),
    }  # fmt: skip
    calls = {}
    for name, (rows, model, options) in made.items():
        words = ["--task", "classification" if name == "adapter" else name, "--model", str(FOLDER / model), *FAST]
        for part, each in rows.items():
            words += [f"--{part}_file", write(data / f"{name}-{part}.jsonl", each)]
        words += [*options, "--cache_dir", str(data / f"{name}-cache")]
        calls[name] = lambda folder, words=words: run_here(*words, "--output_dir", str(folder))
    return calls


def _summary(row, number):
    sentences = [f"{sentence}." for sentence in row["text"].split(". ")[:5]]
    labels = [int(place in (0, number % 4)) for place in range(len(sentences))]
    chosen = " ".join(sentence for sentence, label in zip(sentences, labels, strict=True) if label)
    return {"id": row["id"], "text": sentences, "summary": chosen, "labels": labels}


@pytest.fixture(scope="module")
def classified(runs, tmp_path_factory):
    """A straight run, and every state that a kill would leave of one."""
    place = tmp_path_factory.mktemp("classified")
    straight = uninterrupted(runs["classification"], place)
    return straight, states_of_a_kill(runs["classification"], place / "killed")


def test_some_kills(runs, classified, tmp_path):
    straight, states = classified
    assert len(states) > 40
    # While the last checkpoints of a seed are removed, while the model is published, and with all but the results.
    removing = [state for state in states if (state / "seed-0" / "result.json").exists()][1]
    chosen = [states[len(states) // 3], removing, states[-1]]
    assert start_again(runs["classification"], chosen, results(straight), tmp_path) == {"same": 3}


def torn(runs, straight, names, ways, place):
    """What is told where one of these files of a finished run is damaged."""
    return {
        name: [
            again(runs["classification"], each, results(straight)) for each in damaged(straight, [name], place, ways)
        ]
        for name in names
    }


def test_results_and_settings_that_are_lost(runs, classified, tmp_path):
    """A lost result is made again; where the settings are lost they cannot be compared, which is told."""
    told = torn(runs, classified[0], ("seed-0/result.json", "seed-0/settings.json"), ("removed",), tmp_path)
    assert told == {"seed-0/result.json": ["same"], "seed-0/settings.json": ["clear"]}


@pytest.mark.faults
def test_files_of_a_finished_run_that_are_torn(runs, classified, tmp_path):
    """Without its settings a finished run is refused: they cannot be compared."""
    names = ("seed-0/result.json", "seed-0/model.safetensors", "results.json", "model.safetensors")
    told = torn(runs, classified[0], names, DAMAGE, tmp_path)
    assert told == {name: ["same"] * 3 for name in names}
    told = torn(runs, classified[0], ("seed-0/settings.json",), DAMAGE, tmp_path)
    assert told == {"seed-0/settings.json": ["clear"] * 3}


def test_a_finished_run_is_left_alone(runs, classified):
    straight, _ = classified
    before = {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.is_file()}
    assert forked(lambda: runs["classification"](straight), straight).operations == 0
    assert {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.is_file()} == before


def test_several_runs_in_one_folder(runs, classified, tmp_path, monkeypatch):
    """One trains; the others are told so."""
    monkeypatch.setattr("nextlevelbert.training.resuming._SECONDS_OF_WORKERS", 0.0)
    outcomes = at_once([lambda: runs["classification"](tmp_path / "model")] * 3, tmp_path)
    refused = [outcome.error for outcome in outcomes if outcome.error]
    assert 1 <= len(refused) <= 2
    assert all("Another run is training in" in error for error in refused), refused
    assert results(tmp_path / "model") == results(classified[0])


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "every"), [("classification", 1), ("adapter", 3), ("ranking", 3), ("summarization", 3)]
)
def test_every_kill(runs, name, every, tmp_path):
    wanted = results(uninterrupted(runs[name], tmp_path / "straight"))
    states = states_of_a_kill(runs[name], tmp_path / "model")
    assert start_again(runs[name], states[::every], wanted, tmp_path).keys() == {"same"}


@pytest.mark.faults
@pytest.mark.parametrize("how", ["full", "SIGINT", "SIGTERM"])
def test_full_disks_and_signals(runs, classified, how, tmp_path):
    told, run = [], runs["classification"]
    operations = forked(lambda: run(tmp_path / "count" / "model"), tmp_path / "count").operations
    for at in range(3, operations - 2, operations // 6):
        place = tmp_path / f"{at}"
        first = forked(lambda folder=place / "model": run(folder), place, at, how)
        error = {"full": "No space left", "SIGINT": "SystemExit: 130"}.get(how)
        assert error in str(first.error) if error else first.killed, (at, first)
        told.append(again(run, place / "model", results(classified[0])))
    assert tell(told).keys() == {"same"}


@pytest.mark.faults
@pytest.mark.parametrize("name", ["classification", "adapter", "summarization"])
def test_damaged_checkpoints(runs, name, tmp_path):
    wanted = results(uninterrupted(runs[name], tmp_path / "straight"))
    state, newest = last_with_two_checkpoints(states_of_a_kill(runs[name], tmp_path / "model"), "seed-0")
    folders = [newest, *(["seed-0/best"] if name == "summarization" else [])]
    files = [f"{each}/{path.name}" for each in folders for path in (state / each).iterdir() if path.suffix != ".py"]
    copies = itertools.islice(damaged(state, files, tmp_path), 0, None, 1 if name == "classification" else 2)
    told = tell(again(runs[name], folder, wanted) for folder in copies)
    assert told.keys() == {"same"}


def save(folder):
    NextLevelBertModel.from_pretrained(FOLDER / "nextlevelbert").save_pretrained(folder)


def distil(folder):
    distill_chunk_encoder(FOLDER / "encoder" / "sentences", folder)


def combine(folder):
    part = load_chunk_encoder(FOLDER / "encoder" / "sentences", "golden/encoder")
    combine_chunk_encoders([part, part], [each.text for each in DOCUMENTS], folder, chunk_size=12)


def opened(folder, run):
    """The weights and how a text is read, as one hash."""
    if run is save:
        model = NextLevelBertModel.from_pretrained(folder)
        return digest(model, model.tokenizer)
    source = load_chunk_encoder(folder, "name")
    return digest(source.encoder.model, source.tokenizer) + source.encoder.fingerprint()


@pytest.mark.faults
@pytest.mark.parametrize("run", [save, distil, combine])
def test_saving(run, tmp_path):
    """What a kill leaves opens as what was saved, or not at all; saving again completes it."""
    straight = uninterrupted(run, tmp_path / "straight")
    wanted, whole = opened(straight, run), tree(straight)
    told = []
    for state in states_of_a_kill(run, tmp_path / "model"):
        outcome = forked(lambda folder=state: opened(folder, run), tmp_path)
        kind = "raw" if outcome.raw else "clear" if outcome.error else "same" if outcome.value == wanted else "silent"
        print(state.name, kind, outcome.error)
        told.append(kind)
        assert again(run, state, whole) == "same"
    assert tell(told).keys() == {"clear"}  # the last operation makes it whole
