"""The options that say which CDLM to train."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from ..models.processing_cdlm import CdlmProcessor


@dataclass(kw_only=True)
class CdlmModelArguments:
    """Which model."""

    model: str = field(
        metadata={"help": "A CDLM, a Longformer, or a BERT or RoBERTa to turn into one: folder or name on the Hub."}
    )
    model_type: str = field(
        default="cdlm", metadata={"help": "cdlm; for the others see their own --help.", "choices": ["cdlm"]}
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens in a sequence; default 4096, or as many as a saved model reads."}
    )
    attention_window: int | None = field(
        default=None, metadata={"help": "Tokens that each token sees; default 512, or what a saved model has."}
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "sdpa (default) or eager."})

    @property
    def local(self) -> bool:
        """Whether the model is a folder here."""
        return Path(self.model).exists()

    @property
    def public_name(self) -> str:
        """The model's name in tables and cards: never a path of this machine."""
        return Path(self.model).resolve().name if self.local else self.model

    def load(self, model_class: Any) -> tuple[Any, CdlmProcessor]:
        """The model, opened or made of an encoder, in float32, and its processor.

        Args:
            model_class: of CDLM's.

        Raises:
            ValueError: for a length above what a saved model reads, or what `from_encoder` refuses.
        """
        window = {} if self.attention_window is None else {"attention_window": self.attention_window}
        if AutoConfig.from_pretrained(self.model).model_type in ("cdlm", "longformer"):
            model = model_class.from_pretrained(self.model, dtype=torch.float32, **window)
        else:
            length = 4096 if self.max_length is None else self.max_length
            model = model_class.from_encoder(self.model, max_length=length, **window)
        if self.attn_implementation:
            model.set_attn_implementation(self.attn_implementation)
        return model, CdlmProcessor.from_model(model, self.max_length)
