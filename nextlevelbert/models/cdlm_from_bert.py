"""The weights of a BERT or RoBERTa under the names of a Longformer, with a position table of any length."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import torch
from transformers import AutoModelForMaskedLM

from .pretrained import NextLevelPreTrainedModel, load_backbone, load_tokenizer

_OFFSET = ("roberta", "xlm-roberta", "camembert")  # these count positions from the padding id, as Longformer does
_KNOWN = ("bert", *_OFFSET)
_FIELDS = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "type_vocab_size", "layer_norm_eps", "initializer_range",
)  # fmt: skip
# The parts of a word head: BERT's names, and Longformer's, which RoBERTa has as well.
_BERT_HEAD = ("cls.predictions.transform.dense.", "cls.predictions.transform.LayerNorm.", "cls.predictions.bias")
_HEAD = ("lm_head.dense.", "lm_head.layer_norm.", "lm_head.bias")


class LongformerStartModel(NextLevelPreTrainedModel):
    """A family around transformers' Longformer: opened from a Longformer, or made from a BERT or RoBERTa."""

    base_model_prefix = "longformer"
    has_word_head = False

    @classmethod
    def _read_as(cls, source: Any, stored: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """As in the base class; a Longformer, such as `biu-nlp/cdlm`, is opened, too."""
        if stored.get("model_type") != "longformer":
            return super()._read_as(source, stored, arguments)
        names = ({*cls.config_class.__dataclass_fields__} - {"dtype"} | {"num_labels"}) & arguments.keys()
        fields = {name: arguments.pop(name) for name in names}
        dropped = ("model_type", "architectures", "auto_map", "transformers_version", "mask_token_id")
        values = {key: value for key, value in stored.items() if key not in dropped}
        return {"config": cls.config_class(**{"mask_token_id": None, **values, **fields})}

    @classmethod
    def from_encoder(
        cls, name_or_path: str | PathLike[str], max_length: int = 4096, attention_window: int | list[int] = 512,
        **config_kwargs: Any,
    ) -> Self:  # fmt: skip
        """A CDLM around a pretrained BERT or RoBERTa: its position table repeated, its projections used twice.

        The projections of global attention start as copies of the local ones, as in Longformer's own conversion. The
        word head is the encoder's if its checkpoint has one; otherwise it is new. Where the `attention_window` is
        twice the sequence's length, the outputs are the encoder's own.

        A sequence has at most `max_length` tokens, and each sees `attention_window` others, half on either side;
        `config_kwargs` are fields of the configuration, and loading arguments such as `revision` and `token`.
        """
        loading, fields = cls.split_arguments(config_kwargs)
        values, weights, tokenizer = longformer_weights(name_or_path, max_length, loading)
        if cls.has_word_head:
            weights |= _word_head(name_or_path, loading)
        model = cls(cls.config_class(**{**values, "attention_window": attention_window, **fields}))
        prefix = "" if model.base_model is model else "longformer."
        weights = {name if name.startswith("lm_head") else prefix + name: value for name, value in weights.items()}
        model.load_state_dict(weights, strict=False)
        model.tie_weights()
        model.base_model.copy_local_to_global()
        model.base_model.tokenizer = tokenizer
        return model.eval()

    @torch.no_grad()
    def copy_local_to_global(self) -> None:
        """Copies the projections of local attention to those of global attention, as in Longformer's fine-tuning."""
        for layer in self.base_model.encoder.layer:
            attention = layer.attention.self
            for name in ("query", "key", "value"):
                getattr(attention, f"{name}_global").load_state_dict(getattr(attention, name).state_dict())


def longformer_weights(
    name_or_path: str | PathLike[str], max_length: int, loading: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, torch.Tensor], Any]:
    """Configuration fields, weights of the base model and tokenizer of a Longformer that starts from an encoder."""
    source, tokenizer = load_backbone(name_or_path, **loading), load_tokenizer(name_or_path, **loading)
    kind, pad = source.config.model_type, tokenizer.pad_token_id
    if kind not in _KNOWN or pad is None:
        raise ValueError(
            f"{str(name_or_path)!r} is a {kind}; a CDLM starts from one of {', '.join(_KNOWN)} with a padding token. "
            "A Longformer is opened by from_pretrained."
        )
    fields = {
        **{name: getattr(source.config, name) for name in _FIELDS},
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": max_length + pad + 1,
        "pad_token_id": pad,
        "bos_token_id": tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id,
        "eos_token_id": tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }
    weights = source.state_dict()
    for name in ("embeddings.position_ids", "embeddings.token_type_ids"):
        weights.pop(name, None)
    table = weights["embeddings.position_embeddings.weight"]
    learnt = table[source.config.pad_token_id + 1 :] if kind in _OFFSET else table
    unused = torch.zeros(pad + 1, table.shape[1])  # up to the padding id
    rows = torch.arange(max_length) % len(learnt)
    weights["embeddings.position_embeddings.weight"] = torch.cat([unused, learnt[rows]])
    return fields, weights, tokenizer


def _word_head(name_or_path: str | PathLike[str], loading: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The word head under Longformer's names; nothing if the checkpoint has none, or one with another activation."""
    loading = {"dtype": torch.float32, "output_loading_info": True, **loading}
    model, info = AutoModelForMaskedLM.from_pretrained(name_or_path, **loading)
    names = _BERT_HEAD if model.config.model_type == "bert" else _HEAD
    if model.config.hidden_act != "gelu" or any(name.startswith(names) for name in info["missing_keys"]):
        return {}
    return {
        new + name.removeprefix(old): weight
        for name, weight in model.state_dict().items()
        for old, new in zip(names, _HEAD, strict=True)
        if name.startswith(old)
    }
