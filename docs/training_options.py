"""Describes the options of the trainings for `nextlevelbert_command`, which must not import torch.

    python docs/training_options.py

writes ``nextlevelbert_command/training_options.json``; ``make options`` runs it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from nextlevelbert.finetuning import classification, multiple_choice
from nextlevelbert.finetuning.tasks import TASKS
from nextlevelbert.pretraining import pretrain
from nextlevelbert.training.options import OptionParser, fixed_fields, inherited
from nextlevelbert_command.training import DESCRIPTION

TYPES = {int: "int", float: "float"}


def describe_option(action: argparse.Action) -> dict[str, Any]:
    """The arguments of `add_argument` that make an option again."""
    if action.nargs == 0:
        return {
            "names": [*action.option_strings],
            "type": "flag",
            "action": "store_false",
            "dest": action.dest,
            "default": action.default,
            "help": action.help,
        }
    kind = TYPES.get(action.type, "str")
    if getattr(action.type, "__name__", "") == "string_to_bool":
        kind = "bool"
    described = {
        "names": [*action.option_strings],
        "type": kind,
        "nargs": action.nargs,
        "const": action.const,
        "default": action.default,
        "help": action.help,
    }
    if action.choices is not None:
        described["choices"] = [*action.choices]
    if action.required:
        described["required"] = True
    return {name: value for name, value in described.items() if value is not None}


def describe_group(dataclass: type) -> dict[str, Any]:
    """The options of a dataclass, without those that transformers declares and the help hides."""
    group = OptionParser([dataclass])._action_groups[-1]
    hidden = inherited([dataclass])
    actions = [
        action
        for action in group._group_actions
        if action.dest not in hidden or action.help != argparse.SUPPRESS
    ]
    options = [describe_option(action) for action in actions]
    return {"title": group.title, "options": options, "reasons": fixed_fields([dataclass])}


def describe() -> dict[str, Any]:
    """Describes both commands: groups of options by the name of their dataclass, and the groups of
    each task and model type."""
    groups: dict[str, Any] = {}

    def describe_types(types: Iterable[str], option_groups: Any, about: str) -> dict[str, Any]:
        model_types = {}
        for model_type in types:
            classes = option_groups(model_type)
            parser = OptionParser(classes, about=about, recipes=True)
            for dataclass in classes:
                groups[dataclass.__name__] = describe_group(dataclass)
            model_types[model_type] = [dataclass.__name__ for dataclass in classes]
        recipe = describe_option(parser._option_string_actions["--recipe"])
        return {
            "about": about,
            "epilog": parser.epilog,
            "model_types": model_types,
            "options": [recipe],
        }

    pretraining = describe_types(
        ["nextlevelbert", "hate"], pretrain.option_groups, about=pretrain.ABOUT
    )
    classes = describe_types(
        classification.MODEL_OPTIONS, classification.option_groups, about=classification.ABOUT
    )
    choices = describe_types(
        ["nextlevelbert", "hate"],
        lambda _: multiple_choice.OPTION_GROUPS,
        about=multiple_choice.ABOUT,
    )
    tasks = {"classification": classes, "multiple_choice": choices}
    for name, aim in TASKS.items():
        tasks[name]["aim"] = aim
    return {"groups": groups, "commands": {"pretrain": {"": pretraining}, "finetune": tasks}}


if __name__ == "__main__":
    text = json.dumps(describe(), indent=1, ensure_ascii=False)
    DESCRIPTION.write_text(f"{text}\n", encoding="utf-8")
