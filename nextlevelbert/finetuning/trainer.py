"""Until every task is a `Task`: what the older pipelines share."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import set_seed

from ..training.trainer import last_whole_checkpoint
from .legacy import FinetuningArguments


def with_lora(model: Any, r: int, alpha: int, target_modules: Sequence[str]) -> PeftModel:
    """Puts low-rank adapters into a model; what is no encoder (classifier, LSTMs) is trained whole.

    A chunk encoder stays frozen.

    Args:
        model: a model with a head for a task.
        r, alpha: rank and scale.
        target_modules: names (or ends of names) of linear layers, or the one word ``all-linear``.

    Raises:
        ValueError: of peft, if no layer has one of these names.
    """
    targets: Any = "all-linear" if list(target_modules) == ["all-linear"] else list(target_modules)
    settings = LoraConfig(
        r=r,
        lora_alpha=alpha,
        target_modules=targets,
        modules_to_save=model.modules_to_train_whole(),
        exclude_modules=r".*\bchunk_encoder\b.*",  # frozen; adapters there would never learn anything
    )
    return get_peft_model(model, settings)


def copy_adapter(folder: Path, output: Path, tokenizer: Any, local: bool) -> None:
    """Publishes an adapter: weights, configuration and tokenizer.

    Args:
        folder: where training left the adapter.
        output: where it goes.
        tokenizer: of the model that it adapts.
        local: whether that model has no name on the Hub; its path on this machine means nothing to others.
    """
    shutil.copy(folder / "adapter_model.safetensors", output)
    adapter = json.loads((folder / "adapter_config.json").read_text())
    if local:
        adapter["base_model_name_or_path"] = None
    (output / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
    tokenizer.save_pretrained(output)


def count_parameters(model: nn.Module) -> tuple[int, int]:
    """Trainable parameters and all of them."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, trainable in sizes if trainable), sum(size for size, _ in sizes)


def start_seed(
    seed: int, folder: Path, new_model: Callable[[], Any], args: FinetuningArguments
) -> tuple[Any, FinetuningArguments, tuple[int, int], str | None]:
    """What a run in `folder` starts with.

    Returns:
        The model; arguments of the run's own; its `count_parameters`; where it was killed, the checkpoint to go on at.
    """
    set_seed(seed)
    model = new_model()
    args = copy.copy(args)
    args.output_dir, args.seed, args.data_seed = str(folder), seed, seed
    args.push_to_hub = False  # the best seed is published when all are there
    return model, args, count_parameters(model), last_whole_checkpoint(folder)


def run_facts(trainer: Any, trained: Any, parameters: tuple[int, int]) -> dict[str, Any]:
    """What a result tells of its run: seed, counts, duration, learning curve; `trained` is what `train` returned."""
    trainable, total = parameters
    return {
        "seed": trainer.args.seed,
        "trainable_parameters": trainable,
        "parameters": total,
        "steps": trainer.state.global_step,
        "seconds": round(trained.metrics["train_runtime"], 1),
        "curve": [entry for entry in trainer.state.log_history if "loss" in entry or "eval_loss" in entry],
    }
