"""Models that read stored chunk vectors of documents, with questions or choices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn

from ..training.cards import public_name
from .arguments import FinetuningArguments
from .collators import DataCollatorForLabelledVectors
from .labels import CHOICE, LabelSet, pair_texts
from .options import VectorModelArguments
from .vector_models import Head, VectorModels


class VectorReader:
    """Reads documents as chunk vectors of a frozen encoder.

    Attributes:
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
        baselines = ["tfidf"]
        if labels.problem_type == CHOICE:
            self.head = "multiple_choice"
            baselines = []

        self.models = VectorModels.open(options, baselines)
        self.family = self.models.family
        if self.head == "multiple_choice" and self.family == "hate":
            raise ValueError(
                "HATE does not support multiple choice. Use a NextLevelBERT for --model."
            )

        self.title = public_name(options.model)
        self.weights = self.models.weights
        self.base_model = self.models.base_model

        self.learning_rate = 5e-5
        self.trained_parts: dict[str, object] = {}
        if options.freeze_encoder:
            self.trained_parts = {"freeze_encoder": True}
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

        vectors = self.models.encode(self.args, documents)
        if self.has_pairs:
            vectors |= self.models.encode(self.args, questions)

        self.vectors = list(vectors.values())
        index_of = {text: index for index, text in enumerate(vectors)}  # in `self.vectors`

        rows = {}
        for name, dataset in sets.items():
            documents_of_rows = [index_of[text] for text in dataset["text"]]
            columns: dict[str, Any] = {"document": documents_of_rows}
            # `train_sampling_strategy="group_by_length"` reads this column.
            columns["length"] = [len(self.vectors[index]) for index in documents_of_rows]
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
        config = self.labels.config()
        if self.labels.problem_type != CHOICE:
            config["text_pair"] = self.has_pairs
        model = self.models.new_model(self.head, **config)
        if self.options.freeze_encoder:
            freeze(model.base_model)
        return model

    def open_trained(self, folder: Path) -> Any:
        """Opens the model in the folder of a seed, to be published."""
        return self.models.open_trained(folder, self.head)


def freeze(encoder: nn.Module) -> None:
    """Freezes an encoder while a head is trained: no gradients, no dropout."""
    encoder.requires_grad_(requires_grad=False)
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
