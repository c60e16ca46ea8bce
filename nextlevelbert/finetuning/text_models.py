"""Models that are trained from text, encoder included: the options that several tasks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from transformers import AutoConfig

from .arguments import LoraOptions, ModelOptions

_MODELS = ("chunkbert", "bert-al")


@dataclass(kw_only=True)
class TextModelOptions(ModelOptions):
    """An encoder to train from text."""

    whole_model_rate = 3e-5  # as the models' papers

    model: str = field(
        metadata={"help": "The encoder to train (BERT or similar), or a saved model of --model_type: folder or name "
                          "on the Hub."}
    )  # fmt: skip
    attn_implementation: str | None = field(
        default=None,
        metadata={"help": "Attention of the encoder, as in transformers. On a CPU, eager trains chunks of 128 a "
                          "fifth faster."},
    )  # fmt: skip


@dataclass(kw_only=True)
class ChunkBertOptions(TextModelOptions, LoraOptions):
    """A ChunkBERT: chunks of tokens through an encoder, and convolutions over them."""

    model_type: Literal["chunkbert"] = field(
        default="chunkbert", metadata={"help": "The encoder is trained on whole documents."}
    )
    chunk_size: int | None = field(
        default=None, metadata={"help": "Tokens per chunk; default 128, or as saved with the model."}
    )
    max_training_tokens: int | None = field(
        default=None,
        metadata={
            "help": "Training documents are truncated to this length; default 4096, or as saved with the model."
        },
    )
    chunk_batch_size: int = field(
        default=256,
        metadata={"help": "Chunks to encode at a time; fewer take less memory in evaluation (in training, use "
                          "--activation_checkpointing). Default 256."},
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_limit(self.max_training_tokens)


@dataclass(kw_only=True)
class BertAlOptions(TextModelOptions, LoraOptions):
    """A BERT-AL: an encoder that reads segment after segment, with recurrence between them."""

    segment_length: int | None = field(
        default=None, metadata={"help": "Tokens per segment; default 128, or as saved with the model."}
    )
    recurrence: str | None = field(
        default=None,
        metadata={"help": "How information passes from segment to segment: replace (the paper's), residual (the "
                          "default) or none.",
                  "choices": ["replace", "residual", "none"]},
    )  # fmt: skip
    max_training_tokens: int | None = field(
        default=None,
        metadata={"help": "Training documents are truncated to this length; by default, they are not truncated."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_limit(self.max_training_tokens)


def _check_limit(tokens: int | None) -> None:
    """Refuses a --max_training_tokens below 1."""
    if tokens is not None and tokens < 1:
        raise ValueError(f"--max_training_tokens must be 1 or more, got {tokens}.")


def is_saved_model(options: TextModelOptions) -> bool:
    """Whether --model is a saved ChunkBERT or BERT-AL, not a plain encoder.

    Raises:
        ValueError: if there is no such model, or it does not fit --model_type.
    """
    named, wanted = f"--model {options.model!r}", f"--model_type {options.model_type}"
    try:
        kind = AutoConfig.from_pretrained(options.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{named} is neither a folder with an encoder nor on the Hub. (untrained, avg_sbert, sbert and tfidf "
            "belong to --model_type nextlevelbert.)"
        ) from error
    if kind == "nextlevelbert":
        raise ValueError(f"{named} is a NextLevelBERT; leave out {wanted}.")
    if kind in _MODELS and kind != options.model_type:
        raise ValueError(f"{named} is a {kind}, and {wanted} takes a plain encoder (BERT or similar).")
    if kind in _MODELS and getattr(options, "recurrence", None) is not None:
        raise ValueError(f"{named} is a {kind}, whose recurrence is part of it; leave out --recurrence.")
    if isinstance(options, LoraOptions) and options.lora and kind not in _MODELS:
        raise ValueError(
            f"--lora adapts a checkpoint, and {named} is an encoder, whose new parts are initialised at random. Save "
            f"a {options.model_type} first, with its from_encoder(...) and save_pretrained(folder)."
        )
    return kind in _MODELS
