"""The pretrained encoders that all models here are built around, as `transformers` has them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from transformers.utils import logging

from .input_checks import check_weights
from .saved_files import check_folder
from .static_encoder import HashedTfidfConfig, HashedTfidfModel, StaticEmbeddingConfig, StaticEmbeddingModel

# Backbones whose position table starts after the padding id, so that two rows are never used.
_OFFSET_POSITIONS = (
    "camembert", "data2vec-text", "esm", "ibert", "lilt", "longformer", "luke", "mpnet", "roberta",
    "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip

# Far above any published encoder; making so many layers takes seconds.
_MOST_LAYERS, _LARGEST_SIZE = 1_000, 1_000_000

_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


def backbone_from_config(config: PreTrainedConfig) -> PreTrainedModel:
    """A new encoder of this architecture, without the pooler, which no model here uses.

    In torch's default dtype, whatever the configuration says about the weights that it came with.

    Raises:
        ValueError: for a number of layers that no encoder has.
    """
    check_claims(config)
    if config.model_type == StaticEmbeddingConfig.model_type:
        return StaticEmbeddingModel(config)
    if config.model_type == HashedTfidfConfig.model_type:
        return HashedTfidfModel(config)
    dtype = torch.get_default_dtype()
    try:
        return AutoModel.from_config(config, dtype=dtype, add_pooling_layer=False)
    except TypeError:  # architectures without a pooler do not know the argument
        return AutoModel.from_config(config, dtype=dtype)


def check_claims(config: PreTrainedConfig) -> None:
    """Raises a ValueError for sizes that no encoder has, before its layers are made."""
    layers, size = (getattr(config, name, 1) for name in ("num_hidden_layers", "hidden_size"))
    if not 0 <= layers <= _MOST_LAYERS or not 1 <= size <= _LARGEST_SIZE:
        raise ValueError(
            f"The configuration of {config.model_type} has num_hidden_layers = {layers} and hidden_size = {size}; "
            f"allowed are 0 to {_MOST_LAYERS} and 1 to {_LARGEST_SIZE}. Check its config.json."
        )


def check_same_architecture(claimed: PreTrainedConfig, found: PreTrainedConfig, name: str | None) -> None:
    """Raises a ValueError if a chunk encoder has other sizes than the configuration of a document model claims."""
    for field in ("model_type", "num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings"):
        ours, theirs = (getattr(config, field, None) for config in (claimed, found))
        if ours != theirs:
            raise ValueError(
                f"chunk_encoder_config has {field} = {ours}, but the chunk encoder {name!r} has {theirs}; give the "
                "encoder that made the model's vectors: model.attach_chunk_encoder(load_chunk_encoder(path))."
            )


def usable_positions(config: PreTrainedConfig) -> int | None:
    """Longest sequence that a backbone of this configuration can read; None where nothing limits it."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return positions - 2 if config.model_type in _OFFSET_POSITIONS else positions


def with_attention_dropout(config: PreTrainedConfig, probability: float = 0.0) -> dict[str, Any]:
    """The configuration as a dictionary with that attention dropout, which on a CPU more than doubles a step."""
    values = config.to_dict()
    return {**values, **{key: probability for key in _ATTENTION_DROPOUTS if key in values}}


def bert_over_vectors(hidden_size: int, layers: int, positions: int = 512) -> BertConfig:
    """A new BERT over chunk vectors: heads of 32 dimensions (or one), a feed-forward layer of four times the width."""
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32 if hidden_size % 32 == 0 else 1,
        intermediate_size=4 * hidden_size,
        attention_probs_dropout_prob=0.0,  # on a CPU it more than doubles a training step
        max_position_embeddings=positions,
        vocab_size=1,  # no word table
    )


def attention_dropout(config: PreTrainedConfig) -> float:
    """The attention dropout probability of an encoder, under whatever name; 0 where it has none."""
    return next((getattr(config, name) for name in _ATTENTION_DROPOUTS if hasattr(config, name)), 0.0)


def hidden_dropout(config: PreTrainedConfig) -> float:
    """The hidden dropout probability of an encoder, under whatever name; 0.1 where it has none."""
    names = ("hidden_dropout_prob", "dropout", "mlp_dropout")
    return next((getattr(config, name) for name in names if hasattr(config, name)), 0.1)


def encoder_layers(encoder: PreTrainedModel) -> list[nn.Module]:
    """The transformer layers of a backbone, in order.

    Raises:
        ValueError: if it has no stack with a module for each layer (ALBERT has one module for all layers).
    """
    count = encoder.config.num_hidden_layers
    for parent in encoder.modules():
        stacks = [each for each in parent.children() if isinstance(each, nn.ModuleList) and len(each) == count]
        if len(stacks) == 1:
            return list(stacks[0])
        if stacks:  # XLM has a stack of attentions, one of normalisations, and so on
            break
    raise ValueError(
        f"{type(encoder).__name__} has no stack of {count} layers to insert a recurrence into. Use an encoder with "
        "separate weights for every layer: BERT, RoBERTa, MPNet, DistilBERT, MiniLM or similar."
    )


def load_backbone(name_or_path: str | PathLike[str], **loading: Any) -> PreTrainedModel:
    """Loads a pretrained encoder to train further: in float32, without pooler, with attention dropout 0.

    Args:
        name_or_path: folder or Hub name of a BERT, RoBERTa, MPNet, ModernBERT, MiniLM or similar encoder.
        loading: arguments of `from_pretrained` such as `revision` and `token`.

    Raises:
        ValueError: if there is no such model, it is not an encoder, or some of its weights are missing (named).
    """
    name = str(name_or_path)
    if Path(name).is_dir():
        check_folder(Path(name) / loading.get("subfolder", ""))
    absent = (
        f"Cannot load the encoder {name!r}: no folder with a model and its weights, and not on the Hub or in its "
        "cache. Give the folder of a saved encoder, or a name such as 'google-bert/bert-base-uncased'."
    )
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **loading)
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"The encoder {name!r} needs code that comes with it (trust_remote_code), which is never run. Give an "
                "encoder of an architecture that transformers has."
            ) from error
        raise ValueError(absent) from error
    check_claims(config)
    if not _is_encoder(config):
        raise ValueError(
            f"{name!r} is a {config.model_type}, which is not a bidirectional encoder of token ids. Give a BERT, "
            "RoBERTa, MPNet, MiniLM or similar."
        )
    try:
        encoder, info = _load_without_pooler(name, type(config).from_dict(with_attention_dropout(config)), loading)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(absent) from error
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"The checkpoint {name!r} lacks {len(missing)} weights of its {config.model_type} encoder ({missing[0]}, "
            "…), which would be initialised at random. Give a complete checkpoint."
        )
    check_weights(encoder, name)
    return encoder


def load_tokenizer(name_or_path: str | PathLike[str], **loading: Any) -> PreTrainedTokenizerBase:
    """Loads the stock tokenizer of an encoder, without its length limit, because no document is too long here.

    Args:
        name_or_path, loading: as in `load_backbone`.

    Raises:
        ValueError: if there is none; for a folder without one transformers makes a tokenizer that knows no words.
    """
    return read_tokenizer(name_or_path, model_max_length=int(1e30), **loading)


def read_tokenizer(name_or_path: str | PathLike[str], **arguments: Any) -> PreTrainedTokenizerBase:
    """As `AutoTokenizer.from_pretrained`.

    Raises:
        ValueError: if there is none, or its files cannot be read.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, **arguments)
    except Exception as error:  # tokenizers raises nothing more exact for a file that is cut off
        raise ValueError(
            f"The tokenizer of {str(name_or_path)!r} cannot be read ({error}). Its tokenizer.json or "
            "tokenizer_config.json is missing or damaged: get them again, or save the tokenizer there with "
            "tokenizer.save_pretrained(folder)."
        ) from error
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise ValueError(
            f"There is no tokenizer next to the model {str(name_or_path)!r} (the one found has no words). Save the "
            "model's tokenizer into that folder: tokenizer.save_pretrained(folder)."
        )
    return tokenizer


def _is_encoder(config: PreTrainedConfig) -> bool:
    """False for decoders, models of images or sound, and our own document models."""
    kind = config.model_type
    left_to_right = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    decodes = left_to_right or config.is_encoder_decoder or getattr(config, "is_decoder", False)
    return not decodes and hasattr(config, "vocab_size") and not hasattr(config, "encoder_config")


def _load_without_pooler(
    name: str, config: PreTrainedConfig, loading: dict[str, Any]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """An encoder without pooler, and the loading info of transformers."""
    arguments = {**loading, "config": config, "dtype": torch.float32, "output_loading_info": True}
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # otherwise every load prints a table of pooler or head weights that are not used
    try:
        return AutoModel.from_pretrained(name, add_pooling_layer=False, **arguments)
    except TypeError:  # architectures without a pooler do not know the argument
        return AutoModel.from_pretrained(name, **arguments)
    finally:
        logging.set_verbosity(verbosity)
