"""Configuration of BERT-AL."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_token_document import TokenDocumentConfig


@strict
class BertAlConfig(TokenDocumentConfig):
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
    keys_to_ignore_at_inference = [
        "sentence_mask",
        "hidden_states",
    ]  # processes cannot gather a mask that only some have to pad

    segment_length: int = 128
    recurrence: Literal["replace", "residual", "none"] = "residual"
    tokens_at_once: int | None = 16384
    cls_token_id: int | None = 101

    def check(self) -> None:
        """Looks at the fields together; again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        self.check_length("segment_length")
        self.check_counts("tokens_at_once", "max_training_tokens")
