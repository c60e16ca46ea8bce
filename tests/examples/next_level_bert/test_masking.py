"""The rows of NextLevelBERT's Table 4: what is masked, how layers start, and a whole run."""

import pytest
import torch

from nextlevelbert import NextLevelBertForMaskedVectorModeling, load_chunk_encoder

from ...toys.finetuning import sea_rows, write
from ..scripts import load_script

script = load_script("next_level_bert/masking.py")
FAST = "--chunk_size 8 --sequence_length 16 --device_batch 8 --max_steps 1".split()


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    return write(tmp_path_factory.mktemp("books") / "books.jsonl", sea_rows(24, 0))


@pytest.fixture
def made_trainer(monkeypatch):
    """The arguments of the trainer that the script makes, and does not run."""
    made = {}

    class Stopped(Exception):
        pass

    def stop(model, args, **arguments):
        made.update(arguments, model=model, args=args)
        raise Stopped

    def run(*argv):
        with pytest.raises(Stopped):
            script.main(list(argv))
        return made

    monkeypatch.setattr(script, "Trainer", stop)
    return run


def test_a_run_saves_a_model_that_learned(books, toy_encoder_path, tmp_path):
    argv = [books, "--chunk_encoder", toy_encoder_path, "--output_dir", str(tmp_path / "model")]

    scores = script.main([*argv, *FAST])

    model = NextLevelBertForMaskedVectorModeling.from_pretrained(tmp_path / "model")
    assert 0 <= scores["eval_masked_accuracy"] <= 1
    assert scores["eval_loss"] > 0
    assert (model.config.loss, model.config.loss_mean) == ("smooth_l1", "sequences")


def test_the_settings_are_the_papers(books, toy_encoder_path, tmp_path, made_trainer):
    argv = [books, "--chunk_encoder", toy_encoder_path, "--output_dir", str(tmp_path / "model")]

    made = made_trainer(*argv, *FAST)

    args = made["args"]
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 512
    assert (args.num_train_epochs, args.learning_rate, args.weight_decay) == (20, 1e-4, 0.01)
    assert (args.adam_beta1, args.adam_beta2) == (0.9, 0.999)
    assert vars(made["data_collator"]) == {
        "probability": 0.15,
        "mask_share": 0.8,
        "random_share": 0.1,
    }
    assert len(made["eval_dataset"]) == 1  # one of 24 documents
    assert len(made["train_dataset"]) > 20


def test_all_selected_vectors_become_masks(books, toy_encoder_path, tmp_path, made_trainer):
    argv = [books, "--chunk_encoder", toy_encoder_path, "--output_dir", str(tmp_path / "model")]

    made = made_trainer(*argv, *FAST, *"--mask_share 1 --random_share 0 --probability 0.4".split())

    rows = [made["train_dataset"][index] for index in range(len(made["train_dataset"]))]
    batch = made["data_collator"](rows)
    is_mask = batch["special_ids"] == 3
    assert torch.equal(is_mask, batch["mask_positions"])
    share = is_mask.sum() / (len(rows) * 15)
    assert 0.25 < share < 0.5


@pytest.mark.parametrize("option", [[], ["--random_layers"]])
def test_layers_start_as_copies_or_at_random(
    option, books, toy_encoder_path, tmp_path, made_trainer
):
    argv = [books, "--chunk_encoder", toy_encoder_path, "--output_dir", str(tmp_path / "model")]

    made = made_trainer(*argv, *FAST, *option)

    layers = made["model"].base_model.encoder.encoder.layer
    encoder = load_chunk_encoder(toy_encoder_path).encoder.model
    copied = encoder.encoder.layer[0].attention.self.query.weight
    is_copy = torch.equal(layers[0].attention.self.query.weight, copied)
    assert is_copy == (option == [])
