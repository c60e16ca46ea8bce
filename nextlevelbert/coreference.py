"""Cross-document coreference with CDLM: pairs of mentions to score, and clusters of what was scored (section 3.2)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from tqdm.auto import tqdm

from .coreference_data import CoreferenceData, CoreferenceDocument
from .evaluation.coreference import coreference_scores
from .processing_cdlm import CdlmProcessor

logger = logging.getLogger(__name__)

CONTEXTS = ("document", "sentence")
MENTIONS_AT_ONCE = ("pair", "all")
GROUPS = ("subtopic", "topic")
_THRESHOLDS = np.arange(0.05, 1.0, 0.05)


@dataclass(frozen=True)
class PairOptions:
    """How mentions are put together.

    Args:
        context: ``"document"``: whole documents; ``"sentence"``: of each only the sentences with the mentions (the
            paper's Table 3).
        mentions_at_once: ``"pair"``: two mentions in a sequence (the paper's); ``"all"``: all mentions of two
            documents are marked, and all pairs scored in one pass, which costs a small part of the time.
        group_by: mentions of one ``"subtopic"`` or ``"topic"`` are compared.
        negatives_per_positive: pairs that are not coreferent drawn for each that is, in training by pairs.
    """

    context: str = "document"
    mentions_at_once: str = "pair"
    group_by: str = "subtopic"
    negatives_per_positive: float = 1.0

    def __post_init__(self) -> None:
        for name, allowed in (("context", CONTEXTS), ("mentions_at_once", MENTIONS_AT_ONCE), ("group_by", GROUPS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}.")
        if self.negatives_per_positive < 0:
            raise ValueError(f"negatives_per_positive must not be negative, got {self.negatives_per_positive}.")


def numbered_groups(data: CoreferenceData, group_by: str) -> dict[str, list[tuple[CoreferenceDocument, list[int]]]]:
    """Documents of each group that have mentions, with the numbers of these, counted through all documents."""
    groups: dict[str, list[tuple[CoreferenceDocument, list[int]]]] = {}
    first = 0
    for document in data.documents:
        numbers = list(range(first, first + len(document.mentions)))
        first += len(numbers)
        if numbers:
            groups.setdefault(str(getattr(document, group_by)), []).append((document, numbers))
    return groups


def pair_rows(
    data: CoreferenceData, processor: CdlmProcessor, options: PairOptions, training: bool, seed: int = 42
) -> list[dict[str, Any]]:
    """Sequences with marked mentions, shortest first; each has `mention_numbers`, what its mentions are in `data`.

    Pairs in two documents are read with both, pairs within one with that one (paper, appendix C.1).

    Args:
        data: documents with mentions.
        processor: lays them out.
        options: see `PairOptions`.
        training: by pairs, all coreferent ones and as many others as `options` says, instead of all.
        seed: draws these.

    Raises:
        ValueError: of the processor, for mentions that do not fit a sequence; or without any pair.
    """
    labels = np.array(data.clusters)
    wanted: list[tuple[list[CoreferenceDocument], list[tuple[int, int]], list[tuple[int, int]]]] = []
    for documents in numbered_groups(data, options.group_by).values():
        for (one, first), (other, second) in itertools.combinations_with_replacement(documents, 2):
            if one is other:
                pairs = list(itertools.combinations(first, 2))
                mentions = [(0, number) for number in first]
            else:
                pairs = list(itertools.product(first, second))
                mentions = [(0, number) for number in first] + [(1, number) for number in second]
            if pairs:
                wanted.append(([one] if one is other else [one, other], mentions, pairs))
    if not wanted:
        raise ValueError(f"{data.source} has no two mentions in one {options.group_by}; there is nothing to compare.")
    if options.mentions_at_once == "pair":
        apart = [
            (documents, [mention for mention in mentions if mention[1] in pair], [pair])
            for documents, mentions, pairs in wanted
            for pair in pairs
        ]
        if training:
            apart = _sampled(apart, labels, options.negatives_per_positive, seed)
        wanted = apart
    own = {
        number: mention
        for documents in numbered_groups(data, options.group_by).values()
        for document, numbers in documents
        for number, mention in zip(numbers, document.mentions, strict=True)
    }
    rows = []
    for documents, mentions, pairs in tqdm(wanted, unit="sequence", desc=f"pairs of {data.source}", delay=2):
        spans = [(side, own[number].start, own[number].end) for side, number in mentions]
        texts = [document.text for document in documents]
        if options.context == "sentence":
            texts, spans = _sentences_only(documents, [own[number] for _, number in mentions], spans)
        place = {number: local for local, (_, number) in enumerate(mentions)}
        row = processor.mentions(
            texts,
            spans,
            [(place[a], place[b]) for a, b in pairs],
            [int(labels[a] == labels[b]) for a, b in pairs],
        )
        rows.append({**row, "mention_numbers": [number for _, number in mentions]})
    if lost := sum(sum(row["lost_tokens"]) for row in rows):
        cut = sum(any(row["lost_tokens"]) for row in rows)
        logger.warning(
            "%s: documents lose %s tokens in %d of %d sequences of at most %d tokens; no mention is lost.",
            data.source, f"{lost:,}", cut, len(rows), processor.max_length,
        )  # fmt: skip
    return sorted(rows, key=lambda row: len(row["input_ids"]))


def _sampled(rows: list[Any], labels: np.ndarray, negatives: float, seed: int) -> list[Any]:
    """All rows whose one pair is coreferent, and others drawn at random."""
    same = np.array([labels[pairs[0][0]] == labels[pairs[0][1]] for _, _, pairs in rows])
    others = np.flatnonzero(~same)
    count = min(len(others), round(negatives * int(same.sum())))
    drawn = np.random.default_rng(seed).choice(others, count, replace=False)
    return [rows[number] for number in sorted([*np.flatnonzero(same), *drawn])]


def _sentences_only(
    documents: Sequence[CoreferenceDocument], mentions: Sequence[Any], spans: Sequence[tuple[int, int, int]]
) -> tuple[list[str], list[tuple[int, int, int]]]:
    """The texts of the sentences that hold mentions, and where the mentions stand in them."""
    texts, moved = [], [(side, start, end) for side, start, end in spans]
    for side, document in enumerate(documents):
        kept = sorted({each.sentence for each, (of, _, _) in zip(mentions, spans, strict=True) if of == side})
        text, shift = "", {}
        for sentence in kept:
            start, end = document.sentences[sentence]
            text += "\n" * bool(text)
            shift[sentence] = len(text) - start
            text += document.text[start:end]
        texts.append(text)
        for number, (mention, (of, start, end)) in enumerate(zip(mentions, spans, strict=True)):
            if of == side:
                moved[number] = (side, start + shift[mention.sentence], end + shift[mention.sentence])
    return texts, moved


def similarities(
    data: CoreferenceData, rows: Sequence[dict[str, Any]], logits: Sequence[np.ndarray], group_by: str
) -> list[tuple[list[int], np.ndarray]]:
    """For each group the numbers of its n mentions, and how probably any two mean the same, ``[n, n]``.

    Args:
        data: the documents.
        rows: of `pair_rows`, not for training.
        logits: of the pairs of each row.
        group_by: see `PairOptions`.
    """
    groups = [
        [number for _, numbers in documents for number in numbers]
        for documents in numbered_groups(data, group_by).values()
    ]
    found = [(numbers, np.eye(len(numbers))) for numbers in groups]
    place = {number: (group, local) for group, numbers in enumerate(groups) for local, number in enumerate(numbers)}
    for row, scores in zip(rows, logits, strict=True):
        for (a, b), score in zip(row["mention_pairs"], scores, strict=True):
            group, first = place[row["mention_numbers"][a]]
            _, second = place[row["mention_numbers"][b]]
            found[group][1][[first, second], [second, first]] = 1 / (1 + np.exp(-score))
    return found


def cluster_mentions(found: Sequence[tuple[list[int], np.ndarray]], threshold: float) -> list[str]:
    """A cluster for every mention: agglomerative, by the mean probability between two clusters.

    Args:
        found: of `similarities`.
        threshold: clusters are joined while that mean is above it.
    """
    labels: dict[int, str] = {}
    for group, (numbers, probability) in enumerate(found):
        parts = np.zeros(len(numbers), int)
        if len(numbers) > 1:
            parts = AgglomerativeClustering(
                n_clusters=None, metric="precomputed", linkage="average", distance_threshold=1 - threshold
            ).fit_predict(1 - probability)
        labels |= {number: f"{group}-{part}" for number, part in zip(numbers, parts, strict=True)}
    return [labels[number] for number in sorted(labels)]


def best_threshold(data: CoreferenceData, found: Sequence[tuple[list[int], np.ndarray]]) -> float:
    """The threshold, in steps of 0.05, with the highest CoNLL F1."""
    scores = {
        float(threshold): coreference_scores(data.clusters, cluster_mentions(found, float(threshold)))["conll_f1"]
        for threshold in _THRESHOLDS
    }
    return max(scores, key=lambda threshold: scores[threshold])
