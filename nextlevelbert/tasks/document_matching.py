"""The task ``document_matching``: are two documents related? (CDLM, section 3.3).

As in the benchmark of Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC,
S2ORC), is a document plagiarised from the other (PAN).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ..data.files import open_text
from ..data.tables import RowLocation, open_rows, short
from ..evaluation.scores import binary_scores
from ..finetuning.arguments import DataArguments, FinetuningArguments
from ..finetuning.seeds import Scores
from ..models.modeling_cdlm import CdlmForDocumentMatching
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.cards import CardText
from ..training.options import option, parse
from .cdlm import MEASURED, TAGS, Baseline, CdlmTask, Logits, Predicted, train_and_publish


class DocumentPair(NamedTuple):
    """Two documents and their label.

    Args:
        id: of the pair.
        first: a text; in citation data, of the paper that cites (or does not cite) the second.
        second: a text.
        label: 1 if the documents are related, else 0.
    """

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
    label_column: str = option("label", "Column of the labels: 1 for related documents, else 0.")


def read_document_pairs(
    source: str | Path,
    columns: MatchingArguments | None = None,
    split: str = "train",
    config: str | None = None,
) -> list[DocumentPair]:
    """Reads pairs of documents from named columns, or from the files of Zhou et al. (2020).

    Those are ``.csv`` files whose first line has no names, but a label, 0 or 1, a first text and a
    second, as their published code reads them (further columns are ignored). The character U+0001,
    which marks citations, is removed from the texts.

    Args:
        source: as in `open_rows`.
        columns: names of the columns.
        split: of a data set.
        config: of a data set.

    Returns:
        The pairs, the shortest first.

    Raises:
        ValueError: for a row that cannot be read, with its source, row and column.
    """
    if columns is None:
        columns = MatchingArguments()
    path = Path(source)
    if path.name.removesuffix(".gz").endswith(".csv"):
        rows = _csv_rows(path, columns)
    else:
        rows = open_rows(source, split, config).rows

    pairs: list[DocumentPair] = []
    for place, values in rows:
        texts = []
        for option_name in ("first_column", "second_column"):
            column = getattr(columns, option_name)
            text = place.column(values, column, f"--{option_name}")
            texts.append(place.require_text(text, column))
        label = place.column(values, columns.label_column, "--label_column")
        label = {"0": 0, "1": 1}.get(str(label).strip(), label)
        if label not in (0, 1):
            raise place.error(
                columns.label_column, f"must be 0 or 1 (or false or true), got {short(label)}."
            )
        name = str(values.get("id", f"row-{len(pairs):06d}"))
        first, second = texts
        pairs.append(DocumentPair(name, first, second, label=int(label)))
    return sorted(pairs, key=lambda pair: len(pair.first) + len(pair.second))


def _csv_rows(
    path: Path, columns: MatchingArguments
) -> Iterator[tuple[RowLocation, dict[str, Any]]]:
    """Yields the rows of a CSV with or without a line of names."""
    names = [columns.label_column, columns.first_column, columns.second_column]
    csv.field_size_limit(2**31 - 1)  # characters; documents are longer than the usual 131,072
    with open_text(path, newline="") as file:
        rows = filter(None, csv.reader(file, strict=True))
        for index, row in enumerate(rows):
            if index == 0 and row[0].strip() not in ("0", "1"):
                names = row
                continue
            values = [value.replace("\x01", "") for value in row]
            yield RowLocation(path.name, f"row {index}"), dict(zip(names, values, strict=False))


_SNIPPET = """\
from transformers import AutoModelForSequenceClassification

import nextlevelbert  # registers the architecture

model = AutoModelForSequenceClassification.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
probability = model(**processor([["one document", "the other"]])).logits.softmax(dim=-1)[:, 1]"""

_CARD = CardText(
    summary=SUMMARY,
    intended_use="It decides whether two documents are related, such as by a citation.",
    measured=MEASURED,
    limits=LIMITS,
    snippet=_SNIPPET,
    pipeline_tag="text-classification",
    tags=(*TAGS, "document-matching"),
)


def main(words: list[str]) -> None:
    """Decides whether two documents are related, with CDLM."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments, MatchingArguments)
    model_args, args, data_args, columns = parse(
        classes, words, about=main.__doc__ or "", recipes="document_matching-"
    )

    def read(name: str, source: str, split: str) -> list[DocumentPair]:
        return read_document_pairs(source, columns, split, config=data_args.dataset_config_name)

    sets = data_args.read_sets(read, args.seed)

    def sequences(name: str, processor: CdlmProcessor) -> list[dict[str, Any]]:
        rows = []
        for pair in sets[name]:
            sequence = processor.cluster([pair.first, pair.second])
            rows.append({**sequence, "labels": pair.label})
        warn_of_cuts(rows)
        return rows

    def predict(
        name: str, rows: Sequence[Any], logits: Logits, chosen: dict[str, float]
    ) -> Predicted:
        values = logits[0].astype(np.float64)  # [N, 2]
        related = expit(values[:, 1] - values[:, 0])
        records: list[dict[str, Any]] = []
        for pair, share in zip(sets[name], related.tolist(), strict=True):
            record = {"id": pair.id, "probability": round(share, 6), "label": pair.label}
            records.append(record)
        return Predicted(binary_scores([pair.label for pair in sets[name]], related), records)

    def always_related(pairs: list[DocumentPair]) -> Scores:
        return binary_scores([pair.label for pair in pairs], [1.0] * len(pairs))

    task = CdlmTask(
        model_class=CdlmForDocumentMatching,
        sets=sets,
        sequences=sequences,
        predict=predict,
        baseline=Baseline("always related", always_related),
        card=_CARD,
        metric="f1",
        settings={"task": "document_matching", **vars(columns)},
    )
    train_and_publish(task, model_args, args, data_args)
