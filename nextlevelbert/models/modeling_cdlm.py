"""CDLM: one encoder that reads a set of related documents, with global attention on what it has to predict.

Caciularu et al., "CDLM: Cross-Document Language Modeling", Findings of EMNLP 2021 (arXiv 2101.00406). The encoder is
transformers' Longformer; weights have its names, so that `allenai/longformer-base-4096` and `biu-nlp/cdlm` load as
they are. Shapes: B sequences in a batch (each a set of documents), L token positions, D hidden size, V words.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.models.longformer import modeling_longformer as longformer
from transformers.utils import can_return_tuple

from .cdlm_attention import CdlmSelfAttention, first_token, plan_attention, real_tokens
from .cdlm_from_bert import LongformerStartModel
from .cdlm_heads import (
    MentionPairOutput,
    MultiHopQuestionAnsweringOutput,
    PairScorer,
    check_spans,
    question_loss,
    take_positions,
)
from .configuration_cdlm import CdlmConfig
from .losses import classification_loss, labelled_loss


class CdlmPreTrainedModel(LongformerStartModel):
    config: CdlmConfig
    config_class = CdlmConfig
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

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, longformer.LongformerLMHead):  # transformers leaves this bias uninitialised
            init.zeros_(module.bias)


class CdlmModel(CdlmPreTrainedModel):
    """A set of documents in one sequence to a state for every token."""

    _keys_to_ignore_on_load_unexpected = [r"pooler", r"position_ids", r"^(lm_head|classifier|scorer|qa_)"]

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
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None, output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> longformer.LongformerBaseModelOutputWithPooling:  # fmt: skip
        """Reads sets of documents, each laid out in one sequence by a `CdlmProcessor`.

        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds: ``[B, L]``, or ``[B, L, D]`` in place of ids.
            global_attention_mask: ``[B, L]``, 1 where a token sees, and is seen by, all others, else 0. All 0 by
                default, as in transformers' Longformer; the models for tasks choose by what they predict.
            output_attentions: attentions exist only in ``"eager"`` mode, which the pass then uses.

        Returns:
            `last_hidden_state` ``[B, L, D]``, `pooler_output` ``[B, D]`` (its mean over the tokens of the sequence),
            and on request `hidden_states`, `attentions` and `global_attentions`, as transformers' Longformer.
        """
        real = real_tokens(input_ids, attention_mask, inputs_embeds)
        is_global = torch.zeros_like(real) if global_attention_mask is None else global_attention_mask.bool() & real
        if (longest := int(real.sum(dim=1).max())) > self.config.max_sequence_length:
            raise ValueError(
                f"A sequence has {longest} tokens, the model reads {self.config.max_sequence_length}: let a "
                "CdlmProcessor cut the documents, or make the model from an encoder with a larger max_length."
            )
        positions = real.cumsum(dim=1) * real + self.embeddings.padding_idx  # counted as in RoBERTa
        hidden = self.embeddings(input_ids, token_type_ids, positions, inputs_embeds)
        attentions = self.config.output_attentions if output_attentions is None else output_attentions
        states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if self.config._attn_implementation == "eager" or attentions:
            output = self._eager(hidden, real, is_global, attentions, states)
        else:
            windows = self.config.windows()
            plans = {window: plan_attention(real, is_global, window) for window in set(windows)}
            seen: tuple[Tensor, ...] = (hidden,)
            for layer, window in zip(self.encoder.layer, windows, strict=True):
                hidden = layer(hidden, attention_mask=plans[window])[0]
                seen = (*seen, hidden) if states else ()
            output = longformer.LongformerBaseModelOutputWithPooling(hidden, hidden_states=seen or None)
        total = output.last_hidden_state.masked_fill(~real.unsqueeze(-1), 0.0).sum(dim=1, dtype=torch.float32)
        output.pooler_output = (total / real.sum(dim=1, keepdim=True).clamp(min=1)).to(hidden.dtype)  # [B, D]
        return output

    def _eager(
        self, hidden: Tensor, real: Tensor, is_global: Tensor, attentions: bool, states: bool
    ) -> longformer.LongformerBaseModelOutputWithPooling:
        """transformers' own attention, which takes a length that all windows divide and shows its weights."""
        extra = -real.shape[1] % math.lcm(*self.config.windows())
        ends = torch.finfo(hidden.dtype)
        mask = torch.zeros_like(real, dtype=hidden.dtype)
        mask = mask.masked_fill(~real, ends.min).masked_fill(is_global, ends.max)
        mask, hidden = nn.functional.pad(mask, (0, extra), value=ends.min), nn.functional.pad(hidden, (0, 0, 0, extra))
        output = self.encoder(hidden, mask, extra, attentions, states, return_dict=True)
        return longformer.LongformerBaseModelOutputWithPooling(**output)


class CdlmForMaskedLM(CdlmPreTrainedModel):
    """Predicts masked words of a set of documents (paper, section 2.2).

    Unless a global attention mask is given, the [MASK] tokens have global attention, as in the paper's pretraining.
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

    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
        labels: Tensor | None = None, **kwargs: Any,
    ) -> longformer.LongformerMaskedLMOutput:  # fmt: skip
        """Scores of words, ``[B, L, V]``; inputs as in `CdlmModel`.

        `labels` ``[B, L]`` are ids of the true words, -100 where nothing is predicted, but not everywhere. With them
        and `config.sparse_prediction`, the N positions that have one are scored, row by row: ``[N, V]``.
        """
        if global_attention_mask is None and input_ids is not None and self.config.mask_token_id is not None:
            global_attention_mask = input_ids == self.config.mask_token_id
        output = self.longformer(input_ids, attention_mask, global_attention_mask, token_type_ids, **kwargs)
        states = output.last_hidden_state
        if labels is None:
            return longformer.LongformerMaskedLMOutput(logits=self.lm_head(states), **_extras(output))
        masked = labels != -100
        if not masked.any():
            raise ValueError("No position of the batch is masked (labels are -100 everywhere): mask some.")
        if self.config.sparse_prediction:
            logits = scores = self.lm_head(states[masked])  # [N, V]
        else:
            logits = self.lm_head(states)  # [B, L, V]
            scores = logits[masked]
        loss = nn.functional.cross_entropy(scores.float(), labels[masked])
        return longformer.LongformerMaskedLMOutput(loss=loss, logits=logits, **_extras(output))


class CdlmForDocumentMatching(CdlmPreTrainedModel):
    """Says whether two documents belong together, by the state of [CLS] (paper, section 3.3 and appendix C.2)."""

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.classifier = longformer.LongformerClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None,
        global_attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
        labels: Tensor | None = None, **kwargs: Any,
    ) -> longformer.LongformerSequenceClassifierOutput:  # fmt: skip
        """Scores ``[B, num_labels]``; inputs as in `CdlmModel`, with global attention on [CLS] by default.

        `labels` are ``[B]``, or as `config.problem_type` says.
        """
        first = first_token(real_tokens(input_ids, attention_mask, kwargs.get("inputs_embeds")))
        wide = first if global_attention_mask is None else global_attention_mask
        output = self.longformer(input_ids, attention_mask, wide, token_type_ids, **kwargs)
        # [CLS] is where the padding on the left ends.
        logits = self.classifier(take_positions(output.last_hidden_state, first.long().argmax(dim=1)[:, None]))
        loss = None if labels is None else classification_loss(logits, labels, self.config)
        return longformer.LongformerSequenceClassifierOutput(loss=loss, logits=logits, **_extras(output))


class CdlmForCrossDocumentCoreference(CdlmPreTrainedModel):
    """Says which mentions in one or two documents mean the same (paper, section 3.2 and appendix C.1).

    No auto class of transformers scores pairs. Without this package, a checkpoint `path` opens by transformers'
    ``get_class_from_dynamic_module("modeling_cdlm.CdlmForCrossDocumentCoreference", path).from_pretrained(path)``.
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.scorer = PairScorer(config.hidden_size, config.pair_scorer_hidden_size, config.classifier_dropout or 0.0)
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Tensor, mention_spans: Tensor, mention_pairs: Tensor | None = None,
        attention_mask: Tensor | None = None, global_attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any,
    ) -> MentionPairOutput:  # fmt: skip
        """Scores pairs of mentions; `CdlmProcessor.mentions` makes the inputs, other arguments as in `CdlmModel`.

        Args:
            mention_spans: ``[B, M, 2]``, first position of each mention and one past its last, without the markers;
                -1 is padding.
            mention_pairs: ``[B, P, 2]``, numbers of mentions; -1 is padding. By default the pair of the first two.
            global_attention_mask: ``[B, L]``; by default 1 at [CLS], at the mentions and at their markers.
            labels: ``[B, P]``, 1 for a pair that means the same, else 0; -100 if unknown.
        """
        real = real_tokens(input_ids, attention_mask)
        check_spans(mention_spans, real)
        first = first_token(real)
        if mention_pairs is None:
            mention_pairs = torch.tensor([0, 1], device=input_ids.device).expand(len(input_ids), 1, 2)
        if global_attention_mask is None:
            position = torch.arange(input_ids.shape[1], device=input_ids.device)
            marked = (position >= mention_spans[..., :1] - 1) & (position <= mention_spans[..., 1:])  # [B, M, L]
            global_attention_mask = (marked & (mention_spans[..., :1] >= 0)).any(dim=1) | first
        output = self.longformer(input_ids, attention_mask, global_attention_mask, token_type_ids, **kwargs)
        pair_mask = (mention_pairs != -1).any(dim=-1)  # [B, P]
        spans, pairs = mention_spans.clamp(min=0), mention_pairs.clamp(min=0)
        logits = self.scorer(output.last_hidden_state, first.long().argmax(dim=1), spans, pairs)
        logits = logits.masked_fill(~pair_mask, 0.0)
        loss = None if labels is None else labelled_loss(logits, labels)
        return MentionPairOutput(loss=loss, logits=logits, pair_mask=pair_mask, **_extras(output))


class CdlmForMultiHopQuestionAnswering(CdlmPreTrainedModel):
    """Answers a question from several paragraphs, and says which sentences support it (paper, 3.4 and appendix C.3).

    The heads are those of Beltagy et al. (2020, appendix D): a span over the tokens, and two layers each over [CLS]
    (span, yes or no), over sentence starts and over title starts (whether they support the answer).
    """

    def __init__(self, config: CdlmConfig) -> None:
        super().__init__(config)
        self.longformer = CdlmModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        size = config.hidden_size
        self.qa_type, self.qa_sentence, self.qa_paragraph = (
            nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, outputs)) for outputs in (3, 1, 1)
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self, input_ids: Tensor, global_attention_mask: Tensor, sentence_index: Tensor, paragraph_index: Tensor,
        attention_mask: Tensor | None = None, context_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None, start_positions: Tensor | None = None,
        end_positions: Tensor | None = None, type_labels: Tensor | None = None,
        sentence_labels: Tensor | None = None, paragraph_labels: Tensor | None = None, **kwargs: Any,
    ) -> MultiHopQuestionAnsweringOutput:  # fmt: skip
        """Scores spans, kinds of answers, sentences and paragraphs; `CdlmProcessor.question` makes the inputs.

        Args:
            sentence_index: ``[B, S]``, position of the start of each sentence; -1 is padding.
            paragraph_index: ``[B, T]``, position of the start of each title; -1 is padding.
            context_mask: ``[B, L]``, 1 at tokens that can be part of an answer; all real ones by default.
            start_positions, end_positions: ``[B, A]``, first and last token of every place where the answer occurs
                in the supporting paragraphs; -1 is padding. The loss asks for any one of them.
            type_labels: ``[B]``: 0 span, 1 yes, 2 no, -100 unknown.
            sentence_labels: ``[B, S]``, 1 where a sentence supports the answer, else 0, -100 unknown.
            paragraph_labels: ``[B, T]``, the same for paragraphs.
        """
        output = self.longformer(input_ids, attention_mask, global_attention_mask, token_type_ids, **kwargs)
        states = output.last_hidden_state
        real = real_tokens(input_ids, attention_mask)
        possible = real if context_mask is None else context_mask.bool()
        spans = self.qa_outputs(states).float().masked_fill(~possible.unsqueeze(-1), torch.finfo(torch.float32).min)
        first = first_token(real).long().argmax(dim=1)
        sentence, paragraph = (
            head(take_positions(states, index)).squeeze(-1).masked_fill(index < 0, 0.0)
            for head, index in ((self.qa_sentence, sentence_index), (self.qa_paragraph, paragraph_index))
        )  # [B, S] and [B, T]
        heads = {
            "start_logits": (spans[..., 0], start_positions),  # [B, L]
            "end_logits": (spans[..., 1], end_positions),
            "type_logits": (self.qa_type(take_positions(states, first[:, None]).squeeze(1)), type_labels),  # [B, 3]
            "sentence_logits": (sentence, sentence_labels),
            "paragraph_logits": (paragraph, paragraph_labels),
        }
        logits = {name: values for name, (values, _) in heads.items()}
        return MultiHopQuestionAnsweringOutput(loss=question_loss(heads), **logits, **_extras(output))


def _extras(output: longformer.LongformerBaseModelOutputWithPooling) -> dict[str, Any]:
    """The parts of the base model's output that every head passes on."""
    return {name: getattr(output, name) for name in ("hidden_states", "attentions", "global_attentions")}
