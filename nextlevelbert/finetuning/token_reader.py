"""Models that are trained from the tokens of documents: ChunkBERT, and plain encoders."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    set_seed,
)

from ..data.sets import source_of
from ..models.configuration_nextlevelbert import usable_positions
from ..models.identity import model_identity
from ..models.model_names import full_name, safe_weights
from ..models.modeling_chunkbert import ChunkBertForSequenceClassification
from ..training.arguments import open_config
from ..training.cards import name_on_hub, public_name
from .arguments import FinetuningArguments
from .labels import LabelSet
from .options import ChunkBertArguments, TextModelArguments

logger = logging.getLogger(__name__)

# Tokens above which documents are scored apart for every encoder (ChunkBERT, table 3). Documents
# that an encoder of fewer tokens cannot read at once are long, too.
LONG_DOCUMENT = 512


class TokenReader:
    """Reads documents as tokens; a question comes before its document.

    Attributes:
        family: as in `Reader`; ``"truncated"`` is a plain encoder that reads the start of
            documents.
        others: as in `Reader`.
    """

    learning_rate = 3e-5
    uncounted = ""

    def __init__(
        self,
        args: FinetuningArguments,
        labels: LabelSet,
        options: TextModelArguments,
        sizes: ChunkBertArguments | None = None,
    ) -> None:
        self.args = args
        self.labels = labels
        self.options = options
        self.family = options.model_type
        self.title = f"{public_name(options.model)} ({self.family})"
        self.base_model = name_on_hub(options.model)
        self.trained_parts: dict[str, object] = {}
        name = full_name(options.model)
        saved_config = open_config(name)
        saved_type = saved_config.model_type
        self.is_saved = saved_type == self.family
        if saved_type in ("nextlevelbert", "hate", "chunkbert", "bert-al") and not self.is_saved:
            raise ValueError(
                f"--model is a {saved_type}. To make a {self.family}, give an encoder such as a"
                " BERT."
            )

        self.config = labels.config()
        if sizes is not None:
            self.config |= {name: value for name, value in vars(sizes).items() if value is not None}
        if self.config.pop("keep_attention_dropout", False) and not self.is_saved:
            self.config["encoder_config"] = saved_config.to_dict()

        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.padding = DataCollatorWithPadding(self.tokenizer)
        set_seed(args.seed)  # so that a random part is the same whenever it is hashed
        model = self.new_model()
        self.weights = model_identity(model, self.tokenizer)
        positions = usable_positions(getattr(model.config, "encoder_config", model.config))
        self.window: int | None = min(positions or LONG_DOCUMENT, LONG_DOCUMENT)
        self.training_limit = getattr(model.config, "max_training_tokens", None)
        self.reading_limit = None
        if self.family == "truncated":
            limit = self.tokenizer.model_max_length
            self.reading_limit = min(positions or limit, limit)

        self.is_long: dict[str, np.ndarray] = {}

    def prepare(self, sets: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Tokenizes the documents, each after its question.

        Returns:
            The sets with columns ``input_ids`` and ``label``.
        """
        rows = {}
        for name, dataset in sets.items():
            limit = self.reading_limit
            if limit is None and name == "train":
                limit = self.training_limit
            ids = self._token_ids(name, dataset, limit=limit)
            columns = {"input_ids": ids}
            if "label" in dataset.features:
                columns["label"] = dataset["label"][:]
            rows[name] = Dataset.from_dict(columns)

        return rows

    def _token_ids(self, name: str, dataset: Dataset, *, limit: int | None) -> list[list[int]]:
        """Returns the token ids of each document, at most `limit`; a warning counts longer ones."""
        texts = dataset["text"][:]
        if "question" in dataset.features:
            pairs = zip(dataset["question"], texts, strict=True)
            texts = [f"{question}\n{text}" for question, text in pairs]

        ids = self.tokenizer(texts, verbose=False)["input_ids"]
        lengths = np.array([len(row) for row in ids])
        self.is_long[name] = lengths > self.window

        if lengths.min() <= self.tokenizer.num_special_tokens_to_add():
            empty = dataset["id"][int(lengths.argmin())]
            raise ValueError(
                f"{source_of(dataset)}: the document of {empty!r} contains no token. Leave the row"
                " out."
            )

        if limit is not None and lengths.max() > limit:
            logger.warning(
                "%s: the first %d tokens of documents are read; %d are longer.",
                source_of(dataset),
                limit,
                int((lengths > limit).sum()),
            )
            special_ids = set(self.tokenizer.all_special_ids)
            for row in ids:
                # A plain encoder reads a special token at the end, if its tokenizer adds one.
                if len(row) > limit and self.family == "truncated" and row[-1] in special_ids:
                    row[limit - 1] = row[-1]
                del row[limit:]

        return ids

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Makes a batch of N rows: ``input_ids`` and ``attention_mask`` ``[N, T]``, ``labels``."""
        batch = dict(self.padding([{"input_ids": row["input_ids"]} for row in rows]))
        if "label" in rows[0]:
            batch["labels"] = self.labels.targets([row["label"] for row in rows])
        return batch

    def new_model(self) -> nn.Module:
        """Returns the model at the start of a seed."""
        if self.is_saved or self.family == "truncated":
            name = full_name(self.options.model)
            with safe_weights(name):
                model = AutoModelForSequenceClassification.from_pretrained(
                    name, ignore_mismatched_sizes=True, **self.config
                )
        else:
            model = ChunkBertForSequenceClassification.from_encoder(
                self.options.model, **self.config
            )

        if self.options.attn_implementation:
            model.set_attn_implementation(self.options.attn_implementation)
        return model

    def open_trained(self, folder: Path) -> nn.Module:
        """Opens the model in the folder of a seed to be published, and saves its tokenizer."""
        self.tokenizer.save_pretrained(self.args.output_dir)
        return AutoModelForSequenceClassification.from_pretrained(folder)
