"""Pretraining, killed at every file operation, on a full disk, by signals, and with damaged checkpoints.

What is started again ends as a straight run, or with a clear refusal.
"""

from __future__ import annotations

import json
import shutil

import pytest

from nextlevelbert.pretraining import cdlm, vectors
from nextlevelbert.pretraining.arguments import NextLevelBertArguments, PretrainingArguments
from nextlevelbert.pretraining.cdlm_arguments import CdlmDataArguments, CdlmModelArguments, CdlmPretrainingArguments
from nextlevelbert.pretraining.corpus_arguments import CorpusArguments
from nextlevelbert.pretraining.objective_arguments import ObjectiveArguments
from tests.golden.inputs import DOCUMENTS, FOLDER

from .harness import at_once, forked
from .runs import (
    again,
    damaged,
    last_with_two_checkpoints,
    results,
    start_again,
    states_of_a_kill,
    tell,
    uninterrupted,
)

QUIET = {"use_cpu": True, "disable_tqdm": True, "report_to": "none", "logging_steps": 1}
STEPS = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, "eval_strategy": "steps"}


def pretrain(folder, **changed):
    args = {"do_train": True, "eval_steps": 2, "per_device_train_batch_size": 2, **STEPS, **QUIET, **changed}
    vectors.run(
        NextLevelBertArguments(chunk_encoder=str(FOLDER / "encoder" / "sentences"), chunk_size=12),
        ObjectiveArguments(sequence_length=12),
        CorpusArguments(corpus_dir=str(FOLDER / "corpus"), validation_share=0.2),
        PretrainingArguments(output_dir=str(folder), **args),
    )


def pretrain_best(folder):
    """The best evaluation is kept: here the first, as the learning rate is far too high."""
    pretrain(folder, learning_rate=0.5, load_best_model_at_end=True, eval_steps=1)


@pytest.fixture(scope="module")
def news(tmp_path_factory):
    path = tmp_path_factory.mktemp("news") / "news.jsonl"
    texts = [document.text for document in DOCUMENTS]
    path.write_text("\n".join(json.dumps({"document": texts[n : n + 3]}) for n in range(len(texts) - 3)))
    return path


@pytest.fixture(scope="module")
def pretrain_cdlm(news):
    def call(folder):
        args = {"eval_steps": 2, "warmup_steps": 1, "per_device_train_batch_size": 1, **STEPS, **QUIET}
        cdlm.run(
            CdlmModelArguments(model=str(FOLDER / "cdlm-masked"), max_length=60),
            CdlmDataArguments(train_file=str(news)),
            CdlmPretrainingArguments(output_dir=str(folder), **args),
        )

    return call


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    return uninterrupted(pretrain, tmp_path_factory.mktemp("straight"))


@pytest.fixture(scope="module")
def states(straight, tmp_path_factory):
    return states_of_a_kill(pretrain, tmp_path_factory.mktemp("killed") / "model")


def test_some_kills(straight, states, tmp_path):
    assert len(states) > 40
    torn = [state for state in states if any(_torn(folder) for folder in state.glob("checkpoint-*"))]
    assert len(torn) > 10  # also such that a checkpoint is being removed
    chosen = [torn[len(torn) // 2], torn[-1], states[-2]]
    assert start_again(pretrain, chosen, results(straight), tmp_path) == {"same": 3}


def _torn(checkpoint):
    return not (checkpoint / "model.safetensors").exists()


@pytest.mark.faults
@pytest.mark.parametrize("best", [False, True])
def test_every_kill(straight, best, tmp_path):
    run = pretrain_best if best else pretrain
    wanted = results(uninterrupted(run, tmp_path / "straight"))
    states = states_of_a_kill(run, tmp_path / "model")
    told = start_again(run, states[:: 3 if best else 1], wanted, tmp_path)
    assert told.keys() == {"same"}


@pytest.mark.faults
def test_every_kill_of_cdlm(pretrain_cdlm, tmp_path):
    wanted = results(uninterrupted(pretrain_cdlm, tmp_path / "straight"))
    states = states_of_a_kill(pretrain_cdlm, tmp_path / "model")
    assert start_again(pretrain_cdlm, states[::3], wanted, tmp_path).keys() == {"same"}


@pytest.mark.faults
@pytest.mark.parametrize("how", ["full", "SIGINT", "SIGTERM", "kill"])
def test_full_disks_and_signals(straight, how, tmp_path):
    told = []
    operations = forked(lambda: pretrain(tmp_path / "count" / "model"), tmp_path / "count").operations
    for at in range(3, operations - 2, operations // 6):
        place = tmp_path / f"{at}"
        first = forked(lambda folder=place / "model": pretrain(folder), place, at, how)
        error = {"full": "No space left", "SIGINT": "KeyboardInterrupt"}.get(how)
        assert error in str(first.error) if error else first.killed, (at, first)
        told.append(again(pretrain, place / "model", results(straight)))
    assert tell(told).keys() == {"same"}


def test_several_runs_in_one_folder(straight, tmp_path, monkeypatch):
    """One trains; the others are told so, or find it finished."""
    monkeypatch.setattr("nextlevelbert.training.resuming._SECONDS_OF_WORKERS", 0.0)
    outcomes = at_once([lambda: pretrain(tmp_path / "model")] * 3, tmp_path)
    refused = [outcome.error for outcome in outcomes if outcome.error]
    assert 1 <= len(refused) <= 2
    assert all(f"Another run is training in {tmp_path / 'model'}. Wait" in error for error in refused), refused
    assert results(tmp_path / "model") == results(straight)


def test_some_damaged_checkpoints(straight, states, tmp_path):
    state, newest = last_with_two_checkpoints(states)
    copies = damaged(state, [f"{newest}/optimizer.pt"], tmp_path)
    assert tell(again(pretrain, folder, results(straight)) for folder in copies) == {"same": 3}


@pytest.mark.faults
def test_damaged_checkpoints(straight, states, tmp_path):
    """Without the checkpoint before, too."""
    state, newest = last_with_two_checkpoints(states)
    files = [f"{newest}/{path.name}" for path in (state / newest).iterdir() if path.suffix != ".py"]
    told = tell(again(pretrain, folder, results(straight)) for folder in damaged(state, files, tmp_path))
    assert told.keys() == {"same"}
    [alone] = [path.name for path in straight.glob("checkpoint-*")]
    begun = shutil.copytree(straight, tmp_path / "begun")
    shutil.copy(state / "settings.json", begun)  # not finished
    files = [f"{alone}/{name}" for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")]
    told = tell(again(pretrain, folder, results(straight)) for folder in damaged(begun, files, tmp_path))
    assert told == {"same": 12}
