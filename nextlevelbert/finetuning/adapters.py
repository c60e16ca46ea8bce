"""Low-rank adapters (LoRA) in our models, and how they are published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

from ..training.resuming import write_whole
from .arguments import LoraOptions


def with_lora(model: Any, options: LoraOptions) -> PeftModel:
    """Adds low-rank adapters to a model; heads and other modules without pretrained weights are trained whole.

    A chunk encoder stays frozen.

    Args:
        model: a model with a head for a task.
        options: rank, scale, and names (or ends of names) of linear layers, or ``all-linear``.

    Raises:
        ValueError: if no layer has one of these names.
    """
    names = options.lora_target_modules
    settings = LoraConfig(
        r=options.lora_r,
        lora_alpha=options.lora_alpha,
        target_modules="all-linear" if names == ["all-linear"] else names,
        modules_to_save=model.modules_to_train_whole(),
        exclude_modules=r".*\bchunk_encoder\b.*",  # frozen; adapters there would never learn anything
    )
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        layers = {name.split(".")[-1] for name in linear if "chunk_encoder" not in name}
        raise ValueError(
            f"--lora_target_modules {' '.join(names)}: this model has no such linear layer outside of its chunk "
            f"encoder. Give all-linear, or some of: {', '.join(sorted(layers))}."
        ) from error


def copy_adapter(folder: Path, output: Path, tokenizer: Any, local: bool) -> None:
    """Publishes an adapter: weights, configuration and tokenizer.

    Args:
        folder: where training stored the adapter.
        output: where it goes.
        tokenizer: of the model that it adapts.
        local: whether that model is a local folder, whose path means nothing to others.
    """
    shutil.copy(folder / "adapter_model.safetensors", output)
    adapter = json.loads((folder / "adapter_config.json").read_text())
    if local:
        adapter["base_model_name_or_path"] = None
    write_whole(output / "adapter_config.json", json.dumps(adapter, indent=2))
    tokenizer.save_pretrained(output)
