"""Recipes against papers.yaml, a table of what their papers name and what they leave open."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nextlevelbert.command.option_files import RECIPES

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted([*RECIPES.glob("*.yaml"), *EXAMPLES.glob("recipes/*.yaml")])
PAPERS = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text())
# Settings of a recipe that no paper has: when to evaluate and save, and when not to stop early.
BESIDE = {"early_stopping_patience", "eval_strategy", "eval_steps", "save_strategy", "save_steps"}
# Every table answers each question, by one of these fields; or the first one is unnamed.
QUESTIONS = (
    ("batch_size", "gradient_accumulation_steps"),
    ("num_train_epochs", "max_steps"),
    ("learning_rate",),
    ("lr_scheduler_type",),
    ("warmup_steps",),
    ("weight_decay",),
    ("adam_beta1",),
    ("adam_beta2",),
    ("adam_epsilon",),
    ("attention_dropout", "keep_attention_dropout"),
    ("seeds",),
)


def settings_of(file: Path) -> dict[str, Any]:
    """Reads the settings that a recipe takes from its paper, with the size of a whole batch."""
    recipe = yaml.safe_load(file.read_text())
    size = recipe.pop("per_device_train_batch_size", None)
    if size is not None:
        recipe["batch_size"] = size * recipe.pop("gradient_accumulation_steps", 1)
    for name in BESIDE:
        recipe.pop(name, None)
    return recipe


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_has_all_that_its_paper_names_and_nothing_else(file):
    assert settings_of(file) == PAPERS[file.stem]["named"]


@pytest.mark.parametrize("paper", PAPERS)
def test_the_table_of_a_paper_leaves_no_question_out(paper):
    named = PAPERS[paper]["named"].keys()
    unnamed = set(PAPERS[paper]["unnamed"])

    for question in QUESTIONS:
        answers = [*named & {*question}, *unnamed & {*question}]
        assert len(answers) == 1, question


def test_there_is_a_recipe_for_every_paper():
    assert {file.stem for file in FILES} == PAPERS.keys()
