"""``--task ranking``: trains a model to rank documents for queries, also on MS MARCO's files."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainerControl, set_seed
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..data.files import packed
from ..data.published import msmarco
from ..data.splits import sample_share
from ..evaluation.retrieval import Ranking, RetrievalTask, retrieval_scores, trec_run
from ..finetuning.arguments import FinetuningArguments, VectorModelArguments
from ..finetuning.seeds import (
    ScoredSets,
    Scores,
    mean_and_deviation,
    publish,
    report,
    reported_set,
    run_seeds,
)
from ..finetuning.vector_source import WITHOUT_ENCODER, VectorSource, require_layers
from ..models.chunk_encoder import masked_mean
from ..models.windows import pad_vectors
from ..training.cards import SIMILARITY_WIDGET, CardText, plain, public_name
from ..training.data import DataArguments
from ..training.options import parse
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
        "The frozen chunk encoder reads one chunk at a time, so details within a chunk may be lost"
        " in its vector."
    ),
    (
        "BM25 needs no training to find documents that share names or rare words with a query."
        " Compare both on your texts."
    ),
)

Pair = tuple[str, str]  # ids of a query and a relevant document


# --- The sets


def read_ranking(
    source: str | Path, split: str, pairs: PairArguments, config: str | None = None
) -> RetrievalTask:
    """Reads MS MARCO's files, or pairs.

    Args:
        source: folder with ``msmarco-docs.tsv``, or a source for `read_retrieval_task`.
        split: split of the folder or dataset.
        pairs: options that name the columns of pairs.
        config: the configuration of a dataset on the Hub.
    """
    if not packed(Path(source) / msmarco.DOCUMENTS).exists():
        return read_retrieval_task(source, pairs, split=split, config=config)
    return RetrievalTask(f"msmarco-{split}", **msmarco.load(source, split)._asdict())


def hold_out_queries(
    task: RetrievalTask, share: float, seed: int
) -> tuple[RetrievalTask, RetrievalTask]:
    """Splits off a validation set that shares no relevant document with the training set.

    Args:
        task: the queries and the collection.
        share: share of the relevant documents to hold out, with their queries.
        seed: seed of the random draw.

    Returns:
        Training and validation set. Validation ranks the whole collection.
    """
    relevant_documents = set().union(*task.relevant.values())
    held_out = sample_share(sorted(relevant_documents), share, seed=seed, what="documents")

    train = {}
    validation = {}
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

    def split(name: str, relevant: Mapping[str, Mapping[str, int]]) -> RetrievalTask:
        queries = {query: task.queries[query] for query in relevant}
        return RetrievalTask(
            f"{task.name} {name}", queries=queries, documents=task.documents, relevant=relevant
        )

    return split("train", train), split("validation", validation)


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
            inputs_embeds: chunk vectors of the texts, ``[B, L, D]``.
            attention_mask: mask ``[B, L]``, 1 for vectors and 0 for padding.

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
        pairs: pairs of ids, of a query and a document.
        size: number of pairs in a batch, at most the number of different queries or documents.
        seed: seed of the random draw.
    """
    queries = [f"0 {query}" for query, _ in pairs]
    documents = [f"1 {document}" for _, document in pairs]
    return NoDuplicatesBatchSampler(
        Dataset.from_dict({"query": queries, "document": documents}),
        batch_size=min(size, len(set(queries)), len(set(documents))),
        drop_last=True,
        generator=torch.Generator(),
        seed=seed,
    )


class RankingTrainer(CardTrainer):
    """Trains on pairs of a query and a relevant document.

    The loss is the cross-entropy over in-batch negatives, with cosines times 20 as logits.

    Args:
        task: the queries and documents of the training set.
        vectors: the chunk vectors ``[n, D]`` of every text.
        rank: function that returns the validation scores of a model.
        **kwargs: further arguments of `CardTrainer`, with the model and the training arguments.
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
            pairs: B pairs of ids, of a query and a document.

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

    def evaluate(self, *args: object, metric_key_prefix: str = "eval", **kwargs: object) -> Scores:
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
    """Holds what all seeds of a run share.

    Args:
        options: options that describe the model.
        source: encoder that made the vectors.
        sets: training, validation and perhaps test set, by name.
        vectors: the chunk vectors ``[n, D]`` of every text.
        k: the cut-off rank of the scores.
    """

    options: VectorModelArguments
    source: VectorSource
    sets: Mapping[str, RetrievalTask]
    vectors: Mapping[str, torch.Tensor]
    k: int

    @property
    def reported(self) -> str:
        """Returns the name of the set to report on."""
        return reported_set(self.sets)

    def new_model(self) -> nn.Module:
        """Returns the model at the start of a seed."""
        if self.source.is_baseline:
            hidden_size = next(iter(self.vectors.values())).shape[1]
            return MeanRanker(hidden_size)
        return self.source.new_model()

    def rank(self, name: str, model: nn.Module | None = None) -> dict[str, Ranking]:
        """Ranks the set `name`; without a model, by the means of chunk vectors."""
        return rankings_of(self.sets[name], self.vectors, model=model)

    def scores(self, name: str, model: nn.Module | None = None) -> Scores:
        """Computes the scores of the set `name`; without a model, of the means."""
        return retrieval_scores(self.rank(name, model), self.k)

    def make_trainer(self, args: FinetuningArguments) -> RankingTrainer:
        """Returns the trainer of one seed."""
        return RankingTrainer(
            self.sets["train"],
            self.vectors,
            rank=partial(self.scores, "validation"),
            model=self.new_model(),
            args=args,
        )

    def score(self, trainer: CardTrainer, folder: Path) -> ScoredSets:
        """Scores a trained model on all sets but the training set, and an untrained one.

        The run file of the reported set is written to the folder.
        """
        rankings = self.rank(self.reported, trainer.model)
        scores = {self.reported: retrieval_scores(rankings, self.k)}
        if self.reported != "validation":
            scores["validation"] = self.scores("validation", trainer.model)
        if trainer.args.should_save:
            run_file = trec_run(rankings, public_name(self.options.model))
            write_whole(folder / f"{self.reported}_predictions.trec", run_file)

        set_seed(trainer.args.seed)
        untrained = self.new_model().to(trainer.args.device)
        scores["before"] = self.scores(self.reported, untrained)
        return scores, {}


def main(argv: list[str]) -> None:
    """Trains a model per seed on stored vectors, and publishes the best by its validation MRR."""
    about = (
        "Trains a model to rank documents for queries. The baselines of this task are avg_sbert and"
        " sbert."
    )
    options, pairs, data_args, args = parse(
        (VectorModelArguments, PairArguments, DataArguments, FinetuningArguments),
        argv,
        prog="--task ranking",
        about=about,
    )
    metric = f"mrr@{pairs.k}"
    args.check_best_metric([metric])
    args.metric_for_best_model = metric
    args.greater_is_better = True

    # 1. The sets.
    sets = data_args.read_sets(partial(read_ranking, pairs=pairs), args.seed, hold_out_queries)

    # 2. What the model reads: chunk vectors of all queries and documents.
    source = VectorSource.open(options, MEANS)
    _check_model(options, args, source=source)
    queries: list[str] = []
    documents: list[str] = []
    for task in sets.values():
        queries += task.queries.values()
        documents += task.documents.values()
    vectors = source.encode(args, queries) | source.encode(args, documents)
    run = RankingRun(options, source, sets=sets, vectors=vectors, k=pairs.k)

    # 3. A training per seed.
    results = run_seeds(
        args,
        settings={
            "task": "ranking",
            "model": public_name(options.model),
            "weights": source.weights,
            "k": pairs.k,
            "chunks": str(source.rule),
            "encoder_dtype": options.encoder_dtype,
            "sets": fingerprint(list(vars(task).values()) for task in sets.values()),
            **args.result_settings(),
        },
        make_trainer=run.make_trainer,
        score=run.score,
        validated=[metric],
    )
    if not args.should_save:
        return

    # 4. The table.
    before = [result.scores["before"] for result in results]
    baselines = {"before training": mean_and_deviation(before)}
    if source.family != "other":
        baselines[MEAN_ROW] = mean_and_deviation([run.scores(run.reported)])
    best, table = report(
        args,
        results=results,
        reported=run.reported,
        name=public_name(options.model),
        baselines=baselines,
        metric=metric,
    )

    # 5. The model of the best seed with its card; of a baseline, its predictions alone.
    if not source.is_baseline:
        publish(
            args,
            _card_text(run),
            best,
            open_model=source.open_trained,
            reported=run.reported,
            table=table,
            model=options.model,
            model_type=source.family,
            settings={"pairs": sum(map(len, sets["train"].relevant.values()))},
            metrics=[metric],
            data_name=data_args.dataset_name,
            base_model=source.base_model,
            without=WITHOUT_ENCODER,
        )


def _check_model(
    options: VectorModelArguments, args: FinetuningArguments, source: VectorSource
) -> None:
    """Sets the usual learning rate, and refuses models that cannot be trained or published."""
    if source.is_baseline:
        usual_rate = 1e-3
        if args.push_to_hub:
            raise ValueError(
                f"--model {options.model} is a baseline, which is not published; leave out"
                " --push_to_hub."
            )
    else:
        usual_rate = 5e-5
        require_layers(options.model)
    if args.learning_rate is None:
        args.learning_rate = usual_rate


def _card_text(run: RankingRun) -> CardText:
    """Returns the sentences and code of the card."""
    task = run.sets[run.reported]
    ranked = f"{len(task.documents):,} documents are"
    if task.candidates is not None:
        ranked = "its candidates are"
    return CardText(
        summary=(
            "This model maps a query and long documents to vectors, so that the vector of a query"
            " is close to those of the documents that answer it."
        ),
        intended_use="It finds the long documents that answer a query, by one vector each.",
        measured=(
            f"There are {len(task.queries):,} queries of {plain(task.name)}. For each, {ranked}"
            " ranked."
        ),
        limits=_LIMITS,
        snippet=_SNIPPET,
        training_note=(
            "The loss is the cross-entropy of choosing the document of a query among the documents"
            " of its batch, by cosine × 20."
        ),
        pipeline_tag="sentence-similarity",
        scored_task="text-retrieval",
        tags=("long-documents", "sentence-transformers", "document-ranking"),
        widget=SIMILARITY_WIDGET,
        caption="Loss and validation score over epochs",
    )
