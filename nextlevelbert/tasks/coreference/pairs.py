"""Cross-document coreference with CDLM: pairs of mentions to score, and clusters of what was scored (section 3.2)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.cluster import AgglomerativeClustering
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ...evaluation.coreference import coreference_scores
from ...models.processing_cdlm import CdlmProcessor, Piece
from .data import CoreferenceData, CoreferenceDocument, CoreferenceMention

logger = logging.getLogger(__name__)

CONTEXTS = ("document", "sentence")
MENTIONS_AT_ONCE = ("pair", "all")
GROUPS = ("subtopic", "topic")
_Compared = tuple[list[CoreferenceDocument], list[int], list[tuple[int, int]]]
"""Of a sequence: documents, their mentions, and the pairs of these that are compared, by number in the whole set."""
_THRESHOLDS = np.arange(0.05, 1.0, 0.05)


@dataclass(frozen=True)
class PairOptions:
    """How mentions are compared.

    Args:
        context: ``"document"``: whole documents; ``"sentence"``: of each only the sentences with the mentions (the
            paper's Table 3).
        mentions_at_once: ``"pair"``: two mentions in a sequence (the paper's); ``"all"``: all mentions of two
            documents are marked and all pairs are scored in one pass, which takes a small part of the time.
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


class MentionPairDataset(Dataset):
    """Sequences with marked mentions, shortest first, laid out when they are asked for.

    Pairs in two documents are read with both, pairs within one with that one (paper, appendix C.1).

    Args:
        data: documents with mentions.
        processor: lays them out.
        options: see `PairOptions`.
        training: with one pair in a sequence, take all coreferent pairs and as many others as `options` says; else
            take all pairs.
        seed: draws these others.

    Attributes:
        pairs: for each sequence the two mentions of each of its pairs, counted through all documents.

    Raises:
        ValueError: of the processor, for mentions that do not fit into a sequence; or for a set without any pair.
    """

    def __init__(
        self, data: CoreferenceData, processor: CdlmProcessor, options: PairOptions, training: bool, seed: int = 42
    ) -> None:
        self._processor, self._labels = processor, np.array(data.clusters)
        self._pieces: dict[str, Piece] = {}
        wanted: list[_Compared] = []
        for documents in numbered_groups(data, options.group_by).values():
            for (one, first), (other, second) in itertools.combinations_with_replacement(documents, 2):
                if one is other:
                    wanted.append(([one], first, list(itertools.combinations(first, 2))))
                else:
                    wanted.append(([one, other], [*first, *second], list(itertools.product(first, second))))
        if options.mentions_at_once == "pair":
            wanted = [(documents, sorted(pair), [pair]) for documents, _, pairs in wanted for pair in pairs]
            if training:
                wanted = _sampled(wanted, self._labels, options.negatives_per_positive, seed)
        wanted = [each for each in wanted if each[2]]
        if not wanted:
            raise ValueError(
                f"{data.source} has no two mentions in one {options.group_by}; there is nothing to compare."
            )
        mentions = [mention for document in data.documents for mention in document.mentions]
        owner = [document for document in data.documents for _ in document.mentions]
        self._sequences = []
        for documents, numbers, pairs in tqdm(wanted, unit="sequence", desc=f"pairs of {data.source}", delay=5):
            chosen = [mentions[number] for number in numbers]
            spans = [
                (int(owner[number] is not documents[0]), mention.start, mention.end)
                for number, mention in zip(numbers, chosen, strict=True)
            ]
            texts = [document.text for document in documents]
            if options.context == "sentence":
                texts, spans = _sentences_only(documents, chosen, spans)
            for text in texts:
                if text not in self._pieces:
                    self._pieces[text] = processor.tokenize(text)
            self._sequences.append((texts, spans, numbers, pairs))
        self._sequences.sort(key=lambda each: sum(len(self._pieces[text].ids) for text in each[0]) + 2 * len(each[1]))
        self.pairs = [pairs for _, _, _, pairs in self._sequences]
        self._report_cuts(data.source)

    def __len__(self) -> int:
        return len(self._sequences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """What `CdlmProcessor.mentions` gives, with pairs and labels."""
        texts, spans, numbers, pairs = self._sequences[index]
        place = {number: local for local, number in enumerate(numbers)}
        return self._processor.mentions(
            [self._pieces[text] for text in texts],
            spans,
            [(place[one], place[other]) for one, other in pairs],
            [int(self._labels[one] == self._labels[other]) for one, other in pairs],
        )

    def _report_cuts(self, source: str) -> None:
        """Lays out once what is longer than a sequence: mentions that do not fit are an error before training."""
        lost, cut = 0, 0
        for index in range(len(self) - 1, -1, -1):  # the longest come last
            texts, spans, _, _ = self._sequences[index]
            markers = 2 + 2 * len(texts) + 2 * len(spans)
            if sum(len(self._pieces[text].ids) for text in texts) + markers <= self._processor.max_length:
                continue
            lost += sum(self[index]["lost_tokens"])
            cut += 1
        if cut:
            logger.warning(
                "%s: documents lose %s tokens in %d of %d sequences of at most %d tokens; no mention is lost.",
                source, f"{lost:,}", cut, len(self), self._processor.max_length,
            )  # fmt: skip


def _sampled(rows: list[_Compared], labels: np.ndarray, negatives: float, seed: int) -> list[_Compared]:
    """All rows whose one pair is coreferent, and others drawn at random."""
    same = np.array([labels[one] == labels[other] for _, _, [(one, other)] in rows], dtype=bool)
    others = np.flatnonzero(~same)
    count = min(len(others), round(negatives * int(same.sum())))
    drawn = np.random.default_rng(seed).choice(others, count, replace=False)
    return [rows[number] for number in sorted([*np.flatnonzero(same), *drawn])]


def _sentences_only(
    documents: Sequence[CoreferenceDocument],
    mentions: Sequence[CoreferenceMention],
    spans: Sequence[tuple[int, int, int]],
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
    data: CoreferenceData,
    pairs: Sequence[Sequence[tuple[int, int]]],
    logits: Sequence[np.ndarray] | np.ndarray,
    group_by: str,
) -> list[tuple[list[int], np.ndarray]]:
    """For each group the numbers of its n mentions, and how probably any two mean the same, ``[n, n]``.

    Args:
        data: the documents.
        pairs: of each sequence, see `MentionPairDataset`; every pair once.
        logits: of the pairs of each sequence; padding may follow them.
        group_by: see `PairOptions`.
    """
    groups = [
        [number for _, numbers in documents for number in numbers]
        for documents in numbered_groups(data, group_by).values()
    ]
    found = [(numbers, np.eye(len(numbers))) for numbers in groups]
    place = {number: (group, local) for group, numbers in enumerate(groups) for local, number in enumerate(numbers)}
    for own, scores in zip(pairs, logits, strict=True):
        for (one, other), score in zip(own, scores[: len(own)], strict=True):
            (group, first), (_, second) = place[one], place[other]
            found[group][1][[first, second], [second, first]] = expit(score)
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
