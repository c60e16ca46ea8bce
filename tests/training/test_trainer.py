"""What all training shares: its arguments, the epoch of a dataset, our card, checkpoints that were cut off."""

import pytest
import torch
from torch.utils.data import Dataset
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.pretraining.arguments import PretrainingArguments
from nextlevelbert.pretraining.cdlm_arguments import CdlmPretrainingArguments
from nextlevelbert.training.trainer import BaseTrainingArguments, CardTrainer, open_checkpoint

ALL = [PretrainingArguments, CdlmPretrainingArguments, FinetuningArguments]


class Rows(Dataset):
    """Eight rows of token ids that say in which epoch they were drawn."""

    def __init__(self):
        self.epoch, self.drawn = 0, []

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.drawn.append(self.epoch)
        return {"input_ids": torch.tensor([index]), "labels": index % 2}


def trainer(folder, dataset, card=None, evaluated=None, **options):
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(**size, vocab_size=8))
    args = BaseTrainingArguments(
        str(folder), num_train_epochs=3, per_device_train_batch_size=4, save_strategy="epoch", disable_tqdm=True,
        report_to="none", **options,
    )  # fmt: skip
    return CardTrainer(model, args, train_dataset=dataset, eval_dataset=evaluated, card=card)


def test_a_dataset_learns_of_every_epoch_also_after_resuming(tmp_path):
    straight, resumed = Rows(), Rows()
    trainer(tmp_path / "straight", straight).train_to_the_end()
    assert straight.drawn == [0] * 8 + [1] * 8 + [2] * 8
    trainer(tmp_path / "killed", Rows(), max_steps=4).train_to_the_end()  # two epochs of two steps
    (tmp_path / "killed" / "checkpoint-4").rename(tmp_path / "checkpoint-4")
    again = trainer(tmp_path, resumed)
    again.train_to_the_end()
    assert resumed.drawn == [2] * 8
    assert again.state.global_step == 6


def test_publishing_saves_the_model_and_our_card_and_no_pickle(tmp_path):
    cards = []
    ours = trainer(tmp_path, Rows(), cards.append)
    ours.publish()
    assert cards == [ours]
    assert {"model.safetensors", "config.json"} <= {path.name for path in tmp_path.iterdir()}
    assert not (tmp_path / "README.md").exists()  # only what our card writes
    assert not (tmp_path / "training_args.bin").exists()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("lacking", [False, True])
def test_columns_stay_and_a_machine_without_an_accelerator_may_use_bf16(kind, lacking, tmp_path, monkeypatch):
    monkeypatch.setattr("nextlevelbert.training.precision.lacks_instructions", lambda precision: lacking)
    args = kind(output_dir=str(tmp_path), bf16=True, use_cpu=True)
    assert args.bf16 != lacking
    assert not args.remove_unused_columns
    assert args.hub_strategy == "end"


@pytest.mark.parametrize("kind", ALL)
def test_persistent_workers_would_repeat_their_draws(kind, tmp_path):
    with pytest.raises(ValueError, match="--dataloader_persistent_workers"):
        kind(output_dir=str(tmp_path), dataloader_num_workers=1, dataloader_persistent_workers=True)


def test_loading_is_reported_in_one_line_each_for_new_and_unused_weights(toy_checkpoint, transformers_log):
    with transformers_log.at_level("INFO"):
        open_checkpoint(AutoModelForSequenceClassification, toy_checkpoint)
    assert [record.message for record in transformers_log.records] == ["New weights for toy: classifier (4)."]
