"""The heads that NextLevelBERT and HATE share: masked vector modelling, and classifiers over document vectors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .losses import CONTRASTIVE_LOSSES, masked_vector_loss
from .outputs import DocumentModelOutput, MaskedVectorModelingOutput
from .task_layers import TaskClassifier, check_labels, concatenate_pairs, split_pair

logger = logging.getLogger(__name__)


class MaskedVectorModelingMixin:
    """`forward` of the models that predict masked chunk vectors; they have a `model` and a `head`."""

    main_input_name = "inputs_embeds"
    accepts_loss_kwargs = False  # the loss is a mean over the batch's selected positions
    skipped_batches = 0  # training batches that taught nothing, see `_warn_of_too_few`
    _told_of_evaluation = False

    if TYPE_CHECKING:  # what the model class brings
        config: Any
        model: Any
        head: Any
        training: bool

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    @can_return_tuple
    def forward(
        self,
        inputs_embeds: torch.Tensor,
        special_ids: torch.Tensor,
        mask_positions: torch.Tensor,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> MaskedVectorModelingOutput:
        """One step over packed sequences, as `DataCollatorForVectorMasking` makes them.

        Args:
            inputs_embeds: ``[B, S, D]`` chunk vectors, some replaced by others; anything at special positions.
            special_ids: ``[B, S]``: -1 at chunk vectors, else [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3.
            mask_positions: ``[B, S]`` bool, where to predict.
            labels: ``[B, S, D]`` the true vectors.

        Raises:
            ValueError: if the shapes do not fit each other.
        """
        output = self.model(
            inputs_embeds=inputs_embeds,
            special_ids=special_ids,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        if mask_positions.shape != special_ids.shape:
            raise ValueError(
                f"mask_positions must be {tuple(special_ids.shape)} like special_ids, "
                f"got {tuple(mask_positions.shape)}."
            )
        if labels is not None and labels.shape != inputs_embeds.shape:
            raise ValueError(f"labels must be {tuple(inputs_embeds.shape)}, got {tuple(labels.shape)}.")
        loss, predictions, targets = self.masked_loss(output.last_hidden_state, mask_positions, labels)
        return MaskedVectorModelingOutput(
            loss=loss,
            predictions=predictions,
            targets=targets,
            hidden_states=output.hidden_states,
            attentions=output.attentions,
        )

    def masked_loss(
        self, hidden: torch.Tensor, mask_positions: torch.Tensor, labels: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None]:
        """Loss, predictions and targets ``[M, D]`` of the selected positions; without labels predictions alone.

        Targets are the vectors that the encoder reads, whitened where the model whitens.
        """
        selected = mask_positions.bool()
        predictions = self.head(hidden[selected])  # [M, D]
        if labels is None:
            return None, predictions, None
        targets = self.model.prepare_chunks(labels[selected])  # [M, D]
        self._warn_of_too_few(len(targets))
        return (
            masked_vector_loss(self.config.loss, predictions, targets, self.config.temperature),
            predictions,
            targets,
        )

    def _warn_of_too_few(self, masked: int) -> None:
        """Counts batches whose loss says nothing: a vector is always found among itself. Tells of 1, 10, 100 …"""
        if masked >= 2 or self.config.loss not in CONTRASTIVE_LOSSES:
            return
        advice = "take larger batches, longer sequences or a higher masking probability."
        if not self.training:
            if not self._told_of_evaluation:
                self._told_of_evaluation = True
                logger.warning(
                    "%d masked vector(s) in an evaluation batch; loss=%r looks for each among the others and needs "
                    "two. Such batches count as 0 in the mean of the loss: %s", masked, self.config.loss, advice,
                )  # fmt: skip
            return
        self.skipped_batches += 1
        if str(self.skipped_batches).strip("0") == "1":
            logger.warning(
                "%d masked vector(s) in a batch; loss=%r looks for each among the others and needs two. The batch "
                "teaches nothing (%d so far): %s", masked, self.config.loss, self.skipped_batches, advice,
            )  # fmt: skip


class DocumentTaskMixin:
    """A document vector beside encoded questions, and a classifier over both; stands before `…PreTrainedModel`."""

    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^logit_scale$"]  # pretraining heads are dropped on purpose
    accepts_loss_kwargs = False  # losses are means over the batch

    if TYPE_CHECKING:  # what the model class brings
        config: Any
        loss_function: Any
        post_init: Any

    def build(self, model: Any, out_features: int, text_pair: bool) -> None:
        """Puts the model and the classifier in place; at the end of a subclass's `__init__`."""
        self.model = model
        width = self.config.hidden_size + (self.config.chunk_hidden_size if text_pair else 0)
        self.classifier = TaskClassifier(width, self.config.classifier_hidden_size, out_features)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def score(
        self, pairs: torch.Tensor | None, document_index: torch.Tensor | None, documents: dict[str, Any]
    ) -> tuple[torch.Tensor, DocumentModelOutput]:
        """Logits ``[N, …, out_features]`` of documents, each beside its questions, and what the model gave."""
        output = self.model(**documents)
        return self.classifier(concatenate_pairs(output.pooler_output, pairs, document_index)), output


class DocumentClassificationMixin(DocumentTaskMixin):
    """`forward` of the sequence classifiers: one label, several, or values."""

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        pair_input_ids: torch.Tensor | None = None,
        pair_attention_mask: torch.Tensor | None = None,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> SequenceClassifierOutput:
        """Reads each document once, whatever the number of its questions.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in the model's own `forward`.
            token_type_ids: ``[B, T]``; where the tokenizer was given pairs, 1 marks the question.
            pair_input_ids, pair_attention_mask: ``[N, Q]`` ids of the questions. One longer than a chunk is cut
                like a document, and the mean of its chunk vectors taken.
            pair_embeds: ``[N, D]`` questions encoded before, in place of their ids.
            document_index: ``[N]``, the document of each question (or label); by default one each, in order.
            labels: ``[N]`` integers, ``[N, num_labels]`` zeros and ones as floats, or ``[N]`` values.
            output_hidden_states, output_attentions: as in the model's own `forward`.

        Raises:
            ValueError: for a question where there is no place for one or none where it is needed, labels out of
                range (rows named), or what the model itself refuses.
        """
        text_pair = self.config.text_pair
        if token_type_ids is not None and input_ids is not None and bool((token_type_ids == 1).any()):
            if pair_input_ids is not None or pair_embeds is not None:
                raise ValueError(
                    "Questions came twice: in input_ids (token_type_ids of 1) and apart; give one of both."
                )
            prefix = len(self.config.chunk_prefix_ids)
            attention_mask, pair_attention_mask = split_pair(input_ids, attention_mask, token_type_ids, prefix)
            pair_input_ids = input_ids
        pairs = self.model.encode_pairs(pair_input_ids, pair_attention_mask, pair_embeds)
        if (pairs is not None) != text_pair:
            raise ValueError(
                f"This model has text_pair={text_pair} and was given {'no ' if pairs is None else 'a '}question: "
                + ("give pair_input_ids or pair_embeds." if text_pair else "load it with text_pair=True.")
            )
        documents: dict[str, Any] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "inputs_embeds": inputs_embeds,
        }
        documents |= {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        logits, output = self.score(pairs, document_index, documents)  # [N, num_labels]
        loss = None
        if labels is not None:
            check_labels(labels, logits, self.config.problem_type)
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)
