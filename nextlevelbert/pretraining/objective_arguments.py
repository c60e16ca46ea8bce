"""The options that say what is learned on chunk vectors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Literal

from ..models.modeling_nextlevelbert import NextLevelBertForMaskedVectorModeling
from .passages import Passages
from .segment_pairs import DataCollatorForSegmentPairs, Positives, SegmentPairs
from .sequences import DataCollatorForVectorMasking, MaskedVectors, VectorSequenceDataset

logger = logging.getLogger(__name__)


@dataclass
class MaskingArguments:
    """What is learned: to predict masked chunk vectors."""

    _argument_group_name = "objective"

    sequence_length: int = field(default=512, metadata={"help": "Positions in a training sequence; default 512."})
    masking_probability: float = field(
        default=0.15, metadata={"help": "Share of the chunk vectors to predict; default 0.15."}
    )
    mask_share: float = field(default=0.8, metadata={"help": "Share of those that become [MASK]; default 0.8."})
    random_share: float = field(
        default=0.1, metadata={"help": "Share of those that become another vector; default 0.1."}
    )

    @property
    def contrastive(self) -> bool:
        """Whether pairs of segments are compared, or passages found."""
        return False

    @property
    def own_defaults(self) -> dict[str, Any]:
        """Fields of a new model's configuration that the objective sets where no option does."""
        return {}

    def objective_over(self, sequences: type[VectorSequenceDataset]) -> MaskedVectors | SegmentPairs | Passages:
        """The data, batches and scores of the objective.

        Raises:
            ValueError: for shares or lengths that do not fit each other.
        """
        return MaskedVectors(self.masking(), sequences, self.sequence_length)

    def masking(self) -> DataCollatorForVectorMasking:
        return DataCollatorForVectorMasking(self.masking_probability, self.mask_share, self.random_share)


@dataclass
class ObjectiveArguments(MaskingArguments):
    """What a NextLevelBERT learns."""

    _argument_group_name = "objective"

    objective: Literal["masked", "contrastive", "both", "passages"] = field(
        default="masked",
        metadata={"help": "masked (default): predict masked chunk vectors. contrastive: tell two segments of one "
                          "document from segments of others. both: the sum of the two, on segments with masks. "
                          "passages: a sentence finds the chunk that it was taken from."},
    )  # fmt: skip
    positives: Positives = field(
        default="document",
        metadata={"help": "Where the two segments of a contrastive pair lie: anywhere in the document (default), or "
                          "next to each other, with more distant segments as negatives (neighbours)."},
    )  # fmt: skip
    pairs_per_document: int = field(
        default=1, metadata={"help": "Pairs from each document of a batch; more than one gives negatives of the same "
                                     "document. Default 1."}
    )  # fmt: skip
    min_segment: int = field(default=4, metadata={"help": "Fewest chunks in a segment; default 4."})
    max_segment: int = field(
        default=48, metadata={"help": "Most chunks in a segment; each batch draws a log-uniform length. Default 48."}
    )

    @property
    def contrastive(self) -> bool:
        return self.objective != "masked"

    @property
    def own_defaults(self) -> dict[str, Any]:
        # The vector of a question, one chunk, is then that chunk's contextual vector.
        return {"neighbours": 2, "pooling": "mean"} if self.objective == "passages" else {}

    def objective_over(self, sequences: type[VectorSequenceDataset]) -> MaskedVectors | SegmentPairs | Passages:
        if self.objective == "passages":
            return Passages(self.min_segment, self.max_segment)
        masking = self.masking()
        if not self.contrastive:
            return MaskedVectors(masking, sequences, self.sequence_length)
        used = masking if self.objective == "both" else None
        collator = DataCollatorForSegmentPairs(self.min_segment, self.max_segment, self.positives, used)
        return SegmentPairs(collator, self.pairs_per_document)


def warn_of_untrained_pooling(model: Any) -> None:
    """Says that masked vectors teach residual pooling nothing: their loss reads no document vector."""
    pooling = getattr(model.base_model, "residual_pooling", None)
    if pooling is None or not isinstance(model, NextLevelBertForMaskedVectorModeling):
        return
    stays = "keeps its two projections" if pooling.contextual.weight.any() else "stays the mean of the chunk vectors"
    logger.warning(
        "--objective masked trains no weight of pooling 'residual', so the document vector %s. Give --objective both "
        "or contrastive to train it, or --pooling mean for the mean of the contextual vectors.", stays,
    )  # fmt: skip
