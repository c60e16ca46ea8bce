"""What `run_finetune.py --model_type cdlm` needs of each task: sets, sequences, a model, and scores."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from ..data.rows import hold_out
from ..evaluation.coreference import coreference_scores
from ..evaluation.hotpotqa import hotpotqa_scores
from ..models.modeling_cdlm import (
    CdlmForCrossDocumentCoreference,
    CdlmForDocumentMatching,
    CdlmForMultiHopQuestionAnswering,
)
from ..models.processing_cdlm import CdlmProcessor
from .cdlm_arguments import CdlmTaskArguments
from .coreference import data as coreference_data
from .coreference.lemma_baseline import same_head_lemma
from .coreference.pairs import MentionPairDataset, PairOptions, best_threshold, cluster_mentions, similarities
from .document_matching import data as document_pair_data
from .multihop_qa import data as hotpotqa_data
from .multihop_qa.questions import QuestionDataset, read_answer

logger = logging.getLogger(__name__)

_F1 = ("muc_f1", "b3_f1", "ceafe_f1", "lea_f1", "conll_f1")

Rows = Any  # sequences, by number
Logits = tuple[np.ndarray, ...]  # of all rows, each filled up to the longest
Predicted = tuple[dict[str, dict[str, float]], list[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class CdlmTask:
    """A task.

    Attributes:
        model: its class.
        read: a set from a file, or from a dataset on the Hub and its split.
        hold_out: takes a share of a set apart.
        rows: sequences of a set; the third argument says whether for training.
        scores: of the validation and the reported set, from sets, rows and logits by name; what was predicted for the
            reported one, as JSON records in the order of the set; fields of the configuration that predicting needs.
        unlabelled: how many of a set have no label.
        documents: what must not be in two sets.
        baselines: scores of what needs no model, on a set.
        metric: the main score.
        labels: what of a row is only there to be predicted.
    """

    model: Any
    read: Callable[[CdlmTaskArguments, str, str | None], Any]
    hold_out: Callable[[Any, float, int], tuple[Any, Any]]
    rows: Callable[[Any, CdlmProcessor, bool, CdlmTaskArguments], Rows]
    scores: Callable[..., Predicted]
    unlabelled: Callable[[Any], int]
    documents: Callable[[Any], set[str]]
    baselines: Callable[[Any], dict[str, dict[str, float]]]
    metric: str
    labels: tuple[str, ...] = ("labels",)


def _options(task: CdlmTaskArguments) -> PairOptions:
    return PairOptions(task.context, task.mentions_at_once, task.group_by, task.negatives_per_positive)


def _coreference_scores(
    sets: dict[str, Any], rows: dict[str, Rows], logits: dict[str, Logits], reported: str, task: CdlmTaskArguments
) -> Predicted:
    """The threshold of clustering is chosen on the validation set."""
    found = {
        name: similarities(sets[name], rows[name].pairs, logits[name][0], task.group_by)
        for name in {"validation", reported}
    }
    threshold = best_threshold(sets["validation"], found["validation"])
    logger.info("threshold of clustering, by validation CoNLL F1: %.2f", threshold)
    scores: dict[str, dict[str, float]] = {}
    for name in found:
        predicted = cluster_mentions(found[name], threshold)
        everything = coreference_scores(sets[name].clusters, predicted)
        scores[name] = {key: everything[key] for key in _F1}
    mentions = [(document, mention) for document in sets[reported].documents for mention in document.mentions]
    clusters = cluster_mentions(found[reported], threshold)
    records = [
        {"document": document.id, "start": mention.start, "end": mention.end,
         "text": document.text[mention.start : mention.end], "gold": mention.cluster, "cluster": cluster}
        for (document, mention), cluster in zip(mentions, clusters, strict=True)
    ]  # fmt: skip
    return scores, records, {"coreference_threshold": threshold}


def _coreference_baselines(data: Any) -> dict[str, dict[str, float]]:
    def score(labels: Sequence[Any]) -> dict[str, float]:
        found = coreference_scores(data.clusters, labels)
        return {key: found[key] for key in _F1}

    return {
        "same head lemma": score(same_head_lemma(data)),
        "every mention alone": score(range(len(data.clusters))),
    }


def _matching_rows(data: Any, processor: CdlmProcessor, training: bool, task: CdlmTaskArguments) -> Rows:
    rows = []
    for number, pair in enumerate(data.pairs):
        row = {**processor.cluster([pair.first, pair.second]), "number": number, "labels": pair.label}
        rows.append({name: np.array(values, dtype=np.int32) for name, values in row.items()} | {"labels": pair.label})
    if lost := sum(int(row["lost_tokens"].sum()) for row in rows):
        cut = sum(bool(row["lost_tokens"].any()) for row in rows)
        logger.warning(
            "%s: documents lose %s tokens in %d of %d sequences of at most %d tokens.",
            data.source, f"{lost:,}", cut, len(rows), processor.max_length,
        )  # fmt: skip
    return sorted(rows, key=lambda row: len(row["input_ids"]))


def _matching_scores(
    sets: dict[str, Any], rows: dict[str, Rows], logits: dict[str, Logits], reported: str, task: CdlmTaskArguments
) -> Predicted:
    scores, records = {}, []
    for name in ("validation", reported):
        values = logits[name][0].astype(np.float64)  # [N, 2]
        probability = expit(values[:, 1] - values[:, 0])
        scores[name] = document_pair_data.binary_scores([row["labels"] for row in rows[name]], probability)
        of_pair = {int(row["number"]): float(value) for row, value in zip(rows[name], probability, strict=True)}
        records = [
            {"id": pair.id, "probability": round(of_pair[number], 6), "label": pair.label}
            for number, pair in enumerate(sets[name].pairs)
        ]
    return scores, records, {}


def _matching_baselines(data: Any) -> dict[str, dict[str, float]]:
    labels = [pair.label for pair in data.pairs]
    return {"always related": document_pair_data.binary_scores(labels, [1.0] * len(labels))}


def _question_scores(
    sets: dict[str, Any], rows: dict[str, Rows], logits: dict[str, Logits], reported: str, task: CdlmTaskArguments
) -> Predicted:
    scores: dict[str, dict[str, float]] = {}
    records: list[dict[str, Any]] = []
    for name in ("validation", reported):
        start, end, kind, sentence = logits[name][:4]
        predictions = {}
        for place, question in enumerate(rows[name].questions):
            own = {"start": start[place], "end": end[place], "type": kind[place], "sentence": sentence[place]}
            found = read_answer(rows[name][place], question.paragraphs, own)
            predictions[question.id] = (found.text, found.supporting)
        everything = hotpotqa_scores(predictions, sets[name].references)
        scores[name] = {key: value for key, value in everything.items() if key.endswith(("_em", "_f1"))}
        records = [
            {"id": question.id, "answer": predictions[question.id][0], "supporting": predictions[question.id][1],
             "gold": question.answer}
            for question in sets[name].questions
        ]  # fmt: skip
    return scores, records, {}


def _question_baselines(data: Any) -> dict[str, dict[str, float]]:
    """The first title as the answer, and the first sentence of every paragraph as support."""
    predictions = {
        question.id: (question.paragraphs[0].title, [(title, 0) for title, _ in question.paragraphs])
        for question in data.questions
    }
    found = hotpotqa_scores(predictions, data.references)
    return {"first title, all first sentences": {k: v for k, v in found.items() if k.endswith(("_em", "_f1"))}}


TASKS = {
    "coreference": CdlmTask(
        model=CdlmForCrossDocumentCoreference,
        read=lambda task, source, split: coreference_data.read_ecbplus(source, task.mention_kind, split),
        hold_out=coreference_data.hold_out_topics,
        rows=lambda data, processor, training, task: MentionPairDataset(data, processor, _options(task), training),
        scores=_coreference_scores,
        unlabelled=lambda data: 0,
        documents=lambda data: {document.text for document in data.documents},
        baselines=_coreference_baselines,
        metric="conll_f1",
    ),
    "document_matching": CdlmTask(
        model=CdlmForDocumentMatching,
        read=lambda task, source, split: document_pair_data.read_document_pairs(
            source, task.first_column, task.second_column, task.label_column, split or "train",
            task.dataset_config_name,
        ),
        hold_out=lambda data, share, seed: hold_out(data, "pairs", share, seed),
        rows=_matching_rows,
        scores=_matching_scores,
        unlabelled=lambda data: sum(pair.label is None for pair in data.pairs),
        documents=lambda data: {f"{pair.first}\n{pair.second}" for pair in data.pairs},
        baselines=_matching_baselines,
        metric="f1",
    ),
    "multihop_qa": CdlmTask(
        model=CdlmForMultiHopQuestionAnswering,
        read=lambda task, source, split: hotpotqa_data.read_hotpotqa(
            source, split or "train", task.dataset_config_name
        ),
        hold_out=lambda data, share, seed: hold_out(data, "questions", share, seed),
        rows=lambda data, processor, training, task: QuestionDataset(data, processor),
        scores=_question_scores,
        unlabelled=lambda data: sum(question.answer is None for question in data.questions),
        documents=lambda data: {question.question for question in data.questions},
        baselines=_question_baselines,
        metric="joint_f1",
        labels=("start_positions", "end_positions", "type_labels", "sentence_labels", "paragraph_labels"),
    ),
}  # fmt: skip


def write_records(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Predictions as JSON lines."""
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
