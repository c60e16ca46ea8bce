"""Configuration of CDLM."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import LongformerConfig


@strict
class CdlmConfig(LongformerConfig):
    """The parts and sizes of a CDLM: a Longformer that reads a set of documents (paper: Caciularu et al., 2021).

    Defaults are those of `allenai/longformer-base-4096`, with the two document separators of `biu-nlp/cdlm`.

    Args:
        attention_window: tokens that a token without global attention sees, half of them on either side; an even
            number, or one for each layer.
        max_position_embeddings: rows of the position table; the longest sequence has `pad_token_id` + 1 fewer.
        mask_token_id: that of the tokenizer; in `CdlmForMaskedLM` its positions get global attention unless a mask
            says otherwise.
        sparse_prediction: given labels, `CdlmForMaskedLM` scores only the positions that have one. The loss is the
            same; training saves most of the time and memory that the vocabulary takes.
        pair_scorer_hidden_size: units of the one hidden layer that scores a pair of mentions (appendix C.1).
        coreference_threshold: mean probability from which clusters of mentions are merged; fine-tuning sets it to the
            best value on the validation set.
        classifier_dropout: on the inputs of the task heads; by default `hidden_dropout_prob`.

    Raises:
        ValueError: for values that do not fit each other; the message says which.
    """

    model_type = "cdlm"
    keys_to_ignore_at_inference = ["pair_mask", "hidden_states", "attentions", "global_attentions"]
    _auto_class = "AutoConfig"

    vocab_size: int = 50267
    max_position_embeddings: int = 4098
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    mask_token_id: int | None = 50264
    sparse_prediction: bool = False
    pair_scorer_hidden_size: int = 1024
    classifier_dropout: float | None = None
    coreference_threshold: float = 0.5

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.classifier_dropout is None:
            self.classifier_dropout = float(self.hidden_dropout_prob)
        self.check()

    @property
    def max_sequence_length(self) -> int:
        """Most tokens in a sequence, separators included."""
        return self.max_position_embeddings - (self.pad_token_id or 0) - 1

    def windows(self) -> list[int]:
        """The attention window of each layer."""
        window = self.attention_window
        return [window] * self.num_hidden_layers if isinstance(window, int) else list(window)

    def check(self) -> None:
        """Checks the fields together; called again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        windows = self.windows()
        if len(windows) != self.num_hidden_layers or any(window < 4 or window % 2 for window in windows):
            raise ValueError(
                "attention_window must be an even number of 4 or more, half of it on either side of a token, or a "
                f"list of one for each of the {self.num_hidden_layers} layers; got {self.attention_window}."
            )
        if self.max_sequence_length < 1:
            raise ValueError(
                f"max_position_embeddings must be above pad_token_id + 1 = {(self.pad_token_id or 0) + 1}, because "
                f"positions are counted from there, got {self.max_position_embeddings}."
            )
        if self.pair_scorer_hidden_size < 1:
            raise ValueError(f"pair_scorer_hidden_size must be at least 1, got {self.pair_scorer_hidden_size}.")
