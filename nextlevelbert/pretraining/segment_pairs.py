"""Pairs of segments of encoded documents, for contrastive learning over chunk vectors."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..corpus import VectorCorpus
from ..models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP
from .sequences import VectorSequence, pad_sequences

logger = logging.getLogger(__name__)


class SegmentPair(NamedTuple):
    """Vectors ``[W, D]`` of two segments of a document, the document's number, and the key they are drawn by."""

    first: torch.Tensor
    second: torch.Tensor
    document: int
    key: tuple[int, ...]


class SegmentPairDataset(Dataset):
    """Pairs of segments of a document that do not overlap, anywhere in it, new ones in every epoch.

    An epoch has a pair for every ``2 * max_segment`` chunks of a document, at least one, so that about every chunk
    is seen once. Where a pair lies depends on (seed, epoch, index) alone: a resumed run sees what an uninterrupted
    one saw.

    Args:
        corpus: where the vectors are.
        min_segment, max_segment: fewest and most chunks in a segment; the collator draws one length for a batch.
            Documents shorter than two of the shortest segments are left out, with a warning.
        documents: positions of the documents to use, all by default.
        seed: of the places drawn.

    Raises:
        ValueError: for lengths that do not fit each other, or a corpus in which fewer than two documents are left.
    """

    def __init__(
        self,
        corpus: VectorCorpus,
        min_segment: int = 4,
        max_segment: int = 48,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        if not 1 <= min_segment <= max_segment:
            raise ValueError(f"Give 1 <= min_segment <= max_segment, got {min_segment} and {max_segment}.")
        self.corpus, self.max_segment, self.seed, self.epoch = corpus, max_segment, seed, 0
        chosen = np.arange(len(corpus)) if documents is None else np.asarray(documents, np.int64)
        lengths = corpus.document_offsets[chosen + 1] - corpus.document_offsets[chosen]
        long = lengths >= 2 * min_segment
        self._documents, self._lengths = chosen[long], lengths[long]
        if not long.all():
            text = "%d of %d documents have fewer than %d chunks, two of the shortest segments, and are left out."
            logger.warning(text, (~long).sum(), len(chosen), 2 * min_segment)
        if long.sum() < 2:
            raise ValueError(
                f"{corpus!r} has {long.sum()} such documents; use a smaller min_segment or more documents."
            )
        self._first_items = np.append(0, np.cumsum(np.maximum(self._lengths // (2 * max_segment), 1)))

    def set_epoch(self, epoch: int) -> None:
        """Draws other pairs; `Trainer` calls this when an epoch begins."""
        self.epoch = epoch

    def __len__(self) -> int:
        return int(self._first_items[-1])

    def __getitem__(self, index: int) -> SegmentPair:
        if not 0 <= index < len(self):
            raise IndexError(f"Pair {index} is not among the {len(self)} of this dataset.")
        place = int(np.searchsorted(self._first_items, index, side="right")) - 1
        document, length = int(self._documents[place]), int(self._lengths[place])
        key = (self.seed, self.epoch, index)
        draw, width = np.random.default_rng(key), min(self.max_segment, length // 2)
        # The room before and between the segments is drawn, then which of them is first.
        starts = draw.permutation(np.sort(draw.integers(length - 2 * width + 1, size=2)) + np.array([0, width]))
        starts += int(self.corpus.document_offsets[document])
        first, second = (self.corpus.vectors(start, start + width) for start in starts.tolist())
        return SegmentPair(first, second, document, key)


@dataclass
class DataCollatorForSegmentPairs:
    """Cuts the segments of a batch to one length, drawn so that short ones are as frequent as long ones (log-uniform).

    Args:
        min_segment, max_segment: as in `SegmentPairDataset`.

    Returns (on call), for N pairs:
        ``inputs_embeds [N, 2, L, D]``, ``special_ids [N, 2, L]``, ``document_ids [N]``.
    """

    min_segment: int = 4
    max_segment: int = 48

    def __call__(self, pairs: Sequence[SegmentPair]) -> dict[str, torch.Tensor]:
        low, high = math.log(self.min_segment), math.log(self.max_segment + 1)
        length = min(int(math.exp(np.random.default_rng((*pairs[0].key, 1)).uniform(low, high))), self.max_segment)
        sequences = []
        for pair in pairs:
            for vectors in (pair.first[:length], pair.second[:length]):
                special_ids = torch.tensor([CLS, *[NOT_SPECIAL] * len(vectors), SEP])
                embeds = torch.nn.functional.pad(vectors, (0, 0, 1, 1))  # [L + 2, D]
                sequences.append(VectorSequence(embeds, special_ids, pair.key))
        embeds, special_ids = (values.unflatten(0, (-1, 2)) for values in pad_sequences(sequences))  # [N, 2, ...]
        documents = torch.tensor([pair.document for pair in pairs])
        return {"inputs_embeds": embeds, "special_ids": special_ids, "document_ids": documents}


def pairs_found(scores: torch.Tensor, document_ids: torch.Tensor) -> torch.Tensor:
    """For each pair of the batch: the share of its segments that find their partner, and the chance to, ``[N, 2]``.

    Args:
        scores: ``[N, N]`` of first against second segments; -inf where two are not compared.
        document_ids: ``[N]``; not used, `Trainer` passes it.
    """
    right = torch.arange(len(scores), device=scores.device)
    partners = (scores.argmax(dim=1) == right).float() + (scores.argmax(dim=0) == right).float()
    compared = scores > -torch.inf
    chance = 1 / compared.sum(dim=1) + 1 / compared.sum(dim=0)
    return torch.stack([partners, chance], dim=1) / 2
