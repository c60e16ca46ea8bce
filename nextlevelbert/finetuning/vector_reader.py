"""Models that read stored chunk vectors of documents, with questions or choices, and baselines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from ..models.chunk_encoder import masked_mean
from ..models.losses import classification_loss
from ..models.modeling_nextlevelbert import TaskClassifier, concatenate_pairs
from ..training.cards import public_name
from .arguments import FinetuningArguments, VectorModelArguments
from .collators import DataCollatorForLabelledVectors
from .labels import CHOICE, SINGLE, LabelSet, pair_texts
from .vector_source import Head, VectorSource


class VectorReader:
    """Reads documents as chunk vectors of a frozen encoder.

    Attributes:
        is_published: as in `Reader`; baselines are not published.
        window: None, because no documents get scores of their own.
        others: as in `Reader`.
    """

    uncounted = " without the frozen chunk encoder"
    window: int | None = None

    def __init__(
        self,
        args: FinetuningArguments,
        labels: LabelSet,
        options: VectorModelArguments,
    ) -> None:
        self.args = args
        self.labels = labels
        self.options = options
        self.head: Head = "classification"
        baselines = ["avg_sbert", "sbert"]
        if labels.problem_type == CHOICE:
            self.head = "multiple_choice"
        else:
            baselines.append("tfidf")

        self.source = VectorSource.open(options, baselines)
        _check_options(args, labels, self.source)
        self.family = self.source.family
        self.title = public_name(options.model)
        self.weights = self.source.weights
        self.is_published = not self.source.is_baseline
        self.base_model = self.source.base_model

        self.learning_rate = 5e-5
        self.trained_parts: dict[str, object] = {}
        if options.freeze_encoder:
            self.trained_parts = {"freeze_encoder": True}
        if self.source.is_baseline or self.trained_parts:
            self.learning_rate = 1e-3

        self.is_long: dict[str, np.ndarray] = {}
        self.vectors: list[torch.Tensor] = []
        self.collator = DataCollatorForLabelledVectors()
        self.has_pairs = False

    def prepare(self, sets: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Encodes all documents and, separately, all questions.

        Returns:
            The sets with the indices of vectors in place of texts: columns ``document``, perhaps
            ``pairs`` (the question, or the choices), and ``label``.
        """
        documents: dict[str, None] = {}
        questions: list[str] = []
        pairs: dict[str, list[list[str]]] = {}
        for name, dataset in sets.items():
            documents.update(dict.fromkeys(dataset["text"]))
            pairs[name] = [pair_texts(row) for row in dataset.remove_columns("text")]
            for texts in pairs[name]:
                questions += texts
        self.has_pairs = bool(questions)

        vectors = self.source.encode(self.args, documents)
        if self.has_pairs:
            vectors |= self.source.encode(self.args, questions)
        self.vectors = list(vectors.values())
        index_of = {text: index for index, text in enumerate(vectors)}  # in `self.vectors`

        rows = {}
        for name, dataset in sets.items():
            columns: dict[str, Any] = {"document": [index_of[text] for text in dataset["text"]]}
            if self.has_pairs:
                columns["pairs"] = [[index_of[text] for text in texts] for texts in pairs[name]]
            if "label" in dataset.features:
                columns["label"] = dataset["label"][:]
            rows[name] = Dataset.from_dict(columns)
        return rows

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Makes a batch of N rows; see `DataCollatorForLabelledVectors`.

        Args:
            rows: rows of a set from `prepare`. The vector of a question or choice is the mean of
                the vectors of its chunks.
        """
        return self.collator([self._with_vectors(row) for row in rows])

    def _with_vectors(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a row with vectors in place of their indices, and the target of the loss."""
        document = row["document"]
        with_vectors = {"document": document, "inputs_embeds": self.vectors[document]}
        if "label" in row:
            with_vectors["labels"] = self.labels.targets([row["label"]])[0]
        if self.has_pairs:
            means = [self.vectors[index].float().mean(dim=0) for index in row["pairs"]]
            with_vectors["pair_embeds"] = torch.stack(means)  # [C, D]
            if self.labels.problem_type != CHOICE:
                [with_vectors["pair_embeds"]] = means  # the question, [D]
        return with_vectors

    def new_model(self) -> nn.Module:
        """Returns the model at the start of a seed."""
        if self.source.is_baseline:
            config = self.labels.config()
            return MeanClassifier(
                self.vectors[0].shape[1],
                outputs=max(len(config.get("id2label", ())), 1),
                pair=self.has_pairs,
                problem_type=config.get("problem_type", SINGLE),
            )
        config = self.labels.config()
        if self.labels.problem_type != CHOICE:
            config["text_pair"] = self.has_pairs
        model = self.source.new_model(self.head, **config)
        if self.options.freeze_encoder:
            freeze(model.base_model)
        return model

    def open_trained(self, folder: Path) -> Any:
        """Opens the model in the folder of a seed, to be published."""
        return self.source.open_trained(folder, self.head)


def _check_options(args: FinetuningArguments, labels: LabelSet, source: VectorSource) -> None:
    if labels.problem_type == CHOICE and source.family == "hate":
        raise ValueError("HATE does not support multiple choice. Use a NextLevelBERT for --model.")
    if source.is_baseline and (source.options.freeze_encoder or args.push_to_hub):
        raise ValueError(
            f"--model {source.options.model} is a baseline, so nothing can be frozen or published."
            " Leave out --freeze_encoder and --push_to_hub."
        )


def freeze(encoder: nn.Module) -> None:
    """Freezes an encoder while a head is trained: no gradients, no dropout."""
    encoder.requires_grad_(requires_grad=False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


class MeanClassifier(nn.Module):
    """Avg. SBERT: the classifier of our heads over the plain mean of the chunk vectors.

    Over the first chunk alone, it is the baseline SBERT.

    Args:
        hidden_size: size of the chunk vectors.
        outputs: number of logits; 1 for choices.
        pair: true if documents come with questions or choices.
        problem_type: problem type of transformers, which selects the loss.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(self, hidden_size: int, outputs: int, *, pair: bool, problem_type: str) -> None:
        super().__init__()
        self.problem_type = problem_type
        inputs = hidden_size
        if pair:
            inputs = 2 * hidden_size
        self.classifier = TaskClassifier(inputs, 768, outputs)
        for parameter in self.classifier.parameters():  # as the heads start
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.zeros_(parameter)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Scores documents.

        Args:
            inputs_embeds: chunk vectors ``[B, n, D]``.
            attention_mask: mask ``[B, n]``, 1 at chunks.
            pair_embeds: vectors of questions ``[N, D]`` or choices ``[N, C, D]``.
            document_index: the document of each example, ``[N]``.
            labels: labels, see `NextLevelBertForSequenceClassification`.
        """
        documents = masked_mean(inputs_embeds, attention_mask)  # [B, D]
        features = concatenate_pairs(documents, pair_embeds, document_index)
        logits = self.classifier(features)  # [N, K] or [N, C, 1]
        if logits.ndim == 3:  # of choices
            logits = logits.squeeze(-1)
        loss = None
        if labels is not None:
            config = PreTrainedConfig(num_labels=logits.shape[-1], problem_type=self.problem_type)
            loss = classification_loss(logits, labels, config)
        return SequenceClassifierOutput(loss, logits)
