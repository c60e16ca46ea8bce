"""The task ``coreference``: which mentions in a set of documents are of one event or entity? (CDLM, section 3.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.spatial.distance import squareform
from scipy.special import expit
from sklearn.cluster import AgglomerativeClustering
from torch.utils.data import Dataset

from ..data.rows import hold_out
from ..evaluation.coreference import coreference_scores
from ..finetuning.seeds import DataArguments, FinetuningArguments, option
from ..models.modeling_cdlm import CdlmForCrossDocumentCoreference
from ..models.processing_cdlm import CdlmProcessor, Piece, warn_of_cuts
from ..pretraining.cdlm import CdlmModelArguments
from ..training.trainer import parse
from .cdlm import Logits, Predicted, train_and_publish
from .ecbplus import CoreferenceDocument, CoreferenceMention, read_ecbplus

Pair = tuple[int, int]  # of mentions, numbered through all documents
# For each group the numbers of its n mentions, and how probably any two mean the same, ``[n, n]``.
Similarities = list[tuple[list[int], np.ndarray]]


def clusters_of(documents: Iterable[CoreferenceDocument]) -> list[str]:
    """The cluster of every mention, documents and mentions in order."""
    return [mention.cluster for document in documents for mention in document.mentions]


def mention_groups(documents: Iterable[CoreferenceDocument], group_by: str) -> list[list[int]]:
    """The numbers of the mentions of each subtopic or topic, counted through all documents."""
    names = np.array([str(getattr(document, group_by)) for document in documents for _ in document.mentions])
    return [np.flatnonzero(names == name).tolist() for name in dict.fromkeys(names.tolist())]


class MentionPairDataset(Dataset):
    """Sequences with marked mentions, shortest first, laid out when they are asked for.

    Pairs in two documents are read with both, pairs within one with that one (paper, appendix C.1).

    Args:
        group_by: mentions of one ``"subtopic"`` or ``"topic"`` are compared.
        mentions_at_once: ``"pair"``: two mentions in a sequence (the paper's); ``"all"``: all mentions of two
            documents are marked and all pairs are scored in one pass, which takes a small part of the time.
        context: ``"document"``: whole documents; ``"sentence"``: of each only the sentences with the mentions (the
            paper's Table 3).
        negatives: with ``"pair"``, pairs that are not coreferent drawn for each that is; None for all.

    Attributes:
        pairs: the pairs of each sequence, by number of the mentions in all documents.
    """

    def __init__(
        self, documents: Sequence[CoreferenceDocument], processor: CdlmProcessor, group_by: str = "subtopic",
        mentions_at_once: str = "pair", context: str = "document", negatives: float | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self._processor, self._documents, self._group_by = processor, documents, group_by
        mentions = [(at, mention) for at, document in enumerate(documents) for mention in document.mentions]
        self._clusters = clusters_of(documents)
        sequences: list[list[Pair]] = []
        for numbers in mention_groups(documents, group_by):
            pairs = sorted(itertools.combinations(numbers, 2), key=lambda pair: [mentions[n][0] for n in pair])
            together = (lambda pair: [mentions[n][0] for n in pair]) if mentions_at_once == "all" else None
            sequences += [list(same) for _, same in itertools.groupby(pairs, together)]
        if mentions_at_once == "pair" and negatives is not None:
            same = np.array([self._same(pair) for [pair] in sequences], dtype=bool)
            count = min(int((~same).sum()), round(negatives * int(same.sum())))
            drawn = np.random.default_rng(seed).choice(np.flatnonzero(~same), count, replace=False)
            sequences = [sequences[number] for number in sorted([*np.flatnonzero(same), *drawn])]
        if not sequences:
            raise ValueError(f"There are no two mentions in one {group_by}, so there is nothing to compare.")
        self._pieces: dict[str, Piece] = {}
        self._sequences = []
        for pairs in sequences:
            numbers = sorted({number for pair in pairs for number in pair})
            texts: list[str] = []
            spans: list[tuple[int, int, int]] = []
            for side, at in enumerate(sorted({mentions[number][0] for number in numbers})):
                marked = [mentions[number][1] for number in numbers if mentions[number][0] == at]
                text, places = documents[at].text, [mention[:2] for mention in marked]
                if context == "sentence":
                    text, places = _sentences_only(documents[at], marked)
                texts.append(text)
                spans += [(side, *place) for place in places]
            self._pieces |= {text: processor.tokenize(text) for text in texts if text not in self._pieces}
            self._sequences.append((texts, spans, numbers, pairs))
        self._sequences.sort(key=lambda sequence: self._length(*sequence[:2]))
        self.pairs = [pairs for _, _, _, pairs in self._sequences]
        # What is longer than a sequence is laid out once: mentions that do not fit are an error before training.
        lengths = [self._length(*sequence[:2]) for sequence in self._sequences]
        warn_of_cuts(self[number] for number, length in enumerate(lengths) if length > processor.max_length)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        texts, spans, numbers, pairs = self._sequences[index]
        compared = [(numbers.index(one), numbers.index(other)) for one, other in pairs]
        labels = [self._same(pair) for pair in pairs]
        return self._processor.mentions([self._pieces[text] for text in texts], spans, compared, labels)

    def similarities(self, logits: Sequence[np.ndarray] | np.ndarray) -> Similarities:
        """How probably any two mentions of a group mean the same, by the logits of the pairs of each sequence.

        All pairs must be there, as with ``negatives=None``; padding may follow the logits of a sequence.
        """
        probability: dict[Pair, float] = {}
        for pairs, scores in zip(self.pairs, logits, strict=True):
            probability |= zip(pairs, expit(scores[: len(pairs)]), strict=True)
        groups = mention_groups(self._documents, self._group_by)
        pairs_of = [[probability[pair] for pair in itertools.combinations(numbers, 2)] for numbers in groups]
        return [
            (numbers, squareform(pairs) + np.eye(len(numbers)))
            for numbers, pairs in zip(groups, pairs_of, strict=True)
        ]

    def _same(self, pair: Pair) -> int:
        return int(self._clusters[pair[0]] == self._clusters[pair[1]])

    def _length(self, texts: list[str], spans: list[tuple[int, int, int]]) -> int:
        return sum(len(self._pieces[text].ids) for text in texts) + 2 + 2 * len(texts) + 2 * len(spans)


def _sentences_only(
    document: CoreferenceDocument, marked: list[CoreferenceMention]
) -> tuple[str, list[tuple[int, int]]]:
    """The sentences of these mentions, a line each, and where the mentions are in them."""
    text, moved = "", {}
    for number in sorted({mention.sentence for mention in marked}):
        start, end = document.sentences[number]
        moved[number] = len(text) - start
        text += f"{document.text[start:end]}\n"
    return text[:-1], [(start + moved[sentence], end + moved[sentence]) for start, end, _, sentence in marked]


def cluster_mentions(groups: Similarities, threshold: float) -> list[str]:
    """A cluster for every mention: agglomerative, joined while the mean probability is above the threshold."""
    labels: dict[int, str] = {}
    for group, (numbers, probability) in enumerate(groups):
        parts = np.zeros(len(numbers), int)
        if len(numbers) > 1:
            rule = {"n_clusters": None, "metric": "precomputed", "linkage": "average"}
            parts = AgglomerativeClustering(**rule, distance_threshold=1 - threshold).fit_predict(1 - probability)
        labels |= {number: f"{group}-{part}" for number, part in zip(numbers, parts, strict=True)}
    return [labels[number] for number in sorted(labels)]


def best_threshold(documents: Sequence[CoreferenceDocument], groups: Similarities) -> float:
    """The threshold, in steps of 0.05, with the highest CoNLL F1."""
    gold, thresholds = clusters_of(documents), np.arange(0.05, 1.0, 0.05).tolist()
    return max(thresholds, key=lambda value: coreference_scores(gold, cluster_mentions(groups, value))["conll_f1"])


@dataclass
class CoreferenceArguments:
    """What is compared; the training set is ECB+'s folder, or a .jsonl of it."""

    _argument_group_name = "coreference"

    mention_kind: Literal["event", "entity"] = option("event", "Mentions of ECB+ to link.")
    context: Literal["document", "sentence"] = option(
        "document", "Text around the mentions: whole documents, or only their sentences (Table 3)."
    )
    mentions_at_once: Literal["pair", "all"] = option(
        "pair", "pair: a sequence for each two mentions (the paper's); all: for each two documents, many times faster."
    )
    group_by: Literal["subtopic", "topic"] = option("subtopic", "Only mentions within the same one are compared.")
    negatives_per_positive: float = option(1.0, "Non-coreferent pairs for each coreferent one in training on pairs.")


def f1_scores(documents: Sequence[CoreferenceDocument], clusters: Sequence[object]) -> dict[str, float]:
    """F1 by each metric of clusters of all mentions."""
    scores = coreference_scores(clusters_of(documents), clusters)
    return {name: value for name, value in scores.items() if name.endswith("f1")}


_SNIPPET = """\
from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked

model = CdlmForCrossDocumentCoreference.from_pretrained("{name}")
processor = CdlmProcessor.from_model(model)
texts, spans = zip(*map(read_marked, ["Apple <m>sued</m> Samsung.", "The <m>lawsuit</m> was filed on Friday."]))
row = processor.mentions(texts, [(number, *span) for number, marked in enumerate(spans) for span in marked])
probability = model(**processor.pad([row])).logits.sigmoid()
same = probability > model.config.coreference_threshold"""


def main(words: list[str]) -> None:
    """Cross-document coreference with CDLM; the threshold of the clusters is chosen on the validation set."""
    classes = (CdlmModelArguments, FinetuningArguments, DataArguments, CoreferenceArguments)
    model_args, args, data_args, options = parse(classes, words, "", main.__doc__ or "", "coreference-")
    if data_args.dataset_name:
        raise ValueError("ECB+ is read from a folder or a file: give it with --train_file, not with --dataset_name.")

    def read(name: str, source: str, split: str) -> list[CoreferenceDocument]:
        named = getattr(data_args, f"{name}_split")
        if named is None and Path(source).is_dir():
            raise ValueError(f"{source} holds the topics of all splits, test topics too; give --{name}_split as well.")
        return read_ecbplus(source, options.mention_kind, named)

    # No cluster of events lies in two topics.
    sets = data_args.read_sets(
        read, lambda documents, share: hold_out(documents, share, args.seed, lambda document: document.topic)
    )

    def sequences(name: str, processor: CdlmProcessor) -> MentionPairDataset:
        negatives = options.negatives_per_positive if name == "train" else None
        at_once = options.mentions_at_once
        return MentionPairDataset(sets[name], processor, options.group_by, at_once, options.context, negatives)

    def choose(rows: MentionPairDataset, logits: Logits) -> dict[str, float]:
        return {"coreference_threshold": best_threshold(sets["validation"], rows.similarities(logits[0]))}

    def predict(name: str, rows: MentionPairDataset, logits: Logits, chosen: dict[str, float]) -> Predicted:
        clusters = cluster_mentions(rows.similarities(logits[0]), chosen["coreference_threshold"])
        mentions = [(document, mention) for document in sets[name] for mention in document.mentions]
        records = [
            {"document": document.id, "start": mention.start, "end": mention.end,
             "text": document.text[mention.start : mention.end], "gold": mention.cluster, "cluster": cluster}
            for (document, mention), cluster in zip(mentions, clusters, strict=True)
        ]  # fmt: skip
        return f1_scores(sets[name], clusters), records

    tags = ["cross-document-coreference"]  # the Hub has coreference under token classification
    card = {"snippet": _SNIPPET, "pipeline_tag": "token-classification", "tags": tags, "scores": "conll_f1"}
    alone = "every mention alone", lambda documents: f1_scores(documents, range(len(clusters_of(documents))))
    settings, model_class = {"task": "coreference", **vars(options)}, CdlmForCrossDocumentCoreference
    train_and_publish(model_class, model_args, args, sets, sequences, predict, alone, card, settings, choose)
