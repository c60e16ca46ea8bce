"""Arguments that all trainings share."""

import pytest
from transformers import trainer_optimizer

from ..toys.finetuning import arguments


def test_the_metric_of_the_best_evaluation_is_one_of_its_scores(tmp_path):
    arguments(tmp_path, metric_for_best_model="eval_f1").check_best_metric(["accuracy", "f1"])
    with pytest.raises(ValueError, match="give one of loss, accuracy, f1"):
        arguments(tmp_path, metric_for_best_model="acc").check_best_metric(["accuracy", "f1"])


def test_an_address_is_no_output_folder():
    with pytest.raises(ValueError, match="'s3://bucket/model' is an address, not a path"):
        arguments("s3://bucket/model")


@pytest.mark.parametrize("modules", [None, "all-linear"])
def test_an_optimizer_without_its_package_is_refused_before_anything_is_encoded(
    tmp_path, monkeypatch, modules
):
    monkeypatch.setattr(trainer_optimizer, "is_galore_torch_available", lambda: False)

    with pytest.raises(ImportError, match="galore_torch"):
        arguments(tmp_path, optim="galore_adamw", optim_target_modules=modules)


def test_an_optimizer_that_needs_the_model_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_optimizer, "is_lomo_available", lambda: True)

    assert arguments(tmp_path, optim="lomo").optim == "lomo"
