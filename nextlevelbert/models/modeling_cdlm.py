"""CDLM: one encoder that reads a set of related documents, with global attention on what it has to
predict.

Caciularu et al., "CDLM: Cross-Document Language Modeling", Findings of EMNLP 2021 (arXiv
2101.00406). The encoder is transformers' Longformer; weights have its names, so that
`allenai/longformer-base-4096` and `biu-nlp/cdlm` load as they are. Shapes: B sequences in a batch
(each a set of documents), L token positions, D hidden size, V words; M mentions and P pairs of
them, S sentences, T titles, G global positions in the sequence with most; H heads of d dimensions,
n blocks of c queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM
from transformers import initialization as init
from transformers.models.longformer import modeling_longformer as longformer
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_cdlm import CdlmConfig
from .pretrained import (
    NextLevelPreTrainedModel,
    classification_loss,
    encoders_of_package,
    labelled_loss,
    load_tokenizer,
    single_label_loss,
)

_OFFSET = (
    "roberta",
    "xlm-roberta",
    "camembert",
)  # these count positions from the padding id, as Longformer does
_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "type_vocab_size",
    "layer_norm_eps",
    "initializer_range",
)
# The parts of a word head: BERT's names, and Longformer's, which RoBERTa has as well.
_BERT_HEAD = (
    "cls.predictions.transform.dense.",
    "cls.predictions.transform.LayerNorm.",
    "cls.predictions.bias",
)
_HEAD = ("lm_head.dense.", "lm_head.layer_norm.", "lm_head.bias")


class CdlmPreTrainedModel(NextLevelPreTrainedModel):
    """A family around transformers' Longformer: opened from a Longformer, or made from a BERT or
    RoBERTa."""

    config: CdlmConfig
    config_class = CdlmConfig
    base_model_prefix = "longformer"
    family_auto_map = {
        "AutoConfig": "configuration_cdlm.CdlmConfig",
        "AutoModel": "modeling_cdlm.CdlmModel",
        "AutoModelForMaskedLM": "modeling_cdlm.CdlmForMaskedLM",
        "AutoModelForPreTraining": "modeling_cdlm.CdlmForMaskedLM",
        "AutoModelForSequenceClassification": "modeling_cdlm.CdlmForDocumentMatching",
        "AutoModelForQuestionAnswering": "modeling_cdlm.CdlmForMultiHopQuestionAnswering",
    }
    model_tags = ["cdlm", "nextlevelbert", "sentence-transformers"]
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["LongformerLayer"]
    _input_embed_layer = "word_embeddings"
    _keys_to_ignore_on_load_unexpected = [r"pooler", r"position_ids"]
    accepts_loss_kwargs = False  # losses are means over the batch
    has_word_head = False

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(
            module, longformer.LongformerLMHead
        ):  # transformers leaves this bias uninitialised
            init.zeros_(module.bias)

    @classmethod
    def _read_as(
        cls, source: Any, stored: Mapping[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """As in the base class; a Longformer, such as `biu-nlp/cdlm`, is opened, too."""
        if stored.get("model_type") != "longformer":
            return super()._read_as(source, stored, arguments)
        names = (
            {*cls.config_class.__dataclass_fields__} - {"dtype"} | {"num_labels"}
        ) & arguments.keys()
        fields = {name: arguments.pop(name) for name in names}
        dropped = (
            "model_type",
            "architectures",
            "auto_map",
            "transformers_version",
            "mask_token_id",
        )
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
        """A CDLM around a pretrained BERT or RoBERTa: its position table repeated, its projections
        used twice.

        The projections of global attention start as copies of the local ones, as in Longformer's
        own conversion. The word head is the encoder's if its checkpoint has one; otherwise it is
        new. Where the `attention_window` is twice the sequence's length, the outputs are the
        encoder's own.

        A sequence has at most `max_length` tokens, and each sees `attention_window` others, half on
        either side; `config_kwargs` are fields of the configuration, and loading arguments such as
        `revision` and `token`.
        """
        loading, fields = encoders_of_package().split_arguments(cls.config_class, config_kwargs)
        values, weights, tokenizer = longformer_weights(name_or_path, max_length, loading)
        if cls.has_word_head:
            weights |= word_head(name_or_path, loading)
        model = cls(cls.config_class(**{**values, "attention_window": attention_window, **fields}))
        prefix = "" if model.base_model is model else "longformer."
        weights = {
            name if name.startswith("lm_head") else prefix + name: value
            for name, value in weights.items()
        }
        model.load_state_dict(weights, strict=False)
        model.tie_weights()
        model.base_model.copy_local_to_global()
        model.base_model.tokenizer = tokenizer
        return model.eval()

    @torch.no_grad()
    def copy_local_to_global(self) -> None:
        """Copies the projections of local attention to those of global attention, as in
        Longformer's fine-tuning."""
        for layer in self.base_model.encoder.layer:
            attention = layer.attention.self
            for name in ("query", "key", "value"):
                getattr(attention, f"{name}_global").load_state_dict(
                    getattr(attention, name).state_dict()
                )


def longformer_weights(
    name_or_path: str | PathLike[str], max_length: int, loading: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor], Any]:
    """Configuration fields, weights of the base model and tokenizer of a Longformer that starts
    from an encoder."""
    source = encoders_of_package().load_backbone(name_or_path, **loading)
    tokenizer = load_tokenizer(name_or_path, **loading)
    kind, pad = source.config.model_type, tokenizer.pad_token_id
    if kind not in (known := ("bert", *_OFFSET)) or pad is None:
        raise ValueError(
            f"{str(name_or_path)!r} is a {kind}; a CDLM starts from one of {', '.join(known)} with"
            " a padding token. A Longformer is opened by from_pretrained."
        )
    fields = {
        **{name: getattr(source.config, name) for name in _FIELDS},
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": max_length + pad + 1,
        "pad_token_id": pad,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }
    weights = source.state_dict()
    table = weights["embeddings.position_embeddings.weight"]
    learnt = table[source.config.pad_token_id + 1 :] if kind in _OFFSET else table
    unused = torch.zeros(pad + 1, table.shape[1])  # up to the padding id
    rows = torch.arange(max_length) % len(learnt)
    weights["embeddings.position_embeddings.weight"] = torch.cat([unused, learnt[rows]])
    return fields, weights, tokenizer


def word_head(name_or_path: str | PathLike[str], loading: dict[str, Any]) -> dict[str, Tensor]:
    """The word head under Longformer's names; nothing if the checkpoint has none, or one with
    another activation."""
    loading = {"dtype": torch.float32, "output_loading_info": True, **loading}
    model, info = AutoModelForMaskedLM.from_pretrained(name_or_path, **loading)
    names = _BERT_HEAD if model.config.model_type == "bert" else _HEAD
    if model.config.hidden_act != "gelu" or any(
        name.startswith(names) for name in info["missing_keys"]
    ):
        return {}
    return {
        new + name.removeprefix(old): weight
        for name, weight in model.state_dict().items()
        for old, new in zip(names, _HEAD, strict=True)
        if name.startswith(old)
    }


@dataclass(frozen=True)
class AttentionPlan:
    """Who sees whom, worked out once for all layers with the same window.

    Attributes:
        real, is_global: ``[B, L]`` bool.
        global_index: ``[B, G]``, positions of the global tokens, then of others where a sequence
            has fewer.
        global_real: ``[B, G]`` bool, where `global_index` means something.
        allowed: which keys a query may see: ``[B, 1, L, L]``, or with blocks ``[B · n, 1, c, c +
            window + G]``.
        block: c; None where every query sees the keys of all positions, because blocks would have
            as many.
    """

    real: Tensor
    is_global: Tensor
    global_index: Tensor
    global_real: Tensor
    allowed: Tensor
    block: int | None


def plan_attention(real: Tensor, is_global: Tensor, window: int) -> AttentionPlan:
    """Who sees whom, of ``[B, L]`` real and global (and real) positions, with a window of both
    sides together.

    A token with local attention sees the tokens around it and every global one; a global token sees
    all, through projections of its own (Beltagy et al., 2020, section 3.1). Queries are taken in
    blocks: each sees the keys of its windows, laid out next to each other, and the global keys
    after them. CDLM's global tokens (the masked ones) are everywhere, so a block mask over the
    whole square would have no empty block.
    """
    rows, length = real.shape
    half = window // 2
    counts = is_global.sum(dim=1)
    most = int(counts.max())
    # A stable sort puts the global positions first and keeps their order.
    global_index = (~is_global).long().argsort(dim=1, stable=True)[:, :most]  # [B, G]
    global_real = torch.arange(most, device=real.device) < counts[:, None]
    position = torch.arange(length, device=real.device)
    if 3 * half + most >= length:
        near = (position[:, None] - position).abs() <= half  # [L, L]
        allowed = (near & real[:, None, :]) | is_global[:, None, :]
        allowed = (
            allowed | ~real[:, :, None]
        )  # a query without keys would give NaN; padding is set to zero later
        return AttentionPlan(real, is_global, global_index, global_real, allowed[:, None], None)
    blocks = -(-length // half)
    # Global keys are seen as such, not a second time in the window.
    local = _windows(
        nn.functional.pad((real & ~is_global).unsqueeze(-1), (0, 0, 0, blocks * half - length)),
        half,
    )
    query = torch.arange(half, device=real.device)
    key = torch.arange(3 * half, device=real.device) - half
    near = (query[:, None] - key).abs() <= half  # [c, 3c]
    allowed = near & local.squeeze(-1)[:, :, None, :]  # [B, n, c, 3c]
    wide = global_real[:, None, None, :].expand(rows, blocks, half, most)
    allowed = torch.cat([allowed, wide], dim=-1)
    query_real = nn.functional.pad(real, (0, blocks * half - length)).view(rows, blocks, half, 1)
    allowed = (allowed | ~query_real).flatten(0, 1).unsqueeze(1)
    return AttentionPlan(real, is_global, global_index, global_real, allowed, half)


def _windows(values: Tensor, block: int) -> Tensor:
    """Every block of ``[B, n · c, …]`` between its neighbours: ``[B, n, 3c, …]``, zero outside."""
    parts = values.unflatten(1, (-1, block))  # [B, n, c, …]
    edge = torch.zeros_like(parts[:, :1])
    padded = torch.cat([edge, parts, edge], dim=1)
    return torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], dim=2)


class CdlmSelfAttention(longformer.LongformerSelfAttention):
    """Longformer's self-attention; with an `AttentionPlan` in place of its mask, the same through
    SDPA, faster."""

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As in transformers, or with a plan: ``([B, L, D],)``, zero at padding."""
        if not isinstance(attention_mask, AttentionPlan):
            return super().forward(hidden_states, attention_mask, *args, **kwargs)
        plan = attention_mask
        query, key, value = (
            project(hidden_states).unflatten(-1, (self.num_heads, self.head_dim))
            for project in (self.query, self.key, self.value)
        )  # [B, L, H, d] each
        if plan.block is None:
            output = self._attend(query, key, value, plan.allowed)
        else:
            length = hidden_states.shape[1]
            missing = (0, 0, 0, 0, 0, -length % plan.block)
            query, keys, values = (
                nn.functional.pad(heads, missing) for heads in (query, key, value)
            )
            keys, values = (
                _windows(heads, plan.block) for heads in (keys, values)
            )  # [B, n, 3c, H, d]
            if plan.global_index.shape[1]:
                blocks = keys.shape[1]
                keys, values = (
                    torch.cat(
                        [
                            near,
                            take_positions(heads, plan.global_index)[:, None].expand(
                                -1, blocks, -1, -1, -1
                            ),
                        ],
                        dim=2,
                    )
                    for near, heads in ((keys, key), (values, value))
                )
            query = query.unflatten(1, (-1, plan.block)).flatten(0, 1)  # [B · n, c, H, d]
            output = self._attend(query, keys.flatten(0, 1), values.flatten(0, 1), plan.allowed)
            output = output.reshape(len(hidden_states), -1, self.num_heads, self.head_dim)[
                :, :length
            ]
        output = output.flatten(-2)  # [B, L, D]
        if plan.global_index.shape[1]:
            seen = self._attend(
                self.query_global(take_positions(hidden_states, plan.global_index)).unflatten(
                    -1, (self.num_heads, -1)
                ),
                self.key_global(hidden_states).unflatten(-1, (self.num_heads, -1)),
                self.value_global(hidden_states).unflatten(-1, (self.num_heads, -1)),
                plan.real[:, None, None, :],
            ).flatten(-2)  # [B, G, D]
            # Both masks are read row by row, in the order of positions.
            output = output.masked_scatter(plan.is_global.unsqueeze(-1), seen[plan.global_real])
        return (output.masked_fill(~plan.real.unsqueeze(-1), 0.0),)

    def _attend(self, query: Any, key: Any, value: Any, allowed: Tensor) -> Tensor:
        """Attention over ``[…, positions, H, d]``; `allowed` broadcasts over the heads."""
        query, key, value = (heads.transpose(1, 2) for heads in (query, key, value))
        dropout = self.dropout if self.training else 0.0
        output = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, dropout_p=dropout
        )
        return output.transpose(1, 2)


def real_tokens(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None = None
) -> Tensor:
    """Where a batch has tokens, ``[B, L]`` bool: everywhere without a mask."""
    if (values := inputs_embeds if input_ids is None else input_ids) is None:
        raise ValueError("Give input_ids or inputs_embeds.")
    whole = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
    return whole if attention_mask is None else attention_mask.bool()


def global_tokens(
    real: Tensor, attention_mask: Tensor | None, global_attention_mask: Tensor | None
) -> Tensor:
    """Finds the tokens with global attention.

    A token has global attention if `global_attention_mask` is 1 or, as in transformers' Longformer,
    if `attention_mask` is 2. Padding never has it.

    Args:
        real: ``[B, L]`` bool, true at tokens.
        attention_mask: ``[B, L]`` of 0, 1 and 2.
        global_attention_mask: ``[B, L]`` of 0 and 1.

    Returns:
        ``[B, L]`` bool.

    Raises:
        ValueError: `attention_mask` has other values, such as those of an additive mask.
    """
    is_global = torch.zeros_like(real)
    if global_attention_mask is not None:
        is_global = global_attention_mask.bool()

    if attention_mask is not None:
        marked = attention_mask == 2
        unknown = real & (attention_mask != 1) & ~marked
        if unknown.any():
            value = attention_mask[unknown][0].item()
            raise ValueError(
                "attention_mask must be 0 at padding, 1 at tokens and 2 at tokens with global"
                f" attention; it has {value}. An additive mask has to be turned into zeros and ones."
            )
        is_global = is_global | marked

    return is_global & real


def first_token(real: Tensor) -> Tensor:
    """True at the first real position of each row, its [CLS]: ``[B, L]``."""
    return (real.cumsum(dim=1) == 1) & real


def take_positions(states: Tensor, index: Tensor) -> Tensor:
    """States ``[B, S, …]`` at positions ``[B, S]`` of ``[B, L, …]``; position 0 where the index is
    -1."""
    return states[torch.arange(len(states), device=states.device)[:, None], index.clamp(min=0)]


class CdlmModel(CdlmPreTrainedModel):
    """A set of documents in one sequence to a state for every token."""

    _keys_to_ignore_on_load_unexpected = [
        r"pooler",
        r"position_ids",
        r"^(lm_head|classifier|scorer|qa_)",
    ]

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        config.attention_window = config.windows()
        self.embeddings = longformer.LongformerEmbeddings(config)
        self.encoder = longformer.LongformerEncoder(config)
        for number, layer in enumerate(self.encoder.layer):
            layer.attention.self = CdlmSelfAttention(config, number)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """Reads sets of documents, each laid out in one sequence by a `CdlmProcessor`.

        Args:
            attention_mask: ``[B, L]``, 0 at padding, 1 at tokens, 2 at tokens with global
                attention (the older way of transformers' Longformer).
            global_attention_mask: ``[B, L]``, 1 where a token sees, and is seen by, all others,
                else 0. All 0 by default, as in transformers' Longformer; the models for tasks
                choose by what they predict.
            output_attentions: attentions exist only in ``"eager"`` mode, which the pass then uses.

        Returns:
            As transformers' Longformer, with `pooler_output` ``[B, D]``, the mean over the tokens
            of a sequence.
        """
        real = real_tokens(input_ids, attention_mask, inputs_embeds)
        is_global = global_tokens(real, attention_mask, global_attention_mask)
        if (longest := int(real.sum(dim=1).max())) > self.config.max_sequence_length:
            raise ValueError(
                f"A sequence has {longest} tokens, but the model reads"
                f" {self.config.max_sequence_length}: let a CdlmProcessor cut the documents, or"
                " make the model from an encoder with a larger max_length."
            )
        positions = real.cumsum(dim=1) * real + self.embeddings.padding_idx  # counted as in RoBERTa
        hidden = self.embeddings(input_ids, token_type_ids, positions, inputs_embeds)
        attentions = (
            self.config.output_attentions if output_attentions is None else output_attentions
        )
        states = (
            self.config.output_hidden_states
            if output_hidden_states is None
            else output_hidden_states
        )
        if self.config._attn_implementation == "eager" or attentions:
            output = self._eager(hidden, real, is_global, attentions, states)
        else:
            windows = self.config.windows()
            plans = {window: plan_attention(real, is_global, window) for window in set(windows)}
            seen: tuple[Tensor, ...] = (hidden,)
            for layer, window in zip(self.encoder.layer, windows, strict=True):
                hidden = layer(hidden, attention_mask=plans[window])[0]
                seen = (*seen, hidden) if states else ()
            output = longformer.LongformerBaseModelOutputWithPooling(
                hidden, hidden_states=seen or None
            )
        total = output.last_hidden_state.masked_fill(~real.unsqueeze(-1), 0.0).sum(
            dim=1, dtype=torch.float32
        )
        output.pooler_output = (total / real.sum(dim=1, keepdim=True).clamp(min=1)).to(
            hidden.dtype
        )  # [B, D]
        return output

    def _eager(
        self, hidden: Tensor, real: Tensor, is_global: Tensor, attentions: bool, states: bool
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """transformers' own attention, which takes a length that all windows divide and shows its
        weights."""
        extra = -real.shape[1] % math.lcm(*self.config.windows())
        ends = torch.finfo(hidden.dtype)
        mask = torch.zeros_like(real, dtype=hidden.dtype)
        mask = mask.masked_fill(~real, ends.min).masked_fill(is_global, ends.max)
        mask, hidden = (
            nn.functional.pad(mask, (0, extra), value=ends.min),
            nn.functional.pad(hidden, (0, 0, 0, extra)),
        )
        output = self.encoder(hidden, mask, extra, attentions, states, return_dict=True)
        return longformer.LongformerBaseModelOutputWithPooling(**output)


class CdlmForMaskedLM(CdlmPreTrainedModel):
    """Predicts masked words of a set of documents (paper, section 2.2).

    Unless a global attention mask is given, `config.global_attention` decides: by default the
    [MASK] tokens have global attention, as in the paper's pretraining.
    """

    has_word_head = True
    _tied_weights_keys = {
        "lm_head.decoder.weight": "longformer.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.lm_head = longformer.LongformerLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head.decoder = new_embeddings

    def usual_global_attention(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor | None:
        """Makes the global attention mask ``[B, L]`` of the pattern that the model was trained with.

        Args:
            input_ids: ``[B, L]``.
            attention_mask: ``[B, L]``; None if there is no padding.

        Returns:
            True at the [MASK] tokens (``config.global_attention`` is ``"masked"``), or at as many
            first tokens of each sequence (``"prefix"``); None for ``"none"``, and if the
            configuration has no `mask_token_id`.
        """
        pattern = self.config.global_attention
        if pattern == "none" or self.config.mask_token_id is None:
            return None

        is_mask = input_ids == self.config.mask_token_id
        if pattern == "masked":
            return is_mask

        real = real_tokens(input_ids, attention_mask)
        count = (is_mask & real).sum(dim=1, keepdim=True)  # [B, 1]
        return real & (real.cumsum(dim=1) <= count)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> longformer.LongformerMaskedLMOutput:
        """Scores of words, ``[B, L, V]``; inputs as in `CdlmModel`.

        `labels` ``[B, L]`` are ids of the true words, -100 where nothing is predicted; the loss is
        zero if they are -100 everywhere. With them and `config.sparse_prediction`, the N positions that have one are
        scored, row by row: ``[N, V]``.
        """
        if global_attention_mask is None and input_ids is not None:
            global_attention_mask = self.usual_global_attention(input_ids, attention_mask)
        output = self.longformer(
            input_ids,
            attention_mask,
            global_attention_mask,
            token_type_ids,
            return_dict=True,
            **kwargs,
        )
        states = output.last_hidden_state
        if labels is None:
            return longformer.LongformerMaskedLMOutput(
                logits=self.lm_head(states), **_extras(output)
            )
        masked = labels != -100
        sparse = self.config.sparse_prediction
        logits = self.lm_head(states[masked] if sparse else states)  # [N, V] or [B, L, V]
        loss = single_label_loss(logits if sparse else logits[masked], labels[masked])
        return longformer.LongformerMaskedLMOutput(loss=loss, logits=logits, **_extras(output))


class CdlmForDocumentMatching(CdlmPreTrainedModel):
    """Says whether two documents belong together, by the state of [CLS] (paper, section 3.3 and
    appendix C.2)."""

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.classifier = longformer.LongformerClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> longformer.LongformerSequenceClassifierOutput:
        """Scores ``[B, num_labels]``; inputs as in `CdlmModel`, with global attention on [CLS] by
        default.

        `labels` are ``[B]``, or as `config.problem_type` says.
        """
        first = first_token(real_tokens(input_ids, attention_mask, kwargs.get("inputs_embeds")))
        wide = first if global_attention_mask is None else global_attention_mask
        output = self.longformer(
            input_ids, attention_mask, wide, token_type_ids, return_dict=True, **kwargs
        )
        # [CLS] is where the padding on the left ends.
        logits = self.classifier(
            take_positions(output.last_hidden_state, first.long().argmax(dim=1)[:, None])
        )
        loss = None if labels is None else classification_loss(logits, labels, self.config)
        return longformer.LongformerSequenceClassifierOutput(
            loss=loss, logits=logits, **_extras(output)
        )


class PairScorer(nn.Module):
    """One hidden layer with tanh over [s ; m_i ; m_j ; m_i ∘ m_j] (paper, appendix C.1)."""

    def __init__(self, hidden_size: int, units: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(4 * hidden_size, units)
        self.projection = nn.Linear(units, 1)

    def forward(self, states: Tensor, first: Tensor, spans: Tensor, pairs: Tensor) -> Tensor:
        """Scores ``[B, P]`` of `pairs` ``[B, P, 2]`` of `spans` ``[B, M, 2]``; `first` ``[B]`` is
        where [CLS] is."""
        position = torch.arange(states.shape[1], device=states.device)
        inside = (position >= spans[..., :1]) & (position < spans[..., 1:])  # [B, M, L]
        mentions = inside.to(states.dtype) @ states  # [B, M, D]
        left, right = (take_positions(mentions, pairs[..., side]) for side in (0, 1))  # [B, P, D]
        document = take_positions(states, first[:, None]).expand_as(left)
        features = torch.cat([document, left, right, left * right], dim=-1)  # [B, P, 4D]
        return self.projection(self.dense(self.dropout(features)).tanh()).squeeze(-1)


def check_spans(spans: Tensor, real: Tensor) -> None:
    """Raises a ValueError for the first span ``[B, M, 2]`` that is empty or outside its sequence
    (-1: padding)."""
    ends = real.long().cumsum(dim=1).argmax(dim=1)[:, None] + 1  # one past the last real position
    bad = (spans[..., 0] < 0) | (spans[..., 1] <= spans[..., 0]) | (spans[..., 1] > ends)
    bad &= (spans != -1).any(dim=-1)  # [B, M]
    if bad.any():
        row, mention = bad.nonzero()[0].tolist()
        raise ValueError(
            f"Mention {mention} of row {row} has the span {spans[row, mention].tolist()}; it must"
            f" not be empty, and must lie between 0 and {int(ends[row])}, the end of its sequence."
        )


@dataclass
class MentionPairOutput(ModelOutput):
    """`loss`, the mean over sets of the mean over their pairs; `logits` ``[B, P]``, zero without a
    pair."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    pair_mask: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    global_attentions: tuple[Tensor, ...] | None = None


class CdlmForCrossDocumentCoreference(CdlmPreTrainedModel):
    """Says which mentions in one or two documents mean the same (paper, section 3.2 and appendix
    C.1).

    No auto class of transformers scores pairs. Without this package, a checkpoint `path` opens by
    transformers' ``get_class_from_dynamic_module("modeling_cdlm.CdlmForCrossDocumentCoreference",
    path).from_pretrained(path)``.
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.scorer = PairScorer(
            config.hidden_size, config.pair_scorer_hidden_size, config.classifier_dropout or 0.0
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        mention_spans: Tensor,
        mention_pairs: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MentionPairOutput:
        """Scores pairs of mentions; `CdlmProcessor.mentions` makes the inputs, other arguments as
        in `CdlmModel`.

        Args:
            mention_spans: ``[B, M, 2]``, first position of each mention and one past its last,
                without the markers; -1 is padding.
            mention_pairs: ``[B, P, 2]``, numbers of mentions; -1 is padding. By default the pair of
                the first two.
            global_attention_mask: ``[B, L]``; by default 1 at [CLS], at the mentions and at their
                markers.
            labels: ``[B, P]``, 1 for a pair that means the same, else 0; -100 if unknown.
        """
        real = real_tokens(input_ids, attention_mask)
        check_spans(mention_spans, real)
        first = first_token(real)
        if mention_pairs is None:
            mention_pairs = torch.tensor([0, 1], device=input_ids.device).expand(
                len(input_ids), 1, 2
            )
        if global_attention_mask is None:
            position = torch.arange(input_ids.shape[1], device=input_ids.device)
            marked = (position >= mention_spans[..., :1] - 1) & (
                position <= mention_spans[..., 1:]
            )  # [B, M, L]
            global_attention_mask = (marked & (mention_spans[..., :1] >= 0)).any(dim=1) | first
        output = self.longformer(
            input_ids,
            attention_mask,
            global_attention_mask,
            token_type_ids,
            return_dict=True,
            **kwargs,
        )
        pair_mask = (mention_pairs != -1).any(dim=-1)  # [B, P]
        spans, pairs = mention_spans.clamp(min=0), mention_pairs.clamp(min=0)
        logits = self.scorer(output.last_hidden_state, first.long().argmax(dim=1), spans, pairs)
        logits = logits.masked_fill(~pair_mask, 0.0)
        loss = None if labels is None else labelled_loss(logits, labels)
        return MentionPairOutput(loss=loss, logits=logits, pair_mask=pair_mask, **_extras(output))


def any_of_loss(logits: Tensor, positions: Tensor) -> Tensor:
    """Minus the log-probability that any one of several positions is meant (Clark and Gardner,
    2018).

    `logits` are ``[B, L]``, minus infinity at padding; `positions` ``[B, A]``, -1 is padding. Rows
    without an answer do not count in the mean.
    """
    log_probabilities = logits.float().log_softmax(dim=-1).gather(1, positions.clamp(min=0))
    answered = (positions >= 0).any(dim=1)
    if not answered.any():
        return logits.float().flatten()[:1].sum() * 0.0
    return (
        -log_probabilities.masked_fill(positions < 0, -torch.inf)[answered].logsumexp(dim=1).mean()
    )


@dataclass
class MultiHopQuestionAnsweringOutput(ModelOutput):
    """`loss`, the sum over all heads with labels, and logits: where the answer begins and at which
    token it ends, ``[B, L]``; its type (a span, yes, no), ``[B, 3]``; whether a sentence supports
    it, ``[B, S]``, and a paragraph, ``[B, T]``, zero where there is none.
    """

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    type_logits: Tensor | None = None
    sentence_logits: Tensor | None = None
    paragraph_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    global_attentions: tuple[Tensor, ...] | None = None


class CdlmForMultiHopQuestionAnswering(CdlmPreTrainedModel):
    """Answers a question from several paragraphs, and says which sentences support it (paper, 3.4
    and appendix C.3).

    The heads are those of Beltagy et al. (2020, appendix D): a span over the tokens, and two layers
    each over [CLS] (span, yes or no), over sentence starts and over title starts (whether they
    support the answer).
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        size = config.hidden_size
        self.qa_type, self.qa_sentence, self.qa_paragraph = (
            nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, outputs))
            for outputs in (3, 1, 1)
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        global_attention_mask: Tensor,
        sentence_index: Tensor,
        paragraph_index: Tensor,
        attention_mask: Tensor | None = None,
        context_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        type_labels: Tensor | None = None,
        sentence_labels: Tensor | None = None,
        paragraph_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MultiHopQuestionAnsweringOutput:
        """Scores spans, kinds of answers, sentences and paragraphs; `CdlmProcessor.question` makes
        the inputs.

        Args:
            sentence_index, paragraph_index: ``[B, S]`` and ``[B, T]``, starts of sentences and
                titles; -1 is padding.
            context_mask: ``[B, L]``, 1 at tokens that can be part of an answer; all real ones by
                default.
            start_positions, end_positions: ``[B, A]``, first and last token of every place where
                the answer occurs in the supporting paragraphs; -1 is padding. The loss asks for any
                one of them.
            type_labels: ``[B]``: 0 span, 1 yes, 2 no, -100 unknown.
            sentence_labels, paragraph_labels: ``[B, S]`` and ``[B, T]``, 1 where one supports the
                answer, 0, or -100.
        """
        output = self.longformer(
            input_ids,
            attention_mask,
            global_attention_mask,
            token_type_ids,
            return_dict=True,
            **kwargs,
        )
        states = output.last_hidden_state
        real = real_tokens(input_ids, attention_mask)
        possible = real if context_mask is None else context_mask.bool()
        spans = (
            self.qa_outputs(states)
            .float()
            .masked_fill(~possible.unsqueeze(-1), torch.finfo(torch.float32).min)
        )
        first = first_token(real).long().argmax(dim=1)
        sentence, paragraph = (
            head(take_positions(states, index)).squeeze(-1).masked_fill(index < 0, 0.0)
            for head, index in (
                (self.qa_sentence, sentence_index),
                (self.qa_paragraph, paragraph_index),
            )
        )  # [B, S] and [B, T]
        start, end = spans.unbind(dim=-1)  # [B, L]
        kind = self.qa_type(take_positions(states, first[:, None]).squeeze(1))  # [B, 3]
        heads = (
            (any_of_loss, start, start_positions),
            (any_of_loss, end, end_positions),
            (single_label_loss, kind, type_labels),
            (labelled_loss, sentence, sentence_labels),
            (labelled_loss, paragraph, paragraph_labels),
        )
        losses = [
            of_head(logits, labels) for of_head, logits, labels in heads if labels is not None
        ]
        loss = torch.stack(losses).sum() if losses else None
        return MultiHopQuestionAnsweringOutput(
            loss, start, end, kind, sentence, paragraph, **_extras(output)
        )


def _extras(output: longformer.LongformerBaseModelOutputWithPooling) -> dict[str, Any]:
    """The parts of the base model's output that every head passes on."""
    return {
        name: getattr(output, name) for name in ("hidden_states", "attentions", "global_attentions")
    }
