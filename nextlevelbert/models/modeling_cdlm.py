"""CDLM: an encoder of related documents, with global attention on the tokens to predict.

Caciularu et al., "CDLM: Cross-Document Language Modeling", Findings of EMNLP 2021 (arXiv
2101.00406). The encoder is transformers' Longformer; weights have its names, so that
`allenai/longformer-base-4096` and `biu-nlp/cdlm` load as they are.

Shapes: B sequences in a batch (each a set of documents), L token positions, D hidden size, V words;
M mentions and P pairs of them, S sentences, T titles, A places of an answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.models.longformer import modeling_longformer as longformer
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import TransformersKwargs

from .backbones import load_backbone, select_states, token_mask
from .cdlm_attention import CdlmSelfAttention, plan_attention, take_positions
from .checkpoints import LayerOutputs, NextLevelPreTrainedModel, load_tokenizer, split_arguments
from .configuration_cdlm import CdlmConfig
from .losses import classification_loss, labelled_loss, single_label_loss
from .model_names import full_name

# These count positions from the padding id, as Longformer does.
_OFFSET_TYPES = ("roberta", "xlm-roberta", "camembert")
_ENCODER_TYPES = ("bert", *_OFFSET_TYPES)

# Fields that a new configuration takes over from the encoder's.
_COPIED_FIELDS = (
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
# Entries of a Longformer's config.json that say nothing about a CDLM.
_DROPPED_FIELDS = (
    "model_type",
    "architectures",
    "auto_map",
    "transformers_version",
    "mask_token_id",
)

# The parts of a word head: BERT's names, and Longformer's, which RoBERTa has as well.
_BERT_HEAD = (
    "cls.predictions.transform.dense.",
    "cls.predictions.transform.LayerNorm.",
    "cls.predictions.bias",
)
_LONGFORMER_HEAD = ("lm_head.dense.", "lm_head.layer_norm.", "lm_head.bias")


class CdlmPreTrainedModel(NextLevelPreTrainedModel):
    """Opens a CDLM or a Longformer, or makes a new CDLM from a BERT or RoBERTa."""

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
        # transformers leaves this bias uninitialised.
        if isinstance(module, longformer.LongformerLMHead):
            init.zeros_(module.bias)

    @classmethod
    def _arguments_for(
        cls, name_or_path: Any, stored: Mapping[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Opens a Longformer, such as `biu-nlp/cdlm`, beside CDLM's own checkpoints.

        Fields of the configuration are taken out of the arguments.
        """
        if stored.get("model_type") != "longformer":
            return super()._arguments_for(name_or_path, stored, arguments)

        field_names = {*cls.config_class.__dataclass_fields__, "num_labels"} - {"dtype"}
        values = {key: value for key, value in stored.items() if key not in _DROPPED_FIELDS}
        values["mask_token_id"] = None
        for name in field_names & arguments.keys():
            values[name] = arguments.pop(name)
        return {"config": cls.config_class(**values)}

    @classmethod
    def from_encoder(
        cls,
        name_or_path: str | PathLike,
        max_length: int = 4096,
        attention_window: int | list[int] = 512,
        **config_kwargs: Any,
    ) -> Self:
        """Makes a CDLM from a pretrained BERT or RoBERTa.

        The encoder's position table is repeated up to `max_length`. The projections of global
        attention start as copies of the local ones, as in Longformer's own conversion. The word
        head is the encoder's if its checkpoint has one; otherwise it is new. If `attention_window`
        is twice the length of a sequence, the outputs are the encoder's own.

        Args:
            name_or_path: folder or Hub name of the encoder, or ``"minilm"`` (see `model_path`).
            max_length: most tokens in a sequence.
            attention_window: tokens that a token without global attention attends to, half of them
                on either side; or one such number for each layer.
            **config_kwargs: fields of the configuration, and loading arguments such as `revision`
                and `token`.
        """
        loading, fields = split_arguments(cls.config_class, config_kwargs)
        name = full_name(name_or_path)
        values, weights, tokenizer = longformer_weights(
            name, max_length=max_length, loading=loading
        )
        values["attention_window"] = attention_window
        model = cls(cls.config_class(**{**values, **fields}))
        base_model = model.base_model
        base_model.load_state_dict(weights, strict=False)
        base_model.copy_local_to_global()
        base_model.tokenizer = tokenizer
        if cls.has_word_head:
            model.load_state_dict(word_head(name, loading=loading), strict=False)

        model.tie_weights()
        return model.eval()

    @torch.no_grad()
    def copy_local_to_global(self) -> None:
        """Copies the local attention's projections to the global attention's.

        Longformer does the same before fine-tuning, because its pretraining has no global tokens.
        """
        for layer in self.base_model.encoder.layer:
            attention = layer.attention.self
            for name in ("query", "key", "value"):
                local = getattr(attention, name)
                getattr(attention, f"{name}_global").load_state_dict(local.state_dict())


def longformer_weights(
    name_or_path: str | PathLike, max_length: int, loading: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor], PreTrainedTokenizerBase]:
    """Reads the parts of a Longformer that come from an encoder.

    Args:
        name_or_path: folder or Hub name of a BERT or RoBERTa.
        max_length: most tokens in a sequence; the encoder's positions are repeated up to it.
        loading: loading arguments such as `revision`.

    Returns:
        Fields of the configuration, weights of the base model, and the tokenizer.

    Raises:
        ValueError: the encoder is of another type, or has no padding token.
    """
    pretrained = load_backbone(name_or_path, **loading)
    tokenizer = load_tokenizer(name_or_path, **loading)
    model_type = pretrained.config.model_type
    padding = tokenizer.pad_token_id
    if model_type not in _ENCODER_TYPES or padding is None:
        raise ValueError(
            f"{str(name_or_path)!r} is a {model_type}; a CDLM starts from one of"
            f" {', '.join(_ENCODER_TYPES)} with a padding token. A Longformer is opened by"
            " from_pretrained."
        )

    fields = {name: getattr(pretrained.config, name) for name in _COPIED_FIELDS}
    fields |= {
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": max_length + padding + 1,
        "pad_token_id": padding,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }

    weights = pretrained.state_dict()
    positions = weights["embeddings.position_embeddings.weight"]
    unused = torch.zeros(padding + 1, positions.shape[1])  # rows up to the padding id
    if model_type in _OFFSET_TYPES:
        positions = positions[pretrained.config.pad_token_id + 1 :]

    repeated = positions[torch.arange(max_length) % len(positions)]
    weights["embeddings.position_embeddings.weight"] = torch.cat([unused, repeated])
    return fields, weights, tokenizer


def word_head(name_or_path: str | PathLike, loading: dict[str, Any]) -> dict[str, Tensor]:
    """Reads the word head of an encoder under Longformer's names.

    Returns:
        The weights; none if the checkpoint has no word head, or one with another activation.
    """
    arguments = {"dtype": torch.float32, **loading}
    model, info = AutoModelForMaskedLM.from_pretrained(
        name_or_path, output_loading_info=True, **arguments
    )
    names = _LONGFORMER_HEAD
    if model.config.model_type == "bert":
        names = _BERT_HEAD

    is_new = any(key.startswith(names) for key in info["missing_keys"])
    if is_new or model.config.hidden_act != "gelu":
        return {}

    weights = {}
    for key, weight in model.state_dict().items():
        for name, longformer_name in zip(names, _LONGFORMER_HEAD, strict=True):
            if key.startswith(name):
                weights[longformer_name + key.removeprefix(name)] = weight

    return weights


def real_tokens(
    input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None = None
) -> Tensor:
    """Finds the positions that hold tokens: ``[B, L]`` bool, all of them without a mask."""
    if input_ids is not None:
        return token_mask(input_ids, attention_mask)
    if attention_mask is not None:
        return attention_mask.bool()
    if inputs_embeds is not None:
        return torch.ones_like(inputs_embeds[..., 0], dtype=torch.bool)
    raise ValueError("Give input_ids or inputs_embeds.")


def global_tokens(
    real: Tensor, attention_mask: Tensor | None, global_attention_mask: Tensor | None
) -> Tensor:
    """Finds the tokens with global attention.

    A token has global attention if `global_attention_mask` is 1 or, as in transformers' Longformer,
    if `attention_mask` is 2. Padding never has it.

    Args:
        real: bool mask ``[B, L]``, true at tokens.
        attention_mask: mask ``[B, L]`` of 0, 1 and 2.
        global_attention_mask: mask ``[B, L]`` of 0 and 1.

    Returns:
        ``[B, L]`` bool.
    """
    is_global = torch.zeros_like(real)
    if global_attention_mask is not None:
        is_global = global_attention_mask.bool()

    if attention_mask is not None:
        is_global = is_global | (attention_mask == 2)

    return is_global & real


def first_token(real: Tensor) -> Tensor:
    """Finds the first token of each row, its [CLS]: ``[B, L]`` bool."""
    return (real.cumsum(dim=1) == 1) & real


class CdlmModel(CdlmPreTrainedModel):
    """Turns a set of documents in one sequence into a state for every token."""

    _keys_to_ignore_on_load_unexpected = [
        r"pooler",
        r"position_ids",
        r"^(lm_head|classifier|scorer|qa_)",
    ]

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        if isinstance(config.attention_window, int):  # as `from_pretrained` sets it
            config.attention_window = [config.attention_window] * config.num_hidden_layers
        self.embeddings = longformer.LongformerEmbeddings(config)
        self.encoder = longformer.LongformerEncoder(config)
        for index, layer in enumerate(self.encoder.layer):
            layer.attention.self = CdlmSelfAttention(config, index)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """Reads sets of documents, each laid out in one sequence by a `CdlmProcessor`.

        Args:
            input_ids: token ids ``[B, L]``.
            attention_mask: mask ``[B, L]``, 0 at padding, 1 at tokens, 2 at tokens with global
                attention (the older way of transformers' Longformer). Default: no padding.
            global_attention_mask: mask ``[B, L]``, 1 at tokens that attend to, and are attended to
                by, all others; otherwise 0. Default: 0, as in transformers' Longformer; the models
                for tasks choose the tokens that suit their predictions.
            token_type_ids: token types ``[B, L]``.
            inputs_embeds: embeddings ``[B, L, D]``, in place of `input_ids`.
            **kwargs: `output_hidden_states`, true or a list of layers such as ``[0, -1]``, and
                `output_attentions`. Attentions exist only in ``"eager"`` mode, which the pass then
                uses.

        Returns:
            The outputs of transformers' Longformer; `pooler_output` ``[B, D]`` is the mean over the
            tokens of a sequence.

        Raises:
            ValueError: a sequence has more tokens than the model has positions, or `attention_mask`
                has other values, such as the values of an additive mask.
        """
        extras = self.capture_arguments(kwargs)
        real = real_tokens(input_ids, attention_mask, inputs_embeds)
        is_global = global_tokens(real, attention_mask, global_attention_mask)
        # One wait for a GPU: what has to be known before anything is computed.
        unknown = torch.zeros_like(real)
        if attention_mask is not None:
            unknown = real & (attention_mask != 1) & (attention_mask != 2)

        most = [each.sum(dim=1).max() for each in (real, is_global, unknown)]
        longest, most_global, is_unknown = torch.stack(most).tolist()
        if is_unknown and attention_mask is not None:
            value = attention_mask[unknown][0].item()
            raise ValueError(
                "attention_mask must be 0 at padding, 1 at tokens and 2 at tokens with global"
                f" attention; it has {value}. Turn an additive mask into zeros and ones."
            )

        if longest > self.config.max_sequence_length:
            raise ValueError(
                f"A sequence has {longest} tokens, but the model reads"
                f" {self.config.max_sequence_length}. Let a CdlmProcessor truncate the documents,"
                " or make the model from an encoder with a larger max_length."
            )

        # Positions are counted as in RoBERTa.
        position_ids = real.cumsum(dim=1) * real + self.embeddings.padding_idx
        hidden = self.embeddings(
            input_ids=input_ids,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
        )
        layers: Any = self._layers
        if self.config._attn_implementation == "eager" or "output_attentions" in extras:
            layers = self._eager_layers

        output = layers(hidden, real, is_global, most_global, **extras)

        states = output.last_hidden_state.masked_fill(~real.unsqueeze(-1), 0.0)
        counts = real.sum(dim=1, keepdim=True).clamp(min=1)
        mean = states.sum(dim=1, dtype=torch.float32) / counts
        output.pooler_output = mean.to(states.dtype)  # [B, D]
        output.hidden_states = select_states(
            self, output.hidden_states, selection=extras.get("output_hidden_states", False)
        )
        return output

    def _layers(
        self,
        hidden: Tensor,
        real: Tensor,
        is_global: Tensor,
        most_global: int,
        output_hidden_states: bool | int | list[int] = False,
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """Passes states ``[B, L, D]`` through the layers, with a plan for each window."""
        windows: Any = self.config.attention_window  # of each layer
        plans = {}
        for window in set(windows):
            plans[window] = plan_attention(real, is_global, window, most_global)

        all_states = [hidden]
        for layer, window in zip(self.encoder.layer, windows, strict=True):
            hidden = layer(hidden, attention_mask=plans[window])[0]
            if output_hidden_states:
                all_states.append(hidden)

        output = longformer.LongformerBaseModelOutputWithPooling(last_hidden_state=hidden)
        if output_hidden_states:
            output.hidden_states = tuple(all_states)

        return output

    def _eager_layers(
        self, hidden: Tensor, real: Tensor, is_global: Tensor, most_global: int, **extras: Any
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """Passes states ``[B, L, D]`` through transformers' own attention, with its weights."""
        # All windows have to divide the length.
        windows: Any = self.config.attention_window
        padding = -real.shape[1] % math.lcm(*windows)
        limits = torch.finfo(hidden.dtype)
        mask = torch.zeros_like(real, dtype=hidden.dtype)
        mask = mask.masked_fill(~real, limits.min)
        mask = mask.masked_fill(is_global, limits.max)
        output = self.encoder(
            nn.functional.pad(hidden, (0, 0, 0, padding)),
            attention_mask=nn.functional.pad(mask, (0, padding), value=limits.min),
            padding_len=padding,
            return_dict=True,
            **extras,
        )
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
        """Makes the global attention mask of the pattern that the model was trained with.

        Args:
            input_ids: token ids ``[B, L]``.
            attention_mask: mask ``[B, L]``; None if there is no padding.

        Returns:
            ``[B, L]`` bool, true at the [MASK] tokens (``config.global_attention`` is
            ``"masked"``), or at as many first tokens of each sequence (``"prefix"``); None for
            ``"none"``, and if the configuration has no `mask_token_id`.
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
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> longformer.LongformerMaskedLMOutput:
        """Scores the words of the vocabulary at every position.

        Args:
            input_ids: token ids ``[B, L]``.
            attention_mask: mask ``[B, L]``, see `CdlmModel`.
            global_attention_mask: mask ``[B, L]`` (default: see `usual_global_attention`).
            token_type_ids: token types ``[B, L]``.
            inputs_embeds: embeddings ``[B, L, D]``, in place of `input_ids`.
            labels: ids of the true words, ``[B, L]``, -100 at positions without a prediction. The
                loss is zero if all labels are -100.
            **kwargs: `output_hidden_states`, `output_attentions`; see `CdlmModel`.

        Returns:
            `logits` ``[B, L, V]``. With labels and `config.sparse_prediction`, the N positions that
            have a label are scored, row by row: ``[N, V]``.
        """
        if global_attention_mask is None and input_ids is not None:
            global_attention_mask = self.usual_global_attention(input_ids, attention_mask)

        output = self.longformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )

        states = output.last_hidden_state
        loss = None
        if labels is not None and self.config.sparse_prediction:
            states = states[labels != -100]  # [N, D]
            labels = labels[labels != -100]

        logits = self.lm_head(states)  # [B, L, V], or [N, V]
        if labels is not None:
            is_labelled = labels != -100
            loss = single_label_loss(logits[is_labelled], labels[is_labelled])

        return longformer.LongformerMaskedLMOutput(loss=loss, logits=logits, **_extras(output))


class CdlmForDocumentMatching(CdlmPreTrainedModel):
    """Predicts whether two documents match, from the state of [CLS] (sections 3.3 and C.2)."""

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
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> longformer.LongformerSequenceClassifierOutput:
        """Scores the classes of each sequence: `logits` ``[B, num_labels]``.

        Args:
            input_ids: token ids ``[B, L]``.
            attention_mask: mask ``[B, L]``, see `CdlmModel`.
            global_attention_mask: mask ``[B, L]`` (default: 1 at [CLS]).
            token_type_ids: token types ``[B, L]``.
            inputs_embeds: embeddings ``[B, L, D]``, in place of `input_ids`.
            labels: class of each sequence, ``[B]``; or labels in the form of `config.problem_type`.
            **kwargs: `output_hidden_states`, `output_attentions`; see `CdlmModel`.
        """
        is_first = first_token(real_tokens(input_ids, attention_mask, inputs_embeds))
        if global_attention_mask is None:
            global_attention_mask = is_first

        output = self.longformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )

        cls_position = is_first.long().argmax(dim=1, keepdim=True)  # behind padding on the left
        logits = self.classifier(take_positions(output.last_hidden_state, cls_position))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)

        return longformer.LongformerSequenceClassifierOutput(
            loss=loss, logits=logits, **_extras(output)
        )


class PairScorer(nn.Module):
    """Scores pairs by one hidden layer with tanh over [s ; m_i ; m_j ; m_i ∘ m_j] (section C.1)."""

    def __init__(self, hidden_size: int, units: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(4 * hidden_size, units)
        self.projection = nn.Linear(units, 1)

    def forward(self, states: Tensor, cls_position: Tensor, spans: Tensor, pairs: Tensor) -> Tensor:
        """Scores pairs of mentions, a mention being the sum of its tokens' states.

        Args:
            states: states of the tokens, ``[B, L, D]``.
            cls_position: position of [CLS] in each sequence, ``[B]``.
            spans: first position of each mention and one past its last, ``[B, M, 2]``.
            pairs: indices of the two mentions of each pair, ``[B, P, 2]``.

        Returns:
            The score of each pair, ``[B, P]``.
        """
        position = torch.arange(states.shape[1], device=states.device)
        inside = (position >= spans[..., :1]) & (position < spans[..., 1:])  # [B, M, L]
        mentions = inside.to(states.dtype) @ states  # [B, M, D]
        first = take_positions(mentions, pairs[..., 0])  # [B, P, D]
        second = take_positions(mentions, pairs[..., 1])  # [B, P, D]
        document = take_positions(states, cls_position[:, None]).expand_as(first)
        features = torch.cat([document, first, second, first * second], dim=-1)  # [B, P, 4D]
        hidden = self.dense(self.dropout(features)).tanh()
        return self.projection(hidden).squeeze(-1)


def check_spans(spans: Tensor, real: Tensor) -> None:
    """Raises a ValueError for the first span that is empty or outside its sequence.

    Args:
        spans: spans of mentions, ``[B, M, 2]``; -1 is padding.
        real: bool mask ``[B, L]``, true at tokens.
    """
    ends = real.long().cumsum(dim=1).argmax(dim=1)[:, None] + 1  # one past the last token
    start = spans[..., 0]
    end = spans[..., 1]
    is_given = (spans != -1).any(dim=-1)  # [B, M]
    is_wrong = is_given & ((start < 0) | (end <= start) | (end > ends))
    if is_wrong.any():
        row, mention = is_wrong.nonzero()[0].tolist()
        raise ValueError(
            f"Mention {mention} of row {row} has the span {spans[row, mention].tolist()}; it must"
            f" not be empty, and must lie between 0 and {int(ends[row])}, the end of its sequence."
        )


@dataclass
class MentionPairOutput(ModelOutput):
    """Scores of pairs of mentions.

    Attributes:
        loss: mean over sets of the mean loss over the pairs of a set.
        logits: scores of the pairs, ``[B, P]``, zero at padding.
        pair_mask: bool mask ``[B, P]``, true at pairs.
        hidden_states, attentions, global_attentions: see `CdlmModel`.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    pair_mask: Tensor | None = None
    hidden_states: LayerOutputs = None
    attentions: LayerOutputs = None
    global_attentions: LayerOutputs = None


class CdlmForCrossDocumentCoreference(CdlmPreTrainedModel):
    """Predicts which mentions in one or two documents corefer (paper, sections 3.2 and C.1).

    Transformers has no auto class for scoring pairs. Without this package, a checkpoint `path`
    opens by transformers' ``get_class_from_dynamic_module(name, path).from_pretrained(path)`` with
    the name ``"modeling_cdlm.CdlmForCrossDocumentCoreference"``.
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        dropout: Any = config.classifier_dropout  # the configuration has set it
        self.scorer = PairScorer(
            config.hidden_size, units=config.pair_scorer_hidden_size, dropout=dropout
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> MentionPairOutput:
        """Scores pairs of mentions; `CdlmProcessor.mentions` makes the inputs.

        Args:
            input_ids: token ids ``[B, L]``.
            mention_spans: first position of each mention and one past its last, ``[B, M, 2]``,
                without the markers; -1 is padding.
            mention_pairs: indices of the two mentions of each pair, ``[B, P, 2]``; -1 is padding
                (default: the pair of the first two mentions).
            attention_mask: mask ``[B, L]``, see `CdlmModel`.
            global_attention_mask: mask ``[B, L]`` (default: 1 at [CLS], at the mentions and at
                their markers).
            token_type_ids: token types ``[B, L]``.
            labels: labels of the pairs, ``[B, P]``: 1 for a pair that corefers, otherwise 0; -100
                if unknown.
            **kwargs: `output_hidden_states`, `output_attentions`; see `CdlmModel`.
        """
        real = real_tokens(input_ids, attention_mask)
        check_spans(mention_spans, real)
        is_first = first_token(real)
        if mention_pairs is None:
            first_two = torch.tensor([0, 1], device=input_ids.device)
            mention_pairs = first_two.expand(len(input_ids), 1, 2)
        if global_attention_mask is None:
            position = torch.arange(input_ids.shape[1], device=input_ids.device)
            start = mention_spans[..., :1]
            end = mention_spans[..., 1:]
            # Mentions include the markers on both sides; padding, -1, marks no position.
            marked = (position >= start - 1) & (position <= end)  # [B, M, L]
            global_attention_mask = is_first | marked.any(dim=1)

        output = self.longformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
            return_dict=True,
            **kwargs,
        )

        logits = self.scorer(
            states=output.last_hidden_state,
            cls_position=is_first.long().argmax(dim=1),
            spans=mention_spans.clamp(min=0),
            pairs=mention_pairs.clamp(min=0),
        )
        pair_mask = (mention_pairs != -1).any(dim=-1)  # [B, P]
        logits = logits.masked_fill(~pair_mask, 0.0)
        loss = None
        if labels is not None:
            loss = labelled_loss(logits, labels)

        return MentionPairOutput(loss=loss, logits=logits, pair_mask=pair_mask, **_extras(output))


def any_of_loss(logits: Tensor, positions: Tensor) -> Tensor:
    """Computes minus the log-probability that any of several positions is meant.

    See Clark and Gardner, 2018. Rows without an answer do not count in the mean.

    Args:
        logits: logits of the positions, ``[B, L]``, minus infinity at padding.
        positions: positions of the answers, ``[B, A]``; -1 is padding.

    Returns:
        The mean over rows; zero (with a gradient path) without an answer.
    """
    answered = (positions >= 0).any(dim=1)
    log_probabilities = logits.float().log_softmax(dim=-1).gather(1, positions.clamp(min=0))
    log_probabilities = log_probabilities.masked_fill(positions < 0, -torch.inf)
    # Rows without an answer, all minus infinity, would give NaN.
    log_probabilities = torch.where(answered[:, None], log_probabilities, 0.0)
    losses = log_probabilities.logsumexp(dim=1).neg() * answered
    return losses.sum() / answered.sum().clamp(min=1)


@dataclass
class MultiHopQuestionAnsweringOutput(ModelOutput):
    """Scores of answers and of the sentences and paragraphs that support them.

    Attributes:
        loss: sum of the losses of all heads with labels.
        start_logits: scores ``[B, L]`` of the answer's first token.
        end_logits: scores ``[B, L]`` of the answer's last token.
        type_logits: scores ``[B, 3]`` of a span, yes, and no.
        sentence_logits: scores ``[B, S]`` that sentences support the answer; zero at padding.
        paragraph_logits: scores ``[B, T]`` that paragraphs support the answer; zero at padding.
        hidden_states, attentions, global_attentions: see `CdlmModel`.
    """

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    type_logits: Tensor | None = None
    sentence_logits: Tensor | None = None
    paragraph_logits: Tensor | None = None
    hidden_states: LayerOutputs = None
    attentions: LayerOutputs = None
    global_attentions: LayerOutputs = None


def _two_layers(size: int, outputs: int) -> nn.Sequential:
    """Makes a head of two linear layers (Beltagy et al., 2020, appendix D)."""
    return nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, outputs))


class CdlmForMultiHopQuestionAnswering(CdlmPreTrainedModel):
    """Answers a question from several paragraphs and names its evidence (sections 3.4 and C.3).

    The heads follow Beltagy et al. (2020, appendix D): a span over the tokens, and two layers each
    over [CLS] (span, yes or no), over sentence starts and over title starts (whether they support
    the answer).
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.longformer = CdlmModel(config)
        self.qa_outputs = nn.Linear(size, 2)
        self.qa_type = _two_layers(size, outputs=3)
        self.qa_sentence = _two_layers(size, outputs=1)
        self.qa_paragraph = _two_layers(size, outputs=1)
        self.post_init()

    @can_return_tuple
    def forward(  # noqa: PLR0913  # the inputs, and the labels of four outputs
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultiHopQuestionAnsweringOutput:
        """Scores spans, kinds of answers, sentences and paragraphs.

        `CdlmProcessor.question` makes the inputs.

        Args:
            input_ids: token ids ``[B, L]``.
            global_attention_mask: mask ``[B, L]``, see `CdlmModel`.
            sentence_index: first positions of the sentences, ``[B, S]``; -1 is padding.
            paragraph_index: first positions of the titles, ``[B, T]``; -1 is padding.
            attention_mask: mask ``[B, L]``, see `CdlmModel`.
            context_mask: mask ``[B, L]``, 1 at tokens that can be part of an answer (default: all).
            token_type_ids: token types ``[B, L]``.
            start_positions: first token of every occurrence of the answer in the supporting
                paragraphs, ``[B, A]``; -1 is padding. The loss asks for any one of them.
            end_positions: last token of every occurrence, ``[B, A]``; -1 is padding.
            type_labels: kind of each answer, ``[B]``: 0 span, 1 yes, 2 no, -100 unknown.
            sentence_labels: labels ``[B, S]``, 1 if the sentence supports the answer, otherwise 0;
                -100 if unknown.
            paragraph_labels: labels ``[B, T]``, 1 if the paragraph supports the answer, otherwise
                0; -100 if unknown.
            **kwargs: `output_hidden_states`, `output_attentions`; see `CdlmModel`.
        """
        output = self.longformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            global_attention_mask=global_attention_mask,
            token_type_ids=token_type_ids,
            return_dict=True,
            **kwargs,
        )
        states = output.last_hidden_state
        real = real_tokens(input_ids, attention_mask)
        cls_position = real.long().argmax(dim=1, keepdim=True)  # [B, 1]

        answer_mask = real  # tokens that can be part of an answer
        if context_mask is not None:
            answer_mask = context_mask.bool()

        spans = self.qa_outputs(states).float()  # [B, L, 2]
        spans = spans.masked_fill(~answer_mask.unsqueeze(-1), torch.finfo(torch.float32).min)
        start_logits, end_logits = spans.unbind(dim=-1)  # [B, L]
        type_logits = self.qa_type(take_positions(states, cls_position)).squeeze(1)  # [B, 3]
        sentence_logits = self.qa_sentence(take_positions(states, sentence_index)).squeeze(-1)
        sentence_logits = sentence_logits.masked_fill(sentence_index < 0, 0.0)  # [B, S]
        paragraph_logits = self.qa_paragraph(take_positions(states, paragraph_index)).squeeze(-1)
        paragraph_logits = paragraph_logits.masked_fill(paragraph_index < 0, 0.0)  # [B, T]

        heads = (
            (any_of_loss, start_logits, start_positions),
            (any_of_loss, end_logits, end_positions),
            (single_label_loss, type_logits, type_labels),
            (labelled_loss, sentence_logits, sentence_labels),
            (labelled_loss, paragraph_logits, paragraph_labels),
        )
        losses = []
        for loss_of, logits, labels in heads:
            if labels is not None:
                losses.append(loss_of(logits, labels))

        loss = None
        if losses:
            loss = torch.stack(losses).sum()

        return MultiHopQuestionAnsweringOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            type_logits=type_logits,
            sentence_logits=sentence_logits,
            paragraph_logits=paragraph_logits,
            **_extras(output),
        )


def _extras(output: longformer.LongformerBaseModelOutputWithPooling) -> dict[str, Any]:
    """Collects the parts of the base model's output that every head passes on."""
    return {
        "hidden_states": output.hidden_states,
        "attentions": output.attentions,
        "global_attentions": output.global_attentions,
    }
