"""BERT-AL: a pretrained BERT whose segments receive information from those before them.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", under review at ICLR 2020. Shapes: B
documents in a batch, T positions and N real tokens of it, m of these and R segments in a pass, n
steps (segments of a document), C tokens in a segment, D hidden size, S sentences. A channel is one
sequence of an LSTM: a position within a document's segments.
"""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import TransformersKwargs

from .backbones import backbone_from_config, evaluation_mode, mask_for, missing_passes
from .bert_al_sentences import (
    ExtractiveSummary,
    encode_sentences,
    pad_batch,
    select_sentences,
    split_document,
)
from .configuration_bert_al import BertAlConfig
from .losses import classification_loss, labelled_loss
from .token_document import (
    TokenDocumentPreTrainedModel,
    TokenFeaturesOutput,
    assign_to_pieces,
    scatter_features,
)
from .windows import copy_to

State = tuple[Tensor, Tensor]  # h and c of an LSTM, [channels, D]
_GATES = 4  # input, forget, cell and output, in torch's order
# Encoders whose layers give [position, segment, D]; all others give [segment, position, D].
_POSITIONS_FIRST = ("xlnet",)


class SegmentIndex(NamedTuple):
    """Holds the step and the document of each segment, and the number of steps."""

    step: Tensor
    document: Tensor
    steps: int


class LayerNormLSTM(nn.Module):
    """Runs an LSTM of one layer and one direction over all channels at once.

    Every gate and the cell have a layer normalisation of their own:
    ``[i; f; g; o] = LN_gate(W_x x + W_h h)``, ``c = σ(f) c + σ(i) tanh(g)``, ``h = σ(o)
    tanh(LN_c(c))`` (Ba et al., "Layer Normalization", 2016; paper, section "Multi-channel LSTM").
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(hidden_size, _GATES * hidden_size, bias=False)
        self.recurrent_weight = nn.Parameter(torch.zeros(_GATES * hidden_size, hidden_size))
        self.gate_weight = nn.Parameter(torch.ones(_GATES, hidden_size))
        # The only bias of the gates is the normalisation's.
        self.gate_bias = nn.Parameter(torch.zeros(_GATES, hidden_size))
        self.cell_weight = nn.Parameter(torch.ones(hidden_size))
        self.cell_bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Runs over the steps of all channels.

        Args:
            inputs: input of each step, ``[n, channels, D]``.
            state: h and c after the step before, ``[channels, D]`` each; zeros if there is none.

        Returns:
            h of all steps, ``[n, channels, D]``; and the state after the last step, with c at least
            in float32.
        """
        # The inputs of all steps are multiplied at once; only h has to wait for the step before.
        projected = self.input_projection(inputs)  # [n, channels, 4D]
        dtype = projected.dtype
        exact_dtype = torch.promote_types(dtype, torch.float32)
        size = inputs.shape[-1:]
        if state is None:
            zeros = projected.new_zeros(inputs.shape[1:])
            state = (zeros, zeros)

        h = state[0].to(dtype)
        c = state[1].to(exact_dtype)
        recurrent_weight = self.recurrent_weight.to(dtype)
        outputs = []
        with torch.autocast(inputs.device.type, enabled=False):  # dtypes are settled here
            for step in projected:
                gates = (step + h @ recurrent_weight.T).to(exact_dtype)
                gates = gates.unflatten(-1, (_GATES, *size))  # [channels, 4, D]
                gates = layer_norm(gates, size) * self.gate_weight + self.gate_bias
                i, f, g, o = gates.unbind(dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                cell = layer_norm(c, size) * self.cell_weight + self.cell_bias
                h = (o.sigmoid() * cell.tanh()).to(dtype)
                outputs.append(h)

        return torch.stack(outputs), (h, c)


class RecurrenceProjection(nn.Linear):
    """Starts at zero, so that a new model is the pretrained encoder."""


class SegmentRecurrence(nn.Module):
    """Passes information between segments by an LSTM behind one layer ("Multi-channel LSTM")."""

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.lstm = LayerNormLSTM(size)
        self.residual = None
        if config.recurrence == "residual":
            self.residual = RecurrenceProjection(size, size)

    def forward(
        self, states: Tensor, index: SegmentIndex, batch: int, before: State | None
    ) -> tuple[Tensor, State]:
        """Passes information from segment to segment.

        Args:
            states: output of the layer, ``[R, C, D]``.
            index: step and document of each segment, ``[R]``.
            batch: number of documents, B.
            before: state of the LSTM after the previous pass; None in the first pass.

        Returns:
            The states after the LSTM, ``[R, C, D]``, and the new state of the LSTM.
        """
        places = (index.step, index.document)
        by_step = states.new_zeros((index.steps, batch, *states.shape[1:]))  # [n, B, C, D]
        by_step = by_step.index_put(places, states)
        outputs, after = self.lstm(by_step.flatten(1, 2), before)  # [n, B · C, D]
        outputs = outputs.view(by_step.shape)[places]  # [R, C, D]
        if self.residual is not None:
            outputs = states + self.residual(outputs)
        return outputs, after


# The recurrence must run between the layers of any encoder, outside their gradient checkpointing
# (which would run it, and its change of state, a second time), and without new names for the
# weights. So the stack of layers is replaced by one that hands out wrapped layers during a pass.
# A context variable holds what the pass adds, because several threads may use one model.
AfterLayer = Callable[[int, Tensor], Tensor]  # from the layer's index and its output
_AFTER_LAYER: ContextVar[AfterLayer | None] = ContextVar("bert_al_after_layer", default=None)


class RecurrentLayers(nn.ModuleList):
    """Puts a recurrence behind each layer of a stack if a pass of `BertAlModel` iterates."""

    def __iter__(self) -> Iterator[Any]:
        after = _AFTER_LAYER.get()
        layers = super().__iter__()
        if after is None:
            return layers
        return (
            RecurrentLayer(layer, after=partial(after, index)) for index, layer in enumerate(layers)
        )


class RecurrentLayer:
    """Runs a layer and its recurrence; has the layer's attributes, which some encoders read."""

    def __init__(self, layer: nn.Module, after: Callable[[Tensor], Tensor]) -> None:
        self.layer = layer
        self.after = after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self.layer(*args, **kwargs)
        if isinstance(output, tuple):
            return (self.after(output[0]), *output[1:])
        return self.after(output)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)


def wrap_layers(encoder: PreTrainedModel) -> None:
    """Puts `RecurrentLayers` in place of the encoder's stack of layers.

    Raises:
        ValueError: there is not exactly one stack with a module for each layer. ALBERT has none,
            and XLM has a stack of attentions, one of normalisations, and so on.
    """
    count = encoder.config.num_hidden_layers
    stacks = []
    for parent in encoder.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == count:
                stacks.append((parent, name, child))

    if len(stacks) != 1:
        raise ValueError(
            f"{type(encoder).__name__} has no stack of {count} layers for a recurrence; use one"
            " with separate weights for every layer: BERT, RoBERTa, MPNet, DistilBERT, MiniLM or"
            " similar."
        )

    parent, name, layers = stacks[0]
    setattr(parent, name, RecurrentLayers(layers))


class BertAlPreTrainedModel(TokenDocumentPreTrainedModel):
    """Shares configuration, heads, and the start of new layers among BERT-AL's classes."""

    config: BertAlConfig
    config_class = BertAlConfig
    family_auto_map = {
        "AutoConfig": "configuration_bert_al.BertAlConfig",
        "AutoModel": "modeling_bert_al.BertAlModel",
        "AutoModelForSequenceClassification": "modeling_bert_al.BertAlForSequenceClassification",
        # The summarizer has no auto class. With `AutoModelForTokenClassification`, the pipeline of
        # that name would take scores of sentences for scores of tokens.
    }
    model_tags = ["bert-al", "nextlevelbert", "sentence-transformers"]
    accepts_loss_kwargs = False  # losses are means over the documents of the batch

    def add_head(self, scores: int) -> None:
        """Adds the base model and a linear head with this number of scores."""
        self.model = BertAlModel(self.config)
        self.dropout = nn.Dropout(self.config.classifier_dropout or 0.0)
        self.classifier = nn.Linear(self.config.hidden_size, scores)
        self.post_init()

    def modules_to_train_whole(self) -> list[str]:
        """Returns the heads and the recurrence, which start at random."""
        names = super().modules_to_train_whole()
        if self.config.recurrence != "none":
            names = [*names, "lstm", "residual"]
        return names

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, LayerNormLSTM):
            # Normalised gates do not notice the scale of their weights.
            init.normal_(module.recurrent_weight, std=self.config.initializer_range)
            init.ones_(module.gate_weight)
            forget_gate = torch.zeros_like(module.gate_bias)
            forget_gate[1] = 1.0  # it starts open
            init.copy_(module.gate_bias, forget_gate)
            init.ones_(module.cell_weight)
            init.zeros_(module.cell_bias)
        elif isinstance(module, RecurrenceProjection):
            init.zeros_(module.weight)
            init.zeros_(module.bias)


class BertAlModel(BertAlPreTrainedModel):
    """Computes a feature for every token of whole documents.

    A feature depends on the token's own segment and the segments before it. With one segment and
    ``recurrence="none"``, the features are the encoder's own.
    """

    _keys_to_ignore_on_load_unexpected = [r"^classifier\."]  # heads are dropped on purpose

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__(config)
        config.check("segment_length")
        self.encoder = backbone_from_config(config.encoder_config)
        self.recurrences = nn.ModuleList()
        if config.recurrence != "none":
            wrap_layers(self.encoder)
            for _ in range(self.encoder.config.num_hidden_layers):
                self.recurrences.append(SegmentRecurrence(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenFeaturesOutput:
        """Splits documents of any length into segments and reads them in order.

        Args:
            input_ids: token ids ``[B, T]``, padded anywhere.
            attention_mask: mask ``[B, T]`` (default: no padding).
            token_type_ids: token types ``[B, T]``.
            **kwargs: arguments that adapters pass on; None or False, see `capture_arguments`.
        """
        self.check_arguments(kwargs)
        mask, mask_on_cpu = self.tokens_to_read(input_ids, attention_mask)
        token = np.flatnonzero(mask_on_cpu)
        features = self.token_features(
            input_ids, mask=mask_on_cpu, types=token_type_ids, is_kept=np.ones(len(token), bool)
        )
        return scatter_features(features, mask=mask, token=token)

    def token_features(
        self, input_ids: Tensor, mask: np.ndarray, types: Tensor | None, is_kept: np.ndarray
    ) -> Tensor:
        """Computes the features of some tokens; memory for the others does not grow with length.

        Args:
            input_ids: token ids ``[B, T]``.
            mask: bool mask ``[B, T]`` on the CPU, true at the N tokens to read.
            types: token types ``[B, T]``.
            is_kept: bool mask ``[N]`` on the CPU, true at tokens whose features are returned.

        Returns:
            The features of the kept tokens, document after document, ``[kept tokens, D]``.
        """
        tokens = []
        features = []
        for tokens_of_pass, states in self.passes(input_ids, mask=mask, types=types):
            is_kept_of_pass = is_kept[tokens_of_pass]
            tokens.append(tokens_of_pass[is_kept_of_pass])
            kept = copy_to(input_ids.device, np.flatnonzero(is_kept_of_pass))
            features.append(states[kept])
        order = np.argsort(np.concatenate(tokens))
        return torch.cat(features)[copy_to(input_ids.device, order)]

    def passes(
        self, input_ids: Tensor, mask: np.ndarray, types: Tensor | None
    ) -> Iterator[tuple[np.ndarray, Tensor]]:
        """Reads a few steps at a time.

        A step is one segment of every document that is long enough. After each layer of the
        encoder, an LSTM passes information from step to step, and its state from pass to pass.

        Args:
            input_ids: token ids ``[B, T]``.
            mask: bool mask ``[B, T]`` on the CPU, true at the N tokens to read.
            types: token types ``[B, T]``.

        Yields:
            The indices ``[m]`` of a pass's tokens among the N, on the CPU, and their features
            ``[m, D]``.
        """
        length = self.config.segment_length
        layout = assign_to_pieces(mask, size=length)
        inputs, real = self.lay_out(input_ids, token_type_ids=types, layout=layout)  # [R, C]
        counts = -(-layout.lengths // length)  # [B], segments of each document
        steps = int(counts.max())
        document = np.repeat(np.arange(len(counts)), counts)  # [R]
        step = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)

        steps_at_once = steps
        if self.config.tokens_at_once is not None:
            steps_at_once = max(1, self.config.tokens_at_once // (length * len(mask)))

        lstm_states: list[State | None] = [None] * len(self.recurrences)
        first_steps = range(0, steps, steps_at_once)
        missing = missing_passes(self.encoder, len(first_steps))
        for first in first_steps:
            segments = np.flatnonzero((step >= first) & (step < first + steps_at_once))  # [r]
            in_pass = copy_to(real.device, segments)
            step_in_pass = step[segments] - first
            places = copy_to(real.device, np.stack([step_in_pass, document[segments]]))
            index = SegmentIndex(places[0], places[1], steps=int(step_in_pass.max()) + 1)
            after_layer = partial(
                self._recur, lstm_states=lstm_states, index=index, batch=len(mask)
            )
            token = _AFTER_LAYER.set(after_layer)
            try:
                output = self.encoder(
                    **{name: values[in_pass] for name, values in inputs.items()},
                    attention_mask=mask_for(self.encoder, real[in_pass].long()),
                    return_dict=True,
                )
            finally:
                _AFTER_LAYER.reset(token)

            tokens = np.flatnonzero(np.isin(layout.piece, segments))  # [m]
            row = np.searchsorted(segments, layout.piece[tokens])
            row_and_column = copy_to(real.device, np.stack([row, layout.column[tokens]]))
            yield tokens, output.last_hidden_state[tuple(row_and_column)]  # [m, D]

        for _ in range(missing):
            inputs_of_pass = {name: values[:1, :1] for name, values in inputs.items()}
            unused = self.encoder(**inputs_of_pass, return_dict=True).last_hidden_state
            # No token, but a path for the backward pass.
            yield np.zeros(0, np.int64), unused[0, :0] + 0.0 * unused.sum()

    def _recur(
        self,
        layer: int,
        output: Tensor,
        lstm_states: list[State | None],
        index: SegmentIndex,
        batch: int,
    ) -> Tensor:
        """Applies the recurrence behind one layer, and keeps its state for the next pass."""
        positions_first = self.encoder.config.model_type in _POSITIONS_FIRST
        if positions_first:
            output = output.transpose(0, 1)
        output, lstm_states[layer] = self.recurrences[layer](
            output, index=index, batch=batch, before=lstm_states[layer]
        )
        if positions_first:
            output = output.transpose(0, 1)
        return output


@dataclass
class ExtractiveSummarizationOutput(ModelOutput):
    """Scores of sentences.

    Attributes:
        loss: mean over documents of the mean loss over the sentences of a document.
        logits: scores of the sentences, ``[B, S]``, zero at padding.
        sentence_mask: bool mask ``[B, S]``, true at sentences.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    sentence_mask: Tensor | None = None


class BertAlForExtractiveSummarization(BertAlPreTrainedModel):
    """Scores every sentence by the output at its [CLS].

    Documents come in BERTSUM's format (see `encode_sentences`).

    Example:
        >>> model = BertAlForExtractiveSummarization.from_encoder(minilm)
        >>> text = "It rained all day. The match was called off. Tea was served."
        >>> summary = model.summarize(text, sentences=2)
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> ExtractiveSummarizationOutput:
        """Scores the sentences, each of which starts with `config.cls_token_id`.

        Args:
            input_ids: token ids ``[B, T]``, padded anywhere.
            attention_mask: mask ``[B, T]`` (default: no padding).
            token_type_ids: token types ``[B, T]``.
            labels: labels ``[B, S]``: 1 for a sentence of the summary, 0 for any other, -100 if
                unknown.
            **kwargs: arguments that adapters pass on; None or False, see `capture_arguments`.
        """
        self.check_arguments(kwargs)
        mask, mask_on_cpu = self.tokens_to_read(input_ids, attention_mask)
        starts = ((input_ids == self.config.cls_token_id) & mask).cpu().numpy()  # [B, T]
        features = self.model.token_features(
            input_ids, mask=mask_on_cpu, types=token_type_ids, is_kept=starts[mask_on_cpu]
        )  # [sentences of all documents, D]
        scores = self.classifier(self.dropout(features)).squeeze(-1)

        counts = starts.sum(axis=1)  # [B]
        is_sentence = np.arange(counts.max()) < counts[:, None]  # [B, S]
        places = copy_to(mask.device, np.stack(np.nonzero(is_sentence)))
        logits = scores.new_zeros(is_sentence.shape).index_put(tuple(places), scores)
        sentence_mask = copy_to(mask.device, is_sentence)
        loss = None
        if labels is not None:
            # There may be labels of sentences that training leaves out.
            labels = labels[:, : sentence_mask.shape[1]].masked_fill(~sentence_mask, -100)
            loss = labelled_loss(logits, labels)

        return ExtractiveSummarizationOutput(loss=loss, logits=logits, sentence_mask=sentence_mask)

    @torch.no_grad()
    def summarize(
        self, document: str | Sequence[str], sentences: int = 3, trigram_blocking: bool = False
    ) -> ExtractiveSummary:
        """Selects the sentences with the highest scores, in the order of the document.

        Args:
            document: a text, or a list of sentences.
            sentences: number of sentences to select.
            trigram_blocking: if true, skips a sentence that shares three words in a row with a
                sentence of a higher score.

        Raises:
            ValueError: `sentences` is below 1, or the document has no words.
        """
        if sentences < 1:
            raise ValueError(f"sentences must be 1 or more, got {sentences}.")

        text, spans = split_document(document)
        texts = [text[start:end] for start, end in spans]
        padding = self.config.pad_token_id or 0
        batch = pad_batch([encode_sentences(texts, self.tokenizer)], pad_token_id=padding)

        inputs = {name: values.to(self.device) for name, values in batch.items()}
        with evaluation_mode(self):
            output = self(**inputs, return_dict=True)

        logits = output.logits[0].float().cpu()
        blocked_texts = None
        if trigram_blocking:
            blocked_texts = texts

        chosen = select_sentences(logits.numpy(), count=sentences, block_trigrams_in=blocked_texts)
        return ExtractiveSummary(
            sentences=[texts[index] for index in chosen],
            indices=chosen,
            spans=[spans[index] for index in chosen],
            scores=logits.sigmoid().tolist(),
        )


class BertAlForSequenceClassification(BertAlPreTrainedModel):
    """Classifies documents by the mean of their token features.

    The first [CLS] cannot represent a document, because it does not see later segments.
    """

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
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Scores the K classes of each document: `logits` ``[B, K]``.

        Args:
            input_ids: token ids ``[B, T]``, padded anywhere.
            attention_mask: mask ``[B, T]`` (default: no padding).
            token_type_ids: token types ``[B, T]``.
            labels: classes ``[B]`` as integers, ``[B, K]`` zeros and ones as floats, or values
                ``[B]``.
            **kwargs: arguments that adapters pass on; None or False, see `capture_arguments`.
        """
        self.check_arguments(kwargs)
        output = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            return_dict=True,
        )
        logits = self.classifier(self.dropout(output.pooler_output))  # [B, K]
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)

        return SequenceClassifierOutput(loss=loss, logits=logits)
