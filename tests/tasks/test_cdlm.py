"""What CDLM's tasks share: options that are refused, sets that are checked, batches."""

from __future__ import annotations

import pytest

from ..finetuning_toys import SCRIPT, refusal, run_here, write
from .test_document_matching import TRAINING, pairs


def test_a_batch_with_labels_for_some_rows_is_refused(processor):
    rows = [processor.cluster(["It rained."]), {**processor.cluster(["Tea."]), "labels": 1}]
    with pytest.raises(ValueError, match="Row 0 of the batch has no labels, but others have"):
        processor.pad(rows)


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("multihop_qa", ["--context", "sentence"], "There is no option --context here"),
        ("coreference", ["--first_column", "a"], "There is no option --first_column here"),
        ("coreference", ["--dataset_name", "x"], "There is no option --dataset_name here"),
        ("coreference", ["--seeds", "1", "1"], "names a seed twice"),
        ("document_matching", ["--prediction_loss_only", "true"], "There is no option --prediction_loss_only here"),
        ("document_matching", ["--test_split", "test"], "is a split of --dataset_name or of a folder"),
        ("coreference", ["--test_split", "test", "--train_file", "."], "add --train_split train"),
        ("coreference", ["--lora_r", "64"], "--lora_r"),
        ("coreference", ["--mentions_at_once", "all", "--negatives_per_positive", "3"], "learns from every pair"),
        ("multihop_qa", ["--dataset_config_name", "y"], "--dataset_config_name needs --dataset_name"),
        ("multihop_qa", ["--label_names", "y"], "There is no option --label_names here"),
        ("multihop_qa", ["--model_type", "bert-al"], "takes --model_type cdlm, not bert-al"),
    ],
)
def test_options_that_do_not_fit_are_refused(capsys, encoder, tmp_path, task, arguments, message):
    options = ["--task", task, "--model", encoder, "--train_file", "x", "--output_dir", str(tmp_path)]
    assert message in refusal(capsys, lambda: run_here(*options, *arguments))


@pytest.mark.parametrize("task", ["coreference", "document_matching", "multihop_qa"])
def test_there_has_to_be_a_training_set(capsys, encoder, task):
    options = ["--model_type", "cdlm", "--task", task, "--model", encoder]
    assert "--train_file" in refusal(capsys, lambda: run_here(*options))


def test_sets_are_looked_at_before_training(run_script, encoder, tmp_path):
    train = pairs(tmp_path, "train.jsonl", 8, 0)
    options = ["--task", "document_matching", "--model", encoder, *TRAINING, "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="The test set is the training set"):
        run_script(SCRIPT, *options, "--train_file", train, "--validation_file", pairs(tmp_path, "v.jsonl", 4, 1),
                   "--test_file", train)  # fmt: skip
    blind = write(tmp_path / "blind.jsonl", [{"text1": "a", "text2": "b"}])
    with pytest.raises(ValueError, match=r"1 rows of the test set blind\.jsonl have no label"):
        run_script(SCRIPT, *options, "--train_file", train, "--test_file", blind)
