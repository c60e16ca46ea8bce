"""The task ``document_matching``: are two documents related? (CDLM, section 3.3).

As in the benchmark of Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC,
S2ORC), is a document plagiarised from the other (PAN).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from scipy.special import expit

from ..data.pairs import load_pairs
from ..data.published import zhou_pairs
from ..data.tables import open_rows
from ..evaluation.scores import binary_scores
from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import Scores
from ..models.modeling_cdlm import CdlmForDocumentMatching
from ..models.processing_cdlm import CdlmProcessor, warn_of_cuts
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.cards import CardText
from ..training.data import DataArguments
from ..training.options import option, parse
from .cdlm import MEASURED, TAGS, Predicted, train_and_publish


@dataclass
class MatchingArguments:
    """Names the columns of the sets."""

    _argument_group_name = "columns"

    first_column: str = option("text1", "Column of the first document.")
    second_column: str = option("text2", "Column of the second document.")
    label_column: str = option("label", "Column of the labels: 1 for related documents, else 0.")


def load_document_pairs(
    source: str | Path,
    columns: MatchingArguments | None = None,
    split: str = "train",
    config: str | None = None,
) -> Dataset:
    """Reads pairs of documents from named columns, or from the files of Zhou et al. (2020).

    Args:
        source: table to read, as `open_rows` accepts it, or a file of Zhou et al.
        columns: names of the columns.
        split: split to read if the source is a data set; a file is read whole.
        config: configuration of a data set on the Hub.

    Returns:
        The columns of `load_pairs`.
    """
    if zhou_pairs.recognises(source):
        return zhou_pairs.load(source)
    if columns is None:
        columns = MatchingArguments()
    return load_pairs(open_rows(source, split, config), **vars(columns))


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


def main(argv: list[str]) -> None:
    """Trains CDLM to decide whether two documents are related."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments, MatchingArguments)
    model_args, args, data_args, columns = parse(
        classes, argv, about=main.__doc__, recipes="document_matching-"
    )

    sets = data_args.read_sets(partial(load_document_pairs, columns=columns), seed=args.seed)

    def sequences(name: str, processor: CdlmProcessor) -> list[dict[str, Any]]:
        rows = []
        for pair in sets[name]:
            sequence = processor.cluster([pair["first"], pair["second"]])
            rows.append({**sequence, "labels": pair["label"]})
        warn_of_cuts(rows)
        return rows

    def predict(name: str, rows: Sequence[Any], logits: np.ndarray, chosen: Scores) -> Predicted:
        values = logits.astype(np.float64)  # [N, 2]
        related = expit(values[:, 1] - values[:, 0])
        labels = sets[name]["label"][:]
        records = []
        predictions = zip(sets[name]["id"], related.tolist(), labels, strict=True)
        for pair_id, probability, label in predictions:
            record = {"id": pair_id, "probability": round(probability, 6), "label": label}
            records.append(record)
        return binary_scores(labels, related), records

    def always_related(pairs: Dataset) -> Scores:
        return binary_scores(pairs["label"][:], [1.0] * len(pairs))

    train_and_publish(
        CdlmForDocumentMatching,
        sets,
        sequences=sequences,
        predict=predict,
        baseline=("always related", always_related),
        card=_CARD,
        metric="f1",
        settings={"task": "document_matching", **vars(columns)},
        model_args=model_args,
        args=args,
        data_args=data_args,
    )
