"""Pairs of segments of encoded documents, for contrastive learning over chunk vectors."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from ..corpus import VectorCorpus
from ..models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP
from .sequences import DataCollatorForVectorMasking, VectorSequence, chosen_documents, pad_sequences

if TYPE_CHECKING:  # importing it brings peft
    from transformers import EvalPrediction

logger = logging.getLogger(__name__)

Positives = Literal["document", "neighbours"]


class SegmentPairItem(TypedDict):
    """Pairs of one document: vectors ``[W, D]`` of the first and second segments, where each starts, and a key."""

    first: list[torch.Tensor]
    second: list[torch.Tensor]
    starts: np.ndarray  # [P, 2]
    document: int
    mask_key: tuple[int, ...]


class SegmentPairDataset(Dataset):
    """Pairs of segments of a document, new ones in every epoch; an item is `pairs_per_document` pairs of one document.

    An epoch has an item for every ``2 * max_segment * pairs_per_document`` chunks of a document, at least one, so
    that about every chunk is seen once. Where a pair lies depends on (seed, epoch, index) alone: a resumed run
    sees what an uninterrupted one saw.

    Args:
        corpus: where the vectors are.
        min_segment, max_segment: fewest and most chunks in a segment; the collator draws one length for a batch.
            Documents shorter than two of the shortest segments are left out, with a warning.
        positives: ``"document"``: two segments that do not overlap, anywhere in the document; ``"neighbours"``: one
            directly after the other.
        pairs_per_document: pairs of an item. With neighbours, several give negatives of the same document.
        documents: positions of the documents to use, all by default.
        seed: of the places drawn.

    Attributes:
        epoch: set it at the start of an epoch (`SetEpochCallback` does) to draw new places.

    Raises:
        ValueError: for lengths that do not fit each other, or a corpus in which every document is too short.
    """

    corpus: Any
    unit = "chunks"

    def __init__(
        self,
        corpus: VectorCorpus,
        min_segment: int = 4,
        max_segment: int = 48,
        positives: Positives = "document",
        pairs_per_document: int = 1,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        _check_segments(min_segment, max_segment, positives)
        if pairs_per_document < 1:
            raise ValueError(f"pairs_per_document must be at least 1, got {pairs_per_document}.")
        self.corpus, self.seed, self.epoch = corpus, seed, 0
        self.min_segment, self.max_segment = min_segment, max_segment
        self.positives, self.pairs_per_document = positives, pairs_per_document
        chosen = chosen_documents(corpus, documents)
        lengths = corpus.document_offsets[chosen + 1] - corpus.document_offsets[chosen]
        self._documents = chosen[lengths >= 2 * min_segment]
        self._lengths = lengths[lengths >= 2 * min_segment]
        if short := len(chosen) - len(self._documents):
            logger.warning("%d of %d documents have fewer than %d %s, two of the shortest segments, and are left "
                           "out.", short, len(chosen), 2 * min_segment, self.unit)  # fmt: skip
        if len(self._documents) < 2:
            raise ValueError(
                f"{corpus!r}: {len(self._documents)} of the {len(chosen)} chosen documents have {2 * min_segment} "
                f"{self.unit} or more; contrastive learning needs two. Use a smaller min_segment or more documents."
            )
        seen = min(2 * max_segment * pairs_per_document, np.iinfo(np.int64).max)  # chunks in an item, at most
        items = np.maximum(self._lengths // seen, 1)
        self._first_items = np.append(0, np.cumsum(items))

    def __len__(self) -> int:
        return int(self._first_items[-1])

    def __getitem__(self, index: int) -> SegmentPairItem:
        if not 0 <= index < len(self):
            raise IndexError(f"Item {index} is not among the {len(self)} of this dataset.")
        place = int(np.searchsorted(self._first_items, index, side="right")) - 1
        document, length = int(self._documents[place]), int(self._lengths[place])
        key = (self.seed, self.epoch, index)
        draw = np.random.default_rng(key)
        width = min(self.max_segment, length // 2)
        starts = np.empty((self.pairs_per_document, 2), np.int64)
        for pair in starts:
            if self.positives == "neighbours":
                pair[0] = draw.integers(length - 2 * width + 1)
                pair[1] = pair[0] + width
            else:  # anywhere, the room between them drawn with their places
                pair[:] = draw.permutation(
                    np.sort(draw.integers(length - 2 * width + 1, size=2)) + np.array([0, width])
                )
        first_chunk = int(self.corpus.document_offsets[document])
        first, second = (
            [self.run(first_chunk + start, first_chunk + start + width) for start in column.tolist()]
            for column in starts.T
        )
        return {"first": first, "second": second, "starts": starts, "document": document, "mask_key": key}

    def run(self, start: int, stop: int) -> torch.Tensor:
        """What is in the corpus from one place to another."""
        return self.corpus.vectors(start, stop)


def _check_segments(min_segment: int, max_segment: int, positives: str) -> None:
    """Raises a ValueError for lengths that do not fit each other, or unknown positives."""
    if not 1 <= min_segment <= max_segment:
        raise ValueError(f"Give 1 <= min_segment <= max_segment, got {min_segment} and {max_segment}.")
    if positives not in ("document", "neighbours"):
        raise ValueError(f"positives are 'document' or 'neighbours', got {positives!r}.")


@dataclass
class DataCollatorForSegmentPairs:
    """Cuts the segments of a batch to one length, drawn so that short ones are as frequent as long ones (log-uniform).

    Neighbours are cut where they do not touch, so that they still do.

    Args:
        min_segment, max_segment: as in `SegmentPairDataset`.
        positives: as in `SegmentPairDataset`; with ``"neighbours"`` the batch holds ``spans``, so that segments of the
            same document are negatives.
        masking: masks vectors of the segments, for both objectives at once.

    Returns (on call), for N pairs:
        ``inputs_embeds [N, 2, S, D]``, ``special_ids [N, 2, S]``, ``document_ids [N]``; perhaps ``spans [N, 2, 2]``;
        with masking ``labels [N, 2, S, D]`` and ``mask_positions [N, 2, S]``.
    """

    min_segment: int = 4
    max_segment: int = 48
    positives: Positives = "document"
    masking: DataCollatorForVectorMasking | None = None

    def __post_init__(self) -> None:
        _check_segments(self.min_segment, self.max_segment, self.positives)

    def __call__(self, items: Sequence[SegmentPairItem]) -> dict[str, torch.Tensor]:
        low, high = math.log(self.min_segment), math.log(self.max_segment + 1)
        drawn = math.exp(np.random.default_rng((*items[0]["mask_key"], 1)).uniform(low, high))
        length = min(int(drawn), self.max_segment)
        sequences: list[VectorSequence] = []
        spans: list[list[tuple[int, int]]] = []
        documents = []
        for item in items:
            for pair, (first, second) in enumerate(zip(item["first"], item["second"], strict=True)):
                starts = item["starts"][pair].copy()
                if self.positives == "neighbours":
                    starts[0] += max(len(first) - length, 0)
                    first = first[-length:]
                documents.append(item["document"])
                spans.append([])
                for side, vectors in enumerate((first[:length], second[:length])):
                    spans[-1].append((int(starts[side]), int(starts[side]) + len(vectors)))
                    sequences.append(
                        {
                            "inputs_embeds": torch.nn.functional.pad(vectors, (0, 0, 1, 1)),  # [L + 2, D]
                            "special_ids": torch.tensor([CLS, *[NOT_SPECIAL] * len(vectors), SEP]),
                            "mask_key": (*item["mask_key"], pair, side),
                        }
                    )
        batch = pad_sequences(sequences) if self.masking is None else self.masking(sequences)
        batch = {name: values.unflatten(0, (-1, 2)) for name, values in batch.items()}  # [N, 2, ...]
        batch["document_ids"] = torch.tensor(documents)
        if self.positives == "neighbours":
            batch["spans"] = torch.tensor(spans)
        return batch


def pairs_found(scores: torch.Tensor, document_ids: torch.Tensor, pairs_per_item: int = 1) -> torch.Tensor:
    """For each item of the batch: the share of its segments that find their partner, and the chance to.

    There is one row for each item, because `Trainer` counts items where it cuts the last batch.

    Args:
        scores: ``[N, N]`` of first against second segments; -inf where two are not compared.
        document_ids: ``[N]``; not used, `Trainer` passes it.
        pairs_per_item: pairs in an item.

    Returns:
        ``[items, 2]``.
    """
    right = torch.arange(len(scores), device=scores.device)
    found = (scores.argmax(dim=1) == right).float() + (scores.argmax(dim=0) == right).float()
    compared = scores > -torch.inf
    chance = 1 / compared.sum(dim=1) + 1 / compared.sum(dim=0)
    return torch.stack([found, chance], dim=1).unflatten(0, (-1, pairs_per_item)).mean(dim=1) / 2  # [items, 2]


class SegmentPairs:
    """The contrastive objective, with or without masked vectors, as `vectors.run` uses it.

    On several processes the negatives of a pair are those of its own process.

    Args:
        collator: makes batches of segments, with its lengths and positives.
        pairs_per_document: pairs in an item.
    """

    held_out_at_least = 2  # the segments of one document alone are not compared
    label_names = ("document_ids",)

    def __init__(self, collator: DataCollatorForSegmentPairs, pairs_per_document: int) -> None:
        self.collator, self.pairs_per_document = collator, pairs_per_document

    def check(self, window: int, positions: int) -> None:
        """Refuses what the model cannot read at once: `window` chunks, `positions` with special vectors.

        Raises:
            ValueError: for segments longer than `window`.
        """
        if self.collator.max_segment > window:
            raise ValueError(
                f"--max_segment {self.collator.max_segment} is above the {window} chunks that the model reads at "
                f"once; give at most {window}."
            )

    def dataset(self, corpus: VectorCorpus, documents: np.ndarray | None, seed: int) -> SegmentPairDataset:
        ours = self.collator
        return SegmentPairDataset(
            corpus, ours.min_segment, ours.max_segment, ours.positives, self.pairs_per_document, documents, seed
        )

    def baseline(self, *arguments: object) -> None:
        """There is none."""

    def scores_of_batch(self, scores: torch.Tensor, document_ids: torch.Tensor) -> torch.Tensor:
        """``[items, 2]``, see `pairs_found`."""
        return pairs_found(scores, document_ids, self.pairs_per_document)

    @staticmethod
    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        """How many pairs of the whole evaluation set find each other."""
        accuracy, chance = torch.as_tensor(prediction.predictions).mean(dim=0).tolist()
        return {"pair_accuracy": accuracy, "chance_accuracy": chance}

    def facts(self, loss: str, items: int) -> dict[str, object]:
        """What a card says of the objective: `items` in an epoch, and `loss` where vectors are masked, too."""
        ours = self.collator
        kind = "neighbouring segments" if ours.positives == "neighbours" else "segments of one document"
        masked = f", and {ours.masking.described(loss)}" if ours.masking else ""
        return {
            "objective": f"contrastive, {kind}{masked}",
            "segments": f"{items} x {self.pairs_per_document} pairs an epoch, of {ours.min_segment} to "
                        f"{ours.max_segment} chunks",
        }  # fmt: skip
