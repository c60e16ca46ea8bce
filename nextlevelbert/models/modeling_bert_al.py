"""BERT-AL: a pretrained BERT in which, after every layer, a segment receives information from those
before it.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", under review at ICLR 2020. Shapes: B
documents in a batch, T positions and N real tokens of it, m of these and R segments in a pass, n
steps (segments of a document), C tokens in a segment, D hidden size, S sentences. A channel is one
sequence of an LSTM: a position within a document's segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple

from .bert_al_sentences import (
    ExtractiveSummary,
    encode_sentences,
    pad_batch,
    select_sentences,
    split_document,
)
from .configuration_bert_al import BertAlConfig
from .pretrained import backbone_from_config, classification_loss, labelled_loss
from .token_document import (
    TokenDocumentPreTrainedModel,
    TokenFeaturesOutput,
    at_their_places,
    place_in_chunks,
)

State = tuple[Tensor, Tensor]  # h and c of an LSTM, [channels, D]
Place = tuple[Tensor, Tensor]  # step and document of every segment of a pass, [R]
_GATES = 4  # input, forget, cell and output, in torch's order
# Encoders whose layers give [position, segment, D]; all others give [segment, position, D].
_POSITIONS_FIRST = ("xlnet",)


class LayerNormLSTM(nn.Module):
    """One layer, one direction, all channels at once; every gate and the cell have a layer
    normalisation of their own.

    ``[i; f; g; o] = LN_gate(W_x x + W_h h)``, ``c = σ(f) c + σ(i) tanh(g)``, ``h = σ(o)
    tanh(LN_c(c))`` (Ba et al., "Layer Normalization", 2016; paper, section "Multi-channel LSTM").
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(hidden_size, _GATES * hidden_size, bias=False)
        self.recurrent_weight = nn.Parameter(torch.zeros(_GATES * hidden_size, hidden_size))
        self.gate_weight = nn.Parameter(torch.ones(_GATES, hidden_size))
        self.gate_bias = nn.Parameter(
            torch.zeros(_GATES, hidden_size)
        )  # of the normalisation; there is no other
        self.cell_weight = nn.Parameter(torch.ones(hidden_size))
        self.cell_bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """h of all steps, ``[n, channels, D]`` as the inputs, and the state after the last, c at
        least in float32."""
        # The inputs of all steps in one multiplication; only that with h has to wait for the step
        # before.
        projected = self.input_projection(inputs)  # [n, channels, 4D]
        dtype, size = projected.dtype, inputs.shape[-1:]
        exact = torch.promote_types(dtype, torch.float32)
        h, c = state or (projected.new_zeros(inputs.shape[1:]),) * 2
        h, c, recurrent = h.to(dtype), c.to(exact), self.recurrent_weight.to(dtype)
        scales = self.gate_weight, self.gate_bias, self.cell_weight, self.cell_bias
        gate_weight, gate_bias, cell_weight, cell_bias = (weight.to(exact) for weight in scales)
        outputs = []
        with torch.autocast(inputs.device.type, enabled=False):  # dtypes are settled above
            for step in projected:
                gates = (
                    (step + h @ recurrent.T).to(exact).unflatten(-1, (_GATES, *size))
                )  # [channels, 4, D]
                i, f, g, o = (layer_norm(gates, size) * gate_weight + gate_bias).unbind(dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = (o.sigmoid() * layer_norm(c, size, cell_weight, cell_bias).tanh()).to(dtype)
                outputs.append(h)
        return torch.stack(outputs), (h, c)


class RecurrenceProjection(nn.Linear):
    """A linear layer that starts at zero, so that a new model is the pretrained encoder."""


class SegmentRecurrence(nn.Module):
    """What comes after one layer: an LSTM whose steps are segments (paper, section "Multi-channel
    LSTM")."""

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.lstm = LayerNormLSTM(size)
        self.residual = (
            RecurrenceProjection(size, size) if config.recurrence == "residual" else None
        )

    def forward(
        self, states: Tensor, place: Place, batch: int, before: State | None
    ) -> tuple[Tensor, State]:
        """A layer's output ``[R, C, D]`` after the LSTM, and the LSTM's state, from that of the
        pass before."""
        steps = states.new_zeros(int(place[0].max()) + 1, batch, *states.shape[1:])
        steps = steps.index_put(place, states)  # [n, B, C, D]
        outputs, after = self.lstm(steps.flatten(1, 2), before)  # [n, B · C, D]
        outputs = outputs.view(steps.shape)[place]  # [R, C, D]
        return (outputs if self.residual is None else states + self.residual(outputs)), after


# In a pass, and in its thread: from the number of a layer and its output to what comes behind the
# recurrence.
_AFTER_LAYER: ContextVar[Callable[[int, Tensor], Tensor] | None] = ContextVar(
    "bert_al_after_layer", default=None
)


class RecurrentLayers(nn.ModuleList):
    """The layers alone, so that weights keep their names; in a pass, iteration gives each with what
    follows it."""

    def __iter__(self) -> Iterator[Any]:
        after = _AFTER_LAYER.get()
        if after is None:
            return super().__iter__()
        return (
            RecurrentLayer(layer, partial(after, number))
            for number, layer in enumerate(super().__iter__())
        )


class RecurrentLayer:
    """A layer, with its attributes, and what comes after it; some layers give a tuple."""

    def __init__(self, layer: nn.Module, after: Callable[[Tensor], Tensor]) -> None:
        self.layer, self.after = layer, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self.layer(*args, **kwargs)
        return (
            (self.after(output[0]), *output[1:])
            if isinstance(output, tuple)
            else self.after(output)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)


def wrap_layers(encoder: PreTrainedModel) -> None:
    """Puts `RecurrentLayers` in place of the one stack that has a module for each layer (ALBERT and
    XLM have none)."""
    count = encoder.config.num_hidden_layers
    children = [
        (parent, *child) for parent in encoder.modules() for child in parent.named_children()
    ]
    stacks = [
        child
        for child in children
        if isinstance(child[2], nn.ModuleList) and len(child[2]) == count
    ]
    if len(stacks) != 1:  # XLM has a stack of attentions, one of normalisations, and so on
        needed = (
            "one with separate weights for every layer: BERT, RoBERTa, MPNet, DistilBERT, MiniLM or"
            " similar"
        )
        raise ValueError(
            f"{type(encoder).__name__} has no stack of {count} layers for a recurrence; use"
            f" {needed}."
        )
    [(parent, name, layers)] = stacks
    setattr(parent, name, RecurrentLayers(layers))


class BertAlPreTrainedModel(TokenDocumentPreTrainedModel):
    config: BertAlConfig
    config_class = BertAlConfig
    family_auto_map = {
        "AutoConfig": "configuration_bert_al.BertAlConfig",
        "AutoModel": "modeling_bert_al.BertAlModel",
        "AutoModelForSequenceClassification": "modeling_bert_al.BertAlForSequenceClassification",
        # The closest auto class of transformers: every [CLS] stands for a sentence and gets a
        # score.
        "AutoModelForTokenClassification": "modeling_bert_al.BertAlForExtractiveSummarization",
    }
    model_tags = ["bert-al", "nextlevelbert", "sentence-transformers"]
    accepts_loss_kwargs = False  # losses are means over the documents of the batch

    def add_head(self, scores: int) -> None:
        self.model = BertAlModel(self.config)
        self.dropout = nn.Dropout(self.config.classifier_dropout or 0.0)
        self.classifier = nn.Linear(self.config.hidden_size, scores)
        self.post_init()

    def modules_to_train_whole(self) -> list[str]:
        recurrences = (
            ["lstm", "residual"] if self.config.recurrence != "none" else []
        )  # they start at random
        return [*super().modules_to_train_whole(), *recurrences]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(
            module, LayerNormLSTM
        ):  # normalised gates do not notice the scale of their weights
            init.normal_(module.recurrent_weight, std=self.config.initializer_range)
            init.ones_(module.gate_weight)
            forget_gate = torch.arange(_GATES).eq(1)[:, None].expand_as(module.gate_bias)
            init.copy_(module.gate_bias, forget_gate.to(module.gate_bias))  # it starts open
            init.ones_(module.cell_weight)
            init.zeros_(module.cell_bias)
        elif isinstance(module, RecurrenceProjection):
            init.zeros_(module.weight)
            init.zeros_(module.bias)


class BertAlModel(BertAlPreTrainedModel):
    """A feature for every token of whole documents, which depends on its own segment and those
    before it.

    With one segment and ``recurrence="none"``, the features are those of the encoder itself.
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        config.check("segment_length")
        self.encoder = backbone_from_config(config.encoder_config)
        self.recurrences = nn.ModuleList()
        if config.recurrence != "none":
            wrap_layers(self.encoder)
            self.recurrences.extend(
                SegmentRecurrence(config) for _ in range(self.encoder.config.num_hidden_layers)
            )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> TokenFeaturesOutput:
        """Cuts documents of any length ``[B, T]``, padded anywhere, into segments and reads them in
        order.

        What adapters pass on in `kwargs` has no meaning.
        """
        mask = self.tokens_to_read(input_ids, attention_mask)
        tokens, features = zip(*self.passes(input_ids, mask, token_type_ids), strict=True)
        return at_their_places(torch.cat(features)[torch.cat(tokens).argsort()], mask)

    def passes(
        self, input_ids: Tensor, mask: Tensor, types: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Reads some segments of every document at a time, so that a caller keeps only what it
        needs.

        Yields the numbers ``[m]`` of a pass's tokens among the N of `mask` ``[B, T]``, and their
        features ``[m, D]``.
        """
        length, batch = self.config.segment_length, len(mask)
        segment, offset, _ = place_in_chunks(mask, length)  # [N], [N]
        fields, real = self.lay_out(input_ids, types, mask, (segment, offset))  # [all segments, C]
        step = (mask.cumsum(dim=1)[mask] - 1) // length  # [N]
        step_of, document_of = step[offset == 0], mask.nonzero()[offset == 0, 0]  # [all segments]
        states: list[State | None] = [None] * len(self.recurrences)
        total = int(step.max()) + 1
        at_once = max(1, (self.config.tokens_at_once or total * length * batch) // (length * batch))
        for first in range(0, total, at_once):
            rows = ((step_of >= first) & (step_of < first + at_once)).nonzero().flatten()  # [R]
            tokens = ((step >= first) & (step < first + at_once)).nonzero().flatten()  # [m]
            inputs = {name: values[rows] for name, values in fields.items()}
            place = (step_of[rows] - first, document_of[rows])
            before = _AFTER_LAYER.set(partial(self._recur, states, place, batch))
            try:
                output = self.encoder(**inputs, attention_mask=real[rows].long(), return_dict=True)
            finally:
                _AFTER_LAYER.reset(before)
            yield tokens, output.last_hidden_state[real[rows]]

    def _recur(
        self, states: list[State | None], place: Place, batch: int, number: int, output: Tensor
    ) -> Tensor:
        positions_first = self.encoder.config.model_type in _POSITIONS_FIRST
        if positions_first:
            output = output.transpose(0, 1)
        output, states[number] = self.recurrences[number](output, place, batch, states[number])
        if positions_first:
            output = output.transpose(0, 1)
        return output


@dataclass
class ExtractiveSummarizationOutput(ModelOutput):
    """Loss, the mean over documents of that over their sentences; logits ``[B, S]``; mask ``[B,
    S]`` of sentences."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    sentence_mask: Tensor | None = None


class BertAlForExtractiveSummarization(BertAlPreTrainedModel):
    """Scores every sentence by the output at its [CLS]; documents come in BERTSUM's format (see
    `encode_sentences`).

    Example:
        >>> model = BertAlForExtractiveSummarization.from_encoder(minilm)
        >>> summary = model.summarize("It rained all day. The match was called off. Tea was served.", sentences=2)
        >>> len(summary.sentences)
        2
    """

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.add_head(1)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> ExtractiveSummarizationOutput:
        """Scores of the sentences that `config.cls_token_id` starts, zero where there is none.

        `labels` are ``[B, S]``: 1 for a sentence of the summary, 0 for another, -100 where that is
        unknown.
        """
        mask = self.tokens_to_read(input_ids, attention_mask)
        starts = (input_ids == self.config.cls_token_id) & mask  # [B, T]
        is_start, numbers, features = starts[mask], [], []
        # Only the states of [CLS] are kept of each pass, so that memory does not grow with length.
        for tokens, states in self.model.passes(input_ids, mask, token_type_ids):
            numbers.append(tokens[is_start[tokens]])
            features.append(states[is_start[tokens]])
        in_order = torch.cat(features)[
            torch.cat(numbers).argsort()
        ]  # [sentences of all documents, D]
        scores = self.classifier(self.dropout(in_order)).squeeze(-1)
        counts = starts.sum(dim=1)  # [B]
        sentences = torch.arange(int(counts.max()), device=mask.device) < counts[:, None]  # [B, S]
        logits = scores.new_zeros(sentences.shape).masked_scatter(sentences, scores)
        loss = None
        if labels is not None:  # of sentences that training cuts off, too
            loss = labelled_loss(
                logits, labels[:, : sentences.shape[1]].masked_fill(~sentences, -100)
            )
        return ExtractiveSummarizationOutput(loss, logits, sentences)

    @torch.no_grad()
    def summarize(
        self, document: str | Sequence[str], sentences: int = 3, trigram_blocking: bool = False
    ) -> ExtractiveSummary:
        """The sentences of a text (or list of sentences) with the highest scores, in the order of
        the document.

        `trigram_blocking` skips a sentence that shares three words in a row with one of a higher
        score.
        """
        if sentences < 1:
            raise ValueError(f"sentences must be 1 or more, got {sentences}.")
        text, spans = split_document(document)
        texts = [text[start:end] for start, end in spans]
        batch = pad_batch([encode_sentences(texts, self.tokenizer)], self.config.pad_token_id or 0)
        self.eval()
        inputs = {name: values.to(self.device) for name, values in batch.items()}
        output = self(**inputs, return_dict=True)
        logits = output.logits[0].float().cpu()
        chosen = select_sentences(logits.numpy(), sentences, texts if trigram_blocking else None)
        texts, spans = [texts[number] for number in chosen], [spans[number] for number in chosen]
        return ExtractiveSummary(texts, chosen, spans, logits.sigmoid().tolist())


class BertAlForSequenceClassification(BertAlPreTrainedModel):
    """Classifies documents by the mean of their token features (the first [CLS] knows nothing of
    later segments)."""

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        self.add_head(config.num_labels)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Scores ``[B, K]``; `labels` are ``[B]`` integers, ``[B, K]`` zeros and ones as floats, or
        ``[B]`` values."""
        pooled = self.model(
            input_ids, attention_mask, token_type_ids, return_dict=True
        ).pooler_output
        logits = self.classifier(self.dropout(pooled))  # [B, K]
        loss = None if labels is None else classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)
