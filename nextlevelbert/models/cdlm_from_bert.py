"""The weights of a BERT or RoBERTa under the names of a Longformer, with a position table of any length."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from .pretrained import NextLevelPreTrainedModel, load_backbone, load_tokenizer

_OFFSET = ("roberta", "xlm-roberta", "camembert")  # these count positions from the padding id, as Longformer does
KNOWN = ("bert", *_OFFSET)
_SAME_FIELDS = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "type_vocab_size", "layer_norm_eps", "initializer_range",
)  # fmt: skip
# The parts of a word head: BERT's names, and those that are Longformer's own.
_BERT_HEAD = {
    "cls.predictions.transform.dense.": "lm_head.dense.",
    "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
    "cls.predictions.bias": "lm_head.bias",
}
_ROBERTA_HEAD = {
    "lm_head.dense.": "lm_head.dense.",
    "lm_head.layer_norm.": "lm_head.layer_norm.",
    "lm_head.bias": "lm_head.bias",
}


class LongformerStartModel(NextLevelPreTrainedModel):
    """A family around transformers' Longformer: opened from a Longformer, or made from a BERT or RoBERTa."""

    base_model_prefix = "longformer"
    has_word_head = False

    @classmethod
    def _read_as(cls, source: Any, stored: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """As in the base class; a Longformer, such as `biu-nlp/cdlm`, is opened, too."""
        if stored.get("model_type") != "longformer":
            return super()._read_as(source, stored, given)
        fields = {key: given.pop(key) for key in list(given) if key in cls.config_class.__dataclass_fields__}
        dropped = ("model_type", "architectures", "auto_map", "transformers_version", "mask_token_id")
        values = {key: value for key, value in stored.items() if key not in dropped}
        return {"config": cls.config_class(**{"mask_token_id": None, **values, **fields})}

    @classmethod
    def from_encoder(
        cls,
        name_or_path: str | PathLike[str],
        max_length: int = 4096,
        attention_window: int | list[int] = 512,
        **config_kwargs: Any,
    ) -> Self:
        """A CDLM around a pretrained BERT or RoBERTa: its position table repeated, its projections used twice.

        The projections of global attention start as copies of the local ones (as in Longformer's own conversion). The
        word head is the encoder's if its checkpoint has one; otherwise it is new and tied to the embeddings. With an
        `attention_window` of at least twice the sequence length the outputs are the encoder's own.

        Args:
            name_or_path: folder or Hub name of the encoder, with its tokenizer.
            max_length: most tokens in a sequence.
            attention_window: tokens that each token sees, half of them on either side.
            config_kwargs: other fields of the configuration, and loading arguments such as `revision` and `token`.
                Attention dropout is 0 unless given.

        Raises:
            ValueError: for another architecture, an unknown argument, or an encoder that `load_backbone` cannot load.
        """
        loading, given = cls.split_arguments(config_kwargs)
        with_head = cls.has_word_head
        fields, weights, tokenizer = longformer_weights(name_or_path, max_length, with_head, loading)
        config = cls.config_class(**{**fields, "attention_window": attention_window, **given})
        model = cls(config)
        outcome = model.load_state_dict(weights if with_head else _without_prefix(weights, model), strict=False)
        if outcome.unexpected_keys:
            raise ValueError(
                f"Weights of {str(name_or_path)!r} match nothing in the model: {outcome.unexpected_keys[:3]}, …."
            )
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
    name_or_path: str | PathLike[str], max_length: int, with_head: bool, loading: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, torch.Tensor], PreTrainedTokenizerBase]:
    """What a new Longformer takes from an encoder.

    Args:
        name_or_path: folder or Hub name of a BERT or RoBERTa.
        max_length: most tokens in a sequence of the new model.
        with_head: also the word head, if the checkpoint has one.
        loading: arguments of `from_pretrained` such as `revision` and `token`.

    Returns:
        Fields of the configuration, weights by name, and the tokenizer.

    Raises:
        ValueError: for another architecture, a length below 1, or an encoder that `load_backbone` cannot load.
    """
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, got {max_length}.")
    source, tokenizer = load_backbone(name_or_path, **loading), load_tokenizer(name_or_path, **loading)
    kind = source.config.model_type
    if kind not in KNOWN:
        raise ValueError(
            f"{str(name_or_path)!r} is a {kind}; a CDLM starts from one of {', '.join(KNOWN)}, whose layers are those "
            "of a Longformer. A Longformer itself is opened by from_pretrained."
        )
    pad = tokenizer.pad_token_id
    if pad is None:
        raise ValueError(
            f"The tokenizer of {str(name_or_path)!r} has no padding token, but positions are counted from it."
        )
    fields = {
        **{name: getattr(source.config, name) for name in _SAME_FIELDS},
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": max_length + pad + 1,
        "pad_token_id": pad,
        "bos_token_id": tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.cls_token_id,
        "eos_token_id": tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }
    weights = {f"longformer.{name}": weight for name, weight in source.state_dict().items()}
    weights = {
        name: weight for name, weight in weights.items() if not name.endswith(("position_ids", "token_type_ids"))
    }
    table = weights["longformer.embeddings.position_embeddings.weight"]
    learnt = table[source.config.pad_token_id + 1 :] if kind in _OFFSET else table
    rows = torch.arange(max_length) % len(learnt)
    unused = torch.zeros(pad + 1, table.shape[1])  # up to the padding id
    weights["longformer.embeddings.position_embeddings.weight"] = torch.cat([unused, learnt[rows]])
    if with_head:
        weights |= _head(name_or_path, kind, source.config.hidden_act, loading)
    return fields, weights, tokenizer


def _head(
    name_or_path: str | PathLike[str], kind: str, activation: object, loading: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """The word head under Longformer's names; nothing if the checkpoint has none, or one with another activation."""
    names = _BERT_HEAD if kind == "bert" else _ROBERTA_HEAD
    model, info = AutoModelForMaskedLM.from_pretrained(
        name_or_path, output_loading_info=True, dtype=torch.float32, **loading
    )
    missing = [
        name for name in info["missing_keys"] if name.startswith(("cls.predictions.transform", "lm_head.dense"))
    ]
    if missing or activation != "gelu":
        return {}
    return {
        ours + name.removeprefix(theirs): weight
        for name, weight in model.state_dict().items()
        for theirs, ours in names.items()
        if name.startswith(theirs)
    }


def _without_prefix(weights: dict[str, torch.Tensor], model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights of the base model, under their names in `model`."""
    if model.base_model is not model:
        return weights
    return {name.removeprefix("longformer."): weight for name, weight in weights.items()}
