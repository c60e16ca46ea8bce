"""Configuration of CDLM."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import LongformerConfig


@strict
class CdlmConfig(LongformerConfig):
    """A Longformer that reads a set of documents (Caciularu et al., 2021); by default of
    `biu-nlp/cdlm`'s sizes.

    Args:
        attention_window: tokens that a token without global attention sees, half of them on either
            side; an even number, or one for each layer.
        max_position_embeddings: rows of the position table; the longest sequence has `pad_token_id`
            + 1 fewer.
        mask_token_id: the tokenizer's; `CdlmForMaskedLM` needs it for its default global attention.
        global_attention: tokens that have global attention in `CdlmForMaskedLM` if no mask is
            given. ``"masked"``: the [MASK] tokens, as in the paper; ``"prefix"``: as many first
            tokens; ``"none"``: no token (the paper's ablations). Pretraining sets it.
        sparse_prediction: given labels, `CdlmForMaskedLM` scores only the positions that have one,
            at the same loss.
        pair_scorer_hidden_size: units of the one hidden layer that scores a pair of mentions
            (appendix C.1).
        coreference_threshold: mean probability from which clusters of mentions are merged;
            fine-tuning sets it.
        classifier_dropout: on the inputs of the pair scorer; by default `hidden_dropout_prob`.
    """

    model_type = "cdlm"
    keys_to_ignore_at_inference = ["pair_mask", "hidden_states", "attentions", "global_attentions"]
    _auto_class = "AutoConfig"

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
        windows = self.windows()
        if len(windows) != self.num_hidden_layers or any(
            window < 4 or window % 2 for window in windows
        ):
            needed = (
                f"an even number of 4 or more, or one for each of the {self.num_hidden_layers}"
                " layers"
            )
            raise ValueError(f"attention_window must be {needed}; got {self.attention_window}.")

    @property
    def max_sequence_length(self) -> int:
        """Most tokens in a sequence, separators included."""
        return self.max_position_embeddings - (self.pad_token_id or 0) - 1

    def windows(self) -> list[int]:
        """The attention window of each layer."""
        window = self.attention_window
        return [window] * self.num_hidden_layers if isinstance(window, int) else list(window)
