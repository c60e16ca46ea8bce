"""``--recipe paper``: the settings that the papers name, and what a run has changed of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from .command_line import OptionParser, peek, refuse

# By model type for pretraining, by task and model type for fine-tuning. ``batch_size`` is that of all processes and
# accumulated batches together. What a paper leaves open is not here.
PAPERS: dict[str, dict[str, Any]] = {
    # NextLevelBERT, sections 2.2 and 3.1; dropout and the mean of the loss are those of the authors' code.
    "nextlevelbert": {
        "batch_size": 512, "num_train_epochs": 20, "learning_rate": 1e-4, "lr_scheduler_type": "cosine",
        "warmup_steps": 0.05, "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.01, "attention_dropout": 0.1,
        "sequence_length": 512, "masking_probability": 0.15, "mask_share": 0.8, "random_share": 0.1,
        "objective": "masked", "loss": "smooth_l1", "loss_mean": "sequences", "pooling": "mean",
    },
    # HATE, "Masked Sentence Prediction" and "Document Model"; it names no batch, rate or number of steps.
    "hate": {
        "masking_probability": 0.15, "mask_share": 0.8, "random_share": 0.1, "loss": "p_norm", "chunking": "sentences",
        "sentence_pooling": "cls",
    },
    # CDLM, sections 2.2 (masking, global attention) and 2.3 (steps, length), appendix B; the rest as RoBERTa.
    "cdlm": {
        "batch_size": 64, "max_steps": 25_000, "learning_rate": 3e-5, "lr_scheduler_type": "polynomial",
        "warmup_steps": 500, "adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-6, "weight_decay": 0.01,
        "mlm_probability": 0.15, "global_attention": "masked", "max_length": 4096,
    },
    # NextLevelBERT, section 3.2 and table 2 (five runs).
    "classification nextlevelbert": {"learning_rate": 5e-5, "seeds": [0, 1, 2, 3, 4]},
    "multiple_choice nextlevelbert": {"learning_rate": 5e-5, "seeds": [0, 1, 2, 3, 4], "halve_validation": True},
    # ChunkBERT, section 4.3: one constant Adam for encoder and TextCNN, five runs.
    "classification chunkbert": {
        "batch_size": 8, "num_train_epochs": 20, "learning_rate": 3e-5, "lr_scheduler_type": "constant",
        "warmup_steps": 0, "weight_decay": 0, "chunk_size": 128, "max_training_tokens": 4096,
        "seeds": [0, 1, 2, 3, 4],
    },
    # BERT-AL, "Experiment setting"; 2e-5 is the peak of the schedule of BERTSUM, whose settings it takes over.
    "summarization bert-al": {
        "gradient_accumulation_steps": 2, "max_steps": 50_000, "learning_rate": 2e-5, "lr_scheduler_type": "linear",
        "warmup_steps": 10_000, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-9, "weight_decay": 0,
        "recurrence": "replace", "summary_sentences": 3,
    },
    # CDLM, appendices C.1 to C.3.
    "coreference cdlm": {"batch_size": 128, "num_train_epochs": 10, "mentions_at_once": "pair"},
    "document_matching cdlm": {"batch_size": 32, "num_train_epochs": 8},
    "multihop_qa cdlm": {
        "batch_size": 32, "num_train_epochs": 5, "learning_rate": 1e-4, "warmup_steps": 100,
    },
}  # fmt: skip
# Where each paper names them.
SECTIONS = {
    "nextlevelbert": "NextLevelBERT, sections 2.2 and 3.1; dropout and the mean of the loss: the authors' code",
    "hate": 'HATE, "Masked Sentence Prediction" and "Document Model"',
    "cdlm": "CDLM, sections 2.2 and 2.3, appendix B",
    "classification nextlevelbert": "NextLevelBERT, section 3.2 and table 2",
    "multiple_choice nextlevelbert": "NextLevelBERT, section 3.2 and table 2",
    "classification chunkbert": "ChunkBERT, section 4.3",
    "summarization bert-al": 'BERT-AL, "Experiment setting"',
    "coreference cdlm": "CDLM, appendix C.1",
    "document_matching cdlm": "CDLM, appendix C.2",
    "multihop_qa cdlm": "CDLM, appendix C.3",
}
# What the rest of a recipe takes: with early stopping, a run would not have the length that the paper names.
_BESIDE: dict[str, dict[str, Any]] = {
    "summarization bert-al": {
        "eval_strategy": "steps", "eval_steps": 1000, "save_strategy": "steps", "save_steps": 1000,
        "early_stopping_patience": 50,
    },
    "coreference cdlm": {"early_stopping_patience": 10},
    "document_matching cdlm": {"early_stopping_patience": 8},
    "multihop_qa cdlm": {"early_stopping_patience": 5},
}  # fmt: skip


def offer_recipe(parser: OptionParser, key: str) -> None:
    """Adds ``--recipe`` to the help where the paper names settings."""
    if key in PAPERS:
        parser.add_argument(
            "--recipe", choices=["paper"], help="paper: all settings that the paper names; options beside it win."
        )


def with_recipe(words: Sequence[str], key: str) -> list[str]:
    """The words of a command line, preceded by those of the recipe that they ask for, which is printed.

    Args:
        words: of the command line.
        key: of `PAPERS`.

    Raises:
        SystemExit: where no paper names settings, or no batch of whole examples makes up its batch.
    """
    [asked] = peek(words, "recipe")
    if asked is None:
        return list(words)
    if asked != "paper":
        refuse(f"--recipe is paper, got {asked!r}.")
    if key not in PAPERS:
        refuse(f"No paper names settings for {key.replace(' ', ' with ')}; leave out --recipe. Known: {_known()}.")
    if os.environ.get("RANK", "0") == "0":
        named = ", ".join(f"{name} {_said(value)}" for name, value in PAPERS[key].items())
        print(f"The paper's settings ({SECTIONS[key]}): {named}.", file=sys.stderr)
    recipe = dict(PAPERS[key])
    if total := recipe.pop("batch_size", None):
        given, accumulated = peek(words, "per_device_train_batch_size", "gradient_accumulation_steps")
        size = int(given) if given and given.isdecimal() and int(given) else 8  # the parser refuses anything else
        at_once = size * int(os.environ.get("WORLD_SIZE", "1"))
        if total % at_once and accumulated is None:
            refuse(
                f"The paper's batch of {total} is no multiple of {at_once} (--per_device_train_batch_size times "
                "processes); give one that divides it, or --gradient_accumulation_steps."
            )
        recipe |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": total // at_once}
    found = []
    for name, value in {**recipe, **_BESIDE.get(key, {})}.items():
        found += [f"--{name}", *map(str, value)] if isinstance(value, list) else [f"--{name}={value}"]
    return [*found, *words]


def against_paper(key: str, *options: Any) -> dict[str, str]:
    """For a card: how the options stand to those of the paper; nothing where the paper names none.

    Args:
        key: of `PAPERS`.
        options: what has the values as attributes, the training arguments last; None, or no such attribute, stands
            for the paper's.
    """
    if key not in PAPERS:
        return {}
    args = options[-1]
    batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    changed = []
    for name, paper in PAPERS[key].items():
        found = [getattr(each, name) for each in options if getattr(each, name, None) is not None]
        value = batch if name == "batch_size" else found[0] if found else paper
        value = getattr(value, "value", value)
        if value != paper:
            changed.append(f"{name} {_said(value)} (paper: {_said(paper)})")
    return {"the paper's settings": "all that it names" if not changed else f"but for {', '.join(changed)}"}


def _said(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _known() -> str:
    return ", ".join(key.replace(" ", " with ") for key in PAPERS)
