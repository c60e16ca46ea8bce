"""Configurations of backbones with another number of layers.

Besides the number, a configuration may describe layers one by one, or say which of them share
weights or keys and values. These fields change with the number of layers.
"""

from typing import Any

from transformers import PreTrainedConfig

# Lists with an entry for each layer, by their names in transformers. A field that has one value for
# all layers, such as the `intermediate_size` of most backbones, is no list.
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


def with_layers(config: PreTrainedConfig, count: int) -> dict[str, Any]:
    """Returns the configuration of a backbone's first layers.

    Layers beyond those of the backbone repeat its layers from the first on.

    Args:
        config: the configuration of the backbone.
        count: number of layers.

    Returns:
        The fields of the configuration.

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
        kinds = [config.attention_layers[index % own] for index in range(count)]
        values["attention_types"] = [[kinds, 1]]
        values["attention_layers"] = kinds
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
