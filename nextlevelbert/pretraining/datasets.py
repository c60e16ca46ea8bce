"""Training on vectors: sequences of chunk vectors, and pairs of segments.

Notation for shapes: L positions in a sequence, W chunks in a segment, D hidden size.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from ..corpus.store import VectorCorpus
from ..models.configuration_nextlevelbert import CLS, NOT_SPECIAL, SEP

logger = logging.getLogger(__name__)

Row = TypeVar("Row", covariant=True)
Key = tuple[int, ...]  # seed, epoch and index, by which a row is drawn


class EpochDataset(Dataset[Row], ABC):
    """Draws rows that depend on (seed, epoch, index) alone.

    A resumed run therefore draws the same rows as an uninterrupted run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # Workers that persist keep the dataset of their first epoch, so they look here.
        self._epoch = torch.zeros(1, dtype=torch.long).share_memory_()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._epoch.share_memory_()

    @property
    def epoch(self) -> int:
        """Returns the epoch that rows are drawn for."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Starts a new draw when an epoch begins.

        `Trainer` calls this method of a training set in a single process. It does not in several
        processes, nor if the set is within torch's `Subset`, `random_split` or `ConcatDataset`:
        every epoch then repeats the draw of the first one, because the set cannot see that an
        epoch begins. Give such a `Trainer` the callback `nextlevelbert.training.SetEpochCallback`.
        """
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < len(self):
            raise IndexError(f"Row {index} is not among the {len(self)} of this dataset.")
        return self._row(index, (self.seed, self.epoch, index))

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _row(self, index: int, key: Key) -> Row: ...


class VectorSequence(NamedTuple):
    """A sequence of chunk vectors, and the key that its masks are drawn by.

    The class is no dict, because `Trainer` removes from dicts what the model's ``forward`` does not
    name.

    Args:
        inputs_embeds: vectors, ``[L, D]`` float16.
        special_ids: rows of special vectors, ``[L]``; -1 at chunk vectors.
        mask_key: seed, epoch and index of the sequence.
    """

    inputs_embeds: torch.Tensor
    special_ids: torch.Tensor
    mask_key: Key


class VectorSequenceDataset(EpochDataset[VectorSequence]):
    """Makes sequences of chunk vectors for masked vector modelling; see `PackedVectorDataset`."""

    def __init__(
        self,
        corpus: VectorCorpus,
        sequence_length: int = 512,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        if sequence_length < 3:
            raise ValueError(f"sequence_length must be at least 3, got {sequence_length}.")

        super().__init__(seed)
        self.corpus = corpus
        self.sequence_length = sequence_length
        positions = _positions(corpus, documents)
        self._first_chunks = corpus.document_offsets[positions]
        self._lengths = np.diff(corpus.document_offsets)[positions]
        if self._lengths.sum() == 0:
            raise ValueError(
                f"{corpus!r} has no chunk in the chosen documents; there is nothing to learn from."
            )

    def _room(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns zeros ``[positions, D]`` and their special ids, with [CLS] in front."""
        vectors = torch.zeros(positions, self.corpus.hidden_size, dtype=torch.float16)
        special_ids = torch.full((positions,), NOT_SPECIAL, dtype=torch.long)
        special_ids[0] = CLS
        return vectors, special_ids


def _positions(corpus: VectorCorpus, documents: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Returns the positions of the chosen documents as an array (default: of all documents)."""
    if documents is None:
        return np.arange(len(corpus))
    return np.asarray(documents, np.int64)


class PackedVectorDataset(VectorSequenceDataset):
    """Packs documents back to back into sequences of equal length, as NextLevelBERT does.

    Each sequence begins with [CLS], and each document ends with [SEP] (paper, section 2.2). A
    sequence starts anywhere inside a document, can hold several documents, and attention crosses
    their borders. All chunks are used, so the last sequence can be shorter.
    `DataCollatorForVectorMasking` makes the batches.

    Every epoch has other masks. Within torch's `Subset`, `random_split` or `ConcatDataset`, a stock
    `Trainer` needs ``callbacks=[SetEpochCallback()]`` of `nextlevelbert.training` for that.

    Args:
        corpus: corpus that holds the vectors.
        sequence_length: number of positions in a sequence, including special vectors (512 in the
            paper).
        documents: positions in the corpus of the documents to use (default: all).
        seed: seed of the masks.

    Raises:
        ValueError: if a sequence has no room for a chunk, or the documents have no chunks.
    """

    @cached_property
    def _stream(self) -> np.ndarray:
        """Returns the first position of each document in the stream, with its [SEP] counted."""
        return np.append(0, np.cumsum(self._lengths + 1))

    def __len__(self) -> int:
        return -(-int(self._stream[-1]) // (self.sequence_length - 1))

    def _row(self, index: int, key: Key) -> VectorSequence:
        stream_start = index * (self.sequence_length - 1)
        stream_stop = min(stream_start + self.sequence_length - 1, int(self._stream[-1]))
        length = 1 + stream_stop - stream_start
        vectors, special_ids = self._room(length)

        first, last = np.searchsorted(self._stream, (stream_start, stream_stop - 1), "right") - 1
        # The columns at which the documents begin, and at which the last one ends. Column 0 is
        # [CLS], and the first document may begin before it.
        borders = self._stream[first : last + 2] - stream_start + 1
        for document, (begin, end) in enumerate(pairwise(borders.tolist()), start=first):
            separator = end - 1
            start = max(begin, 1)
            stop = min(separator, length)
            chunk = int(self._first_chunks[document]) + start - begin
            vectors[start:stop] = self.corpus.vectors(chunk, chunk + stop - start)
            if separator < length:
                special_ids[separator] = SEP

        return VectorSequence(vectors, special_ids, key)


class DocumentVectorDataset(VectorSequenceDataset):
    """Makes a sequence of each document, as HATE reads them (section "HATE Model Architecture").

    A sequence is [CLS] and the vectors of a document. A document that is longer than a sequence is
    split into the fewest pieces of nearly equal length; documents without a chunk are left out.
    `DataCollatorForVectorMasking` makes the batches. The arguments are those of
    `PackedVectorDataset`.
    """

    @cached_property
    def _first_pieces(self) -> np.ndarray:
        """Returns the index of each document's first piece."""
        pieces = np.ceil(self._lengths / (self.sequence_length - 1)).astype(np.int64)
        return np.append(0, np.cumsum(pieces))

    def __len__(self) -> int:
        return int(self._first_pieces[-1])

    def _row(self, index: int, key: Key) -> VectorSequence:
        document = int(np.searchsorted(self._first_pieces, index, side="right")) - 1
        first_piece, end = self._first_pieces[document : document + 2].tolist()
        piece = index - first_piece
        pieces = end - first_piece
        length = int(self._lengths[document])
        start = length * piece // pieces
        stop = length * (piece + 1) // pieces
        first = int(self._first_chunks[document])
        vectors, special_ids = self._room(stop - start + 1)
        vectors[1:] = self.corpus.vectors(first + start, first + stop)
        return VectorSequence(vectors, special_ids, key)


class SegmentPair(NamedTuple):
    """Two segments of a document.

    Args:
        first: vectors of a segment, ``[W, D]``.
        second: vectors of the other segment, ``[W, D]``.
        document: position of the document in the corpus.
        key: seed, epoch and index of the pair.
    """

    first: torch.Tensor
    second: torch.Tensor
    document: int
    key: Key


class SegmentPairDataset(EpochDataset[SegmentPair]):
    """Draws pairs of segments of a document that do not overlap, new ones in every epoch.

    An epoch has one pair for every ``2 * max_segment`` chunks of a document, and at least one for
    each document, so that each chunk is read about once. Within torch's `Subset`, `random_split` or
    `ConcatDataset`, a stock `Trainer` needs ``callbacks=[SetEpochCallback()]`` of
    `nextlevelbert.training` to draw new pairs.

    Args:
        corpus: corpus that holds the vectors.
        min_segment: fewest chunks in a segment. Documents shorter than two of the shortest segments
            are left out, with a warning.
        max_segment: most chunks in a segment; the collator draws one length for each batch.
        documents: positions in the corpus of the documents to use (default: all).
        seed: seed of the pairs.

    Raises:
        ValueError: if fewer than two documents are left.
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
            raise ValueError(
                f"Give 1 <= min_segment <= max_segment, got {min_segment} and {max_segment}."
            )

        super().__init__(seed)
        self.corpus = corpus
        self.max_segment = max_segment

        positions = _positions(corpus, documents)
        lengths = np.diff(corpus.document_offsets)[positions]
        is_long = lengths >= 2 * min_segment
        count = int(is_long.sum())
        if count < 2:
            raise ValueError(
                f"Only {count} of {len(positions)} documents in {corpus!r} have at least"
                f" {2 * min_segment} chunks (2 * min_segment), and 2 are needed. Lower min_segment"
                " or add documents."
            )

        if count < len(positions):
            logger.warning(
                "%d of %d documents have fewer than %d chunks, two of the shortest segments, and"
                " are left out.",
                len(positions) - count,
                len(positions),
                2 * min_segment,
            )

        self._documents = positions[is_long]
        self._lengths = lengths[is_long]
        pairs = np.maximum(self._lengths // (2 * max_segment), 1)
        self._first_pairs = np.append(0, np.cumsum(pairs))

    def __len__(self) -> int:
        return int(self._first_pairs[-1])

    def _row(self, index: int, key: Key) -> SegmentPair:
        row = int(np.searchsorted(self._first_pairs, index, side="right")) - 1
        document = int(self._documents[row])
        length = int(self._lengths[row])
        width = min(self.max_segment, length // 2)
        rng = np.random.default_rng(key)
        # The room before and between the segments is drawn, then which of them is first.
        room = np.sort(rng.integers(length - 2 * width + 1, size=2))
        starts = rng.permutation(room + np.array([0, width]))
        starts += int(self.corpus.document_offsets[document])
        first, second = starts.tolist()
        return SegmentPair(
            first=self.corpus.vectors(first, first + width),
            second=self.corpus.vectors(second, second + width),
            document=document,
            key=key,
        )
