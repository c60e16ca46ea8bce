"""Options of pretraining: the papers' recipes, and combinations that are refused."""

from __future__ import annotations

import re

import pytest

from nextlevelbert.pretraining.arguments import HateArguments, NextLevelBertArguments, PretrainingArguments
from nextlevelbert.pretraining.cdlm_arguments import CdlmDataArguments, CdlmPretrainingArguments


def test_the_recipe_of_nextlevelbert_is_the_default(tmp_path):
    args = PretrainingArguments(output_dir=str(tmp_path))
    assert (args.learning_rate, args.weight_decay, args.warmup_steps) == (1e-4, 0.01, 0.05)
    assert (args.adam_beta1, args.adam_beta2, args.lr_scheduler_type) == (0.9, 0.999, "cosine")
    assert (args.num_train_epochs, args.eval_strategy, args.save_strategy) == (20, "epoch", "epoch")


def test_the_recipe_of_cdlm_is_the_default(tmp_path):
    args = CdlmPretrainingArguments(output_dir=str(tmp_path))
    assert (args.max_steps, args.learning_rate, args.warmup_steps) == (25_000, 3e-5, 500)
    assert args.per_device_train_batch_size * args.gradient_accumulation_steps == 64
    assert (args.lr_scheduler_type.value, args.lr_scheduler_kwargs) == ("polynomial", {"power": 3.0})
    linear = CdlmPretrainingArguments(output_dir=str(tmp_path), lr_scheduler_type="linear")
    assert not linear.lr_scheduler_kwargs


def test_a_warmup_that_never_ends_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--warmup_steps 500 leaves none of --max_steps 500 for the decay"):
        CdlmPretrainingArguments(output_dir=str(tmp_path), max_steps=500)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residual_start": 1.0}, "--residual_start needs --pooling residual"),
        ({"residual_start": 0.0, "pooling": "mean"}, "--residual_start needs --pooling residual"),
        ({"model": "some/model", "whiten_chunks": True}, "--whiten_chunks is for new models"),
    ],
)
def test_options_of_nextlevelbert_that_exclude_each_other(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        NextLevelBertArguments(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give the documents with either --train_file or --dataset_name"),
        ({"train_file": "a", "dataset_name": "b"}, "Give the documents with either --train_file or --dataset_name"),
        ({"train_file": "a", "validation_split": "b"}, "--validation_split is a split of --dataset_name"),
        ({"dataset_name": "a", "validation_split": "b", "validation_file": "c"}, "either --validation_file or --val"),
    ],
)
def test_documents_of_cdlm_that_are_not_given_once(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CdlmDataArguments(**options)


def test_only_what_was_given_reaches_the_model():
    """What is left out is the model's own default."""
    assert NextLevelBertArguments().given("chunk_size", "loss", "pooling", "temperature") == {}
    assert HateArguments(hidden_size=8).given("hidden_size", "chunking") == {"hidden_size": 8}
    assert NextLevelBertArguments(temperature=0.0).given("temperature") == {"temperature": 0.0}
