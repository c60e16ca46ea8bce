"""What the configurations of ChunkBERT and BERT-AL share."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
import copy
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .pretrained import hidden_dropout, usable_positions


@strict
class TokenDocumentConfig(PreTrainedConfig):
    """Fields of models around one encoder that reads the token ids of whole documents piece by piece."""

    sub_configs_defaults = {"encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    _auto_class = "AutoConfig"

    encoder_config: Any = None  # a configuration, a dictionary of one, or None for BERT's defaults
    max_training_tokens: int | None = None
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None  # transformers looks for these two when it warns of padding without a mask
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.encoder_config = copy.deepcopy(self.encoder_config)  # it may belong to a model in use
        self.encoder_config._name_or_path = ""  # otherwise a path of this machine is published
        if self.classifier_dropout is None:
            self.classifier_dropout = hidden_dropout(self.encoder_config)
        self.check()

    @property
    def hidden_size(self) -> int:
        """Dimensions of the token features."""
        return self.encoder_config.hidden_size

    def check(self) -> None:
        """Checks the fields together; called again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        self.check_counts("max_training_tokens")

    def check_length(self, name: str) -> None:
        """Raises a ValueError for a length of pieces that the encoder cannot read."""
        positions, length = usable_positions(self.encoder_config), getattr(self, name)
        if length < 1 or (positions and length > positions):
            limit = f"1 to {positions}, the positions of the encoder" if positions else "1 or more"
            raise ValueError(f"{name} must be {limit}, got {length}.")

    def check_counts(self, *names: str) -> None:
        """Raises a ValueError for counts below 1; None is allowed where the field allows it."""
        for name in names:
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
