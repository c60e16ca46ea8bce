"""Training on vectors: sequences, masked batches, pairs of segments, and their scores.

Notation for shapes: B sequences in a batch, L positions, M selected positions of the batch, D
hidden size, N pairs.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from ..corpus import VectorCorpus
from ..models.configuration_nextlevelbert import CLS, MASK, NOT_SPECIAL, PAD, SEP

if TYPE_CHECKING:  # it brings Trainer and peft, which opening a model does not need
    from transformers import EvalPrediction

logger = logging.getLogger(__name__)


class EpochDataset(Dataset, ABC):
    """Draws rows that depend on (seed, epoch, index) alone.

    So a resumed run sees what an uninterrupted one saw.

    Args:
        seed: of what is drawn.
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
        """The epoch that rows are drawn for."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Draws anew; `Trainer` calls this when an epoch begins.

        Args:
            epoch: its number, from 0.
        """
        self._epoch.fill_(epoch)

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"Row {index} is not among the {len(self)} of this dataset.")
        return self._row(index, (self.seed, self.epoch, index))

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _row(self, index: int, key: tuple[int, ...]) -> Any: ...


class VectorSequence(NamedTuple):
    """A sequence of chunk vectors, and the key that its masks are drawn by.

    It is no dict, because `Trainer` removes from dicts what the model's ``forward`` does not name.

    Args:
        inputs_embeds: ``[L, D]`` float16.
        special_ids: ``[L]``, -1 at chunk vectors.
        mask_key: seed, epoch and index of the sequence.
    """

    inputs_embeds: torch.Tensor
    special_ids: torch.Tensor
    mask_key: tuple[int, ...]


class VectorSequenceDataset(EpochDataset):
    """Gives sequences of chunk vectors for masked vector modelling.

    Args:
        corpus: holds the vectors.
        sequence_length: largest number of positions in a sequence, including special vectors (512
            in NextLevelBERT's paper).
        documents: positions in the corpus of the documents to use (default: all).
        seed: of the masks.

    Raises:
        ValueError: if a sequence has no room for a chunk, or the documents have none.
    """

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
        self._lengths = corpus.document_offsets[positions + 1] - self._first_chunks
        if self._lengths.sum() == 0:
            raise ValueError(
                f"{corpus!r} has no chunk in the chosen documents; there is nothing to learn from."
            )

    def _room(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros ``[positions, D]`` and their special ids, [CLS] in front."""
        vectors = torch.zeros(positions, self.corpus.hidden_size, dtype=torch.float16)
        special_ids = torch.full((positions,), NOT_SPECIAL, dtype=torch.long)
        special_ids[0] = CLS
        return vectors, special_ids


def _positions(corpus: VectorCorpus, documents: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Positions of the chosen documents as an array; all of the corpus if none are chosen."""
    if documents is None:
        return np.arange(len(corpus))
    return np.asarray(documents, np.int64)


class PackedVectorDataset(VectorSequenceDataset):
    """Packs documents back to back into sequences of equal length, as NextLevelBERT does.

    Each sequence begins with [CLS], and each document ends with [SEP] (paper, section 2.2). A
    sequence starts anywhere inside a document, can hold several documents, and attention crosses
    their borders. Nothing is dropped: the last sequence is shorter. `DataCollatorForVectorMasking`
    makes the batches. The arguments are those of `VectorSequenceDataset`.
    """

    @cached_property
    def _stream(self) -> np.ndarray:
        """First position of each document in the packed stream; each has one more for its [SEP]."""
        return np.append(0, np.cumsum(self._lengths + 1))

    def __len__(self) -> int:
        return -(-int(self._stream[-1]) // (self.sequence_length - 1))

    def _row(self, index: int, key: tuple[int, ...]) -> VectorSequence:
        start = index * (self.sequence_length - 1)
        stop = min(start + self.sequence_length - 1, int(self._stream[-1]))
        vectors, special_ids = self._room(stop - start + 1)
        first, last = np.searchsorted(self._stream, (start, stop - 1), side="right") - 1
        for document in range(first, last + 1):
            begin = int(self._stream[document])
            end = int(self._stream[document + 1])
            separator = end - 1
            low = max(start, begin)
            high = min(stop, separator)
            chunk = int(self._first_chunks[document]) + low - begin
            columns = slice(1 + low - start, 1 + high - start)
            vectors[columns] = self.corpus.vectors(chunk, chunk + high - low)
            if separator < stop:
                special_ids[1 + separator - start] = SEP
        return VectorSequence(vectors, special_ids, key)


class DocumentVectorDataset(VectorSequenceDataset):
    """Gives each document as its own sequence, as HATE reads them ("HATE Model Architecture").

    A sequence is [CLS] and the vectors of a document. Longer documents are split into the fewest
    pieces of nearly equal length; documents without a chunk are left out. The arguments are those
    of `VectorSequenceDataset`.
    """

    @cached_property
    def _first_pieces(self) -> np.ndarray:
        """Index of each document's first piece."""
        pieces = np.ceil(self._lengths / (self.sequence_length - 1)).astype(np.int64)
        return np.append(0, np.cumsum(pieces))

    def __len__(self) -> int:
        return int(self._first_pieces[-1])

    def _row(self, index: int, key: tuple[int, ...]) -> VectorSequence:
        document = int(np.searchsorted(self._first_pieces, index, side="right")) - 1
        piece = index - int(self._first_pieces[document])
        pieces = int(self._first_pieces[document + 1] - self._first_pieces[document])
        length = int(self._lengths[document])
        start = length * piece // pieces
        stop = length * (piece + 1) // pieces
        first = int(self._first_chunks[document])
        vectors, special_ids = self._room(stop - start + 1)
        vectors[1:] = self.corpus.vectors(first + start, first + stop)
        return VectorSequence(vectors, special_ids, key)


# --- Masks


def draw_vector_mask(
    maskable: np.ndarray,
    key: Sequence[int],
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    span_lengths: tuple[int, int] = (1, 1),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Selects each maskable position by itself with `probability`, or spans of them.

    NextLevelBERT, section 2.2 "Masking".

    Args:
        maskable: ``[L]`` bool, true at chunk vectors; specials are never selected.
        key: seed, epoch and index of the sequence; the same key always draws the same mask.
        probability: 0.15 in the paper; 0.30 and 0.40 in its Table 4.
        mask_share: of the selected, what becomes [MASK] (1.0 is Table 4's "all [MASK]").
        random_share: of the selected, what becomes another vector; the rest stay unchanged.
        span_lengths: fewest and most positions that are selected together, with one fate. Spans may
            overlap, so that slightly less than the share `probability` is selected.

    Returns:
        Three boolean arrays ``[L]``: what is selected, and of it what becomes [MASK] and what
        another vector.
    """
    rng = np.random.default_rng(list(key))
    shortest, longest = span_lengths
    starts = rng.random(len(maskable)) < 2 * probability / (shortest + longest)
    fate = rng.random(len(maskable))
    selected = starts.copy()
    if longest > 1:
        for start in np.flatnonzero(starts):
            span = slice(start, start + rng.integers(shortest, longest + 1))
            selected[span] = True
            fate[span] = fate[start]
    selected &= maskable
    masked = selected & (fate < mask_share)
    replaced = selected & ~masked & (fate < mask_share + random_share)
    return selected, masked, replaced


def draw_replacements(
    counts: np.ndarray, sequence: int, replaced: np.ndarray, key: Sequence[int]
) -> np.ndarray:
    """Picks another chunk vector for each replaced one of a sequence.

    It comes from the other sequences of the batch. A batch of one sequence draws from its other
    vectors; a vector that is alone in its batch is replaced by itself.

    Args:
        counts: ``[B]`` number of chunk vectors in each sequence.
        sequence: index of the sequence in the batch.
        replaced: ``[R]`` positions of the replaced vectors among the sequence's chunk vectors.
        key: as for `draw_vector_mask`.

    Returns:
        ``[R]`` positions among the batch's chunk vectors, counted row by row.
    """
    rng = np.random.default_rng([*key, 1])
    start = int(counts[:sequence].sum())
    size = int(counts[sequence])
    total = int(counts.sum())
    if total > size:
        drawn = rng.integers(0, total - size, len(replaced))
        return np.where(drawn < start, drawn, drawn + size)
    if total == 1:
        return np.zeros(len(replaced), np.int64)
    drawn = rng.integers(0, max(total - 1, 1), len(replaced))
    return np.where(drawn >= replaced, drawn + 1, drawn)


def pad_sequences(sequences: Sequence[VectorSequence]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads sequences to the longest one.

    Args:
        sequences: of a batch.

    Returns:
        Vectors ``[B, L, D]`` with zeros, and special ids ``[B, L]`` with [PAD], after the shorter
        sequences.
    """
    vectors = pad_sequence([sequence.inputs_embeds for sequence in sequences], batch_first=True)
    special_ids = pad_sequence(
        [sequence.special_ids for sequence in sequences], batch_first=True, padding_value=PAD
    )
    return vectors, special_ids


@dataclass
class DataCollatorForVectorMasking:
    """Pads sequences and masks 15 % of their chunk vectors, 80/10/10.

    Paper, section 2.2 "Masking". The masks depend on each sequence's own key (seed, epoch, index)
    alone, so a resumed run sees what a straight one saw.

    Args:
        probability: share of the chunk vectors to predict.
        mask_share: share of those that become [MASK].
        random_share: share of those that become another vector.
        span_lengths: fewest and most chunk vectors that are masked together.

    Returns (on call):
        ``inputs_embeds [B, L, D]`` with replacements put in, ``special_ids [B, L]`` with [MASK]s
        put in, ``labels [B, L, D]`` the vectors as they were, ``mask_positions [B, L]`` bool, where
        to predict.

    Raises:
        ValueError: for shares or lengths out of range.
    """

    probability: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    span_lengths: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(
                f"The masking probability must be above 0 and at most 1, got {self.probability}."
            )
        shares = (self.mask_share, self.random_share)
        are_shares = min(shares) >= 0 and sum(shares) <= 1  # false for NaN, too
        if not are_shares:
            raise ValueError(
                f"mask_share and random_share are from 0 to 1 and at most 1 in total, got {shares}."
            )
        shortest, longest = self.span_lengths
        if not 1 <= shortest <= longest:
            raise ValueError(
                f"span_lengths must be 1 <= fewest <= most positions, got {self.span_lengths}."
            )

    def __call__(self, sequences: Sequence[VectorSequence]) -> dict[str, torch.Tensor]:
        labels, special_ids = pad_sequences(sequences)
        maskable = (special_ids == NOT_SPECIAL).numpy()  # [B, L]
        counts = maskable.sum(axis=1)
        real_rows, real_columns = np.nonzero(maskable)
        inputs_embeds = labels.clone()
        mask_positions = torch.zeros(special_ids.shape, dtype=torch.bool)
        for row, sequence in enumerate(sequences):
            key = sequence.mask_key
            selected, masked, replaced = draw_vector_mask(
                maskable[row],
                key,
                probability=self.probability,
                mask_share=self.mask_share,
                random_share=self.random_share,
                span_lengths=self.span_lengths,
            )
            mask_positions[row] = torch.from_numpy(selected)
            special_ids[row, torch.from_numpy(masked)] = MASK
            places = np.flatnonzero(replaced[maskable[row]])
            drawn = draw_replacements(counts, row, replaced=places, key=key)
            others = labels[real_rows[drawn], real_columns[drawn]]
            inputs_embeds[row, torch.from_numpy(replaced)] = others
        return {
            "inputs_embeds": inputs_embeds,
            "special_ids": special_ids,
            "labels": labels,
            "mask_positions": mask_positions,
        }


# --- Pairs of segments, for contrastive learning


class SegmentPair(NamedTuple):
    """Two segments of a document.

    Args:
        first: ``[W, D]`` vectors of a segment.
        second: ``[W, D]`` vectors of the other one.
        document: position of the document in the corpus.
        key: seed, epoch and index of the pair.
    """

    first: torch.Tensor
    second: torch.Tensor
    document: int
    key: tuple[int, ...]


class SegmentPairDataset(EpochDataset):
    """Draws pairs of segments of a document that do not overlap, new ones in every epoch.

    An epoch has a pair for every ``2 * max_segment`` chunks of a document, at least one, so that
    about every chunk is seen once.

    Args:
        corpus: holds the vectors.
        min_segment: fewest chunks in a segment. Documents shorter than two of the shortest segments
            are left out, with a warning.
        max_segment: most chunks in a segment; the collator draws one length for each batch.
        documents: positions in the corpus of the documents to use (default: all).
        seed: of the pairs.

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
        lengths = corpus.document_offsets[positions + 1] - corpus.document_offsets[positions]
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

    def _row(self, index: int, key: tuple[int, ...]) -> SegmentPair:
        place = int(np.searchsorted(self._first_pairs, index, side="right")) - 1
        document = int(self._documents[place])
        length = int(self._lengths[place])
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


@dataclass
class DataCollatorForSegmentPairs:
    """Truncates the segments of a batch to one length.

    The length is drawn log-uniformly, so that short segments are as frequent as long ones.

    Args:
        min_segment: fewest chunks in a segment.
        max_segment: most chunks in a segment.

    Returns (on call), for N pairs:
        ``inputs_embeds [N, 2, L, D]``, ``special_ids [N, 2, L]``, ``document_ids [N]``.
    """

    min_segment: int = 4
    max_segment: int = 48

    def __call__(self, pairs: Sequence[SegmentPair]) -> dict[str, torch.Tensor]:
        rng = np.random.default_rng((*pairs[0].key, 1))
        drawn = rng.uniform(math.log(self.min_segment), math.log(self.max_segment + 1))
        length = min(int(math.exp(drawn)), self.max_segment)
        sequences = []
        for pair in pairs:
            for segment in (pair.first, pair.second):
                vectors = F.pad(segment[:length], (0, 0, 1, 1))  # room for [CLS] and [SEP]
                special_ids = torch.full((len(vectors),), NOT_SPECIAL)
                special_ids[0] = CLS
                special_ids[-1] = SEP
                sequences.append(VectorSequence(vectors, special_ids, pair.key))
        vectors, special_ids = pad_sequences(sequences)
        return {
            "inputs_embeds": vectors.unflatten(0, (-1, 2)),
            "special_ids": special_ids.unflatten(0, (-1, 2)),
            "document_ids": torch.tensor([pair.document for pair in pairs]),
        }


# --- Scores


REGRESSION_LOSSES = ("smooth_l1", "l1", "l2")


@dataclass
class MaskedVectorMetrics:
    """Computes what masked vector modelling has learned, for the evaluations of a `Trainer`.

    A regression loss also falls if the predictions only shrink towards the mean. These metrics
    show whether the model has learned more than that:

    - ``masked_accuracy``: share of the masked vectors that are found, which means that the
      prediction is nearer to its target (by cosine) than to all other targets of the batch.
    - ``chance_accuracy``: what guessing would find, 1 / number of targets in the batch.
    - ``r2``, for regression losses: 1 - squared error / squared error of the constant mean of all
      targets. Smooth L1 is half the squared error where no coordinate is off by more than 1, as
      between chunk vectors of length 1. 0 is no better than the mean.
    - ``masked_cosine``: cosine of prediction and target. It can be high although nothing was
      learned, if all vectors are similar.

    A `Trainer` needs both functions, because it would otherwise gather all predicted vectors: give
    it ``preprocess_logits_for_metrics=metrics.score_batch`` and ``compute_metrics=metrics``, and
    its arguments ``label_names=["mask_positions"]``. README shows a whole training.

    Args:
        loss: the `loss` of the model's configuration; decides whether ``r2`` is reported.
    """

    loss: str = "smooth_l1"

    def score_batch(
        self, outputs: tuple[torch.Tensor, ...], mask_positions: torch.Tensor
    ) -> torch.Tensor:
        """Scores a batch, as `preprocess_logits_for_metrics`.

        Args:
            outputs: predictions and targets ``[M, D]``, as the model returns them.
            mask_positions: ``[B, L]`` bool, from ``TrainingArguments(label_names=[…])``.

        Returns:
            The sums of `masked_vector_scores`, a row for each sequence.

        Raises:
            ValueError: if the labels are not mask positions.
        """
        if mask_positions.dtype != torch.bool:
            raise ValueError(
                f"Expected mask_positions [B, L] as labels, got {list(mask_positions.shape)} of"
                f" {mask_positions.dtype}. Set TrainingArguments(label_names=['mask_positions'])."
            )
        predictions, targets = outputs[:2]
        return masked_vector_scores(predictions, targets, mask_positions)

    def __call__(self, evaluation: EvalPrediction) -> dict[str, float]:
        """Computes the metrics of an evaluation, as `compute_metrics`.

        Args:
            evaluation: its predictions are the rows that `score_batch` returned.

        Returns:
            The metrics by name; zeros if nothing was masked.

        Raises:
            ValueError: if the predictions did not go through `score_batch`.
        """
        if isinstance(evaluation.predictions, tuple):
            raise ValueError(
                "Got predicted vectors, of which a Trainer keeps only a part. Also set"
                " Trainer(preprocess_logits_for_metrics=metrics.score_batch)."
            )
        return self.summarize(torch.as_tensor(evaluation.predictions))

    def summarize(self, scores: torch.Tensor) -> dict[str, float]:
        """Computes the metrics from the rows of `masked_vector_scores`.

        Args:
            scores: ``[N, 6 + D]``, a row for each sequence.

        Returns:
            The metrics by name; zeros if nothing was masked.
        """
        totals = scores.double().sum(dim=0)
        selected, cosine, found, chance, error, squares = totals[:6].tolist()
        count = max(selected, 1.0)
        metrics = {"masked_accuracy": found / count, "chance_accuracy": chance / count}
        if self.loss in REGRESSION_LOSSES:
            variation = squares - float(totals[6:].square().sum()) / count
            metrics["r2"] = 0.0
            if variation > 1e-6 * squares:
                metrics["r2"] = 1.0 - error / variation
        metrics["masked_cosine"] = cosine / count
        return metrics


def masked_vector_scores(
    predictions: torch.Tensor, targets: torch.Tensor, mask_positions: torch.Tensor
) -> torch.Tensor:
    """Sums scores over the masked vectors of each sequence, so that evaluation keeps one row each.

    A target is found if no other of the batch's M targets has as high a cosine to the prediction;
    among k that tie for the highest it counts 1 / k, so that a constant prediction scores as chance
    does.

    Args:
        predictions: ``[M, D]``, in the row-by-row order of `mask_positions`.
        targets: ``[M, D]``, in the same order.
        mask_positions: ``[B, L]`` bool.

    Returns:
        ``[B, 6 + D]`` float32: number of selected positions; sums over them of the cosine, of
        finding the target (0 to 1), of the chance to find it (1 / M), of the squared error, of the
        target's squared length, and of the target itself.
    """
    predictions = predictions.float()
    targets = targets.float()
    sequence = mask_positions.nonzero()[:, 0]
    scores = F.normalize(predictions, dim=-1) @ F.normalize(targets, dim=-1).T  # [M, M]
    cosine = scores.diagonal()
    better = (scores > cosine[:, None]).sum(dim=1)
    # The target itself counts, too; chunks that repeat are told apart by luck.
    tied = (scores == cosine[:, None]).sum(dim=1).clamp(min=1)
    found = torch.where(better == 0, 1.0 / tied, 0.0)
    chance = torch.full_like(cosine, 1 / max(len(cosine), 1))
    error = (predictions - targets).square().sum(dim=-1)
    squares = targets.square().sum(dim=-1)

    columns = [torch.ones_like(cosine), cosine, found, chance, error, squares]
    table = torch.cat([torch.stack(columns, dim=1), targets], dim=1)  # [M, 6 + D]
    sums = table.new_zeros(len(mask_positions), table.shape[1])
    return sums.index_add(0, sequence, table)


def context_mean_baseline(
    dataset: Dataset,
    collate: Callable[[list[VectorSequence]], dict[str, torch.Tensor]],
    batch_size: int,
    prepare: Callable[[torch.Tensor], torch.Tensor],
    metrics: MaskedVectorMetrics,
) -> dict[str, float]:
    """Scores the mean of a sequence's unmasked vectors as the prediction of its masked ones.

    A model that uses the order of the vectors must beat it.

    Args:
        dataset: sequences, as for the evaluation of a model.
        collate: draws their masks.
        batch_size: sequences in a batch, whose masked vectors are the candidates.
        prepare: the model's whitening.
        metrics: computes the scores.

    Returns:
        The metrics by name.
    """
    tables = []
    for batch in DataLoader(dataset, batch_size, collate_fn=collate):
        mask_positions = batch["mask_positions"]  # [B, L]
        visible = (batch["special_ids"] == NOT_SPECIAL) & ~mask_positions  # [B, L]
        labels = prepare(batch["labels"].float())
        count = visible.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (labels * visible.unsqueeze(-1)).sum(dim=1) / count  # [B, D]
        predictions = mean[mask_positions.nonzero()[:, 0]]
        tables.append(masked_vector_scores(predictions, labels[mask_positions], mask_positions))
    return metrics.summarize(torch.cat(tables))


def pairs_found(scores: torch.Tensor, document_ids: torch.Tensor) -> torch.Tensor:
    """Computes how many segments of each pair find their partner, and the chance to.

    Args:
        scores: ``[N, N]`` of first against second segments, -inf where two are not compared.
        document_ids: ``[N]``; a `Trainer` passes the labels, which are not needed.

    Returns:
        ``[N, 2]``: shares of the two segments that find their partner, and chances.
    """
    right = torch.arange(len(scores), device=scores.device)
    partners = (scores.argmax(dim=1) == right).float() + (scores.argmax(dim=0) == right).float()
    compared = scores > -torch.inf
    chance = 1 / compared.sum(dim=1) + 1 / compared.sum(dim=0)
    return torch.stack([partners, chance], dim=1) / 2
