"""The task ``document_matching``: do two documents belong together? (CDLM, section 3.3).

As in the benchmark of Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC, S2ORC), is a
document plagiarised from the other (PAN).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ..data.rows import Place, open_rows, short
from ..evaluation.scores import binary_scores
from ..finetuning.arguments import DataArguments, FinetuningArguments, LoraArguments, option
from ..models.modeling_cdlm import CdlmForDocumentMatching
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.trainer import parse
from .cdlm import Logits, Predicted, hold_out_rows, train_and_publish

_CITATION = "\x01"  # marks the places where a paper cites
_CSV_COLUMNS = ("label", "first", "second")


class DocumentPair(NamedTuple):
    """Two documents, and 1 if they are related, else 0; in citation data the first cites the second, or does not."""

    id: str
    first: str
    second: str
    label: int


def read_document_pairs(
    source: str | Path, first_column: str = "text1", second_column: str = "text2", label_column: str = "label",
    split: str = "train", dataset_config: str | None = None,
) -> list[DocumentPair]:  # fmt: skip
    """Reads pairs of documents from named columns, or from files as Zhou et al. have them.

    Those files are ``.csv`` without a header: label, first text, second text, as their published code reads them
    (columns after these are not looked at). The character U+0001, by which they mark places where a paper cites, is
    taken out of the texts.
    """
    path = Path(source)
    if path.name.removesuffix(".gz").endswith(".csv"):
        label_column, first_column, second_column = _CSV_COLUMNS
        rows = _csv_rows(path)
    else:
        rows = open_rows(source, split, dataset_config).rows
    pairs: dict[str, DocumentPair] = {}
    for place, values in rows:
        number = f"row-{len(pairs):06d}" if values.get("id") is None else str(values["id"])
        if number in pairs:
            raise place.error("id", f"the id {number!r} is taken; ids must differ.")
        first = place.checked(place.value(values, first_column, "--first_column"), first_column)
        second = place.checked(place.value(values, second_column, "--second_column"), second_column)
        label = place.value(values, label_column, "--label_column")
        if not isinstance(label, int) or label not in (0, 1):
            raise place.error(label_column, f"must be 0 or 1 (or false or true), got {short(label)}.")
        pairs[number] = DocumentPair(number, first, second, int(label))
    return list(pairs.values())


def _csv_rows(path: Path) -> Iterator[tuple[Place, dict[str, Any]]]:
    csv.field_size_limit(2**31 - 1)  # of characters; documents are longer than its 131,072
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", newline="") as file:
        for number, fields in enumerate(filter(None, csv.reader(file, strict=True))):
            label, *texts = fields
            values = ({"0": 0, "1": 1}.get(label.strip(), label), *(text.replace(_CITATION, "") for text in texts))
            yield Place(path.name, f"row {number}"), dict(zip(_CSV_COLUMNS, values, strict=False))


def pair_sequences(pairs: Sequence[DocumentPair], processor: CdlmProcessor) -> list[dict[str, Any]]:
    """A sequence for each pair, with its label and its `number` in the set, shortest first; a warning counts cuts."""
    rows = [
        {**processor.cluster([pair.first, pair.second]), "labels": pair.label, "number": number}
        for number, pair in enumerate(pairs)
    ]
    warn_of_cuts(rows)
    return sorted(rows, key=lambda row: len(row["input_ids"]))


@dataclass
class MatchingArguments:
    """Columns of the sets."""

    _argument_group_name = "columns"

    first_column: str = option("text1", "Column of the first document.")
    second_column: str = option("text2", "Column of the second document.")
    label_column: str = option("label", "Column that says whether they belong together.")


_SNIPPET = """\
from transformers import AutoModelForSequenceClassification

import nextlevelbert  # registers the architecture

model = AutoModelForSequenceClassification.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
probability = model(**processor([["one document", "the other"]])).logits.softmax(dim=-1)[:, 1]"""


def main(words: list[str]) -> None:
    """Document matching with CDLM."""
    classes = (CdlmModelArguments, LoraArguments, FinetuningArguments, DataArguments, MatchingArguments)
    *shared, data_args, options = parse(classes, words, "", main.__doc__ or "", "document_matching-")
    columns = options.first_column, options.second_column, options.label_column
    sets = data_args.read_sets(
        lambda name, source, split: read_document_pairs(source, *columns, split, data_args.dataset_config_name),
        lambda pairs, share: hold_out_rows(pairs, share, shared[2].seed),
    )

    def predict(name: str, rows: list[dict[str, Any]], logits: Logits, chosen: dict[str, float]) -> Predicted:
        values = logits[0].astype(np.float64)  # [N, 2]
        related = expit(values[:, 1] - values[:, 0])
        probability = {row["number"]: float(value) for row, value in zip(rows, related, strict=True)}
        records = [
            {"id": pair.id, "probability": round(probability[number], 6), "label": pair.label}
            for number, pair in enumerate(sets[name])
        ]
        return binary_scores([row["labels"] for row in rows], related), records

    def sequences(name: str, processor: CdlmProcessor) -> list[dict[str, Any]]:
        return pair_sequences(sets[name], processor)

    def baselines(name: str) -> dict[str, dict[str, float]]:
        return {"always related": binary_scores([pair.label for pair in sets[name]], [1.0] * len(sets[name]))}

    card = {"snippet": _SNIPPET, "pipeline_tag": "text-classification", "tags": ["document-matching"], "scores": "f1"}
    settings = {"task": "document_matching", **vars(options)}
    train_and_publish(CdlmForDocumentMatching, shared, sets, sequences, predict, baselines, card, settings)
