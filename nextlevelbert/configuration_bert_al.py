"""Configuration of BERT-AL."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
import copy
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .backbones import hidden_dropout, usable_positions


@strict
class BertAlConfig(PreTrainedConfig):
    """What a BERT-AL is made of (paper: "BERT-AL: BERT for Arbitrarily Long Document Understanding", 2020).

    Args:
        encoder_config: the encoder that reads segment after segment, any architecture that `AutoModel` knows and
            whose layers are a stack of `num_hidden_layers` modules.
        segment_length: tokens in a segment (the paper's l_BERT), at most the positions of the encoder. The ids of a
            document are cut without regard to sentences, and every segment has the same positions.
        recurrence: how segments hear of those before them. ``"replace"``: the multi-channel LSTM's output takes the
            place of each layer's (the paper's); ``"residual"``: it is added to it, through a projection that starts
            at zero, so that a new model is the pretrained encoder; ``"none"``: not at all.
        tokens_at_once: tokens of the whole batch in one pass through all layers, rounded down to whole segments.
            Information flows forward only, so segments can be read some at a time, with the state of the LSTMs
            handed on: the result is the same, and under `torch.no_grad()` memory does not grow with the document.
            Training keeps what every segment needs for its gradient. None: all at once.
        max_training_tokens: documents are cut to this many tokens in training mode, with a warning that counts
            what is lost; None never cuts. Evaluation always reads everything.
        classifier_dropout: on what the heads read; by default the encoder's hidden dropout.
        initializer_range: standard deviation of new layers.
        cls_token_id: the token in front of every sentence, whose output stands for it in extractive summaries.

    Raises:
        ValueError: for values that do not fit each other; the message says which.
    """

    model_type = "bert-al"
    sub_configs_defaults = {"encoder_config": SubConfigSpec(config_class=AutoConfig, model_type="bert")}
    _auto_class = "AutoConfig"
    keys_to_ignore_at_inference = [
        "sentence_mask",
        "hidden_states",
    ]  # processes cannot gather a mask that only some have to pad

    encoder_config: Any = None  # a configuration, a dictionary of one, or None for BERT's defaults
    segment_length: int = 128
    recurrence: Literal["replace", "residual", "none"] = "residual"
    tokens_at_once: int | None = 16384
    max_training_tokens: int | None = None
    classifier_dropout: float | None = None
    initializer_range: float = 0.02
    cls_token_id: int | None = 101
    pad_token_id: int | None = 0
    bos_token_id: int | None = None  # transformers looks for these two when it warns of padding without a mask
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.encoder_config = copy.deepcopy(self.encoder_config)  # it may be that of a model in use
        self.encoder_config._name_or_path = ""  # otherwise a path of this machine is published
        if self.classifier_dropout is None:
            self.classifier_dropout = hidden_dropout(self.encoder_config)
        self.check()

    @property
    def hidden_size(self) -> int:
        """Dimensions of the token features."""
        return self.encoder_config.hidden_size

    def check(self) -> None:
        """Looks at the fields together; again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        positions = usable_positions(self.encoder_config)
        if self.segment_length < 1 or (positions and self.segment_length > positions):
            limit = f"1 to {positions}, the positions of the encoder" if positions else "1 or more"
            raise ValueError(f"segment_length must be {limit}, got {self.segment_length}.")
        for name in ("tokens_at_once", "max_training_tokens"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or None, got {value}.")
