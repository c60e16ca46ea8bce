"""Configuration of ChunkBERT."""

# No `from __future__ import annotations` here: `strict` checks types only if they are not strings.
from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_token_document import TokenDocumentConfig


@strict
class ChunkBertConfig(TokenDocumentConfig):
    """Configures a ChunkBERT (Jaiswal and Milios, 2023, arXiv 2310.20558).

    Args:
        chunk_size: tokens in a chunk, the document's own [CLS] and [SEP] included. You can set
            another size at test time.
        chunk_batch_size: chunks in one pass of the encoder: 1 is the paper's sequential chunking,
            None its vectorised chunking. The result is the same; fewer chunks take less memory
            under `torch.no_grad()`. In training `activation_checkpointing_enable()` saves memory.
            Under FSDP or ZeRO-3 leave it None: all processes have to make the same number of
            passes.
        max_training_tokens: number of tokens to which documents are truncated in training mode,
            with a warning; None never truncates.
        num_averaged_layers: number of last hidden states whose mean gives the token features.
        num_filters: convolution filters of each width.
        filter_sizes: widths of the filters in tokens.
        encoder_config: the encoder that reads the chunks, any architecture of `AutoModel`.
        classifier_dropout: dropout on the features that the classifier reads (default: the
            encoder's hidden dropout).
        initializer_range: standard deviation of new layers.
    """

    model_type = "chunkbert"

    chunk_size: int = 128
    chunk_batch_size: int | None = None
    max_training_tokens: int | None = 4096
    num_averaged_layers: int = 5
    num_filters: int = 100
    filter_sizes: list[int] | tuple[int, ...] = (3, 4, 5)

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.filter_sizes = list(self.filter_sizes)  # as JSON returns it, so that both are equal
