"""Pairs of mentions as rows of a CDLM, and the probabilities of all pairs of a group."""

import itertools
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from ecbplus import CoreferenceDocument, CoreferenceMention
from scipy.spatial.distance import squareform
from scipy.special import expit
from torch.utils.data import Dataset

from nextlevelbert import CdlmProcessor

Pair = tuple[int, int]  # indices of mentions, counted through all documents
# For each group the indices of its n mentions, and how probably any two mean the same, ``[n, n]``.
Similarities = list[tuple[list[int], np.ndarray]]


class MentionSequence(NamedTuple):
    """The pairs to compare in a sequence, and the arguments of `CdlmProcessor.mentions`."""

    length: int  # in tokens, before truncation
    pairs: list[Pair]
    layout: dict[str, Any]


class MentionPairDataset(Dataset):
    """Sequences with marked mentions, shortest first; a row is laid out when it is read.

    Pairs in two documents are read with both documents, pairs within one document with this
    document (appendix C.1).

    Args:
        documents: the documents with their mentions.
        processor: processor that makes rows of token ids.
        groups: group of each document; mentions are compared within a group.
        mentions_at_once: ``"pair"`` or ``"all"``.
        context: ``"document"`` or ``"sentence"``.
        negatives: number of pairs without coreference for each coreferent pair; None for all.

    Attributes:
        pairs: the pairs of each sequence, by the indices of the mentions in all documents.
    """

    def __init__(
        self,
        documents: Sequence[CoreferenceDocument],
        processor: CdlmProcessor,
        groups: Sequence[Any],
        mentions_at_once: str = "pair",
        context: str = "document",
        negatives: float | None = None,
    ) -> None:
        self.processor = processor
        self.documents = documents
        self.context = context
        self.mentions: list[CoreferenceMention] = []
        self.document_of: list[int] = []
        mentions_of: dict[Any, list[int]] = {group: [] for group in groups}
        for index, (document, group) in enumerate(zip(documents, groups, strict=True)):
            start = len(self.mentions)
            self.mentions += document.mentions
            self.document_of += [index] * len(document.mentions)
            mentions_of[group] += range(start, len(self.mentions))
        self.groups = [mentions for mentions in mentions_of.values() if mentions]

        pairs_of_sequences = self.group_pairs(mentions_at_once)
        if mentions_at_once == "pair" and negatives is not None:
            pairs_of_sequences = self.draw(pairs_of_sequences, negatives)
        if not pairs_of_sequences:
            raise ValueError("There are no two mentions in one group, so nothing is compared.")
        self.pieces: dict[str, Any] = {}  # tokenized texts
        self.sequences = [self.new_sequence(pairs) for pairs in pairs_of_sequences]
        self.sequences.sort(key=attrgetter("length"))
        self.pairs = [sequence.pairs for sequence in self.sequences]

        # Mentions that do not fit are an error before training.
        lost_tokens = 0
        for index, sequence in enumerate(self.sequences):
            if sequence.length > processor.max_length:
                lost_tokens += sum(self[index]["lost_tokens"])
        if lost_tokens:
            print(f"Documents lose {lost_tokens:,} tokens; a larger --max_length keeps more.")

    def documents_of(self, pair: Pair) -> tuple[int, int]:
        """Returns the indices of the documents of two mentions."""
        first, second = pair
        return self.document_of[first], self.document_of[second]

    def group_pairs(self, mentions_at_once: str) -> list[list[Pair]]:
        """Returns all pairs of mentions of one group; pairs of one sequence are together."""
        sequences = []
        for mentions in self.groups:
            pairs = sorted(itertools.combinations(mentions, 2), key=self.documents_of)
            if mentions_at_once == "all":
                for _, same_documents in itertools.groupby(pairs, self.documents_of):
                    sequences.append(list(same_documents))
            else:
                sequences += [[pair] for pair in pairs]
        return sequences

    def draw(self, sequences: list[list[Pair]], negatives: float) -> list[list[Pair]]:
        """Returns all sequences of a coreferent pair, and some others, in their order."""
        is_coreferent = np.array([self.is_coreferent(pair) for [pair] in sequences], dtype=bool)
        coreferent = np.flatnonzero(is_coreferent)
        others = np.flatnonzero(~is_coreferent)
        count = min(len(others), round(negatives * len(coreferent)))
        drawn = np.random.default_rng(0).choice(others, count, replace=False)
        return [sequences[index] for index in sorted([*coreferent, *drawn])]

    def is_coreferent(self, pair: Pair) -> int:
        """Returns 1 if two mentions are of one cluster, otherwise 0."""
        first, second = pair
        return int(self.mentions[first].cluster == self.mentions[second].cluster)

    def new_sequence(self, pairs: list[Pair]) -> MentionSequence:
        """Reads the texts of the documents of these pairs, and the spans of the mentions there."""
        mentions = sorted(set(itertools.chain.from_iterable(pairs)))
        pieces: list[Any] = []
        spans = []
        for index, mentions_of_text in itertools.groupby(mentions, self.document_of.__getitem__):
            document = self.documents[index]
            marked = [self.mentions[mention] for mention in mentions_of_text]
            if self.context == "sentence":
                text, borders = sentences_only(document, marked)
            else:
                text = document.text
                borders = [(mention.start, mention.end) for mention in marked]
            spans += [(len(pieces), start, end) for start, end in borders]
            if text not in self.pieces:
                self.pieces[text] = self.processor.tokenize(text)
            pieces.append(self.pieces[text])

        position_of = {mention: position for position, mention in enumerate(mentions)}
        layout = {
            "documents": pieces,
            "mentions": spans,
            "pairs": [(position_of[first], position_of[second]) for first, second in pairs],
            "labels": [self.is_coreferent(pair) for pair in pairs],
        }
        length = 2 + 2 * len(pieces) + 2 * len(spans)  # special tokens and marks
        length += sum(len(piece.ids) for piece in pieces)
        return MentionSequence(length, pairs, layout)

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.processor.mentions(**self.sequences[index].layout)

    def similarities(self, logits: Sequence[np.ndarray] | np.ndarray) -> Similarities:
        """Computes the probability that two mentions corefer, for all pairs in a group.

        Args:
            logits: logits of the pairs of each sequence. All pairs must be there, as with
                ``negatives=None``; padding may follow the logits of a sequence.

        Returns:
            The indices of the mentions of each group, and the probabilities ``[n, n]``.
        """
        probability: dict[Pair, float] = {}
        for pairs, scores in zip(self.pairs, logits, strict=True):
            probability |= zip(pairs, expit(scores[: len(pairs)]), strict=True)

        groups = []
        for mentions in self.groups:
            values = [probability[pair] for pair in itertools.combinations(mentions, 2)]
            groups.append((mentions, squareform(values) + np.eye(len(mentions))))
        return groups


def sentences_only(
    document: CoreferenceDocument, marked: list[CoreferenceMention]
) -> tuple[str, list[tuple[int, int]]]:
    """Returns the sentences of these mentions, a line each, and the spans of the mentions there."""
    text = ""
    shifts = {}
    for sentence in sorted({mention.sentence for mention in marked}):
        start, end = document.sentences[sentence]
        shifts[sentence] = len(text) - start
        text += f"{document.text[start:end]}\n"

    spans = []
    for mention in marked:
        shift = shifts[mention.sentence]
        spans.append((mention.start + shift, mention.end + shift))
    return text[:-1], spans
