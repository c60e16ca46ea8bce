"""The transformers encoders below all models: how they are loaded, made, changed and run."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from threading import Lock
from typing import Any

import torch
from torch import Tensor, distributed, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    BertConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_MAPPING
from transformers.utils import logging
from transformers.utils.output_capturing import (
    resolve_hidden_states_indices,
    selected_hidden_states,
)

from .model_names import full_name, named_errors, safe_weights
from .windows import traced

# Encoder-decoders whose encoder can be used alone.
_WITH_DECODER = ("mt5", "t5", "umt5")

# Besides the number of layers, a configuration may describe layers one by one. These are the lists
# with an entry for each layer, by their names in transformers. A field that has one value for all
# layers, such as the `intermediate_size` of most backbones, is no list.
_LISTS_OF_LAYERS = (
    "activation_sparsity_pattern",
    "attention_window",
    "attn_layers",
    "intermediate_size",
    "layer_rope_theta",
    "layer_types",
    "layers_block_type",
    "mlp_layer_types",
    "no_rope_layers",
    "num_attention_heads_per_layer",
)


# Properties of a transformers model that the model above takes over.
_COLLECTED_PROPERTIES = (
    "_keep_in_fp32_modules",
    "_keep_in_fp32_modules_strict",
    "_no_split_modules",
    "_skip_keys_device_placement",
)


def get_logger(module: str) -> Any:
    """Returns the logger of a module, among transformers' own, so that its verbosity applies."""
    return logging.get_logger(f"transformers.{module}")


def all_support(config: PreTrainedConfig, flag: str) -> bool:
    """Returns whether every transformers model that a configuration describes has a flag set.

    Args:
        config: a configuration of several models.
        flag: a class attribute of `PreTrainedModel`, such as ``"_supports_sdpa"``.
    """
    for name in config.sub_configs:
        kind = type(getattr(config, name))
        # Static encoders, which transformers does not know, have no attention.
        classes = MODEL_MAPPING.get(kind, ())
        if not isinstance(classes, tuple):
            classes = (classes,)
        if not all(getattr(model_class, flag) for model_class in classes):
            return False
    return True


def load_backbone(name_or_path: str | PathLike, **loading: Any) -> PreTrainedModel:
    """Loads a pretrained encoder to train further: float32, no pooler, no attention dropout.

    Raises:
        FileNotFoundError: if there is no encoder of that name.
        ValueError: if the checkpoint lacks weights of the encoder.
    """
    name = full_name(name_or_path)
    with named_errors(name):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **loading)

    config = type(config).from_dict(with_attention_dropout(config))
    arguments = {**loading, "config": config, "dtype": torch.float32, "output_loading_info": True}
    auto_class = _auto_class(config)

    # Otherwise every load prints a table of pooler or head weights that are not used.
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    with safe_weights(name):
        try:
            encoder, info = auto_class.from_pretrained(name, add_pooling_layer=False, **arguments)
        except TypeError:  # architectures without a pooler do not know the argument
            encoder, info = auto_class.from_pretrained(name, **arguments)
        finally:
            logging.set_verbosity(verbosity)

    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"{name!r} lacks {len(missing)} weights of its {config.model_type} ({missing[0]}, …)."
        )

    return encoder_half(encoder)


def backbone_from_config(config: PreTrainedConfig) -> PreTrainedModel:
    """Makes an encoder in torch's default dtype, without the pooler, which no model here uses."""
    dtype = torch.get_default_dtype()
    auto_class = _auto_class(config)
    try:
        model = auto_class.from_config(config, dtype=dtype, add_pooling_layer=False)
    except TypeError:  # architectures without a pooler do not know the argument
        model = auto_class.from_config(config, dtype=dtype)
    return encoder_half(model)


def _auto_class(config: PreTrainedConfig) -> Any:
    """Returns the auto class that makes an encoder, which is only half of a T5."""
    if config.model_type in _WITH_DECODER:
        return AutoModelForTextEncoding
    return AutoModel


def encoder_half(model: PreTrainedModel) -> PreTrainedModel:
    """Returns the layers of a T5's encoder, without the second name of its table of tokens.

    transformers ties the two names only in a model whose parts are all its own models.
    """
    if model.config.model_type in _WITH_DECODER:
        return model.encoder
    return model


def copy_properties_of_children(wrapper: nn.Module) -> None:
    """Gives a plain module the properties that `PreTrainedModel.post_init` reads of children.

    `post_init` collects tied weights, weights that stay in float32 and layers that one device holds
    from the direct children of a model, so that it misses a model within a plain module.
    """
    for name in _COLLECTED_PROPERTIES:
        values: set[str] = set()
        for child in wrapper.children():
            values.update(getattr(child, name, None) or ())
        setattr(wrapper, name, values)

    tied: Any = {}
    for name, child in wrapper.named_children():
        for target, source in getattr(child, "all_tied_weights_keys", {}).items():
            tied[f"{name}.{target}"] = f"{name}.{source}"

    wrapper.all_tied_weights_keys = tied


def with_attention_dropout(config: PreTrainedConfig, probability: float = 0.0) -> dict[str, Any]:
    """Returns a configuration as a dictionary, with another attention dropout.

    Args:
        config: the configuration of an encoder.
        probability: new dropout; above zero it more than doubles the time of a step on a CPU.
    """
    values = config.to_dict()
    for name in ("attention_probs_dropout_prob", "attention_dropout"):
        if name in values:
            values[name] = probability
    return values


def with_layers(config: PreTrainedConfig, count: int) -> dict[str, Any]:
    """Returns the configuration of a backbone's first layers.

    Layers beyond those of the backbone repeat its layers from the first on.

    Raises:
        ValueError: the backbone's layers share weights in groups, and `count` would end within one.
    """
    values = config.to_dict()
    own = config.num_hidden_layers
    # DistilBERT, T5 and others have another name for it.
    field = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    values.pop("num_hidden_layers", None)
    values[field] = count

    for name in _LISTS_OF_LAYERS:
        entries = values.get(name)
        if isinstance(entries, (list, tuple)):
            values[name] = [entries[index % own] for index in range(count)]

    if "attention_types" in values:  # GPT-Neo: runs of layers, which `attention_layers` lists
        types = [config.attention_layers[index % own] for index in range(count)]
        values["attention_types"] = [[types, 1]]
        values["attention_layers"] = types

    if "per_layer_config" in values:  # Gemma 4: changes of some layers, by index
        changes = {int(index): change for index, change in values["per_layer_config"].items()}
        values["per_layer_config"] = {
            index: changes[index % own] for index in range(count) if index % own in changes
        }

    if "num_kv_shared_layers" in values:  # the last layers, which have no keys and values
        first_shared = own - values["num_kv_shared_layers"]
        values["num_kv_shared_layers"] = max(0, count - first_shared)
    if "num_hidden_groups" in values:
        values["num_hidden_groups"] = _groups(own, values["num_hidden_groups"], count)

    return values


def _groups(own: int, groups: int, count: int) -> int:
    """Returns the number of groups of layers with the same weights among `count` layers."""
    if count * groups % own != 0:
        size = own // groups
        raise ValueError(
            f"num_hidden_layers is {count}, but each {size} layers of the chunk encoder share their"
            f" weights. Give a multiple of {size}."
        )
    return max(1, count * groups // own)


def bert_over_vectors(hidden_size: int, layers: int, positions: int = 512) -> BertConfig:
    """Describes a new BERT over chunk vectors, with a feed-forward layer of four times the width.

    Args:
        hidden_size: dimensions of the vectors. Each attention head has 32 dimensions; if 32 does
            not divide the size, there is one head.
        layers: number of layers.
        positions: rows of the position table.

    Returns:
        The configuration, without attention dropout and without a word table.
    """
    heads = 1
    if hidden_size % 32 == 0:
        heads = hidden_size // 32
    return BertConfig(
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        max_position_embeddings=positions,
        num_attention_heads=heads,
        intermediate_size=4 * hidden_size,
        attention_probs_dropout_prob=0.0,
        vocab_size=1,  # no word table
    )


def missing_passes(encoder: nn.Module | None, passes: int) -> int:
    """Counts the passes of an encoder that this process has to add to its own; ask before them.

    A pass of an encoder that is sharded (FSDP) gathers weights from all processes, so that all
    processes must run it equally often. Otherwise one of them waits for ever.

    Args:
        encoder: the encoder; None if there is none.
        passes: number of passes that this process needs.

    Returns:
        Passes that another process needs beyond those; zero if the encoder is not sharded.
    """
    if encoder is None or not distributed.is_available() or not distributed.is_initialized():
        return 0

    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    sharded = (FSDPModule, FullyShardedDataParallel)
    if not any(isinstance(module, sharded) for module in encoder.modules()):
        return 0

    device = next(encoder.parameters()).device
    most = torch.tensor(passes, device=device)
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    return int(most) - passes


def select_states(
    model: PreTrainedModel, states: tuple[Tensor, ...] | None, selection: bool | int | list[int]
) -> tuple[Tensor | None, ...] | None:
    """Puts None in place of hidden states that are not selected, as transformers' capture does.

    Encoders that do not use that capture return the states of all layers.

    Args:
        model: the model that returned the states.
        states: states of all layers; None if they are not asked for.
        selection: `output_hidden_states`: true for all states, or the indices of some of them.
    """
    selected = selected_hidden_states(selection)
    if states is None or selected is None:
        return states
    kept = resolve_hidden_states_indices(model, selected, num_hidden_states=len(states))
    selection_of_states: list[Tensor | None] = [None] * len(states)
    for index in kept:
        selection_of_states[index] = states[index]
    return tuple(selection_of_states)


# The number of `evaluation_mode` blocks around each module that trains on after them.
_evaluations: dict[nn.Module, int] = {}
_evaluations_lock = Lock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode within a block, and its modules back as they were.

    Several threads may be in such blocks at once; the last one that leaves puts a module back.
    """
    paused = []
    with _evaluations_lock:
        for module in model.modules():
            if module.training or module in _evaluations:
                _evaluations[module] = _evaluations.get(module, 0) + 1
                module.training = False
                paused.append(module)

    try:
        yield
    finally:
        with _evaluations_lock:
            for module in paused:
                _evaluations[module] -= 1
                if _evaluations[module] == 0:
                    del _evaluations[module]
                    module.training = True


def mask_for(encoder: nn.Module, mask: Tensor) -> Tensor:
    """Returns the mask of padding in a form whose values an encoder does not look at.

    transformers looks whether a mask hides anything, for which it waits for a GPU in every pass. A
    mask with four dimensions is used as it is. BERT has the fused attention that takes such a mask
    as it is; other encoders get the mask unchanged.
    """
    config = getattr(encoder, "config", None)
    if traced() or getattr(config, "model_type", None) != "bert":
        return mask
    if config is None or config._attn_implementation != "sdpa":
        return mask
    length = mask.shape[1]
    return mask.bool()[:, None, None, :].expand(-1, 1, length, -1)


def token_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Returns the mask of token ids as bool, all true without a mask.

    Args:
        input_ids: token ids ``[B, T]``.
        attention_mask: mask ``[B, T]``, or None.

    Raises:
        ValueError: the shapes differ, or do not have two dimensions; or a graph is exported.
    """
    if torch.compiler.is_exporting():
        raise ValueError(
            "The pass over token ids cannot be exported, because its shapes depend on the lengths"
            " of the documents. Export the pass over chunk vectors (inputs_embeds), which"
            " NextLevelBERT and HATE have."
        )

    mask = attention_mask
    if mask is None:
        mask = torch.ones_like(input_ids)
    if input_ids.ndim != 2 or mask.shape != input_ids.shape:
        raise ValueError(
            f"Give input_ids [B, T] and an attention_mask like it; got {[*input_ids.shape]} and"
            f" {[*mask.shape]}."
        )

    return mask.bool()
