"""Arguments that all trainings share."""

import pytest

from ..toys.finetuning import arguments


def test_the_metric_of_the_best_evaluation_is_one_of_its_scores(tmp_path):
    arguments(tmp_path, metric_for_best_model="eval_f1").check_best_metric(["accuracy", "f1"])
    with pytest.raises(ValueError, match="give one of loss, accuracy, f1"):
        arguments(tmp_path, metric_for_best_model="acc").check_best_metric(["accuracy", "f1"])


def test_an_address_is_no_output_folder():
    with pytest.raises(ValueError, match="'s3://bucket/model' is an address, not a path"):
        arguments("s3://bucket/model")
