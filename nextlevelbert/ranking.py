"""Document ranking: queries and documents as vectors of one model, learned from pairs.

The loss and the batches without duplicates are sentence-transformers' own; chunk vectors are encoded once.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import EarlyStoppingCallback, set_seed

from .card_trainer import CardTrainer, last_whole_checkpoint
from .evaluation.retrieval import Ranks, rank_documents, retrieval_scores
from .finetuning_arguments import FinetuningArguments
from .ranking_data import RankingData
from .task_vectors import encode_in_parts

logger = logging.getLogger(__name__)

# Documents of one pass when a collection is ranked.
_DOCUMENTS_PER_PASS = 32


@dataclass(frozen=True)
class RankingVectors:
    """A ranking task with the chunk vectors ``[n, D]`` of its queries and documents, in the order of their ids."""

    data: RankingData
    queries: list[torch.Tensor]
    documents: list[torch.Tensor]


def encode_ranking(model: Any, data: RankingData, **encode: Any) -> RankingVectors:
    """Sends every query and document through the frozen encoder.

    Args:
        model: a `NextLevelBertModel` or `HateModel`.
        data: the task.
        encode: further arguments of `model.encode` (`dtype`, `cache_dir`).

    Raises:
        ValueError: for texts without a token (ids named).
    """
    found = []
    for kind, texts in (("queries", data.task.queries), ("documents", data.task.documents)):
        books = encode_in_parts(model, list(texts.values()), f"encoding {kind} of {data.task.name}", **encode)
        vectors = [book.plain for book in books]
        if empty := [name for name, rows in zip(texts, vectors, strict=True) if len(rows) == 0]:
            raise ValueError(f"{data.task.name}: {kind} {empty[:5]} contain no token; leave them out.")
        found.append(vectors)
    return RankingVectors(data, *found)


@torch.no_grad()
def document_vectors(model: Any, documents: Sequence[torch.Tensor]) -> torch.Tensor:
    """Document vectors ``[N, H]`` of stored chunk vectors, in evaluation mode."""
    training = model.training
    model.eval()
    passes = range(0, len(documents), _DOCUMENTS_PER_PASS)
    rows = [model.contextualize(list(documents[at : at + _DOCUMENTS_PER_PASS]))[1].float().cpu() for at in passes]
    model.train(training)
    return torch.cat(rows)


def mean_vectors(documents: Sequence[torch.Tensor]) -> torch.Tensor:
    """The means ``[N, D]`` of chunk vectors: what a model has to beat."""
    return torch.stack([rows.mean(dim=0) for rows in documents])


def rank(vectors: RankingVectors, model: Any = None) -> Ranks:
    """Ranks of the relevant documents by a model, or by the mean of the chunk vectors where it is None."""
    parts = (vectors.queries, vectors.documents)
    queries, documents = (mean_vectors(rows) if model is None else document_vectors(model, rows) for rows in parts)
    return rank_documents(vectors.data.task, queries, documents, candidates=vectors.data.candidates)


class PairDataset(Dataset):
    """A query and a relevant document each; every pair of a task with a grade of 1 or more."""

    def __init__(self, vectors: RankingVectors) -> None:
        task = vectors.data.task
        self.queries = dict(zip(task.queries, vectors.queries, strict=True))
        self.documents = dict(zip(task.documents, vectors.documents, strict=True))
        self.pairs = [(query, document) for query, grades in task.relevant.items() for document in grades]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        query, document = self.pairs[index]
        return {"query": self.queries[query], "document": self.documents[document]}

    @staticmethod
    def collate(rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
        """``query`` and ``document``, each ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
        batch = {}
        for name in ("query", "document"):
            lengths = torch.tensor([len(row[name]) for row in rows])
            batch[name] = {
                "inputs_embeds": pad_sequence([row[name] for row in rows], batch_first=True),  # [B, L, D]
                "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),  # [B, L]
            }
        return batch


class _Names(Dataset):
    """The ids of the pairs, from which batches are made in which no query or document stands twice."""

    column_names = ("query", "document")

    def __init__(self, pairs: PairDataset) -> None:
        self.pairs = pairs.pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> dict[str, str]:
        query, document = self.pairs[index]
        return {"query": f"query {query}", "document": f"document {document}"}


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
        train_dataset: a `PairDataset`.
        eval_dataset: `RankingVectors`.
        k: where MRR and recall cut the ranking.
    """

    def __init__(self, *args: Any, k: int = 10, **kwargs: Any) -> None:
        super().__init__(*args, data_collator=PairDataset.collate, **kwargs)
        self._k = k

    def get_train_dataloader(self) -> DataLoader:
        """Batches in which no query and no document stands twice: it would be a negative of itself.

        On several processes each takes whole batches, and the last pairs that fill none are left for another epoch:
        filling them up would repeat documents.
        """
        sampler = NoDuplicatesBatchSampler(
            _Names(self.train_dataset),  # type: ignore[arg-type]
            batch_size=self._train_batch_size or self.args.train_batch_size,
            drop_last=self.args.world_size > 1,
            generator=torch.Generator().manual_seed(self.args.seed),
            seed=self.args.seed,
        )
        loader = DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator)  # type: ignore[arg-type]
        return self.accelerator.prepare(loader)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Cross-entropy of finding the own document among those of the process's batch, by 20 times the cosine."""
        loss = MultipleNegativesRankingLoss(_Embedder(model))  # type: ignore[arg-type]
        value = loss([inputs["query"], inputs["document"]], None)
        return (value, {}) if return_outputs else value

    def evaluate(self, eval_dataset: Any = None, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict:
        """Scores of a whole ranking (see `retrieval_scores`), and calls what waits for an evaluation."""
        ranks = rank(eval_dataset or self.eval_dataset, self.accelerator.unwrap_model(self.model))
        scores = {f"{metric_key_prefix}_{name}": value for name, value in retrieval_scores(ranks, self._k).items()}
        self.log(scores)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores


def fingerprint(data: RankingData) -> str:
    """SHA-256 over everything in a ranking task that a run depends on."""
    task = data.task
    content = [dict(task.queries), dict(task.documents), {q: dict(g) for q, g in task.relevant.items()}]
    return hashlib.sha256(json.dumps([*content, data.candidates]).encode()).hexdigest()


def train_ranking(
    seed: int,
    folder: Path,
    new_model: Callable[[], Any],
    args: FinetuningArguments,
    sets: dict[str, RankingVectors],
    patience: int,
    k: int,
) -> dict[str, Any]:
    """One run; one that was killed goes on at its last checkpoint.

    Args:
        seed: of the order of the pairs and of dropout.
        folder: where the model goes (its best epoch by validation MRR).
        new_model: makes the document model, without its chunk encoder.
        args: of the whole fine-tuning.
        sets: ``"train"``, ``"validation"`` and perhaps ``"test"``.
        patience: evaluations without progress after which to stop.
        k: where scores cut the ranking.

    Returns:
        Scores of validation and test set, before and after, and the learning curve.
    """
    set_seed(seed)
    model = new_model().to(args.device)
    args = copy.copy(args)
    args.output_dir, args.seed, args.data_seed = str(folder), seed, seed
    args.metric_for_best_model, args.greater_is_better = f"mrr@{k}", True
    args.push_to_hub = False
    found: dict[str, Any] = {"seed": seed, "before": {}, "logits": {}}
    evaluations = [name for name in sets if name != "train"]
    for name in evaluations:
        found["before"][name] = retrieval_scores(rank(sets[name], model), k)
    trainer = RankingTrainer(
        model=model,
        args=args,
        train_dataset=PairDataset(sets["train"]),
        eval_dataset=sets["validation"],  # type: ignore[arg-type]
        k=k,
        callbacks=[EarlyStoppingCallback(patience)] if args.load_best_model_at_end else [],
    )
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(folder))
    trainer.save_model(str(folder))
    found["curve"] = [entry for entry in trainer.state.log_history if "loss" in entry or f"eval_mrr@{k}" in entry]
    for name in evaluations:
        found[name] = retrieval_scores(rank(sets[name], model), k)
    if args.should_save:
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    return found
