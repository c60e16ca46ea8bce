"""Configuration that ChunkBERT and BERT-AL share."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_nextlevelbert import SizesOfEncoder, usable_positions, without_name

_DROPOUT_FIELDS = ("hidden_dropout_prob", "dropout", "mlp_dropout")  # of different encoders


@strict
class TokenDocumentConfig(SizesOfEncoder, PreTrainedConfig):
    """Fields of ChunkBERT and BERT-AL.

    `encoder_config` is a configuration, a dictionary of one, or None for BERT's defaults.
    """

    sub_configs_defaults = {
        "encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")
    }

    encoder_config: Any = None
    max_training_tokens: int | None = None
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    cls_token_id: int | None = None
    # transformers reads these two when it warns of padding without a mask.
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.encoder_config = without_name(self.encoder_config)
        if self.classifier_dropout is None:
            self.classifier_dropout = 0.1
            for name in _DROPOUT_FIELDS:
                if hasattr(self.encoder_config, name):
                    self.classifier_dropout = getattr(self.encoder_config, name)
                    break

    @property
    def vocab_size(self) -> int:
        """Returns the number of token ids that the encoder reads."""
        return self.encoder_config.vocab_size

    @vocab_size.setter
    def vocab_size(self, size: int) -> None:
        self.encoder_config.vocab_size = size

    def check(self, piece: str) -> None:
        """Checks the sizes that depend on the encoder.

        Args:
            piece: name of the field that holds the number of tokens in a piece.

        Raises:
            ValueError: the encoder cannot read pieces of this size, or training reads no token.
        """
        tokens = getattr(self, piece)
        most = usable_positions(self.encoder_config)
        if tokens < 1 or (most is not None and tokens > most):
            raise ValueError(
                f"{piece} must be 1 to {most}, the positions of the encoder; got {tokens}."
            )

        if self.max_training_tokens is not None and self.max_training_tokens < 1:
            raise ValueError(
                f"max_training_tokens must be 1 or more, got {self.max_training_tokens}."
            )
