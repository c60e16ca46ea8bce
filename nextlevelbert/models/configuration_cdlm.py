"""Configuration of CDLM."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import LongformerConfig


@strict
class CdlmConfig(LongformerConfig):
    """Configures a Longformer that reads a set of documents (Caciularu et al., 2021).

    The default sizes are the sizes of `biu-nlp/cdlm`.

    Args:
        attention_window: tokens that a token without global attention attends to, half of them on
            either side; an even number, or one for each layer.
        vocab_size: number of words.
        max_position_embeddings: rows of the position table; the longest sequence has `pad_token_id`
            + 1 fewer tokens.
        type_vocab_size: number of token types.
        layer_norm_eps: epsilon of the layer normalisations.
        mask_token_id: mask token of the tokenizer; `CdlmForMaskedLM` needs it for its default
            global attention.
        global_attention: tokens that have global attention in `CdlmForMaskedLM` if no mask is
            given. ``"masked"``: the [MASK] tokens, as in the paper; ``"prefix"``: as many first
            tokens; ``"none"``: no token (the paper's ablations). Pretraining sets it.
        sparse_prediction: if true and labels are given, `CdlmForMaskedLM` scores only the positions
            with a label. The loss is the same.
        pair_scorer_hidden_size: units of the hidden layer that scores a pair of mentions (appendix
            C.1).
        classifier_dropout: dropout on the inputs of the pair scorer (default:
            `hidden_dropout_prob`).
        coreference_threshold: mean probability from which clusters of mentions are merged;
            fine-tuning sets it.
    """

    model_type = "cdlm"
    keys_to_ignore_at_inference = ["pair_mask", "hidden_states", "attentions", "global_attentions"]
    _auto_class = "AutoConfig"

    attention_window: int | list[int] = 512
    vocab_size: int = 50267
    max_position_embeddings: int = 4098
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    mask_token_id: int | None = 50264
    global_attention: Literal["masked", "prefix", "none"] = "masked"
    sparse_prediction: bool = False
    pair_scorer_hidden_size: int = 1024
    classifier_dropout: float | None = None
    coreference_threshold: float = 0.5

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if self.classifier_dropout is None:
            self.classifier_dropout = float(self.hidden_dropout_prob)
        if isinstance(self.attention_window, int):
            self.attention_window = [self.attention_window] * self.num_hidden_layers

        windows = self.attention_window
        is_valid = all(window >= 4 and window % 2 == 0 for window in windows)
        if len(windows) != self.num_hidden_layers or not is_valid:
            raise ValueError(
                "attention_window must be an even number of 4 or more, or one for each of the"
                f" {self.num_hidden_layers} layers; got {windows}."
            )

    @property
    def max_sequence_length(self) -> int:
        """Returns the most tokens that a sequence may have, separators included."""
        first_position = (self.pad_token_id or 0) + 1
        return self.max_position_embeddings - first_position
