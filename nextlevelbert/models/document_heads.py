"""The heads of NextLevelBERT and HATE: masked vector modelling, and classifiers over document vectors."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .losses import CONTRASTIVE_LOSSES, classification_loss, masked_vector_loss
from .modeling_vector_document import VectorDocumentModel, VectorDocumentPreTrainedModel
from .outputs import DocumentModelOutput, MaskedVectorModelingOutput

logger = logging.getLogger(__name__)


class TaskClassifier(nn.Sequential):
    """Linear, ReLU, Linear over [document vector ; encoded question] (paper, section 3.2 "Experimental Setup")."""

    def __init__(self, in_features: int, hidden_size: int, out_features: int) -> None:
        super().__init__(nn.Linear(in_features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, out_features))


class VectorDocumentForMaskedVectorModeling(VectorDocumentPreTrainedModel):
    """Predicts masked chunk vectors; a subclass makes the `model` and the `head`."""

    main_input_name = "inputs_embeds"
    accepts_loss_kwargs = False  # the loss is a mean over the batch's selected positions
    skipped_batches = 0  # training batches without a loss to learn from, see `_warn_of_too_few`
    _told_of_evaluation = False

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
            inputs_embeds: ``[B, S, D]`` chunk vectors, some replaced by others; at special positions they do not
            matter. special_ids: ``[B, S]``: -1 at chunk vectors, else [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3.
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
        """Loss, predictions and targets ``[M, D]`` of the selected positions; without labels, predictions alone.

        Targets are the vectors that the encoder reads, whitened if the model whitens them.
        """
        selected = mask_positions.bool()
        predictions = self.head(hidden[selected])  # [M, D]
        if labels is None:
            return None, predictions, None
        targets = self.model.prepare_chunks(labels[selected])  # [M, D]
        self._warn_of_too_few(len(targets))
        config = self.config
        sequences = selected.nonzero()[:, 0] if config.loss_mean == "sequences" else None  # [M]
        loss = masked_vector_loss(config.loss, predictions, targets, config.temperature, config.norm_order, sequences)
        return loss, predictions, targets

    def _warn_of_too_few(self, masked: int) -> None:
        """Counts batches with a single masked vector, which has no others to be told from; warns at 1, 10, 100 …"""
        if masked >= 2 or self.config.loss not in CONTRASTIVE_LOSSES:
            return
        advice = "take larger batches, longer sequences or a higher masking probability."
        if not self.training:
            if not self._told_of_evaluation:
                self._told_of_evaluation = True
                logger.warning(
                    "%d masked vector(s) in an evaluation batch; loss=%r retrieves each among the others, so it "
                    "needs two. Such batches count as 0 in the mean of the loss: %s", masked, self.config.loss, advice,
                )  # fmt: skip
            return
        self.skipped_batches += 1
        if str(self.skipped_batches).strip("0") == "1":
            logger.warning(
                "%d masked vector(s) in a batch; loss=%r retrieves each among the others, so it needs two. Nothing "
                "is learned from this batch (%d so far): %s", masked, self.config.loss, self.skipped_batches, advice,
            )  # fmt: skip


class VectorDocumentWithClassifier(VectorDocumentPreTrainedModel):
    """A classifier over document vectors, alone or with encoded questions."""

    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^logit_scale$"]  # pretraining heads are dropped on purpose
    accepts_loss_kwargs = False  # losses are means over the batch

    def build(self, model: VectorDocumentModel, out_features: int, text_pair: bool) -> None:
        """Adds the model and the classifier; for the end of a subclass's `__init__`."""
        self.model = model
        width = self.config.hidden_size + (self.config.chunk_hidden_size if text_pair else 0)
        self.classifier = TaskClassifier(width, self.config.classifier_hidden_size, out_features)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def score(
        self,
        pairs: torch.Tensor | None,
        document_index: torch.Tensor | None,
        documents: Mapping[str, torch.Tensor | bool | None],
    ) -> tuple[torch.Tensor, DocumentModelOutput]:
        """Logits ``[N, …, out_features]`` of documents with their questions, and the model's output."""
        output = self.model(**documents)
        logits = self.classifier(concatenate_pairs(output.pooler_output, pairs, document_index))
        return logits, output


class VectorDocumentForSequenceClassification(VectorDocumentWithClassifier):
    """Classifies documents, alone or with a question: one label, several, or values."""

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
        """Reads each document once, however many questions it has.

        Args:
            input_ids, attention_mask, inputs_embeds: documents, as in the model's own `forward`.
            token_type_ids: ``[B, T]``; if the tokenizer was given pairs, 1 marks the question.
            pair_input_ids, pair_attention_mask: ``[N, Q]`` ids of the questions. One longer than a chunk is cut
                like a document, and the mean of its chunk vectors taken.
            pair_embeds: ``[N, D]`` encoded questions, instead of their ids.
            document_index: ``[N]``, the document of each question (or label); by default one each, in order.
            labels: ``[N]`` integers, ``[N, num_labels]`` zeros and ones as floats, or ``[N]`` values.
            output_hidden_states, output_attentions: as in the model's own `forward`.

        Raises:
            ValueError: for a question that the model does not read or a missing one that it needs, labels out of range
                (rows named), or inputs that the model does not accept.
        """
        text_pair = self.config.text_pair
        if token_type_ids is not None and input_ids is not None and bool((token_type_ids == 1).any()):
            if pair_input_ids is not None or pair_embeds is not None:
                raise ValueError(
                    "Questions were given twice: in input_ids (token_type_ids of 1) and separately. Give them once."
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
        documents = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "inputs_embeds": inputs_embeds,
            "output_hidden_states": output_hidden_states,
            "output_attentions": output_attentions,
        }
        logits, output = self.score(pairs, document_index, documents)  # [N, num_labels]
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels, self.config)
        return SequenceClassifierOutput(loss, logits, output.hidden_states, output.attentions)


def concatenate_pairs(
    documents: torch.Tensor, pairs: torch.Tensor | None, document_index: torch.Tensor | None
) -> torch.Tensor:
    """Concatenates each document's vector with the vectors of its questions.

    Args:
        documents: ``[B, D]`` document vectors.
        pairs: ``[N, D]`` vectors of questions or ``[N, C, D]`` of candidates; None for documents alone.
        document_index: ``[N]``, the document of each question; None for one question per document, in order.

    Returns:
        ``[N, D]`` alone, ``[N, 2D]`` with questions, ``[N, C, 2D]`` with candidates.

    Raises:
        ValueError: for an index outside the documents, or numbers that do not match.
    """
    if document_index is not None:
        outside = (document_index < 0) | (document_index >= len(documents))
        if document_index.ndim != 1 or len(document_index) == 0 or outside.any():
            raise ValueError(
                f"document_index must be [N] numbers from 0 to {len(documents) - 1}, the documents of this batch, "
                f"and at least one; got {document_index.tolist()}."
            )
        documents = documents[document_index]  # [N, D]
    if pairs is None:
        return documents
    if len(pairs) != len(documents):
        raise ValueError(
            f"{len(pairs)} questions for {len(documents)} documents: give one for each, or document_index [N] with "
            "the document that each question is about."
        )
    if pairs.ndim == 3:
        documents = documents.unsqueeze(1).expand(-1, pairs.shape[1], -1)  # [N, C, D]
    return torch.cat([documents, pairs.to(documents.dtype)], dim=-1)


def split_pair(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, token_type_ids: torch.Tensor, prefix: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Masks ``[B, T]`` of document and question in the ids of a pair.

    Args:
        input_ids: ``[B, T]``: [CLS] document [SEP] question [SEP].
        attention_mask: ``[B, T]``, zero at padding.
        token_type_ids: ``[B, T]``, 1 at the question.
        prefix: number of special tokens at the start, which belong to both.

    Raises:
        ValueError: if these are not of one shape ``[B, T]``.
    """
    shapes = [tuple(each.shape) for each in (input_ids, token_type_ids, attention_mask) if each is not None]
    if input_ids.ndim != 2 or len(set(shapes)) > 1:
        raise ValueError(f"input_ids, token_type_ids and attention_mask must be [documents, tokens], got {shapes}.")
    mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
    question = mask & (token_type_ids == 1)
    return mask & ~question, question | (mask & (mask.cumsum(dim=1) <= prefix))
