"""Configuration of BERT-AL."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .token_document import TokenDocumentConfig


@strict
class BertAlConfig(TokenDocumentConfig):
    """The parts and sizes of a BERT-AL ("BERT-AL: BERT for Arbitrarily Long Document
    Understanding", 2020).

    Args:
        encoder_config: the encoder that reads the segments: any of `AutoModel` with a stack of
            separate layers.
        segment_length: tokens in a segment (the paper's l_BERT), at most the positions of the
            encoder. Segments are cut without regard to sentences, and all have the same positions.
        recurrence: what the multi-channel LSTM does to a layer's output. ``"replace"``: its own
            replaces it (the paper); ``"residual"``: is added through a projection that starts at
            zero; ``"none"``: there is no LSTM.
        tokens_at_once: tokens of the whole batch in one pass through all layers, in whole segments;
            None: all. The result is the same, and under `torch.no_grad()` memory does not grow with
                the document.
        max_training_tokens: in training mode documents are cut to this many tokens, with a warning;
            None never cuts.
        classifier_dropout: on the inputs of the heads; by default the encoder's hidden dropout.
        initializer_range: standard deviation of new layers.
        cls_token_id: the token before every sentence, whose output represents it in extractive
            summarization.
    """

    model_type = "bert-al"
    keys_to_ignore_at_inference = [
        "sentence_mask"
    ]  # processes cannot gather a mask that only some pad

    segment_length: int = 128
    recurrence: Literal["replace", "residual", "none"] = "residual"
    tokens_at_once: int | None = 16384
