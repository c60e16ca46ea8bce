"""The task ``document_matching``: do two documents belong together? (CDLM, section 3.3).

As in the benchmark of Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC,
S2ORC), is a document plagiarised from the other (PAN).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ..data.files import open_text
from ..data.rows import Place, open_rows, short
from ..evaluation.scores import binary_scores
from ..finetuning.seeds import DataArguments, FinetuningArguments, option
from ..models.modeling_cdlm import CdlmForDocumentMatching
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.trainer import parse
from .cdlm import Logits, Predicted, train_and_publish


class DocumentPair(NamedTuple):
    """Two documents, and 1 if they are related, else 0; in citation data the first cites the
    second, or does not."""

    id: str
    first: str
    second: str
    label: int


@dataclass
class MatchingArguments:
    """Columns of the sets."""

    _argument_group_name = "columns"

    first_column: str = option("text1", "Column of the first document.")
    second_column: str = option("text2", "Column of the second document.")
    label_column: str = option("label", "Column that says whether they belong together.")


def read_document_pairs(
    source: str | Path,
    columns: MatchingArguments | None = None,
    split: str = "train",
    config: str | None = None,
) -> list[DocumentPair]:
    """Reads pairs of documents from named columns, or from files as Zhou et al. have them; the
    shortest first.

    Those files are ``.csv`` whose first line has no names, but a label, 0 or 1, a first text and a
    second, as their published code reads them (columns after these are not looked at). The
    character U+0001, by which they mark places where a paper cites, is taken out of the texts.
    """
    columns, path = columns or MatchingArguments(), Path(source)
    if path.name.removesuffix(".gz").endswith(".csv"):
        rows = _csv_rows(path, columns)
    else:
        rows = open_rows(source, split, config).rows
    pairs: list[DocumentPair] = []
    for place, values in rows:
        sides = {"--first_column": columns.first_column, "--second_column": columns.second_column}
        first, second = (
            place.checked(place.value(values, name, option), name) for option, name in sides.items()
        )
        label = place.value(values, columns.label_column, "--label_column")
        label = {"0": 0, "1": 1}.get(str(label).strip(), label)
        if label not in (0, 1):
            raise place.error(
                columns.label_column, f"must be 0 or 1 (or false or true), got {short(label)}."
            )
        pairs.append(
            DocumentPair(str(values.get("id", f"row-{len(pairs):06d}")), first, second, int(label))
        )
    return sorted(pairs, key=lambda pair: len(pair.first) + len(pair.second))


def _csv_rows(path: Path, columns: MatchingArguments) -> Iterator[tuple[Place, dict[str, Any]]]:
    names = [columns.label_column, columns.first_column, columns.second_column]
    csv.field_size_limit(2**31 - 1)  # of characters; documents are longer than its 131,072
    with open_text(path, newline="") as file:
        for number, row in enumerate(filter(None, csv.reader(file, strict=True))):
            if number == 0 and row[0].strip() not in ("0", "1"):
                names = row
            else:
                values = [value.replace("\x01", "") for value in row]
                yield Place(path.name, f"row {number}"), dict(zip(names, values, strict=False))


_SNIPPET = """\
from transformers import AutoModelForSequenceClassification

import nextlevelbert  # registers the architecture

model = AutoModelForSequenceClassification.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
probability = model(**processor([["one document", "the other"]])).logits.softmax(dim=-1)[:, 1]"""


def main(words: list[str]) -> None:
    """Document matching with CDLM."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments, MatchingArguments)
    model_args, args, data_args, columns = parse(
        classes, words, "", main.__doc__ or "", "document_matching-"
    )
    config = data_args.dataset_config_name
    sets = data_args.read_sets(
        lambda name, path, split: read_document_pairs(path, columns, split, config), args.seed
    )

    def sequences(name: str, processor: CdlmProcessor) -> list[dict[str, Any]]:
        rows = [
            {**processor.cluster([pair.first, pair.second]), "labels": pair.label}
            for pair in sets[name]
        ]
        warn_of_cuts(rows)
        return rows

    def predict(name: str, rows: Any, logits: Logits, chosen: dict[str, float]) -> Predicted:
        values = logits[0].astype(np.float64)  # [N, 2]
        related = expit(values[:, 1] - values[:, 0])
        pairs = zip(sets[name], related, strict=True)
        records = [
            {"id": pair.id, "probability": round(float(p), 6), "label": pair.label}
            for pair, p in pairs
        ]
        return binary_scores([pair.label for pair in sets[name]], related), records

    card = {
        "snippet": _SNIPPET,
        "pipeline_tag": "text-classification",
        "tags": ["document-matching"],
        "scores": "f1",
    }
    settings = {"task": "document_matching", **vars(columns)}
    baseline = (
        "always related",
        lambda pairs: binary_scores([pair.label for pair in pairs], [1.0] * len(pairs)),
    )
    train_and_publish(
        CdlmForDocumentMatching,
        model_args,
        args,
        sets,
        sequences,
        predict,
        baseline,
        card,
        settings,
    )
