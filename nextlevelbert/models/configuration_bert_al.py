"""Configuration of BERT-AL."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_token_document import TokenDocumentConfig


@strict
class BertAlConfig(TokenDocumentConfig):
    """Configures a BERT-AL (Zhang et al., 2019, submitted to ICLR 2020).

    Args:
        segment_length: tokens in a segment (the paper's l_BERT), at most the positions of the
            encoder. Segments may split a sentence, and all have the same positions.
        recurrence: effect of the multi-channel LSTM on a layer's output. ``"replace"``: the LSTM's
            output replaces the layer's output (the paper); ``"residual"``: the LSTM's output is
            added through a projection that starts at zero; ``"none"``: there is no LSTM.
        tokens_at_once: tokens of the whole batch in one pass through all layers, in whole segments;
            None reads all at once. The result is the same, and under `torch.no_grad()` memory does
            not grow with the document.
        encoder_config: the encoder that reads the segments: any of `AutoModel` with a stack of
            separate layers.
        max_training_tokens: number of tokens to which documents are truncated in training mode,
            with a warning; None never truncates.
        classifier_dropout: dropout on the inputs of the heads (default: the encoder's hidden
            dropout).
        initializer_range: standard deviation of new layers.
        cls_token_id: the token before every sentence, whose output represents the sentence in
            extractive summarization.
    """

    model_type = "bert-al"
    # Processes cannot gather a mask that only some of them pad.
    keys_to_ignore_at_inference = ["sentence_mask"]

    segment_length: int = 128
    recurrence: Literal["replace", "residual", "none"] = "residual"
    tokens_at_once: int | None = 16384
