"""BERT-AL: a pretrained BERT whose segments hear of the segments before them, in every layer.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", under review at ICLR 2020. The encoder is a
`transformers` backbone, unchanged: the recurrence is put between its layers by forward hooks.

Notation for shapes: B documents in a batch, T token positions of the batch, N real tokens in all of it, R segments of
one pass, n of them in the longest document, C tokens in a segment, D hidden size, S sentences in the longest document.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .backbones import backbone_from_config, encoder_layers
from .bert_al_lstm import LayerNormLSTM, State
from .bert_al_sentences import (
    ExtractiveSummary,
    check_sentence_labels,
    encode_sentences,
    pad_batch,
    select_sentences,
    split_document,
)
from .configuration_bert_al import BertAlConfig
from .input_checks import check_labels
from .losses import labelled_loss
from .modeling_token_document import TokenDocumentPreTrainedModel, at_their_places, place_in_chunks
from .outputs import ExtractiveSummarizationOutput, TokenFeaturesOutput
from .pooling import pool

# Hooks are set on the layers for a pass, and would be run by the passes of other threads.
_ONE_PASS = threading.RLock()


class RecurrenceProjection(nn.Linear):
    """A linear layer that starts at zero, so that a new model is the pretrained encoder."""


class SegmentRecurrence(nn.Module):
    """The multi-channel LSTM behind one layer (paper, section "Multi-channel LSTM").

    Steps are segments, and each position within a segment is a channel of its own.

    Args:
        config: sizes; `recurrence` says whether the output takes the place of the input or is added to it.
    """

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__()
        self.lstm = LayerNormLSTM(config.hidden_size)
        self.residual: nn.Linear | None = None
        if config.recurrence == "residual":
            self.residual = RecurrenceProjection(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        """From segments ``[documents, n, C, D]`` to the same shape, and the LSTM's state behind the last one."""
        documents, steps, width, size = hidden_states.shape
        channels = hidden_states.transpose(0, 1).reshape(steps, documents * width, size)
        outputs, state = self.lstm(channels, state)
        outputs = outputs.view(steps, documents, width, size).transpose(0, 1)
        if self.residual is None:
            return outputs, state
        return hidden_states + self.residual(outputs), state


class _Pass(NamedTuple):
    """What one pass gives: numbers ``[m]`` of its tokens among the N real ones, their states ``[m, D]``, others."""

    tokens: torch.Tensor
    features: torch.Tensor
    hidden_states: list[torch.Tensor]


class _Grid:
    """Where the R segments of a pass stand when each document is a row and each step a column.

    Args:
        document: ``[R]``, which of the batch.
        step: ``[R]``, counted from the first step of the pass.
        batch: documents of the whole batch.
    """

    def __init__(self, document: torch.Tensor, step: torch.Tensor, batch: int) -> None:
        self.active, self.row = document.unique(return_inverse=True)  # documents that have not ended before
        self.step, self.batch = step, batch
        self.documents, self.steps = len(self.active), int(step.max()) + 1


class BertAlPreTrainedModel(TokenDocumentPreTrainedModel):
    """Loading, saving and starting from an encoder, which all BERT-AL classes share."""

    config: BertAlConfig
    config_class = BertAlConfig
    family_auto_map = {
        "AutoConfig": "configuration_bert_al.BertAlConfig",
        "AutoModel": "modeling_bert_al.BertAlModel",
        "AutoModelForSequenceClassification": "modeling_bert_al.BertAlForSequenceClassification",
        # The nearest of transformers' kinds: every [CLS], which stands for a sentence, gets a score.
        "AutoModelForTokenClassification": "modeling_bert_al.BertAlForExtractiveSummarization",
    }
    model_tags = ["bert-al", "nextlevelbert", "sentence-transformers"]

    @classmethod
    def _tokenizer_fields(cls, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise ValueError(
                f"The tokenizer has no token for the start or the end of a sentence (cls_token {tokenizer.cls_token}, "
                f"sep_token {tokenizer.sep_token}). Give an encoder of BERT's kind."
            )
        return {"pad_token_id": tokenizer.pad_token_id, "cls_token_id": tokenizer.cls_token_id}

    def modules_to_train_whole(self) -> list[str]:
        recurrences = ["lstm", "residual"] if self.config.recurrence != "none" else []  # they start at random
        return [*super().modules_to_train_whole(), *recurrences]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LayerNormLSTM):
            module.reset_parameters(self.config.initializer_range)
        elif isinstance(module, RecurrenceProjection):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)


class BertAlModel(BertAlPreTrainedModel):
    """Whole documents to a feature for every token: attention within a segment, recurrence between segments.

    A token's feature depends on its own segment and those before it. With one segment and ``recurrence="none"`` it is
    just what the encoder itself gives.

    Example:
        >>> model = BertAlModel.from_encoder(minilm, segment_length=128)
        >>> book = model.tokenizer("Call me Ishmael. " * 500, return_tensors="pt")
        >>> model(**book).last_hidden_state.shape
        torch.Size([1, 3002, 384])
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # the head is dropped on purpose

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.encoder: Any = backbone_from_config(config.encoder_config)
        self.supports_gradient_checkpointing = bool(self.encoder.supports_gradient_checkpointing)
        layers = len(encoder_layers(self.encoder)) if config.recurrence != "none" else 0
        self.recurrences = nn.ModuleList(SegmentRecurrence(config) for _ in range(layers))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> TokenFeaturesOutput:
        """Cuts the documents into segments and reads them in order.

        Args:
            input_ids: ``[B, T]`` ids of whole documents from the stock tokenizer, of any length, padded anywhere.
            attention_mask: ``[B, T]``, zero at padding. All ones by default.
            token_type_ids: ``[B, T]``, for encoders that know several types.
            output_hidden_states: also return the states behind the embeddings and behind every layer with its LSTM.
            inputs_embeds, output_attentions: only None; adapters hand them on.

        Raises:
            ValueError: for ids that are not integers ``[B, T]`` of the encoder's vocabulary, a document without
                any token (numbered), or a segment length above what the encoder reads.
        """
        self.refuse_other_inputs(inputs_embeds, output_attentions)
        all_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        mask = self.check_documents(input_ids, attention_mask)
        passes = list(self.passes(input_ids, mask, token_type_ids, all_states))
        order = torch.cat([one.tokens for one in passes]).argsort()
        states = zip(*([one.features, *one.hidden_states] for one in passes), strict=True)
        features, *hidden = (at_their_places(torch.cat(flat)[order], mask) for flat in states)  # [B, T, D] each
        return TokenFeaturesOutput(
            last_hidden_state=features,
            pooler_output=pool(features, mask, "mean"),  # [B, D]
            token_mask=mask,
            hidden_states=tuple(hidden) or None,
        )

    def passes(
        self,
        input_ids: torch.Tensor,
        mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        all_states: bool | None = False,
    ) -> Iterator[_Pass]:
        """Reads some segments of every document after another, so that a caller may keep what it needs of them.

        Args:
            input_ids, token_type_ids: as in `forward`.
            mask: ``[B, T]`` bool, the tokens to read.
            all_states: whether all hidden states are wanted.
        """
        self.config.check()
        segment, offset, count = place_in_chunks(mask, self.config.segment_length)  # [N], [N]
        shape = (count, int(offset.max()) + 1)  # [all segments, C]
        fields, real = self.lay_out(input_ids, token_type_ids, mask, (segment, offset), shape)
        lengths = (mask.sum(dim=1) + self.config.segment_length - 1) // self.config.segment_length  # [B]
        document = torch.repeat_interleave(torch.arange(len(mask), device=mask.device), lengths)  # [all segments]
        step = torch.arange(count, device=mask.device) - (lengths.cumsum(dim=0) - lengths)[document]
        longest = int(lengths.max())
        states: list[State | None] = [None] * len(self.recurrences)
        at_once = longest
        if self.config.tokens_at_once is not None:
            at_once = max(1, self.config.tokens_at_once // (self.config.segment_length * len(mask)))
        for first in range(0, longest, at_once):
            rows = ((step >= first) & (step < first + at_once)).nonzero().flatten()  # [R]
            grid = _Grid(document[rows], step[rows] - first, len(mask))
            inputs = {name: values[rows] for name, values in fields.items()}
            keep = real[rows]  # [R, C]
            output, hidden = self._read(inputs, keep.long(), grid, states, bool(all_states))
            tokens = torch.isin(segment, rows).nonzero().flatten()  # [m]
            yield _Pass(tokens, output[keep], [state[keep] for state in hidden])

    def _read(
        self,
        inputs: dict[str, torch.Tensor],
        attention_mask: torch.Tensor,
        grid: _Grid,
        states: list[State | None],
        all_states: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """One pass through all layers; `states` are those of the LSTMs before it, and are set to those behind it.

        Returns:
            The encoder's last hidden state ``[R, C, D]``, and those of all layers where they are wanted.
        """
        layers = encoder_layers(self.encoder) if self.recurrences or all_states else []
        hidden: list[torch.Tensor] = []
        expected = attention_mask.shape

        def behind(number: int) -> Any:
            def hook(module: nn.Module, arguments: Any, output: Any) -> Any:
                state, *others = output if isinstance(output, tuple) else (output,)
                if state.shape[:2] != expected:
                    raise ValueError(
                        f"A layer of this {self.config.encoder_config.model_type} gives {tuple(state.shape)} for "
                        f"{tuple(expected)} tokens, so that positions are no channels. Take another encoder, or "
                        "attn_implementation='sdpa' where it is attention that drops padding."
                    )
                if self.recurrences:
                    state, states[number] = self._recur(number, state, grid, states[number])
                if all_states:
                    hidden.append(state)
                return (state, *others) if isinstance(output, tuple) else state

            return hook

        with _ONE_PASS, ExitStack() as hooks:
            if all_states:
                hooks.enter_context(
                    layers[0].register_forward_pre_hook(lambda module, arguments: hidden.append(arguments[0]))
                )
            for number, layer in enumerate(layers):
                hooks.enter_context(layer.register_forward_hook(behind(number)))
            output = self.encoder(**inputs, attention_mask=attention_mask, return_dict=True)
        return output.last_hidden_state, hidden

    def _recur(self, number: int, state: torch.Tensor, grid: _Grid, before: Any) -> tuple[torch.Tensor, State]:
        """A layer's LSTM over segments ``[R, C, D]``; what it hands on is kept for all documents, ``[B, C, D]``."""
        steps = state.new_zeros(grid.documents, grid.steps, *state.shape[1:])  # [documents, n, C, D]
        steps = steps.index_put((grid.row, grid.step), state)
        if before is not None:
            before = tuple(part[grid.active].flatten(0, 1) for part in before)  # [documents · C, D]
        outputs, behind = self.recurrences[number](steps, before)
        kept = tuple(part.unflatten(0, (grid.documents, -1)) for part in behind)
        if grid.documents < grid.batch:
            kept = tuple(part.new_zeros(grid.batch, *part.shape[1:]).index_put((grid.active,), part) for part in kept)
        return outputs[grid.row, grid.step], kept


class BertAlForExtractiveSummarization(BertAlPreTrainedModel):
    """Scores every sentence of a document by the output at its [CLS] (paper, sections "BERTSUM" and "Embedding").

    Documents come in BERTSUM's format, see `bertsum.encode_sentences`.

    Example:
        >>> model = BertAlForExtractiveSummarization.from_encoder(minilm)
        >>> summary = model.summarize("It rained all day. The match was called off. Tea was served.", sentences=2)
        >>> len(summary.sentences)
        2
    """

    accepts_loss_kwargs = False  # the loss is a mean over the documents of the batch

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.model = BertAlModel(config)
        self.supports_gradient_checkpointing = self.model.supports_gradient_checkpointing
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> ExtractiveSummarizationOutput:
        """Reads documents whole; keeps only what it needs of each token, so memory does not grow with length.

        Args:
            input_ids, attention_mask, token_type_ids: as in `BertAlModel`, like what is not named here. Every
                `config.cls_token_id` is a sentence.
            labels: ``[B, S]``, 1 where a sentence belongs to the summary, 0 where not, -100 where that is unknown and
                where there is none. The loss is the mean over documents of the mean over their sentences.
            output_hidden_states: also return the states of all tokens, as `BertAlModel` does, in a pass of their own.

        Raises:
            ValueError: for a document without sentence (numbered), labels of another shape or with other values, or
                what `BertAlModel` refuses.
        """
        self.refuse_other_inputs(inputs_embeds, output_attentions)
        mask = self.check_documents(input_ids, attention_mask)
        starts = (input_ids == self.config.cls_token_id) & mask  # [B, T]
        counts = starts.sum(dim=1)  # [B]
        if not counts.all():
            raise ValueError(
                f"Documents {(counts == 0).nonzero().flatten().tolist()} of the batch have no sentence: none of their "
                f"ids is {self.config.cls_token_id}, the [CLS] in front of each. Use bertsum.encode_sentences."
            )
        is_start, found = starts[mask], []  # [N]
        for one in self.model.passes(input_ids, mask, token_type_ids):
            here = is_start[one.tokens]
            found.append((one.tokens[here], one.features[here]))
        order = torch.cat([tokens for tokens, _ in found]).argsort()
        features = torch.cat([states for _, states in found])[order]  # [sentences of all documents, D]
        scores = self.classifier(self.dropout(features)).squeeze(-1)
        sentences = torch.arange(int(counts.max()), device=mask.device) < counts[:, None]  # [B, S]
        logits = scores.new_zeros(sentences.shape).masked_scatter(sentences, scores)
        loss = None
        if labels is not None:
            real = torch.ones_like(mask) if attention_mask is None else attention_mask.bool()
            every = (real & (input_ids == self.config.cls_token_id)).sum(dim=1)  # also behind what training cuts
            whole = torch.arange(int(every.max()), device=mask.device) < every[:, None]
            known = check_sentence_labels(labels, whole)[:, : sentences.shape[1]] & sentences
            loss = labelled_loss(logits, labels[:, : sentences.shape[1]].masked_fill(~known, -100))
        hidden = None
        if self.config.output_hidden_states if output_hidden_states is None else output_hidden_states:
            output = self.model(input_ids, attention_mask, token_type_ids, output_hidden_states=True, return_dict=True)
            hidden = output.hidden_states
        return ExtractiveSummarizationOutput(loss=loss, logits=logits, sentence_mask=sentences, hidden_states=hidden)

    @torch.no_grad()
    def summarize(
        self, document: str | Sequence[str], sentences: int = 3, trigram_blocking: bool = False
    ) -> ExtractiveSummary:
        """The sentences that say most, in the order in which they stand.

        Args:
            document: a text, or its sentences.
            sentences: how many; all, where there are no more.
            trigram_blocking: leave out a sentence that repeats three words in a row of one with a higher score.

        Raises:
            ValueError: for a document without words, a number of sentences below 1, or scores that are not finite.
        """
        if sentences < 1:
            raise ValueError(f"sentences must be 1 or more, got {sentences}.")
        text, spans = split_document(document, self.tokenizer)
        texts = [text[start:end] for start, end in spans]
        ids, types = encode_sentences(texts, self.tokenizer)
        batch = pad_batch([ids], [types], self.config.pad_token_id or 0)
        learning = [module for module in self.modules() if module.training]
        self.eval()
        try:
            logits = self(**{name: values.to(self.device) for name, values in batch.items()}).logits[0]
        finally:
            for module in learning:
                module.training = True
        scores = logits.float().cpu().numpy()
        if not np.isfinite(scores).all():
            raise ValueError(
                f"{int((~np.isfinite(scores)).sum())} of {len(scores)} sentences have no finite score; look at the "
                "weights, and use float32 or bfloat16 in place of float16."
            )
        chosen = select_sentences(scores, sentences, texts if trigram_blocking else None)
        return ExtractiveSummary(
            sentences=[texts[number] for number in chosen],
            indices=chosen,
            spans=[spans[number] for number in chosen],
            scores=torch.sigmoid(logits.float()).tolist(),
        )


class BertAlForSequenceClassification(BertAlPreTrainedModel):
    """Classifies documents of any length by the mean of their token features: one label, several, or values.

    The paper tells of no such head ("can be adapted to various tasks"). The mean is taken because the first [CLS]
    hears of nothing behind its own segment.

    Example:
        >>> model = BertAlForSequenceClassification.from_encoder(minilm, num_labels=20)
        >>> posts = model.tokenizer(["A short post.", "A long one. " * 2000], padding=True, return_tensors="pt")
        >>> model(**posts).logits.shape
        torch.Size([2, 20])
    """

    accepts_loss_kwargs = False  # the loss is a mean over the batch

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.model = BertAlModel(config)
        self.supports_gradient_checkpointing = self.model.supports_gradient_checkpointing
        self.dropout = nn.Dropout(config.classifier_dropout or 0.0)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Reads documents whole.

        Args:
            input_ids, attention_mask, token_type_ids: as in `BertAlModel`, like what is not named here.
            labels: ``[B]`` integers, ``[B, num_labels]`` zeros and ones as floats, or ``[B]`` values.

        Raises:
            ValueError: for labels of the wrong kind or range (rows named), or what `BertAlModel` refuses.
        """
        document = self.model(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, output_attentions,
            return_dict=True,
        )  # fmt: skip
        logits = self.classifier(self.dropout(document.pooler_output))  # [B, K]
        loss = None
        if labels is not None:
            check_labels(labels, logits, self.config.problem_type)
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=document.hidden_states)
