"""Learning to find passages: a sentence is taken out of its chunk and looks for it among the chunks of its document.

What is left of the chunk, and what stands around it, has to tell where the sentence belongs. A mean of the document
cannot answer that: all wrong answers come from the same document. It is the inverse cloze task (Lee et al., ACL 2019,
section 4) over chunk vectors that see their neighbours.

A static chunk encoder costs next to nothing, so nothing is stored: chunk borders, hidden sentences and dropped tokens
are new in every epoch, which keeps a model from learning books by heart.

Notation for shapes: N segments, L chunks of the longest, C tokens in a chunk, W tokens of a segment, M questions, Q
tokens of the longest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import EvalPrediction

from ..corpus.token_corpus import TokenCorpus
from ..encoders import LoadedChunkEncoder
from ..models.chunking import sentence_boundaries, sentence_token_ids
from ..models.modeling_nextlevelbert import SegmentPairOutput
from .sequences import chosen_documents
from .trained_tokens import NO_TOKEN, TokenTable

logger = logging.getLogger(__name__)

SHORTEST_SENTENCE = 6  # tokens; "Yes, sir." belongs anywhere


class PassageItem(TypedDict):
    """Token ids ``[W]`` of a segment, the number of its document, and a key for what is drawn from it."""

    input_ids: np.ndarray
    document: int
    key: tuple[int, ...]


class PassageDataset(Dataset):
    """Segments of documents as token ids, from other places in every epoch.

    An epoch has an item for every `most` chunks of a document, at least one. Where it lies depends on (seed, epoch,
    index) alone: a resumed run sees what an uninterrupted one saw.

    Args:
        corpus: the tokens.
        capacity: tokens in a chunk.
        fewest, most: chunks in a segment. Documents with fewer are left out, with a warning.
        documents: positions of the documents to use, all by default.
        seed: of the places drawn.

    Attributes:
        epoch: set it at the start of an epoch (`SetEpochCallback` does) to draw new places.

    Raises:
        ValueError: for numbers that do not fit each other, or a corpus in which every document is too short.
    """

    def __init__(
        self,
        corpus: TokenCorpus,
        capacity: int,
        fewest: int = 4,
        most: int = 128,
        documents: Sequence[int] | np.ndarray | None = None,
        seed: int = 42,
    ) -> None:
        if not 2 <= fewest <= most:
            raise ValueError(f"Give 2 <= min_segment <= max_segment, got {fewest} and {most}.")
        self.corpus, self.seed, self.epoch = corpus, seed, 0
        self._longest = most * capacity
        chosen = chosen_documents(corpus, documents)  # type: ignore[arg-type]  # both kinds of corpus have documents
        lengths = corpus.document_offsets[chosen + 1] - corpus.document_offsets[chosen]
        enough = lengths >= fewest * capacity
        self._documents, self._lengths = chosen[enough], lengths[enough]
        if short := int((~enough).sum()):
            logger.warning("%d of %d documents have fewer than %d chunks, the shortest segment, and are left out.",
                           short, len(chosen), fewest)  # fmt: skip
        if not len(self._documents):
            raise ValueError(
                f"{corpus!r}: none of the {len(chosen)} chosen documents has {fewest} chunks of {capacity} tokens. "
                "Use a smaller --min_segment or --chunk_size, or longer documents."
            )
        self._first_items = np.append(0, np.cumsum(np.maximum(self._lengths // self._longest, 1)))

    def __len__(self) -> int:
        return int(self._first_items[-1])

    def __getitem__(self, index: int) -> PassageItem:
        if not 0 <= index < len(self):
            raise IndexError(f"Item {index} is not among the {len(self)} of this dataset.")
        place = int(np.searchsorted(self._first_items, index, side="right")) - 1
        document, length = int(self._documents[place]), int(self._lengths[place])
        key = (self.seed, self.epoch, index)
        width = min(self._longest, length)
        start = int(np.random.default_rng(key).integers(length - width + 1))
        ids = self.corpus[document][start : start + width].numpy()
        return {"input_ids": ids, "document": document, "key": key}


@dataclass
class DataCollatorForPassages:
    """Cuts segments into chunks of `capacity` tokens and takes one whole sentence out of every chunk that has one.

    A sentence has `SHORTEST_SENTENCE` tokens or more, and at most half a chunk.

    Args:
        capacity: tokens in a chunk.
        sentence_ids: the result of `sentence_token_ids`.

    Returns (on call):
        ``passage_ids [N, L, C]`` and ``question_ids [M, Q]``, -1 where there is no token; ``question_chunks [M]``, the
        chunk of each question in ``passage_ids.flatten(0, 1)``; and ``document_ids [N]``.
    """

    capacity: int
    sentence_ids: dict[str, list[int]]

    def __call__(self, items: Sequence[PassageItem]) -> dict[str, torch.Tensor]:
        length = max(-(-len(item["input_ids"]) // self.capacity) for item in items)
        passages = np.full((len(items), length * self.capacity), NO_TOKEN, np.int64)  # [N, L * C]
        questions, places = [], []
        for row, item in enumerate(items):
            ids = item["input_ids"]
            passages[row, : len(ids)] = ids
            for start, end in self.sentences(ids, np.random.default_rng((*item["key"], 1))):
                passages[row, start:end] = NO_TOKEN
                questions.append(torch.from_numpy(ids[start:end].astype(np.int64)))
                places.append(row * length + start // self.capacity)
        padded = torch.full((len(questions), max(map(len, questions), default=1)), NO_TOKEN)  # [M, Q]
        for row, question in enumerate(questions):
            padded[row, : len(question)] = question
        return {
            "passage_ids": torch.from_numpy(passages).unflatten(1, (length, self.capacity)),
            "question_ids": padded,
            "question_chunks": torch.tensor(places, dtype=torch.long),
            "document_ids": torch.tensor([item["document"] for item in items]),
        }

    def sentences(self, ids: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """First token and end of one sentence in each chunk that has one, ``[m, 2]``, by chunk."""
        borders = sentence_boundaries(ids, self.sentence_ids)[1:-1]  # without what the segment's ends may have cut
        spans = np.stack([borders[:-1], borders[1:]], axis=1)  # [sentences, 2]
        widths = spans[:, 1] - spans[:, 0]
        whole = spans[:, 0] // self.capacity == (spans[:, 1] - 1) // self.capacity
        spans = spans[whole & (widths >= SHORTEST_SENTENCE) & (widths <= self.capacity // 2)]
        spans = draw.permutation(spans)
        return spans[np.unique(spans[:, 0] // self.capacity, return_index=True)[1]]


class PassageLearner(TokenTable):
    """A model with `config.neighbours` and the table of its chunk encoder, over token ids.

    Args:
        model: without its chunk encoder.
        source: the static chunk encoder.
        token_dropout: share of the tokens that is left out of its chunk or its question in training.
        train_table: whether the table is trained, too.
    """

    def __init__(
        self, model: Any, source: LoadedChunkEncoder, token_dropout: float, train_table: bool = False
    ) -> None:
        super().__init__(model, source, token_dropout)
        self.table.requires_grad_(train_table)

    def forward(
        self,
        passage_ids: torch.Tensor,
        question_ids: torch.Tensor,
        question_chunks: torch.Tensor,
        document_ids: torch.Tensor,
    ) -> SegmentPairOutput:
        """One step over M questions, as `DataCollatorForPassages` makes them; see `compare`."""
        real = (passage_ids != NO_TOKEN).any(dim=-1)  # [N, L]
        vectors = self.chunk_vectors(passage_ids.flatten(0, 1)).unflatten(0, real.shape)  # [N, L, D]
        return self.compare(vectors, real, self.chunk_vectors(question_ids), question_chunks, document_ids)

    def compare(
        self,
        passages: torch.Tensor,
        real: torch.Tensor,
        questions: torch.Tensor,
        question_chunks: torch.Tensor,
        document_ids: torch.Tensor,
    ) -> SegmentPairOutput:
        """Compares questions with the chunks of their document, by cosine.

        Args:
            passages: ``[N, L, D]`` chunk vectors, of which some are `real` ``[N, L]``.
            questions: ``[M, D]`` chunk vectors.
            question_chunks, document_ids: as in a batch.

        Returns:
            The loss: cross-entropy of finding a question's chunk among all of its document; zero without a question.
            `scores` are ``[N, 2]``: for each segment, how many of its questions find it, and the chance to.
        """
        segments, length = real.shape
        chunks = self.contextual(passages, real).flatten(0, 1)  # [N * L, D]
        asked = self.contextual(questions.unsqueeze(1), real.new_ones(len(questions), 1)).squeeze(1)  # [M, D]
        owners = question_chunks // length  # [M]
        allowed = (document_ids[owners][:, None] == document_ids).repeat_interleave(length, 1) & real.flatten()
        with torch.autocast(chunks.device.type, enabled=False):
            scores = asked.float() @ chunks.float().T * self.model.logit_scale.exp()  # [M, N * L]
            scores = scores.masked_fill(~allowed, -torch.inf)
            loss = F.cross_entropy(scores, question_chunks, reduction="sum") / max(len(asked), 1)
        right = scores.argmax(dim=1) == question_chunks
        found = torch.stack([right.float(), 1 / allowed.sum(dim=1)], dim=1)  # [M, 2]
        sums = found.new_zeros(segments, 2).index_add(0, owners, found)
        return SegmentPairOutput(
            loss=loss, scores=sums / owners.bincount(minlength=segments).clamp(min=1).unsqueeze(1)
        )

    def contextual(self, vectors: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Contextual vectors of chunk vectors ``[N, L, D]``: of length 1, or zero where there is no `real` chunk."""
        base = self.model.base_model
        return base.neighbours(base.prepare_chunks(vectors), real)

    def finish(self, name: str) -> Any:
        """The model, holding the chunk encoder; a new one, if it was trained."""
        if self.table.requires_grad:
            return super().finish(name)
        self.model.base_model.attach_chunk_encoder(self.source)
        return self.model


class Passages:
    """The objective of finding passages, as `vectors.run` uses it.

    Args:
        fewest, most: chunks in a segment.
    """

    held_out_at_least = 1
    label_names = ("document_ids",)
    collator: DataCollatorForPassages

    def __init__(self, fewest: int, most: int) -> None:
        self._fewest, self._most = fewest, most

    def over(self, source: LoadedChunkEncoder, capacity: int, described: str) -> Passages:
        """The same, for chunks of `capacity` tokens of this encoder's tokenizer; a card says how it is `described`."""
        self.collator = DataCollatorForPassages(capacity, sentence_token_ids(source.tokenizer))
        self._described = described
        return self

    def check(self, window: int, positions: int) -> None:
        """Raises a ValueError for segments of more chunks than the `window` that the model reads at once."""
        if self._most > window:
            raise ValueError(
                f"--max_segment {self._most} is above the {window} chunks that the model reads at once; give at most "
                f"{window}."
            )

    def dataset(self, corpus: Any, documents: np.ndarray | None, seed: int) -> PassageDataset:
        return PassageDataset(corpus, self.collator.capacity, self._fewest, self._most, documents, seed)

    def baseline(self, *arguments: object) -> None:
        """There is none."""

    @staticmethod
    def scores_of_batch(scores: torch.Tensor, document_ids: torch.Tensor) -> torch.Tensor:
        return scores

    @staticmethod
    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        """How many sentences of the whole evaluation set find their chunk."""
        accuracy, chance = torch.as_tensor(prediction.predictions).mean(dim=0).tolist()
        return {"passage_accuracy": accuracy, "chance_accuracy": chance}

    def facts(self, loss: str, items: int) -> dict[str, object]:
        """What a card says of the objective: `items` in an epoch."""
        return {
            "objective": "passages: a removed sentence finds its chunk among those of its document",
            "segments": f"{items} an epoch, of at most {self._most} chunks",
            "token vectors": self._described,
        }
