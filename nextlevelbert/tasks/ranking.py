"""``--task ranking``: a model learns to rank documents for queries, from pairs or MS MARCO's document files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel, set_seed
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..collators import pad_vectors
from ..data.rows import fingerprint
from ..evaluation.retrieval import RetrievalTask, rank_documents, retrieval_scores
from ..finetuning import models, seeds
from ..finetuning.models import VectorModelArguments, public_name
from ..finetuning.seeds import DataArguments, FinetuningArguments, option
from ..models.chunk_encoder import masked_mean
from ..training.cards import CURVE, SIMILARITY_WIDGET, plain
from ..training.trainer import CardTrainer, parse
from .retrieval import MEAN, MEANS, columns_of, document_vectors, mean_vectors, packed, read_retrieval_task

logger = logging.getLogger(__name__)

_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
query = model.encode_query("what the document should be about")
documents = model.encode_document(["the text of a whole document", "and of another one"])
scores = model.similarity(query, documents)"""
_LIMITS = (
    "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector.",
    "Documents that share names or rare words with a query are found by BM25 without training; compare on your texts.",
)


@dataclass
class RankingArguments:
    """Columns, and where the ranking is cut."""

    _argument_group_name = "ranking"

    query_column: str | None = option(None, "Column of the queries; by default query.")
    document_column: str | None = option(None, "Column of the relevant documents; by default document.")
    k: int = option(10, "Cut-off rank for MRR and recall.")


# --- What is ranked


class RankingData(NamedTuple):
    """What to rank; without candidates that is the whole collection."""

    task: RetrievalTask
    candidates: Mapping[str, Sequence[str]] | None = None


def read_ranking(source: str | Path, split: str, options: RankingArguments) -> RankingData:
    """Reads MS MARCO's files, or what `read_retrieval_task` reads."""
    if packed(Path(source) / "msmarco-docs.tsv").exists():
        return read_msmarco(Path(source), split)
    return RankingData(read_retrieval_task(source, options.query_column, options.document_column, split))


def read_msmarco(folder: Path, split: str) -> RankingData:
    """A split of MS MARCO's document ranking, whose files may be packed as ``.gz``.

    ``msmarco-docs.tsv`` (id, URL, title, body), ``msmarco-<split>-queries.tsv`` (id, query), ``…-qrels.tsv`` (query,
    0, document, grade) and ``…-top100`` (query, Q0, document, rank, …), which is re-ranked, but not in training.
    Documents without a text, and those that neither a judgement nor a candidate names, are left out; without
    candidates the whole collection is ranked.
    """
    relevant: dict[str, dict[str, int]] = {}
    for query, _, document, grade in columns_of(folder / f"msmarco-{split}-qrels.tsv", None, 4):
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    queries = dict(columns_of(folder / f"msmarco-{split}-queries.tsv", "\t", 2))
    if missing := relevant.keys() - queries.keys():
        raise ValueError(f"Query {min(missing)!r} of msmarco-{split}-qrels.tsv is not in msmarco-{split}-queries.tsv.")
    training, top = "train" in split, packed(folder / f"msmarco-{split}-top100")
    candidates: dict[str, list[str]] = {query: [] for query in relevant} if top.exists() and not training else {}
    for query, _, document in columns_of(top, None, 3) if candidates else ():
        if query in candidates:
            candidates[query].append(document)
    if bare := [query for query, names in candidates.items() if not names]:
        raise ValueError(f"{top} has no candidates for {len(bare)} queries, such as {bare[0]!r}; leave them out.")
    named = {document for rows in (relevant, candidates) for names in rows.values() for document in names}
    texts = {
        name: f"{title} {body}".strip()
        for name, _, title, body in columns_of(folder / "msmarco-docs.tsv", "\t", 4)
        if name in named or not (candidates or training)
    }
    if unknown := named - texts.keys():
        raise ValueError(f"msmarco-docs.tsv lacks {len(unknown)} documents that are named, such as {min(unknown)!r}.")
    documents = {name: text for name, text in texts.items() if text}
    logger.info("%s: %d queries, %d documents of %d with a text", split, len(relevant), len(documents), len(texts))
    kept = {query: [name for name in names if name in documents] for query, names in candidates.items()}
    asked = {query: queries[query] for query in relevant}
    return RankingData(RetrievalTask(f"msmarco-{split}", asked, documents, relevant), kept or None)


def hold_out_queries(data: RankingData, share: float, seed: int = 42) -> tuple[RankingData, RankingData]:
    """Training and validation part, which share no relevant document; validation ranks the whole collection."""
    task = data.task
    documents = sorted({document for grades in task.relevant.values() for document in grades})
    held_out = set(np.random.default_rng(seed).permutation(documents)[: round(share * len(documents))].tolist())
    parts = []
    for inside, name in ((False, "train"), (True, "validation")):
        relevant = {q: grades for q, grades in task.relevant.items() if {d in held_out for d in grades} == {inside}}
        if not relevant:
            raise ValueError(f"{task.name}: no query is left for {name}. Give --validation_file.")
        queries = {query: task.queries[query] for query in relevant}
        parts.append(RankingData(RetrievalTask(f"{task.name} {name}", queries, task.documents, relevant)))
    if lost := len(task.queries) - sum(len(part.task.queries) for part in parts):
        logger.warning("%s: %d queries have relevant documents on both sides and are left out.", task.name, lost)
    return parts[0], parts[1]


# --- Training


class MeanRanker(nn.Module):
    """A baseline: the mean of a text's frozen vectors through one linear map, which starts as the identity."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.map.weight)

    def forward(self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor) -> BaseModelOutputWithPooling:
        """``pooler_output [B, D]`` of vectors ``[B, L, D]``, with a mask ``[B, L]`` of those that are there."""
        return BaseModelOutputWithPooling(inputs_embeds, self.map(masked_mean(inputs_embeds, attention_mask)))


def batches_of(pairs: Sequence[tuple[str, str]], size: int, seed: int) -> NoDuplicatesBatchSampler:
    """Batches in which no query and no document stands twice: each would be a negative of itself."""
    queries, documents = ([f"{side} {pair[side]}" for pair in pairs] for side in (0, 1))
    size = min(size, len(set(queries)), len(set(documents)))
    table = Dataset.from_dict({"query": queries, "document": documents})
    return NoDuplicatesBatchSampler(table, size, drop_last=True, generator=torch.Generator(), seed=seed)


class RankingTrainer(CardTrainer):
    """Trains on pairs of a query and a relevant document, and evaluates by the scores that `rank` gives.

    The loss is the cross-entropy of in-batch negatives, of cosines times 20.
    """

    def __init__(self, task: RetrievalTask, vectors: Mapping[str, torch.Tensor], rank: Any, **kwargs: Any) -> None:
        self.task, self.vectors, self._rank = task, vectors, rank
        pairs: Any = [(query, document) for query, grades in task.relevant.items() for document in grades]
        super().__init__(train_dataset=pairs, eval_dataset=pairs, data_collator=self.collate, **kwargs)

    def collate(self, pairs: list[tuple[str, str]]) -> dict[str, dict[str, torch.Tensor]]:
        """``query`` and ``document``, each ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
        texts = {"query": [self.task.queries[query] for query, _ in pairs]}
        texts["document"] = [self.task.documents[document] for _, document in pairs]
        return {side: pad_vectors([self.vectors[text].float() for text in names]) for side, names in texts.items()}

    def get_train_dataloader(self) -> DataLoader:
        pairs: Any = self.train_dataset
        sampler = batches_of(pairs, self.args.train_batch_size, self.args.seed)
        return self.accelerator.prepare(DataLoader(pairs, batch_sampler=sampler, collate_fn=self.collate))

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        sides = [model(**inputs[side]).pooler_output for side in ("query", "document")]  # [B, D] each
        return MultipleNegativesRankingLoss(model).compute_loss_from_embeddings(sides, None)

    def evaluate(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> dict[str, float]:
        scores = self._rank(self.accelerator.unwrap_model(self.model))
        scores = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(scores)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores


def main(words: list[str]) -> None:
    """Reads, encodes once, trains a model per seed, and publishes that with the highest validation MRR."""
    classes = (VectorModelArguments, RankingArguments, DataArguments, FinetuningArguments)
    about = "Trains a model to rank documents for queries. Further values of --model: avg_sbert, sbert."
    options, ranking, data, args = parse(classes, words, "--task ranking", about)
    metric = args.metric_for_best_model = f"mrr@{ranking.k}"
    args.greater_is_better = True
    sets: dict[str, RankingData] = data.read_sets(
        lambda name, path, split: read_ranking(path, split, ranking), hold_out_queries
    )
    reported = "test" if "test" in sets else "validation"
    source = models.open_source(options, MEANS)
    sides = [side for task, _ in sets.values() for side in (task.queries, task.documents)]
    vectors = models.encode_once(options, args, source, [text for side in sides for text in side.values()])
    baseline = options.model in MEANS or source.kind == "other"
    size = next(iter(vectors.values())).shape[1]
    new_model = partial(MeanRanker, size) if baseline else partial(models.open_model, options, source)
    args.learning_rate = args.learning_rate or (1e-3 if baseline else 5e-5)

    def scores_of(name: str, model: Any = None) -> dict[str, float]:
        task, named = sets[name]
        sides = [[vectors[text] for text in side.values()] for side in (task.queries, task.documents)]
        rows = [mean_vectors(side) if model is None else document_vectors(model, side) for side in sides]
        return retrieval_scores(rank_documents(task, rows[0], rows[1], named), ranking.k)

    def make_trainer(seed_args: FinetuningArguments) -> RankingTrainer:
        model, rank = new_model(), partial(scores_of, "validation")
        return RankingTrainer(sets["train"].task, vectors, rank, model=model, args=seed_args)

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        scores = {name: scores_of(name, trainer.model) for name in sets if name != "train"}
        set_seed(trainer.args.seed)
        return {**scores, "before": scores_of(reported, new_model().to(args.device))}, {}

    content = [[*vars(task).values(), named] for task, named in sets.values()]
    settings = {"task": "ranking", "model": public_name(options.model), "weights": source.weights, "k": ranking.k}
    settings |= {"chunks": str(source.rule), "encoder_dtype": options.encoder_dtype, "sets": fingerprint(content)}
    results = seeds.run_seeds(args, settings | args.signature(), make_trainer, score)
    if not args.should_save:
        return
    rows = {"before training": seeds.mean_and_deviation([result.scores["before"] for result in results])}
    if source.kind != "other":
        rows[MEAN] = {**scores_of(reported)}
    best, table = seeds.report(
        args, results, reported, public_name(options.model), rows, metric, greater_is_better=True
    )
    pool, name = sets[reported], args.repository()
    searched = f"{len(pool.task.documents):,} documents" if pool.candidates is None else "its candidates"
    measured = f"{len(pool.task.queries):,} queries of {plain(pool.task.name)}, each ranking {searched}."
    facts = seeds.training_facts(args, best, public_name(options.model))
    card = {
        "name": name,
        "summary": "A model that gives a query and the long documents that answer it nearby vectors.",
        "snippet": _SNIPPET.replace("{name}", name),
        "training": {**facts, "pairs": sum(map(len, sets["train"].task.relevant.values()))},
        "training_note": "Each query looks for its document among those of its batch (cosine × 20, cross-entropy).",
        "pictures": {CURVE: "Loss and validation score over epochs"},
        "measured": f"{measured}{seeds.caveat(reported, 'epoch')}\n\n{table}",
        "limits": _LIMITS,
        "pipeline_tag": "sentence-similarity",
        "tags": ["long-documents", "sentence-transformers", "document-ranking"],
        "scores": {metric: best.scores[reported][metric]},
        "dataset": pool.task.name,
        "scored_task": "text-retrieval",
        "widget": SIMILARITY_WIDGET,
    }
    seeds.publish(args, best, None if baseline else partial(models.with_chunk_encoder, source, AutoModel), card)
