"""The task ``document_matching``: do two documents belong together?"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit
from torch.utils.data import Dataset

from ...data.rows import hold_out
from ...evaluation.scores import binary_scores
from ...finetuning.task import Scores, Source
from ...models.modeling_cdlm import CdlmForDocumentMatching
from ...models.processing_cdlm import CdlmProcessor
from ..cdlm import CdlmOptions, CdlmTask, Logits, Predicted
from .data import DocumentPairData, read_document_pairs

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class MatchingOptions(CdlmOptions):
    """Every option of ``--task document_matching`` beside those of training."""

    _argument_group_name = "data"

    train_file: str | None = field(
        default=None,
        metadata={
            "help": "Training set: a .jsonl, .json, .csv or .parquet file (also .gz) with two texts and a label."
        },
    )
    first_column: str = field(default="text1", metadata={"help": "Column of the first document; default text1."})
    second_column: str = field(default="text2", metadata={"help": "Column of the second document; default text2."})
    label_column: str = field(
        default="label", metadata={"help": "Column that says whether they belong together; default label."}
    )


class DocumentPairDataset(Dataset):
    """A sequence for each pair of documents, shortest first; a warning counts what is cut.

    Attributes:
        rows: what `CdlmProcessor.cluster` gives, with the label of the pair and its number in the set.
    """

    def __init__(self, data: DocumentPairData, processor: CdlmProcessor) -> None:
        rows: list[dict[str, Any]] = []
        for number, pair in enumerate(data.pairs):
            row = {**processor.cluster([pair.first, pair.second]), "number": number}
            arrays: dict[str, Any] = {name: np.array(values, dtype=np.int32) for name, values in row.items()}
            rows.append(arrays | {"labels": pair.label})
        if lost := sum(int(row["lost_tokens"].sum()) for row in rows):
            cut = sum(bool(row["lost_tokens"].any()) for row in rows)
            logger.warning(
                "%s: documents lose %s tokens in %d of %d sequences of at most %d tokens.",
                data.source, f"{lost:,}", cut, len(rows), processor.max_length,
            )  # fmt: skip
        self.rows = sorted(rows, key=lambda row: len(row["input_ids"]))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class DocumentMatching(CdlmTask[MatchingOptions, DocumentPairData, DocumentPairDataset]):
    """Document matching with CDLM (section 3.3)."""

    name = "document_matching"
    option_classes = (MatchingOptions,)
    model_class = CdlmForDocumentMatching
    score = "f1"
    pipeline_tag, tag = "text-classification", "document-matching"
    snippet = """\
from transformers import AutoModelForSequenceClassification

import nextlevelbert  # registers the architecture

model = AutoModelForSequenceClassification.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
probability = model(**processor([["one document", "the other"]])).logits.softmax(dim=-1)[:, 1]"""

    def read(self, source: Source, train: DocumentPairData | None) -> DocumentPairData:
        options = self.options
        columns = options.first_column, options.second_column, options.label_column
        return read_document_pairs(source.path, *columns, source.split or "train", options.dataset_config_name)

    def hold_out(self, data: DocumentPairData, share: float, seed: int) -> tuple[DocumentPairData, DocumentPairData]:
        return hold_out(data, "pairs", share, seed)

    def texts(self, data: DocumentPairData) -> set[str]:
        return {f"{pair.first}\n{pair.second}" for pair in data.pairs}

    def describe(self, data: DocumentPairData) -> str:
        return f"{len(data.pairs)} pairs ({data.source})"

    def unlabelled(self, data: DocumentPairData) -> int:
        return sum(pair.label is None for pair in data.pairs)

    def sequences(self, data: DocumentPairData, training: bool) -> DocumentPairDataset:
        return DocumentPairDataset(data, self.processor)

    def predictions(self, name: str, logits: Logits) -> Predicted:
        values = logits[0].astype(np.float64)  # [N, 2]
        probability = expit(values[:, 1] - values[:, 0])
        rows, pairs = self.datasets[name].rows, self.sets.by_name[name].pairs
        of_pair = {int(row["number"]): float(value) for row, value in zip(rows, probability, strict=True)}
        records = [
            {"id": pair.id, "probability": round(of_pair[number], 6), "label": pair.label}
            for number, pair in enumerate(pairs)
        ]
        return Predicted(binary_scores([row["labels"] for row in rows], probability), records)

    def trivial_scores(self, data: DocumentPairData) -> dict[str, Scores]:
        labels = [pair.label for pair in data.pairs if pair.label is not None]
        return {"always related": binary_scores(labels, [1.0] * len(labels))}
