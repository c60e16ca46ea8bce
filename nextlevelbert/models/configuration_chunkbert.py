"""Configuration of ChunkBERT."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not strings.
from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_token_document import TokenDocumentConfig


@strict
class ChunkBertConfig(TokenDocumentConfig):
    """The parts and sizes of a ChunkBERT (paper: Jaiswal and Milios, 2023, arXiv 2310.20558).

    Args:
        encoder_config: the encoder that reads the chunks, any architecture of `AutoModel`.
        chunk_size: tokens in a chunk, including the document's own [CLS] and [SEP]. It may differ between training and
            test; the paper's preliminary finding is that a larger one at test time does worse (section 6).
        chunk_batch_size: chunks in one pass of the encoder: 1 is the paper's sequential chunking, None its
            vectorised one (all chunks of the batch at once). The result is the same; fewer chunks take less memory in
            inference (under `torch.no_grad()`). Training keeps what every chunk needs for its gradient, whatever the
            number: there `activation_checkpointing_enable()` saves memory, for encoders that support it (MPNet and
            ALBERT do not). Under FSDP or ZeRO-3 leave it None: all processes have to make the same number of passes.
        max_training_tokens: in training mode documents are cut to this many tokens, with a warning that counts the
            rest; None never cuts. Evaluation always reads everything.
        num_averaged_layers: number of last hidden states whose mean gives the token features.
        num_filters: convolution filters of each size.
        filter_sizes: widths of the filters, in tokens.
        classifier_dropout: on the features that the classifier reads. The paper gives no value; by default the
            encoder's hidden dropout.
        initializer_range: standard deviation of new layers.

    Raises:
        ValueError: for values that do not fit each other; the message says which.
    """

    model_type = "chunkbert"

    chunk_size: int = 128
    chunk_batch_size: int | None = None
    max_training_tokens: int | None = 4096
    num_averaged_layers: int = 5
    num_filters: int = 100
    filter_sizes: list[int] | tuple[int, ...] = (3, 4, 5)

    def __post_init__(self, **kwargs: Any) -> None:
        self.filter_sizes = list(self.filter_sizes)  # as it is read from JSON
        super().__post_init__(**kwargs)

    def check(self) -> None:
        """Checks the fields together; called again with every pass, because all of them can be set later.

        Raises:
            ValueError: for values that do not fit each other.
        """
        self.check_length("chunk_size")
        states = self.encoder_config.num_hidden_layers + 1  # with the embeddings
        if not 1 <= self.num_averaged_layers <= states:
            raise ValueError(
                f"num_averaged_layers must be 1 to {states}, the hidden states of an encoder of {states - 1} layers, "
                f"got {self.num_averaged_layers}."
            )
        if not self.filter_sizes or min(self.filter_sizes) < 1 or len(set(self.filter_sizes)) < len(self.filter_sizes):
            raise ValueError(f"filter_sizes must be different widths of 1 or more, got {list(self.filter_sizes)}.")
        self.check_counts("num_filters", "chunk_batch_size", "max_training_tokens")
