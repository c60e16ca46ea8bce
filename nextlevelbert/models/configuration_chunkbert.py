"""Configuration of ChunkBERT."""

# No `from __future__ import annotations` here: `strict` checks types only where they are not
# strings.
from huggingface_hub.dataclasses import strict

from .token_document import TokenDocumentConfig


@strict
class ChunkBertConfig(TokenDocumentConfig):
    """The parts and sizes of a ChunkBERT (Jaiswal and Milios, 2023, arXiv 2310.20558).

    Args:
        encoder_config: the encoder that reads the chunks, any architecture of `AutoModel`.
        chunk_size: tokens in a chunk, the document's own [CLS] and [SEP] included. It may be
            another one at test time.
        chunk_batch_size: chunks in one pass of the encoder: 1 is the paper's sequential chunking,
            None its vectorised one. The result is the same; fewer take less memory under
            `torch.no_grad()`. In training `activation_checkpointing_enable()` saves memory. Under
            FSDP or ZeRO-3 leave it None: all processes have to make the same number of passes.
        max_training_tokens: in training mode documents are cut to this many tokens, with a warning;
            None never cuts.
        num_averaged_layers: number of last hidden states whose mean gives the token features.
        num_filters, filter_sizes: convolution filters of each size, and their widths in tokens.
        classifier_dropout: on the features that the classifier reads; by default the encoder's
            hidden dropout.
        initializer_range: standard deviation of new layers.
    """

    model_type = "chunkbert"

    chunk_size: int = 128
    chunk_batch_size: int | None = None
    max_training_tokens: int | None = 4096
    num_averaged_layers: int = 5
    num_filters: int = 100
    filter_sizes: list[int] | tuple[int, ...] = (3, 4, 5)
