"""Configuration of BERT-AL."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_token_document import TokenDocumentConfig


@strict
class BertAlConfig(TokenDocumentConfig):
    """The parts and sizes of a BERT-AL (paper: "BERT-AL: BERT for Arbitrarily Long Document Understanding", 2020).

    Args:
        encoder_config: the encoder that reads the segments, any architecture of `AutoModel` whose layers are a stack
            of `num_hidden_layers` modules.
        segment_length: tokens in a segment (the paper's l_BERT), at most the positions of the encoder. Segments are
            cut without regard to sentences, and all have the same positions.
        recurrence: how a segment receives information from those before it. ``"replace"``: the output of the
            multi-channel LSTM replaces each layer's (as in the paper); ``"residual"``: it is added to it, through a
            projection that starts at zero, so that a new model is the pretrained encoder; ``"none"``: not at all.
        tokens_at_once: tokens of the whole batch in one pass through all layers, rounded down to whole segments.
            Information only flows forward, so segments can be read a few at a time, each pass starting from the LSTM
            states of the one before: the result is the same, and under `torch.no_grad()` memory does not grow with
            the document. Training keeps what every segment needs for its gradient. None: all at once.
        max_training_tokens: in training mode documents are cut to this many tokens, with a warning that counts the
            rest; None never cuts. Evaluation always reads everything.
        classifier_dropout: on the inputs of the heads; by default the encoder's hidden dropout.
        initializer_range: standard deviation of new layers.
        sentence_rule: the version of the rule that finds the sentences of a text to summarise. A checkpoint that
            names none was made with 1, and keeps it.
        cls_token_id: the token before every sentence, whose output represents it in extractive summarization.

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
    sentence_rule: int = 1

    def check(self) -> None:
        """Checks the fields together; called again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        self.check_length("segment_length")
        self.check_counts("tokens_at_once", "max_training_tokens")
