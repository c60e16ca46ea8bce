"""Document ranking: queries and documents as vectors of one model, learned from pairs.

The loss is sentence-transformers' own; chunk vectors are encoded once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

from ...corpus import pad_vectors
from ...evaluation.retrieval import Ranking, rank_documents, retrieval_scores
from ...finetuning.vector_models import encode_in_parts
from ...models.pooling import ChunkWhitening
from ...training.trainer import CardTrainer
from .data import RankingData

logger = logging.getLogger(__name__)

# Documents of one pass when a collection is ranked.
_DOCUMENTS_PER_PASS = 32


@dataclass(frozen=True)
class RankingVectors:
    """A ranking task with the chunk vectors ``[n, D]`` of its queries and documents, in the order of their ids."""

    data: RankingData
    queries: list[torch.Tensor]
    documents: list[torch.Tensor]


def encode_ranking(model: Any, sets: Mapping[str, RankingData], **encode: Any) -> dict[str, RankingVectors]:
    """Sends every distinct query and document of all sets through the frozen encoder once, and keeps float16.

    They stay in memory: 2 D bytes a chunk, so 46 GB for the 1 million documents of 60 sentences at D = 384.

    Args:
        model: a `NextLevelBertModel` or `HateModel`, or an encoder of another kind.
        sets: the tasks, by name.
        encode: further arguments of `model.encode` (`dtype`, `cache_dir`).

    Raises:
        ValueError: for texts without a token (ids named).
    """
    texts = [
        text for data in sets.values() for part in (data.task.queries, data.task.documents) for text in part.values()
    ]
    distinct = list(dict.fromkeys(texts))
    books = encode_in_parts(model, distinct, "encoding queries and documents", **encode)
    vectors = {text: book.plain.half() for text, book in zip(distinct, books, strict=True)}
    for data in sets.values():
        for kind, part in (("queries", data.task.queries), ("documents", data.task.documents)):
            if empty := [name for name, text in part.items() if len(vectors[text]) == 0]:
                raise ValueError(f"{data.task.name}: {kind} {empty[:5]} contain no token; leave them out.")
    return {
        name: RankingVectors(
            data,
            [vectors[text] for text in data.task.queries.values()],
            [vectors[text] for text in data.task.documents.values()],
        )
        for name, data in sets.items()
    }


def first_chunks(vectors: RankingVectors) -> RankingVectors:
    """The same with the first vector of every text alone."""
    return RankingVectors(
        vectors.data, *([rows[:1] for rows in part] for part in (vectors.queries, vectors.documents))
    )


@torch.no_grad()
def pooled_vectors(model: Any, documents: Sequence[torch.Tensor]) -> torch.Tensor:
    """Document vectors ``[N, H]`` of stored chunk vectors, in evaluation mode."""
    training = model.training
    model.eval()
    passes = range(0, len(documents), _DOCUMENTS_PER_PASS)
    rows = [model.contextualize(list(documents[at : at + _DOCUMENTS_PER_PASS]))[1].float().cpu() for at in passes]
    model.train(training)
    return torch.cat(rows)


def mean_vectors(documents: Sequence[torch.Tensor]) -> torch.Tensor:
    """The means ``[N, D]`` of chunk vectors: what a model has to beat."""
    return torch.stack([rows.float().mean(dim=0) for rows in documents])


def rank(vectors: RankingVectors, model: Any = None, whitening: ChunkWhitening | None = None) -> dict[str, Ranking]:
    """Ranks of the relevant documents by a model, or, where it is None, by the mean of the chunk vectors."""
    parts = [vectors.queries, vectors.documents]
    if whitening is not None:
        parts = [[whitening(rows.float()) for rows in part] for part in parts]
    queries, documents = (mean_vectors(rows) if model is None else pooled_vectors(model, rows) for rows in parts)
    return rank_documents(vectors.data.task, queries, documents, candidates=vectors.data.candidates)


class QueryDocumentPairs(Dataset):
    """A query and a relevant document each; every pair of a task with a grade of 1 or more.

    Attributes:
        epoch: decides which pairs meet in a batch; the trainer sets it when an epoch begins.
    """

    def __init__(self, vectors: RankingVectors) -> None:
        task, self.epoch = vectors.data.task, 0
        self.pairs = [(query, document) for query, grades in task.relevant.items() for document in grades]
        paired = {document for _, document in self.pairs}
        self.queries = dict(zip(task.queries, vectors.queries, strict=True))
        documents = zip(task.documents, vectors.documents, strict=True)
        self.documents = {name: rows for name, rows in documents if name in paired}

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        query, document = self.pairs[index]
        return {"query": self.queries[query].float(), "document": self.documents[document].float()}

    @staticmethod
    def collate(rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
        """``query`` and ``document``, each ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
        return {name: pad_vectors([row[name] for row in rows]) for name in ("query", "document")}


class DistinctBatchSampler(Sampler):
    """Batches in which no query and no document stands twice: each would be a negative of itself.

    All pairs come once an epoch, in the fewest batches that the most frequent document allows, of sizes that differ by
    one at most; every process gets as many. Where queries have several documents, sizes may differ more, and a warning
    counts the pairs that fit in no batch. (sentence-transformers' own sampler yields more batches than its length
    says, of which `Trainer` leaves out the last, and not the same number on every process.)

    Args:
        dataset: the pairs.
        batch_size: most pairs in a batch of one process.
        seed: of the order.
        process_index, num_processes: which batches are this process's.

    Raises:
        ValueError: for fewer pairs than batches, so that a process would have nothing to do.
    """

    def __init__(
        self, dataset: QueryDocumentPairs, batch_size: int, seed: int, process_index: int = 0, num_processes: int = 1
    ) -> None:
        self.dataset, self.batch_size, self.seed = dataset, batch_size, seed
        self.process_index, self.num_processes = process_index, num_processes
        most = max(max(Counter(names).values()) for names in zip(*dataset.pairs, strict=True))
        batches = max(-(-len(dataset) // batch_size), most)
        self.batches = -(-batches // num_processes) * num_processes
        if len(dataset) < self.batches:
            raise ValueError(
                f"{len(dataset)} pairs are too few for {self.batches} batches, one or more for each of "
                f"{num_processes} processes; train on fewer processes."
            )
        if (wide := -(-len(dataset) // self.batches)) < batch_size:
            logger.warning(
                "%d pairs make %d batches of at most %d, not %d: one document or query is in %d of them, and none "
                "may be twice in a batch.", len(dataset), self.batches, wide, batch_size, most,
            )  # fmt: skip

    def __len__(self) -> int:
        return self.batches // self.num_processes

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.dataset.epoch])
        place = {name: number for number, name in enumerate(rng.permutation(sorted(self.dataset.documents)).tolist())}
        shuffled = rng.permutation(len(self.dataset)).tolist()
        # A document's pairs stand together, so dealt out in turn they fall into different batches.
        dealt = sorted(shuffled, key=lambda index: place[self.dataset.pairs[index][1]])
        batches: list[list[int]] = [[] for _ in range(self.batches)]
        inside: list[set[tuple[str, str]]] = [set() for _ in batches]
        left = 0
        for turn, index in enumerate(dealt):
            query, document = self.dataset.pairs[index]
            names = {("query", query), ("document", document)}
            turns = ((turn + shift) % self.batches for shift in range(self.batches))
            free = (n for n in turns if not names & inside[n] and len(batches[n]) < self.batch_size)
            if (number := next(free, None)) is None:
                left += 1  # a query with several documents, and no batch without it and them
                continue
            batches[number].append(index)
            inside[number] |= names
        if left:
            logger.warning(
                "%d pairs are left out of this epoch: any batch would have a query or document twice.", left
            )
        order = rng.permutation(self.batches).tolist()
        yield from (batches[number] for number in order[self.process_index :: self.num_processes])


class _Embedder(nn.Module):
    """A document model as sentence-transformers' losses want one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": self.model(**features).pooler_output}


class RankingTrainer(CardTrainer):
    """Trains by in-batch negatives; evaluates by ranking.

    Args:
        train_dataset: the pairs.
        eval_dataset: `RankingVectors`.
        k: where MRR and recall cut the ranking.
    """

    def __init__(self, *args: Any, train_dataset: QueryDocumentPairs, k: int = 10, **kwargs: Any) -> None:
        collate = QueryDocumentPairs.collate
        super().__init__(*args, train_dataset=train_dataset, data_collator=collate, **kwargs)
        self._pairs, self._k = train_dataset, k

    def get_train_dataloader(self) -> DataLoader:
        """Every process's own batches, see `DistinctBatchSampler`."""
        args, size = self.args, self._train_batch_size or self.args.train_batch_size
        sampler = DistinctBatchSampler(self._pairs, size, args.seed, args.process_index, args.world_size)
        return DataLoader(self._pairs, batch_sampler=sampler, collate_fn=self._pairs.collate)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Cross-entropy of finding the own document among those of the process's batch, by 20 times the cosine."""
        embedder: Any = _Embedder(model)
        value = MultipleNegativesRankingLoss(embedder)([inputs["query"], inputs["document"]], None)
        return (value, {}) if return_outputs else value

    def evaluate(self, eval_dataset: Any = None, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict:
        """Scores of a whole ranking (see `retrieval_scores`), and calls what waits for an evaluation."""
        ranks = rank(eval_dataset or self.eval_dataset, self.accelerator.unwrap_model(self.model))
        scores = {f"{metric_key_prefix}_{name}": value for name, value in retrieval_scores(ranks, self._k).items()}
        self.log(scores)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores
