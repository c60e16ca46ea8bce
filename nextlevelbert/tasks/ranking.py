"""``--task ranking``: trains a model to rank documents for queries, also on MS MARCO's files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel, TrainerControl, set_seed
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..chunk_vectors import pad_vectors
from ..data.files import packed
from ..data.splits import sample_share
from ..data.tables import columns_of
from ..evaluation.retrieval import Ranking, RetrievalTask, retrieval_scores, trec_run
from ..finetuning import seeds
from ..finetuning.arguments import DataArguments, FinetuningArguments, VectorModelArguments
from ..finetuning.seeds import Result, Scores
from ..finetuning.vector_source import (
    WITHOUT,
    VectorSource,
    encode_once,
    open_model,
    open_source,
    require_layers,
    with_chunk_encoder,
)
from ..models.chunk_encoder import masked_mean
from ..training.cards import SIMILARITY_WIDGET, model_card, plain, public_name
from ..training.options import parse
from ..training.plots import CURVE
from ..training.runs import fingerprint, write_whole
from ..training.trainer import CardTrainer
from .retrieval import MEAN_ROW, MEANS, PairArguments, rankings_of, read_retrieval_task

logger = logging.getLogger(__name__)

_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
query = model.encode_query("what the document should be about")
documents = model.encode_document(["the text of a whole document", "and of another one"])
scores = model.similarity(query, documents)"""
_LIMITS = (
    (
        "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good"
        " as its vector."
    ),
    (
        "Documents that share names or rare words with a query are found by BM25 without training;"
        " compare on your texts."
    ),
)

Pair = tuple[str, str]  # ids of a query and a relevant document


# --- The sets


class RankingData(NamedTuple):
    """A task, and by query id the documents to rank; without candidates, the whole collection."""

    task: RetrievalTask
    candidates: Mapping[str, Collection[str]] | None = None


def read_ranking(
    source: str | Path, split: str, pairs: PairArguments, config: str | None = None
) -> RankingData:
    """Reads MS MARCO's files, or pairs.

    Args:
        source: a folder with ``msmarco-docs.tsv``, or what `read_retrieval_task` takes.
        split: of the folder or dataset.
        pairs: the columns of pairs.
        config: the configuration of a dataset on the Hub.
    """
    if packed(Path(source) / "msmarco-docs.tsv").exists():
        return read_msmarco(Path(source), split)
    return RankingData(read_retrieval_task(source, pairs, split=split, config=config))


def read_msmarco(folder: Path, split: str) -> RankingData:
    """Reads a split of MS MARCO's document ranking.

    Documents without a text are left out, and so are those that neither a judgement nor a candidate
    names. Without candidates the whole collection is ranked, but in training.

    Args:
        folder: holds ``msmarco-docs.tsv`` (id, URL, title, body), ``msmarco-<split>-queries.tsv``
            (id, query), ``…-qrels.tsv`` (query, 0, document, grade) and ``…-top100`` (query, Q0,
            document, rank, …), the candidates, which training does not read. All may be ``.gz``.
        split: for example ``doctrain`` or ``docdev``.

    Raises:
        ValueError: for lines with too few columns, or ids without a text.
    """
    relevant = _read_judgements(folder / f"msmarco-{split}-qrels.tsv")
    all_queries = dict(columns_of(folder / f"msmarco-{split}-queries.tsv", "\t", 2))
    in_training = "train" in split
    top = packed(folder / f"msmarco-{split}-top100")
    candidates: dict[str, list[str]] = {}
    if top.exists() and not in_training:
        candidates = {query: [] for query in relevant}
        for query, _, document in columns_of(top, None, 3):
            if query in candidates:
                candidates[query].append(document)

    named: set[str] = set()
    for documents_of_query in (*relevant.values(), *candidates.values()):
        named.update(documents_of_query)
    whole_collection = not candidates and not in_training
    texts = {}
    for name, _, title, body in columns_of(folder / "msmarco-docs.tsv", "\t", 4):
        if whole_collection or name in named:
            texts[name] = f"{title} {body}".strip()

    unknown = (named - texts.keys()) | (relevant.keys() - all_queries.keys())
    if unknown:
        raise ValueError(
            f"{folder.name}, {split}: {len(unknown)} ids have no text, such as {min(unknown)!r}."
        )
    documents = {name: text for name, text in texts.items() if text}
    logger.info(
        "%s: %d queries, %d documents of %d with a text",
        split,
        len(relevant),
        len(documents),
        len(texts),
    )

    queries = {query: all_queries[query] for query in relevant}
    task = RetrievalTask(
        f"msmarco-{split}", queries=queries, documents=documents, relevant=relevant
    )
    if not candidates:
        return RankingData(task)
    with_text = {}
    for query, names in candidates.items():
        with_text[query] = [name for name in names if name in documents]
    return RankingData(task, with_text)


def _read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Returns query id → document id → grade, without grades of 0."""
    relevant: dict[str, dict[str, int]] = {}
    for query, _, document, grade in columns_of(path, None, 4):
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    return relevant


def hold_out_queries(data: RankingData, share: float, seed: int) -> tuple[RankingData, RankingData]:
    """Splits off a validation set that shares no relevant document with the training set.

    Args:
        data: the queries and the collection.
        share: of the relevant documents, to hold out with their queries.
        seed: of the draw.

    Returns:
        Training and validation set. Validation ranks the whole collection.
    """
    task = data.task
    relevant_documents = set().union(*task.relevant.values())
    held_out = sample_share(sorted(relevant_documents), share, seed=seed, what="documents")

    train: dict[str, Mapping[str, int]] = {}
    validation: dict[str, Mapping[str, int]] = {}
    for query, grades in task.relevant.items():
        if held_out.issuperset(grades):
            validation[query] = grades
        elif held_out.isdisjoint(grades):
            train[query] = grades

    lost = len(task.queries) - len(train) - len(validation)
    if lost:
        logger.warning(
            "%s: %d queries have relevant documents in both splits and are left out.",
            task.name,
            lost,
        )

    def part(name: str, relevant: Mapping[str, Mapping[str, int]]) -> RankingData:
        queries = {query: task.queries[query] for query in relevant}
        return RankingData(
            RetrievalTask(
                f"{task.name} {name}",
                queries=queries,
                documents=task.documents,
                relevant=relevant,
            )
        )

    return part("train", train), part("validation", validation)


# --- Training


class MeanRanker(nn.Module):
    """A baseline: the mean of a text's frozen vectors through one linear map.

    The map starts as the identity.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.map.weight)

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor
    ) -> BaseModelOutputWithPooling:
        """Maps the mean of the vectors of each text.

        Args:
            inputs_embeds: ``[B, L, D]``.
            attention_mask: ``[B, L]``, 1 for vectors and 0 for padding.

        Returns:
            ``pooler_output`` ``[B, D]``.
        """
        mean = masked_mean(inputs_embeds, attention_mask)
        return BaseModelOutputWithPooling(
            last_hidden_state=inputs_embeds, pooler_output=self.map(mean)
        )


def batches_of(pairs: Sequence[Pair], size: int, seed: int) -> NoDuplicatesBatchSampler:
    """Draws batches in which no query and no document is repeated.

    A repeated text would be a negative of itself.

    Args:
        pairs: ids of queries and documents.
        size: of a batch, reduced to the number of different queries or documents.
        seed: of the draw.
    """
    queries = []
    documents = []
    for query, document in pairs:
        queries.append(f"0 {query}")
        documents.append(f"1 {document}")
    return NoDuplicatesBatchSampler(
        Dataset.from_dict({"query": queries, "document": documents}),
        batch_size=min(size, len(set(queries)), len(set(documents))),
        drop_last=True,
        generator=torch.Generator(),
        seed=seed,
    )


class RankingTrainer(CardTrainer):
    """Trains on pairs of a query and a relevant document.

    The loss is the cross-entropy of in-batch negatives, of cosines times 20.

    Args:
        task: the queries and documents of the training set.
        vectors: the chunk vectors ``[n, D]`` of every text.
        rank: returns the validation scores of a model.
        **kwargs: the model and the arguments of the training.
    """

    def __init__(
        self,
        task: RetrievalTask,
        vectors: Mapping[str, torch.Tensor],
        rank: Callable[[nn.Module], Scores],
        **kwargs: object,
    ) -> None:
        self.task = task
        self.vectors = vectors
        self._rank = rank
        pairs = []
        for query, grades in task.relevant.items():
            pairs += [(query, document) for document in grades]
        super().__init__(
            train_dataset=pairs, eval_dataset=pairs, data_collator=self.collate, **kwargs
        )

    def collate(self, pairs: list[Pair]) -> dict[str, dict[str, torch.Tensor]]:
        """Pads the chunk vectors of pairs.

        Args:
            pairs: B ids of a query and a document.

        Returns:
            ``query`` and ``document``, each with ``inputs_embeds`` ``[B, L, D]`` and
            ``attention_mask`` ``[B, L]``.
        """
        queries = []
        documents = []
        for query, document in pairs:
            queries.append(self.vectors[self.task.queries[query]].float())
            documents.append(self.vectors[self.task.documents[document]].float())
        return {"query": pad_vectors(queries), "document": pad_vectors(documents)}

    def get_train_dataloader(self) -> DataLoader:
        pairs = self.train_dataset
        sampler = batches_of(pairs, size=self.args.train_batch_size, seed=self.args.seed)
        loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=self.collate)
        return self.accelerator.prepare(loader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, dict[str, torch.Tensor]],
        *args: object,
        **kwargs: object,
    ) -> torch.Tensor:
        queries = model(**inputs["query"]).pooler_output  # [B, D]
        documents = model(**inputs["document"]).pooler_output
        loss = MultipleNegativesRankingLoss(model)
        return loss.compute_loss_from_embeddings([queries, documents], labels=None)

    def evaluate(
        self, *args: object, metric_key_prefix: str = "eval", **kwargs: object
    ) -> dict[str, float]:
        values = self._rank(self.accelerator.unwrap_model(self.model))
        scores = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        self.log(scores)
        self.control: TrainerControl = self.callback_handler.on_evaluate(
            self.args, self.state, control=self.control, metrics=scores
        )
        return scores


# --- The task


@dataclass
class RankingRun:
    """What all seeds of a run share.

    Args:
        options: the model.
        source: what made the vectors.
        sets: training, validation and perhaps test set, by name.
        vectors: the chunk vectors ``[n, D]`` of every text.
        reported: the name of the set to report on.
        k: the cut-off rank of the scores.
    """

    options: VectorModelArguments
    source: VectorSource
    sets: Mapping[str, RankingData]
    vectors: Mapping[str, torch.Tensor]
    reported: str
    k: int

    def new_model(self) -> nn.Module:
        """Returns the model at the start of a seed."""
        if _is_baseline(self.options, self.source):
            hidden_size = next(iter(self.vectors.values())).shape[1]
            return MeanRanker(hidden_size)
        return open_model(self.options, self.source)

    def rank(self, name: str, model: nn.Module | None = None) -> dict[str, Ranking]:
        """Ranks the set `name`; without a model, by the means of chunk vectors."""
        part = self.sets[name]
        return rankings_of(part.task, self.vectors, model=model, candidates=part.candidates)

    def validate(self, model: nn.Module) -> Scores:
        """Computes the scores of the validation set."""
        return retrieval_scores(self.rank("validation", model), self.k)

    def make_trainer(self, args: FinetuningArguments) -> RankingTrainer:
        """Returns the trainer of one seed."""
        return RankingTrainer(
            self.sets["train"].task,
            self.vectors,
            rank=self.validate,
            model=self.new_model(),
            args=args,
        )

    def score(self, trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        """Scores a trained model on all sets but the training set, and an untrained one.

        The run file of the reported set is written to the folder.
        """
        scores = {}
        for name in self.sets:
            if name == "train":
                continue
            rankings = self.rank(name, trainer.model)
            scores[name] = retrieval_scores(rankings, self.k)
            if name == self.reported and trainer.args.should_save:
                run = trec_run(rankings, public_name(self.options.model))
                write_whole(folder / f"{name}_predictions.trec", run)

        set_seed(trainer.args.seed)
        untrained = self.new_model().to(trainer.args.device)
        scores["before"] = retrieval_scores(self.rank(self.reported, untrained), self.k)
        return scores, {}


def main(argv: list[str]) -> None:
    """Trains a model per seed on stored vectors, and publishes the best by its validation MRR."""
    about = (
        "Trains a model to rank documents for queries. Further values of --model: avg_sbert, sbert."
    )
    options, pairs, data, args = parse(
        (VectorModelArguments, PairArguments, DataArguments, FinetuningArguments),
        argv,
        prog="--task ranking",
        about=about,
    )
    metric = f"mrr@{pairs.k}"
    args.check_best_metric([metric])
    args.metric_for_best_model = metric
    args.greater_is_better = True

    # 1. The sets, and their vectors.
    sets = data.read_sets(
        lambda _, path, split: read_ranking(
            path, split=split, pairs=pairs, config=data.dataset_config_name
        ),
        seed=args.seed,
        hold_out=hold_out_queries,
    )
    source = open_source(options, MEANS)
    _check_model(options, args, source=source)
    reported = "validation"
    if "test" in sets:
        reported = "test"
    run = RankingRun(
        options,
        source,
        sets=sets,
        vectors=_encode_sets(sets, options, args, source=source),
        reported=reported,
        k=pairs.k,
    )

    # 2. A training per seed.
    results = seeds.run_seeds(
        args,
        settings=_settings(run) | args.result_settings(),
        make_trainer=run.make_trainer,
        score=run.score,
        validated=[metric],
    )
    if not args.should_save:
        return

    # 3. The table, and the model of the best seed with its card.
    before = [result.scores["before"] for result in results]
    baselines = {"before training": seeds.mean_and_deviation(before)}
    if source.kind != "other":
        means = retrieval_scores(run.rank(run.reported), run.k)
        baselines[MEAN_ROW] = seeds.mean_and_deviation([means])
    best, table = seeds.report(
        args,
        results=results,
        reported=run.reported,
        name=public_name(options.model),
        baselines=baselines,
        metric=metric,
    )
    if _is_baseline(options, source):
        seeds.publish(args, best=best, open_model=None, card=None)
    else:
        card = _card(run, args, best=best, table=table)
        open_model = partial(with_chunk_encoder, source, AutoModel)
        seeds.publish(args, best=best, open_model=open_model, card=model_card(**card))


def _is_baseline(options: VectorModelArguments, source: VectorSource) -> bool:
    return options.model in MEANS or source.kind == "other"


def _settings(run: RankingRun) -> dict[str, object]:
    """Returns what decides the result, beside the arguments of the training."""
    content = [[*vars(part.task).values(), part.candidates] for part in run.sets.values()]
    return {
        "task": "ranking",
        "model": public_name(run.options.model),
        "weights": run.source.weights,
        "k": run.k,
        "chunks": str(run.source.rule),
        "encoder_dtype": run.options.encoder_dtype,
        "sets": fingerprint(content),
    }


def _check_model(
    options: VectorModelArguments, args: FinetuningArguments, source: VectorSource
) -> None:
    """Sets the usual learning rate, and refuses what could not be trained or published."""
    usual_rate = 5e-5
    if not _is_baseline(options, source):
        require_layers(options.model)
    elif args.push_to_hub:
        raise ValueError(
            f"--model {options.model} is a baseline, which is not published; leave out"
            " --push_to_hub."
        )
    else:
        usual_rate = 1e-3
    if args.learning_rate is None:
        args.learning_rate = usual_rate


def _encode_sets(
    sets: Mapping[str, RankingData],
    options: VectorModelArguments,
    args: FinetuningArguments,
    source: VectorSource,
) -> dict[str, torch.Tensor]:
    """Returns the chunk vectors of all queries and documents, by text."""
    queries: list[str] = []
    documents: list[str] = []
    for task, _ in sets.values():
        queries += task.queries.values()
        documents += task.documents.values()
    vectors = encode_once(options, args, source=source, texts=queries)
    return vectors | encode_once(options, args, source=source, texts=documents)


def _card(run: RankingRun, args: FinetuningArguments, best: Result, table: str) -> dict[str, Any]:
    """Returns the arguments of `model_card` for the best model."""
    task, candidates = run.sets[run.reported]
    searched = f"{len(task.documents):,} documents"
    if candidates is not None:
        searched = "its candidates"

    name = args.repository()
    metric = f"mrr@{run.k}"
    facts = seeds.training_facts(
        args, best, started_from=public_name(run.options.model), without=WITHOUT
    )
    pairs = sum(map(len, run.sets["train"].task.relevant.values()))
    return {
        "name": name,
        "snippet": _SNIPPET.replace("{name}", name),
        "limits": _LIMITS,
        "summary": (
            "A model that gives a query and the long documents that answer it nearby vectors."
        ),
        "training": {**facts, "pairs": pairs},
        "training_note": (
            "Each query looks for its document among those of its batch (cosine × 20,"
            " cross-entropy)."
        ),
        "pictures": {CURVE: "Loss and validation score over epochs"},
        "measured": (
            f"{len(task.queries):,} queries of {plain(task.name)}, each ranking"
            f" {searched}.{seeds.caveat(run.reported, 'epoch')}\n\n{table}"
        ),
        "pipeline_tag": "sentence-similarity",
        "widget": SIMILARITY_WIDGET,
        "tags": ["long-documents", "sentence-transformers", "document-ranking"],
        "scores": {metric: best.scores[run.reported][metric]},
        "scored_task": "text-retrieval",
        "dataset": task.name,
    }
