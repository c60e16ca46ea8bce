"""What all training shares: epochs of a dataset, our card, checkpoints that were cut off."""

import os
import resource
from pickle import UnpicklingError

import pytest
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, EarlyStoppingCallback, Trainer

from nextlevelbert.models.files import WritingError
from nextlevelbert.training.arguments import BaseTrainingArguments
from nextlevelbert.training.runs import last_whole_checkpoint
from nextlevelbert.training.trainer import CardTrainer


class Rows(Dataset):
    """Eight rows of token ids that say in which epoch they were drawn."""

    def __init__(self):
        self.epoch = 0
        self.drawn = []

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.drawn.append(self.epoch)
        return {"input_ids": torch.tensor([index]), "labels": index % 2}


def trainer(folder, dataset, kind=CardTrainer, evaluated=None, **options):
    torch.manual_seed(0)
    size = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
    }
    model = BertForSequenceClassification(BertConfig(**size, vocab_size=8))
    values = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 4,
        "save_strategy": "epoch",
        **options,
    }
    args = BaseTrainingArguments(str(folder), disable_tqdm=True, use_cpu=True, **values)
    return kind(model, args, train_dataset=dataset, eval_dataset=evaluated)


def weights(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("kind", [CardTrainer, Trainer])
def test_a_dataset_learns_of_every_epoch_also_after_resuming(tmp_path, kind):
    straight = Rows()
    resumed = Rows()
    first = trainer(tmp_path, straight, kind=kind)
    first.train()

    assert straight.drawn == [0] * 8 + [1] * 8 + [2] * 8

    again = trainer(tmp_path, resumed, kind=kind)
    again.train(str(tmp_path / "checkpoint-4"))

    assert resumed.drawn == [2] * 8
    assert torch.equal(weights(first), weights(again))


def test_an_upload_keeps_the_card(tmp_path):
    """`Trainer.push_to_hub` writes a card with this method."""
    (tmp_path / "README.md").write_text("our card")
    trainer(tmp_path, Rows()).create_model_card(model_name="me/model")

    assert (tmp_path / "README.md").read_text() == "our card"


def test_predictions_are_in_the_order_of_the_rows_however_training_sorts_them(tmp_path):
    rows = [{"input_ids": torch.tensor([index]), "labels": index // 4} for index in range(8)]
    sorting = trainer(tmp_path, rows, train_sampling_strategy="group_by_length")

    assert sorting.predict(rows).label_ids.tolist() == [0] * 4 + [1] * 4


def test_a_run_goes_on_from_its_last_whole_checkpoint_and_not_a_step_too_far(tmp_path, caplog):
    straight = trainer(tmp_path, Rows(), max_steps=3)  # the last step lies within an epoch
    straight.train()

    assert last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-3")

    state = tmp_path / "checkpoint-3" / "trainer_state.json"
    written = state.read_text()
    state.write_text(written[:50])

    assert last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert "checkpoint-3" in caplog.text

    state.write_text(written)
    weights_file = (
        tmp_path / "checkpoint-3" / "model.safetensors"
    )  # killed while the checkpoint was removed
    kept = weights_file.read_bytes()
    weights_file.unlink()

    assert last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")

    weights_file.write_bytes(kept)
    rows = Rows()
    again = trainer(tmp_path, rows, max_steps=3)
    again.train(last_whole_checkpoint(tmp_path))

    assert (again.state.global_step, rows.drawn) == (3, [])
    assert torch.equal(weights(straight), weights(again))
    assert last_whole_checkpoint(tmp_path / "nothing") is None


def test_a_run_that_was_stopped_stays_stopped_also_where_its_folder_moved(tmp_path):
    options = {
        "eval_strategy": "epoch",
        "load_best_model_at_end": True,
        "learning_rate": 0.0,
        "num_train_epochs": 6,
        "restore_callback_states_from_checkpoint": True,
    }
    first = trainer(tmp_path / "here", Rows(), evaluated=Rows(), **options)
    first.add_callback(EarlyStoppingCallback(2))
    first.train()

    assert (
        first.state.global_step == 6
    )  # the first evaluation is the best, two follow without progress

    (tmp_path / "here").rename(tmp_path / "moved")
    rows = Rows()
    again = trainer(tmp_path / "moved", rows, evaluated=Rows(), **options)
    again.add_callback(EarlyStoppingCallback(2))
    again.train(last_whole_checkpoint(tmp_path / "moved"))

    assert (again.state.global_step, rows.drawn) == (6, [])
    assert again.state.best_model_checkpoint == str(tmp_path / "moved" / "checkpoint-2")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt"])
def test_a_checkpoint_that_cannot_be_written_is_named_and_removed(tmp_path, name):
    """torch.save says "iostream error" or "unexpected pos 576 vs 534"."""
    trainer(tmp_path / "first", Rows(), max_steps=1, save_strategy="steps", save_steps=1).train()
    [written] = (tmp_path / "first").rglob(name)
    second = trainer(tmp_path / "second", Rows(), max_steps=1, save_strategy="steps", save_steps=1)
    size = written.stat().st_size - 1
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))

    try:
        with pytest.raises(WritingError, match=r"/checkpoint-1 cannot be written: .*Make room"):
            second.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert not (tmp_path / "second" / "checkpoint-1").exists()


class Code:
    """A pickle of it would run a command."""

    def __reduce__(self):
        return (os.system, ("touch pickle-was-run",))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_the_saved_state_of_a_training_runs_no_code(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    trainer(tmp_path, Rows(), num_train_epochs=2).train()
    torch.save({"state": Code()}, tmp_path / "checkpoint-2" / name)
    again = trainer(tmp_path, Rows(), num_train_epochs=2)

    with pytest.raises(UnpicklingError):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert not (tmp_path / "pickle-was-run").exists()
