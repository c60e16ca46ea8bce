"""The pretrained encoders that all systems here are built around, as `transformers` has them."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import AutoModel, PreTrainedConfig

# Backbones whose position table starts behind the padding id, so that two rows are never used.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet")

_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


def backbone_from_config(config: PreTrainedConfig) -> nn.Module:
    """An encoder of this architecture, without the pooler that no system here uses."""
    try:
        return AutoModel.from_config(config, add_pooling_layer=False)
    except TypeError:  # architectures without a pooler do not know the argument
        return AutoModel.from_config(config)


def usable_positions(config: PreTrainedConfig) -> int | None:
    """Longest sequence that a backbone of this configuration can read; None where nothing limits it."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return positions - 2 if config.model_type in _OFFSET_POSITIONS else positions


def without_attention_dropout(config: PreTrainedConfig) -> dict[str, Any]:
    """The configuration as a dictionary, with attention dropout 0: on a CPU it more than doubles a training step."""
    values = config.to_dict()
    return {**values, **{key: 0.0 for key in _ATTENTION_DROPOUTS if key in values}}
