"""Low-rank adapters (LoRA) in our models, and how they are published."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, get_peft_model

from ..training.trainer import write_whole
from .arguments import LoraArguments


def with_lora(model: Any, options: LoraArguments) -> PeftModel:
    """Adds low-rank adapters to a model; its head is trained whole, and a chunk encoder stays frozen."""
    targets = model.lora_targets()
    if names := options.lora_target_modules:
        targets["target_modules"] = "all-linear" if names == ["all-linear"] else names
    return get_peft_model(model, LoraConfig(r=options.lora_r, lora_alpha=options.lora_alpha, **targets))


@dataclass(frozen=True)
class SavedAdapter:
    """An adapter in the folder of its training, to be published with the tokenizer of its base.

    `base` is the base model's name on the Hub; None for a local folder, whose path means nothing to anyone else.
    """

    folder: Path
    tokenizer: Any
    base: str | None

    def save_pretrained(self, output: Path) -> None:
        """Writes weights, configuration and tokenizer."""
        shutil.copy(self.folder / "adapter_model.safetensors", output)
        adapter = json.loads((self.folder / "adapter_config.json").read_text())
        write_whole(output / "adapter_config.json", json.dumps({**adapter, "base_model_name_or_path": self.base}))
        self.tokenizer.save_pretrained(output)
