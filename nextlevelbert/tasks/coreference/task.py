"""The task ``coreference``: which mentions in a set of documents are of one event or entity?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...evaluation.coreference import coreference_scores
from ...finetuning.task import Scores, Source
from ...models.modeling_cdlm import CdlmForCrossDocumentCoreference
from ..cdlm import CdlmOptions, CdlmTask, Logits, Predicted
from .data import KINDS, CoreferenceData, hold_out_topics, mention_text, read_ecbplus
from .lemma_baseline import same_head_lemma
from .pairs import (
    CONTEXTS,
    GROUPS,
    MENTIONS_AT_ONCE,
    MentionPairDataset,
    PairOptions,
    best_threshold,
    cluster_mentions,
    similarities,
)

logger = logging.getLogger(__name__)

_F1 = ("muc_f1", "b3_f1", "ceafe_f1", "lea_f1", "conll_f1")


@dataclass(kw_only=True)
class CoreferenceDataOptions(CdlmOptions):
    """ECB+, which is read from a copy on disk."""

    _argument_group_name = "data"

    train_file: str | None = field(default=None, metadata={"help": "Training set: ECB+'s folder, or a .jsonl of it."})
    train_split: str | None = field(
        default=None, metadata={"help": "Split of ECB+'s folder to train on: train; default all topics."}
    )
    dataset_name: str | None = field(init=False, default=None)
    dataset_config_name: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            Path(self.train_file or "").is_dir()
            and (self.validation_split or self.test_split)
            and not self.train_split
        ):
            raise ValueError(
                "Without --train_split, training uses all topics of the folder, including those to report on; add "
                "--train_split train."
            )


@dataclass(kw_only=True)
class CoreferenceOptions(CoreferenceDataOptions):
    """Every option of ``--task coreference`` beside those of training."""

    _argument_group_name = "coreference"

    mention_kind: str = field(
        default="event", metadata={"help": "Mentions of ECB+ to link; default event.", "choices": list(KINDS)}
    )
    context: str = field(
        default="document",
        metadata={"help": "Text around the mentions: whole documents (the default), or only their sentences (Table "
                          "3).",
                  "choices": list(CONTEXTS)},
    )  # fmt: skip
    mentions_at_once: str = field(
        default="pair",
        metadata={"help": "pair: one sequence for each pair of mentions (the paper's, the default); all: one for each "
                          "pair of documents with all their mentions, many times faster.",
                  "choices": list(MENTIONS_AT_ONCE)},
    )  # fmt: skip
    group_by: str = field(
        default="subtopic",
        metadata={
            "help": "Only mentions within the same one are compared; default subtopic.",
            "choices": list(GROUPS),
        },
    )
    negatives_per_positive: float = field(
        default=1.0,
        metadata={"help": "Non-coreferent pairs drawn for each coreferent one, when training on pairs; default 1."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mentions_at_once == "all" and self.negatives_per_positive != 1.0:
            raise ValueError("--mentions_at_once all learns from every pair; leave out --negatives_per_positive.")

    @property
    def pairs(self) -> PairOptions:
        return PairOptions(self.context, self.mentions_at_once, self.group_by, self.negatives_per_positive)


class Coreference(CdlmTask[CoreferenceOptions, CoreferenceData, MentionPairDataset]):
    """Cross-document coreference with CDLM (section 3.2); the threshold is chosen on the validation set."""

    name = "coreference"
    option_classes = (CoreferenceOptions,)
    model_class = CdlmForCrossDocumentCoreference
    score = "conll_f1"
    pipeline_tag, tag = "token-classification", "cross-document-coreference"  # where the Hub has coreference
    told = ("mention_kind", "context", "mentions_at_once", "group_by")
    snippet = """\
from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked

model = CdlmForCrossDocumentCoreference.from_pretrained("{name}")
processor = CdlmProcessor.from_model(model)
texts, spans = zip(*map(read_marked, ["Apple <m>sued</m> Samsung.", "The <m>lawsuit</m> was filed on Friday."]))
row = processor.mentions(texts, [(number, *span) for number, found in enumerate(spans) for span in found])
probability = model(**processor.pad([row])).logits.sigmoid()
same = probability > model.config.coreference_threshold"""

    def read(self, source: Source, train: CoreferenceData | None) -> CoreferenceData:
        return read_ecbplus(source.path, self.options.mention_kind, source.split)

    def hold_out(self, data: CoreferenceData, share: float, seed: int) -> tuple[CoreferenceData, CoreferenceData]:
        return hold_out_topics(data, share, seed)

    def texts(self, data: CoreferenceData) -> set[str]:
        return {document.text for document in data.documents}

    def describe(self, data: CoreferenceData) -> str:
        return f"{len(data.documents)} documents, {len(data.clusters)} mentions ({data.source})"

    def unlabelled(self, data: CoreferenceData) -> int:
        return 0

    def sequences(self, data: CoreferenceData, training: bool) -> MentionPairDataset:
        return MentionPairDataset(data, self.processor, self.options.pairs, training)

    def choose(self, logits: Logits) -> Scores:
        threshold = best_threshold(self.sets.validation, self._similarities("validation", logits))
        logger.info("threshold of clustering, by validation CoNLL F1: %.2f", threshold)
        return {"coreference_threshold": threshold}

    def _similarities(self, name: str, logits: Logits) -> list[tuple[list[int], np.ndarray]]:
        return similarities(self.sets.by_name[name], self.datasets[name].pairs, logits[0], self.options.group_by)

    def predictions(self, name: str, logits: Logits) -> Predicted:
        data = self.sets.by_name[name]
        clusters = cluster_mentions(self._similarities(name, logits), self.chosen["coreference_threshold"])
        mentions = [(document, mention) for document in data.documents for mention in document.mentions]
        records = [
            {"document": document.id, "start": mention.start, "end": mention.end,
             "text": mention_text(document, mention), "gold": mention.cluster, "cluster": cluster}
            for (document, mention), cluster in zip(mentions, clusters, strict=True)
        ]  # fmt: skip
        return Predicted(_f1_scores(data, clusters), records)

    def trivial_scores(self, data: CoreferenceData) -> dict[str, Scores]:
        return {
            "same head lemma": _f1_scores(data, same_head_lemma(data)),
            "every mention alone": _f1_scores(data, range(len(data.clusters))),
        }


def _f1_scores(data: CoreferenceData, predicted: Sequence[object]) -> Scores:
    found = coreference_scores(data.clusters, predicted)
    return {name: found[name] for name in _F1}
