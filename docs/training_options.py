"""Describes the options of the trainings for `nextlevelbert_command`, which must not import torch.

    python docs/training_options.py

writes ``nextlevelbert_command/training_options.json``; ``make options`` runs it.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from transformers import HfArgumentParser, TrainingArguments

from nextlevelbert.finetuning import classification, multiple_choice
from nextlevelbert.finetuning.tasks import TASKS
from nextlevelbert.pretraining import pretrain
from nextlevelbert_command.training import DESCRIPTION

TYPES = {int: "int", float: "float"}
# Of transformers' own options, those that the help shows.
HELP = {
    "max_steps": "Number of steps; if it is above 0, it replaces --num_train_epochs.",
    "per_device_train_batch_size": "Batch size per device in training.",
    "per_device_eval_batch_size": "Batch size per device in evaluation.",
    "gradient_accumulation_steps": "Number of batches whose gradients are added up for one step.",
    "bf16": "Train in mixed precision with bfloat16.",
    "seed": "Seed of the training.",
    "use_cpu": "Use the CPU even if there is an accelerator.",
}
RECIPE = {
    "names": ["--recipe"],
    "type": "str",
    "default": argparse.SUPPRESS,
    "help": (
        "Use the settings of the paper on this --model_type; the options that you give override"
        " them."
    ),
    "choices": ["paper"],
}


def fixed_fields(dataclass: type) -> dict[str, str]:
    """The arguments of transformers that are no options here, each with its reason."""
    reasons = {}
    for field in fields(dataclass):
        if "reason" in field.metadata:
            reasons[field.name] = field.metadata["reason"]
    return reasons


def inherited(dataclass: type) -> set[str]:
    """The arguments of transformers that a dataclass does not declare anew."""
    names = {argument.name for argument in fields(TrainingArguments)}
    for base in dataclass.__mro__:
        if base is not TrainingArguments:
            names -= inspect.get_annotations(base).keys()
    return names


def help_of(action: argparse.Action, hidden: set[str]) -> str | None:
    """The help of an option, without the default where it says nothing."""
    if action.help == argparse.SUPPRESS:
        return action.help
    if action.dest in hidden:
        return HELP.get(action.dest, argparse.SUPPRESS)
    if action.const is False:
        return f"Turns off --{action.dest}.%(default).0s"
    if action.default is None:
        return f"{action.help}%(default).0s"  # in place of "(default: None)"
    return action.help


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
    group = HfArgumentParser([dataclass])._action_groups[-1]
    hidden = inherited(dataclass)
    options = []
    for action in group._group_actions:
        if action.dest == "output_dir":  # which the command asks for
            action.default = None
        action.help = help_of(action, hidden)
        action.option_strings = action.option_strings[:1]  # all spellings are accepted
        if action.dest not in hidden or action.help != argparse.SUPPRESS:
            options.append(describe_option(action))
    return {"title": group.title, "options": options, "reasons": fixed_fields(dataclass)}


def end_of_help(classes: Iterable[type]) -> str:
    """The last lines of the help."""
    refused = [f"--{name}" for dataclass in classes for name in fixed_fields(dataclass)]
    return (
        "The other arguments of transformers' TrainingArguments work, except"
        f" {', '.join(refused)}. Options may come from a YAML or JSON file at the beginning:"
        " options.yaml --seed 1"
    )


def describe() -> dict[str, Any]:
    """Describes both commands: groups of options by the name of their dataclass, and the groups of
    each task and model type."""
    groups: dict[str, Any] = {}

    def describe_types(types: Iterable[str], option_groups: Any, about: str) -> dict[str, Any]:
        model_types = {}
        for model_type in types:
            classes = option_groups(model_type)
            for dataclass in classes:
                groups[dataclass.__name__] = describe_group(dataclass)
            model_types[model_type] = [dataclass.__name__ for dataclass in classes]
        return {
            "about": about,
            "epilog": end_of_help(classes),
            "model_types": model_types,
            "options": [RECIPE],
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
