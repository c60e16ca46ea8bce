"""The options and the opening of a model, which CDLM's scripts share."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoConfig, HfArgumentParser, TrainingArguments

from nextlevelbert import CdlmProcessor, model_path


def about(text: str, default: Any = None) -> Any:
    """Returns a field of a dataclass of options with its help; `MISSING` marks a required one."""
    return field(default=default, metadata={"help": text})


@dataclass(kw_only=True)
class CdlmArguments:
    """Names the model to start from."""

    model: str = about(
        "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder, name on the Hub, or"
        " minilm.",
        default=MISSING,
    )
    recipe: str | None = about("YAML file of options; options of the command line override it.")
    max_length: int | None = about(
        "Most tokens in a sequence (default: 4096, or as many as a saved model reads)."
    )
    attention_window: int | None = about(
        "Number of tokens that a token attends to, half of them on either side (default: 512, or"
        " the value of a saved model)."
    )


@dataclass(kw_only=True)
class ThreeSetsArguments(CdlmArguments):
    """Options of a task with a training, a validation and a test set."""

    train_file: str = about("Rows to train on.", default=MISSING)
    validation_file: str | None = about("Rows to evaluate on during training.")
    test_file: str = about("Rows to report on.", default=MISSING)


def parse_arguments(
    options_class: type[CdlmArguments], argv: Sequence[str] | None = None
) -> tuple[Any, TrainingArguments]:
    """Reads a command line into the options of a script and transformers' `TrainingArguments`.

    Args:
        options_class: dataclass of the script's own options.
        argv: arguments of the command line (default: those of this process).
    """
    if argv is None:
        argv = sys.argv[1:]
    recipe_parser = ArgumentParser(add_help=False, allow_abbrev=False)
    recipe_parser.add_argument("--recipe")
    recipe = recipe_parser.parse_known_args(argv)[0].recipe

    words = []
    if recipe is not None:
        for name, value in yaml.safe_load(Path(recipe).read_text(encoding="utf-8")).items():
            if isinstance(value, dict | bool):
                words.append(f"--{name}={json.dumps(value)}")
            else:
                words.append(f"--{name}={value}")

    parser = HfArgumentParser((options_class, TrainingArguments), allow_abbrev=False)
    options, args = parser.parse_args_into_dataclasses([*words, *argv], look_for_args_file=False)
    args.remove_unused_columns = False  # the collators choose the columns
    return options, args


def open_cdlm(model_class: type[Any], options: CdlmArguments) -> tuple[Any, CdlmProcessor]:
    """Opens a saved CDLM or Longformer, or makes a CDLM from a BERT or RoBERTa.

    Returns:
        The model in float32, and its processor.
    """
    sizes = {}
    if options.attention_window is not None:
        sizes["attention_window"] = options.attention_window

    name = model_path(options.model)
    if AutoConfig.from_pretrained(name).model_type in ("cdlm", "longformer"):
        model = model_class.from_pretrained(name, dtype=torch.float32, **sizes)
    else:
        if options.max_length is not None:
            sizes["max_length"] = options.max_length
        model = model_class.from_encoder(name, **sizes)
    return model, CdlmProcessor.from_model(model, max_length=options.max_length)
