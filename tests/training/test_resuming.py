"""A folder belongs to its settings; only whole checkpoints are used; a resumed run ends as a straight one."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from transformers import EarlyStoppingCallback

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.pretraining.arguments import PretrainingArguments
from nextlevelbert.training.resuming import (
    check_settings,
    damage,
    last_whole_checkpoint,
    read_whole,
    store_settings,
    unreadable,
    write_whole,
)

from .test_trainer import Rows, trainer

OURS = {"learning_rate": 0.1, "documents": "a" * 64, "betas": (0.9, 0.98)}


def test_other_settings_are_refused_by_name(tmp_path):
    assert not check_settings(tmp_path, OURS)
    store_settings(tmp_path, OURS)
    assert not check_settings(tmp_path, OURS)
    with pytest.raises(
        ValueError, match=r"other settings \(learning_rate: 0.1 there, 0.2 now, documents: a{12}… there"
    ):
        check_settings(tmp_path, {**OURS, "learning_rate": 0.2, "documents": "b" * 64})
    with pytest.raises(
        ValueError, match=r"betas: \[0.9, 0.98\] there, None now\). Give another --output_dir, or remove"
    ):
        check_settings(tmp_path, {name: OURS[name] for name in ("learning_rate", "documents")})


def test_what_an_older_release_did_not_store_is_told(tmp_path, caplog):
    store_settings(tmp_path, OURS)
    assert not check_settings(tmp_path, {**OURS, "new": 3})
    assert "settings.json does not tell new; taken for the same" in caplog.text


def test_a_run_without_settings_is_gone_on_with_only_for_someone_who_says_so(tmp_path, caplog):
    assert not check_settings(tmp_path, OURS)  # an empty folder
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(ValueError, match=r"settings are lost \(settings.json is missing\).*put {} into "):
        check_settings(tmp_path, OURS)
    (tmp_path / "settings.json").write_text("{}")
    assert not check_settings(tmp_path, OURS)
    assert "settings.json does not tell learning_rate, documents, betas; taken for the same" in caplog.text
    for name in ("train_results.json", "README.md"):
        (tmp_path / name).touch()
    trainer(tmp_path, Rows()).save_model()
    assert check_settings(tmp_path, OURS)  # as it was finished


@pytest.mark.parametrize("content", ["", '{"learning_rate": 0.1,'])
def test_settings_that_are_torn_are_lost_only_where_something_depends_on_them(tmp_path, caplog, content):
    (tmp_path / "settings.json").write_text(content)
    assert not check_settings(tmp_path, OURS)
    assert "settings.json is ignored: settings.json is " in caplog.text
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(ValueError, match=r"whose settings are lost \(settings.json is (empty|cut off or damaged)"):
        check_settings(tmp_path, OURS)


def test_a_finished_run_needs_its_weights(tmp_path, caplog):
    store_settings(tmp_path, OURS, finished=True)
    assert not check_settings(tmp_path, OURS)
    assert "was finished, but model.safetensors is missing; it is made again" in caplog.text
    trainer(tmp_path, Rows()).save_model()
    assert check_settings(tmp_path, OURS)
    with pytest.raises(ValueError, match=r"learning_rate: 0.1 there, 0.3 now"):
        check_settings(tmp_path, {**OURS, "learning_rate": 0.3})


def test_arguments_without_influence_may_differ(tmp_path, monkeypatch):
    # On a processor without bfloat16, bf16 would be put aside and have no influence either.
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    plain = PretrainingArguments(output_dir=str(tmp_path)).training_signature()
    free = {
        "logging_steps": 3,
        "dataloader_num_workers": 2,
        "eval_strategy": "no",
        "save_steps": 7,
        "save_total_limit": 9,
    }
    free |= {"disable_tqdm": True, "hub_model_id": "a/b", "report_to": "none", "eval_on_start": False}
    assert PretrainingArguments(output_dir="elsewhere", **free).training_signature() == plain
    for name, value in {
        "learning_rate": 1.0, "seed": 3, "max_steps": 4, "weight_decay": 0.5, "bf16": True, "adam_beta2": 0.5,
        "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "lr_scheduler_type": "linear",
        "load_best_model_at_end": True, "max_grad_norm": 0.1, "warmup_steps": 3, "num_train_epochs": 2,
    }.items():  # fmt: skip
        changed = PretrainingArguments(output_dir=str(tmp_path), **{name: value}).training_signature()
        assert changed != plain, name
    json.dumps(plain)
    chosen = FinetuningArguments(output_dir=str(tmp_path), eval_steps=5).training_signature()
    assert chosen != FinetuningArguments(output_dir=str(tmp_path)).training_signature()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Six steps in three epochs, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("whole")
    torch.manual_seed(4)
    trainer(folder, Rows(), logging_steps=1).train_to_the_end()
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


NEEDED = ["config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


@pytest.mark.parametrize("name", NEEDED)
@pytest.mark.parametrize("way", ["emptied", "halved", "removed"])
def test_every_file_of_a_checkpoint_counts(copy, name, way, caplog):
    args = trainer(copy, Rows()).args
    assert last_whole_checkpoint(args) == str(copy / "checkpoint-6")
    file = copy / "checkpoint-6" / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2 if way == "halved" else 0])
    if way == "removed":
        file.unlink()
    if (name, way) == ("config.json", "removed"):  # never read
        assert last_whole_checkpoint(args) == str(copy / "checkpoint-6")
        return
    assert last_whole_checkpoint(args) == str(copy / "checkpoint-4")
    word = {"emptied": "is empty", "halved": "is cut off or damaged", "removed": "is missing"}[way]
    assert f"checkpoint-6 is not whole and is ignored: {name} {word}" in caplog.text
    assert "starts anew" not in caplog.text
    for step in (2, 4):
        (copy / f"checkpoint-{step}" / name).unlink(missing_ok=True)
        shutil.rmtree(copy / f"checkpoint-{step}")
    assert last_whole_checkpoint(args) is None
    assert f"There is no whole checkpoint in {copy}: training starts anew." in caplog.text
    with pytest.raises(ValueError, match=f"--resume_from_checkpoint .*checkpoint-6 is not a whole checkpoint: {name}"):
        trainer(copy, Rows(), resume_from_checkpoint=str(copy / "checkpoint-6")).train_to_the_end()


def test_a_flipped_bit_in_the_optimizer_is_seen(copy):
    file = copy / "checkpoint-6" / "optimizer.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    assert "optimizer.pt is" in unreadable(file)


def test_random_states_of_several_processes(copy, caplog):
    args = trainer(copy, Rows()).args
    checkpoint = copy / "checkpoint-6"
    state = (checkpoint / "rng_state.pth").rename(checkpoint / "rng_state_0.pth")
    assert damage(checkpoint, args) == "rng_state.pth is missing"
    shutil.copy(state, checkpoint / "rng_state_1.pth")
    assert damage(checkpoint, args) is None
    assert "was written by 2 process(es) and is read by 1: what is drawn at random" in caplog.text
    shutil.copy(state, checkpoint / "rng_state_3.pth")
    assert damage(checkpoint, args) == "rng_state_2.pth is missing"


def test_a_scaler_an_adapter_and_shards_count_where_they_belong(copy):
    args = trainer(copy, Rows()).args
    checkpoint = copy / "checkpoint-6"
    args.fp16 = True
    assert damage(checkpoint, args) == "scaler.pt is missing"
    args.fp16 = False
    weights = checkpoint / "model.safetensors"
    adapter = weights.rename(checkpoint / "adapter_model.safetensors")
    assert damage(checkpoint, args) == "adapter_config.json is missing"
    (checkpoint / "adapter_config.json").write_text("{}")
    assert damage(checkpoint, args) is None
    adapter.rename(checkpoint / "model-00001-of-00002.safetensors")
    index = {"weight_map": {name: f"model-0000{1 + (name > 'c')}-of-00002.safetensors" for name in "abcde"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert damage(checkpoint, args) == "model-00002-of-00002.safetensors is missing"
    shutil.copy(checkpoint / "model-00001-of-00002.safetensors", checkpoint / "model-00002-of-00002.safetensors")
    assert damage(checkpoint, args) is None


def losses(folder):
    log = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in log if "loss" in entry]


@pytest.mark.parametrize("step", [2, 6])
def test_a_resumed_run_tells_the_loss_and_the_steps_of_all_of_it(whole, copy, step, caplog):
    caplog.set_level("INFO")
    for path in copy.glob("checkpoint-*"):
        if int(path.name.removeprefix("checkpoint-")) > step:
            shutil.rmtree(path)
    trainer(copy, Rows(), logging_steps=1).train_to_the_end()
    assert f"Going on from step {step} of 6." in caplog.text
    found, wanted = (read_whole(folder / "train_results.json")["train_loss"] for folder in (copy, whole))
    assert math.isclose(found, wanted, rel_tol=1e-6)
    assert losses(copy) == losses(whole)


def test_a_run_whose_last_step_is_stored_takes_no_other_one(copy, whole):
    """Neither within an epoch: `Trainer` looks only after a step whether it was the last one."""
    again = trainer(copy, Rows(), max_steps=3, save_steps=1)
    shutil.copytree(copy / "checkpoint-4", copy / "checkpoint-3")
    for step in (2, 4, 6):
        shutil.rmtree(copy / f"checkpoint-{step}")
    state = read_whole(copy / "checkpoint-3" / "trainer_state.json")
    write_whole(copy / "checkpoint-3" / "trainer_state.json", json.dumps({**state, "global_step": 3, "max_steps": 3}))
    again.train_to_the_end()
    assert again.state.global_step == 3
    assert not list(copy.glob("checkpoint-4"))


def evaluated(folder, **options):
    """Keeps the best of evaluations that get worse: the first one."""
    made = trainer(
        folder, Rows(), evaluated=Rows(), eval_strategy="epoch", load_best_model_at_end=True,
        metric_for_best_model="loss", learning_rate=0.5, **options,
    )  # fmt: skip
    made.add_callback(EarlyStoppingCallback(1))
    return made


def test_a_run_that_was_stopped_early_stays_stopped_and_finds_its_best_checkpoint_elsewhere(tmp_path):
    straight = evaluated(tmp_path / "straight")
    straight.train_to_the_end()
    assert straight.state.best_global_step == 2
    assert straight.state.global_step == 4  # of 6
    (tmp_path / "straight").rename(tmp_path / "moved")
    again = evaluated(tmp_path / "moved", restore_callback_states_from_checkpoint=True)
    again.train_to_the_end()
    assert again.state.global_step == 4
    for name, weight in straight.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name
    (tmp_path / "moved" / "checkpoint-2" / "model.safetensors").unlink()
    reason = damage(tmp_path / "moved" / "checkpoint-4", again.args)
    assert reason == "in its best checkpoint, checkpoint-2, model.safetensors is missing"


def test_a_checkpoint_is_written_into_an_empty_folder(tmp_path):
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2" / "rng_state_7.pth").touch()
    trainer(tmp_path, Rows(), max_steps=2).train_to_the_end()
    assert not (tmp_path / "checkpoint-2" / "rng_state_7.pth").exists()
    assert (tmp_path / "checkpoint-2" / "trainer_state.json").exists()


def test_a_file_that_may_not_be_opened_is_not_damaged(tmp_path, monkeypatch):
    """Otherwise training would start anew, over checkpoints that are whole."""
    path = tmp_path / "optimizer.pt"
    path.write_bytes(b"PK")

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(PermissionError):
        unreadable(path)
