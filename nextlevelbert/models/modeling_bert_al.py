"""BERT-AL: a pretrained BERT in which, at every layer, a segment receives information from those before it.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", under review at ICLR 2020. The encoder is a
`transformers` backbone, unchanged: forward hooks put the recurrence between its layers.

Notation for shapes: B documents in a batch, T token positions of the batch, N real tokens in all of it, R segments of
one pass, n of them in the longest document, C tokens in a segment, D hidden size, S sentences in the longest document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .bert_al_lstm import LayerNormLSTM, RecurrenceProjection, SegmentRecurrence, State
from .bert_al_sentences import (
    ExtractiveSummary,
    check_sentence_labels,
    encode_sentences,
    pad_batch,
    select_sentences,
    split_document,
)
from .chunking import Splitter
from .configuration_bert_al import BertAlConfig
from .losses import classification_loss, labelled_loss
from .modeling_token_document import TokenDocumentPreTrainedModel, at_their_places, place_in_chunks
from .outputs import ExtractiveSummarizationOutput, TokenFeaturesOutput
from .pooling import pool
from .pretrained import backbone_from_config
from .sentences import SENTENCE_RULE

# Hooks sit on the layers for the time of a pass, and the passes of other threads would run them, too.
_ONE_PASS = threading.RLock()


class _Pass(NamedTuple):
    """The result of one pass.

    Attributes:
        tokens: ``[m]``, the numbers of the m tokens that it read, among the N real ones.
        features: ``[m, D]``, their last hidden states.
        hidden_states: ``[m, D]`` each, those of all layers, if they were asked for.
    """

    tokens: torch.Tensor
    features: torch.Tensor
    hidden_states: list[torch.Tensor]


class _Grid:
    """The R segments of a pass as a grid with a row for each document and a column for each step.

    Args:
        document: ``[R]``, the document of each segment, numbered through the batch.
        step: ``[R]``, the place of each segment in its document, counted from the first step of the pass.
        batch: number of documents in the whole batch.
    """

    def __init__(self, document: torch.Tensor, step: torch.Tensor, batch: int) -> None:
        self.active, self.row = document.unique(return_inverse=True)  # without documents that ended in an earlier pass
        self.step, self.batch = step, batch
        self.documents, self.steps = len(self.active), int(step.max()) + 1


class BertAlPreTrainedModel(TokenDocumentPreTrainedModel):
    """What all BERT-AL classes share: configuration, tokenizer fields and initialisation."""

    config: BertAlConfig
    config_class = BertAlConfig
    family_auto_map = {
        "AutoConfig": "configuration_bert_al.BertAlConfig",
        "AutoModel": "modeling_bert_al.BertAlModel",
        "AutoModelForSequenceClassification": "modeling_bert_al.BertAlForSequenceClassification",
        # The closest auto class of transformers: every [CLS] stands for a sentence and gets a score.
        "AutoModelForTokenClassification": "modeling_bert_al.BertAlForExtractiveSummarization",
    }
    model_tags = ["bert-al", "nextlevelbert", "sentence-transformers"]

    @classmethod
    def _tokenizer_fields(cls, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise ValueError(
                f"The tokenizer has no token for the start or the end of a sentence (cls_token {tokenizer.cls_token}, "
                f"sep_token {tokenizer.sep_token}). Give a BERT, RoBERTa or similar encoder."
            )
        ids = {"pad_token_id": tokenizer.pad_token_id, "cls_token_id": tokenizer.cls_token_id}
        return {**ids, "sentence_rule": SENTENCE_RULE}

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

    A token's feature depends on its own segment and those before it. With one segment and ``recurrence="none"``, the
    features are those of the encoder itself.

    Example:
        >>> model = BertAlModel.from_encoder(minilm, segment_length=128)
        >>> book = model.tokenizer("Call me Ishmael. " * 500, return_tensors="pt")
        >>> model(**book).last_hidden_state.shape
        torch.Size([1, 3002, 384])
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.encoder = backbone_from_config(config.encoder_config)
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
            output_hidden_states: also return the states after the embeddings and after every layer and its LSTM.
            inputs_embeds, output_attentions: must be None; adapters pass them on.

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
        pooled = pool(features, mask, "mean")  # [B, D]
        return TokenFeaturesOutput(
            last_hidden_state=features,
            pooler_output=pooled,
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
        """Yields one pass after another over some segments of every document; a caller keeps what it needs of each.

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
        """One pass through all layers; `states` are those of the LSTMs before the pass, and become those after it.

        Returns:
            The encoder's last hidden state ``[R, C, D]``, and with `all_states` those of all layers.
        """
        layers = encoder_layers(self.encoder) if self.recurrences or all_states else []
        hidden: list[torch.Tensor] = []
        expected = attention_mask.shape

        def after(number: int) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
            def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
                state, *others = output if isinstance(output, tuple) else (output,)
                if state.shape[:2] != expected:
                    raise ValueError(
                        f"A layer of this {self.config.encoder_config.model_type} gives {tuple(state.shape)} for "
                        f"{tuple(expected)} tokens, so positions cannot be channels of the LSTM. Use another "
                        "encoder, or attn_implementation='sdpa' if it is its attention that drops padding."
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
                hooks.enter_context(layer.register_forward_hook(after(number)))
            output = self.encoder(**inputs, attention_mask=attention_mask, return_dict=True)
        return output.last_hidden_state, hidden

    def _recur(
        self, number: int, state: torch.Tensor, grid: _Grid, before: State | None
    ) -> tuple[torch.Tensor, State]:
        """A layer's LSTM over segments ``[R, C, D]``; its state is kept for all documents, ``[B, C, D]``."""
        steps = state.new_zeros(grid.documents, grid.steps, *state.shape[1:])  # [documents, n, C, D]
        steps = steps.index_put((grid.row, grid.step), state)
        if before is not None:
            h, c = (part[grid.active].flatten(0, 1) for part in before)  # [documents · C, D] each
            before = (h, c)
        outputs, after = self.recurrences[number](steps, before)
        h, c = (part.unflatten(0, (grid.documents, -1)) for part in after)
        if grid.documents < grid.batch:
            h, c = (part.new_zeros(grid.batch, *part.shape[1:]).index_put((grid.active,), part) for part in (h, c))
        return outputs[grid.row, grid.step], (h, c)


class BertAlForExtractiveSummarization(BertAlPreTrainedModel):
    """Scores every sentence of a document by the output at its [CLS] (paper, sections "BERTSUM" and "Embedding").

    Documents come in BERTSUM's format, see `encode_sentences`.

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
        """Reads whole documents; keeps the states of the sentence tokens only, so memory does not grow with length.

        Args:
            input_ids, attention_mask, token_type_ids: as in `BertAlModel`, like the arguments not named here. Every
                `config.cls_token_id` starts a sentence.
            labels: ``[B, S]``, 1 for a sentence of the summary, 0 for another, -100 where that is unknown or there is
                no sentence. The loss is the mean over documents of the mean over their sentences.
            output_hidden_states: also return the states of all tokens, as `BertAlModel` does, in a second pass.

        Raises:
            ValueError: for a document without a sentence (numbered), labels of another shape or with other values, or
                inputs that `BertAlModel` does not accept.
        """
        self.refuse_other_inputs(inputs_embeds, output_attentions)
        mask = self.check_documents(input_ids, attention_mask)
        starts = (input_ids == self.config.cls_token_id) & mask  # [B, T]
        counts = starts.sum(dim=1)  # [B]
        if not counts.all():
            raise ValueError(
                f"Documents {(counts == 0).nonzero().flatten().tolist()} of the batch have no sentence: none of their "
                f"ids is {self.config.cls_token_id}, the [CLS] before each. Use bert_al_sentences.encode_sentences."
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
            every = (real & (input_ids == self.config.cls_token_id)).sum(dim=1)  # with those that training cuts off
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
        self,
        document: str | Sequence[str],
        sentences: int = 3,
        trigram_blocking: bool = False,
        splitter: Splitter | None = None,
    ) -> ExtractiveSummary:
        """The sentences with the highest scores, in the order of the document.

        Args:
            document: a text, or its sentences.
            sentences: how many; all if there are no more.
            trigram_blocking: skip a sentence that shares three words in a row with one of a higher score.
            splitter: a function that finds the sentences of a text instead of the model's rule.

        Raises:
            ValueError: for a document without words, a number of sentences below 1, or scores that are not finite.
        """
        if sentences < 1:
            raise ValueError(f"sentences must be 1 or more, got {sentences}.")
        text, spans = split_document(document, self.tokenizer, self.config.sentence_rule, splitter)
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
        chosen = select_sentences(logits.float().cpu().numpy(), sentences, texts if trigram_blocking else None)
        return ExtractiveSummary(
            sentences=[texts[number] for number in chosen],
            indices=chosen,
            spans=[spans[number] for number in chosen],
            scores=torch.sigmoid(logits.float()).tolist(),
        )


class BertAlForSequenceClassification(BertAlPreTrainedModel):
    """Classifies documents of any length by the mean of their token features: one label, several, or values.

    The paper describes no such head ("can be adapted to various tasks"). It reads the mean because the first [CLS]
    knows nothing of what follows its own segment.

    Example:
        >>> model = BertAlForSequenceClassification.from_encoder(minilm, num_labels=20)
        >>> posts = model.tokenizer(["A short post.", "A long one. " * 300], padding=True, return_tensors="pt")
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
        """Reads whole documents.

        Args:
            input_ids, attention_mask, token_type_ids: as in `BertAlModel`, like the arguments not named here.
            labels: ``[B]`` integers, ``[B, num_labels]`` zeros and ones as floats, or ``[B]`` values.

        Raises:
            ValueError: for labels of the wrong kind or range (rows named), or inputs that `BertAlModel` does not
                accept.
        """
        document = self.model(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, output_attentions,
            return_dict=True,
        )  # fmt: skip
        logits = self.classifier(self.dropout(document.pooler_output))  # [B, K]
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=document.hidden_states)


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
