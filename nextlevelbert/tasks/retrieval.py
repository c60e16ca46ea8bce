"""``--task retrieval`` searches a collection without training, ``--task ranking`` trains a model
for it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from datasets import Dataset
from sentence_transformers.base.sampler import NoDuplicatesBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModel, set_seed
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..chunk_vectors import pad_vectors
from ..data.rows import columns_of, draw, fingerprint, open_rows, packed
from ..evaluation.retrieval import (
    Ranking,
    RetrievalTask,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    trec_run,
)
from ..evaluation.scores import bm25_scores, scores_by_length, tfidf_scores
from ..finetuning import models, seeds
from ..finetuning.models import VectorModelArguments, encode_once, open_source, public_name
from ..finetuning.seeds import DataArguments, FinetuningArguments, Scores, option
from ..models.chunk_encoder import masked_mean
from ..training import trainer as training
from ..training.trainer import CURVE, CardTrainer, claim, parse, write_whole

logger = logging.getLogger(__name__)

WORDS, MEANS = ("tfidf", "bm25"), ("avg_sbert", "sbert")
MEAN = "mean of the chunk vectors"
# Columns of kmfoda/booksum on the Hub: a chapter looks for its summaries. A row has many more.
BOOKSUM = ("chapter", "summary_text")
_BATCH = 32  # documents of one pass through a model

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


@dataclass
class PairArguments:
    """Columns, and where a ranking is cut."""

    _argument_group_name = "pairs"

    query_column: str | None = option(None, "Column of the queries; by default query.")
    document_column: str | None = option(
        None, "Column of the relevant documents; by default document."
    )
    k: int = option(10, "Cut-off rank of MRR, hit rate, recall and nDCG.")


@dataclass
class RetrievalArguments:
    """The collection, and where the scores go."""

    _argument_group_name = "retrieval"

    test_file: str | None = option(None, "Pairs of a query and a document: any table.")
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of a file.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    test_split: str | None = option(
        None, "Split of the dataset; by default test, and all of BookSum."
    )
    output_dir: str = option("trainer_output", "Folder of the results.")
    use_cpu: bool = option(False, "Use the CPU even if there is an accelerator.")
    seed: int = option(42, "Seed of an untrained model.")

    def __post_init__(self) -> None:
        if (self.dataset_name is None) == (self.test_file is None):
            raise ValueError("Give the collection with --test_file or with --dataset_name.")

    @property
    def device(self) -> torch.device:
        return PartialState(cpu=self.use_cpu).device


# --- The collection


def read_retrieval_task(
    source: str | Path, pairs: PairArguments, split: str | None = None, config: str | None = None
) -> RetrievalTask:
    """Reads rows of a query and a relevant document each, as `open_rows` takes them; equal texts
    are one.

    Columns are by default ``query`` and ``document``; in BookSum a chapter looks for its summaries
    among those of all splits (NextLevelBERT, section 3.2), and the other way round the task is
    called ``booksum-reversed``. The split is by default ``test``.
    """
    name = Path(source).name
    split = split or ("train+validation+test" if name == "booksum" else "test")
    name = name.split(".")[0]
    queries, documents = dict[str, str](), dict[str, str]()  # text → id
    relevant: dict[str, dict[str, int]] = {}
    columns: tuple[str, str] | None = None
    for place, row in open_rows(source, split, config).rows:
        if columns is None:
            usual = (
                BOOKSUM if row.keys() >= {"bid", "summary_id", *BOOKSUM} else ("query", "document")
            )
            columns = (pairs.query_column or usual[0], pairs.document_column or usual[1])
            name += "-reversed" if columns == BOOKSUM[::-1] else ""
        for column in columns:
            place.checked(place.value(row, column, "--query_column or --document_column"), column)
        query = queries.setdefault(row[columns[0]], f"query-{len(queries):06d}")
        document = documents.setdefault(row[columns[1]], f"document-{len(documents):06d}")
        relevant.setdefault(query, {})[document] = 1
    asked, pool = ({key: text for text, key in texts.items()} for texts in (queries, documents))
    return RetrievalTask(name, asked, pool, relevant)


class RankingData(NamedTuple):
    """What to rank; without candidates that is the whole collection."""

    task: RetrievalTask
    candidates: Mapping[str, Sequence[str]] | None = None


def read_ranking(
    source: str | Path, split: str, pairs: PairArguments, config: str | None = None
) -> RankingData:
    """Reads MS MARCO's files, or what `read_retrieval_task` reads."""
    if packed(Path(source) / "msmarco-docs.tsv").exists():
        return read_msmarco(Path(source), split)
    return RankingData(read_retrieval_task(source, pairs, split, config))


def read_msmarco(folder: Path, split: str) -> RankingData:
    """A split of MS MARCO's document ranking, whose files may be packed as ``.gz``.

    ``msmarco-docs.tsv`` (id, URL, title, body), ``msmarco-<split>-queries.tsv`` (id, query),
    ``…-qrels.tsv`` (query, 0, document, grade) and ``…-top100`` (query, Q0, document, rank, …),
    which is re-ranked, but not in training. Documents without a text, and those that neither a
    judgement nor a candidate names, are left out; without candidates the whole collection is
    ranked.
    """
    relevant: dict[str, dict[str, int]] = {}
    for query, _, document, grade in columns_of(folder / f"msmarco-{split}-qrels.tsv", None, 4):
        if int(grade) > 0:
            relevant.setdefault(query, {})[document] = int(grade)
    queries = dict(columns_of(folder / f"msmarco-{split}-queries.tsv", "\t", 2))
    in_training, top = "train" in split, packed(folder / f"msmarco-{split}-top100")
    candidates: dict[str, list[str]] = (
        {query: [] for query in relevant} if top.exists() and not in_training else {}
    )
    for query, _, document in columns_of(top, None, 3) if candidates else ():
        if query in candidates:
            candidates[query].append(document)
    named = {
        document for rows in (relevant, candidates) for names in rows.values() for document in names
    }
    texts = {
        name: f"{title} {body}".strip()
        for name, _, title, body in columns_of(folder / "msmarco-docs.tsv", "\t", 4)
        if name in named or not (candidates or in_training)
    }
    if unknown := (named - texts.keys()) | (relevant.keys() - queries.keys()):
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
    kept = {
        query: [name for name in names if name in documents] for query, names in candidates.items()
    }
    asked = {query: queries[query] for query in relevant}
    return RankingData(RetrievalTask(f"msmarco-{split}", asked, documents, relevant), kept or None)


def hold_out_queries(data: RankingData, share: float, seed: int) -> tuple[RankingData, RankingData]:
    """Training and validation part, which share no relevant document; validation ranks the whole
    collection."""
    task = data.task
    held_out = draw(
        sorted({name for grades in task.relevant.values() for name in grades}),
        share,
        seed,
        "documents",
    )
    parts = []
    for inside, name in ((False, "train"), (True, "validation")):
        relevant = {
            q: grades
            for q, grades in task.relevant.items()
            if {d in held_out for d in grades} == {inside}
        }
        queries = {query: task.queries[query] for query in relevant}
        parts.append(
            RankingData(RetrievalTask(f"{task.name} {name}", queries, task.documents, relevant))
        )
    if lost := len(task.queries) - sum(len(part.task.queries) for part in parts):
        logger.warning(
            "%s: %d queries have relevant documents in both splits and are left out.",
            task.name,
            lost,
        )
    return parts[0], parts[1]


# --- The search


@torch.no_grad()
def document_vectors(model: Any, chunks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Document vectors ``[N, H]`` of stored chunk vectors ``[n, D]``."""
    rows = []
    order = sorted(range(len(chunks)), key=lambda number: len(chunks[number]))  # little padding
    device = next(model.eval().parameters()).device
    for start in range(0, len(order), _BATCH):
        batch = pad_vectors([chunks[place].float() for place in order[start : start + _BATCH]])
        rows.append(
            model(**{name: values.to(device) for name, values in batch.items()})
            .pooler_output.float()
            .cpu()
        )
    return torch.cat(rows)[torch.tensor(order).argsort()]


def rankings_of(
    task: RetrievalTask,
    vectors: Mapping[str, torch.Tensor],
    model: Any = None,
    candidates: Any = None,
) -> dict[str, Ranking]:
    """Rankings from the chunk vectors of all texts: by a model's document vectors, or by their
    means (Avg. SBERT)."""
    sides = [[vectors[text] for text in side.values()] for side in (task.queries, task.documents)]
    if model is None:
        rows = [torch.stack([chunks.float().mean(dim=0) for chunks in side]) for side in sides]
    else:
        rows = [document_vectors(model, side) for side in sides]
    return rank_documents(task, rows[0], rows[1], candidates)


def main(words: list[str]) -> None:
    """Ranks the collection, prints the table, and writes scores, ranks and the picture over
    lengths."""
    classes = (VectorModelArguments, PairArguments, RetrievalArguments)
    about = (
        "Searches a collection without training. Further values of --model: avg_sbert, sbert,"
        " tfidf, bm25."
    )
    options, pairs, args = parse(classes, words, "--task retrieval", about)
    set_seed(args.seed)
    task = read_retrieval_task(
        args.test_file or args.dataset_name, pairs, args.test_split, args.dataset_config_name
    )
    logger.info("%s: %d queries, %d documents", task.name, len(task.queries), len(task.documents))
    output, name = Path(args.output_dir), public_name(options.model)
    encoder = options.chunk_encoder and public_name(options.chunk_encoder)
    settings = {**vars(options), "model": name, "chunk_encoder": encoder, "cache_dir": None}
    claim(
        output,
        {"task": "retrieval", **settings, "k": pairs.k, "set": fingerprint(vars(task).values())},
    )
    if options.model in WORDS:
        words_of = tfidf_scores if options.model == "tfidf" else bm25_scores
        rows = {
            name: rank_by_scores(
                task, words_of([*task.queries.values()], [*task.documents.values()])
            )
        }
    else:
        source = open_source(options, MEANS)
        vectors = encode_once(options, args, source, task.queries.values())
        vectors |= encode_once(options, args, source, task.documents.values())
        rows, means = {}, rankings_of(task, vectors)
        if options.model not in MEANS and source.kind != "other":
            rows[name] = rankings_of(
                task, vectors, models.open_model(options, source).to(args.device)
            )
        rows[MEAN if rows else name] = means
    scores = {row: retrieval_scores(rankings, pairs.k) for row, rankings in rows.items()}
    lengths = {row: scores_by_length(task, rankings, pairs.k) for row, rankings in rows.items()}
    ranks = [
        {"query": query, "ranks_of_relevant_documents": row.ranks.tolist()}
        for query, row in rows[name].items()
    ]
    write_whole(output / "predictions.jsonl", "\n".join(map(json.dumps, ranks)))
    write_whole(output / "predictions.trec", trec_run(rows[name], name))
    results = {"task": task.name, "model": name, "rows": scores, "by_length": lengths[name]}
    write_whole(output / "results.json", json.dumps(results, indent=2))
    training.plot_by_length(lengths, output / "mrr_by_length.png", task.name)
    print(
        f"\n{training.results_table(scores)}\n\nWritten to {output}: results.json, predictions, a"
        " picture.\n"
    )


# --- Training


class MeanRanker(nn.Module):
    """A baseline: the mean of a text's frozen vectors through one linear map, which starts as the
    identity."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(hidden_size, hidden_size, bias=False)
        nn.init.eye_(self.map.weight)

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor
    ) -> BaseModelOutputWithPooling:
        """``pooler_output [B, D]`` of vectors ``[B, L, D]``, with a mask ``[B, L]`` of those that
        are there."""
        return BaseModelOutputWithPooling(
            inputs_embeds, self.map(masked_mean(inputs_embeds, attention_mask))
        )


def batches_of(pairs: Sequence[tuple[str, str]], size: int, seed: int) -> NoDuplicatesBatchSampler:
    """Batches in which no query and no document stands twice: each would be a negative of
    itself."""
    queries, documents = ([f"{side} {pair[side]}" for pair in pairs] for side in (0, 1))
    size = min(size, len(set(queries)), len(set(documents)))
    table = Dataset.from_dict({"query": queries, "document": documents})
    return NoDuplicatesBatchSampler(
        table, size, drop_last=True, generator=torch.Generator(), seed=seed
    )


class RankingTrainer(CardTrainer):
    """Trains on pairs of a query and a relevant document, and evaluates by the scores that `rank`
    gives.

    The loss is the cross-entropy of in-batch negatives, of cosines times 20.
    """

    def __init__(
        self, task: RetrievalTask, vectors: Mapping[str, torch.Tensor], rank: Any, **kwargs: Any
    ) -> None:
        self.task, self.vectors, self._rank = task, vectors, rank
        pairs: Any = [
            (query, document) for query, grades in task.relevant.items() for document in grades
        ]
        super().__init__(
            train_dataset=pairs, eval_dataset=pairs, data_collator=self.collate, **kwargs
        )

    def collate(self, pairs: list[tuple[str, str]]) -> dict[str, dict[str, torch.Tensor]]:
        """``query`` and ``document``, each ``inputs_embeds [B, L, D]`` and ``attention_mask [B,
        L]``."""
        texts = {"query": [self.task.queries[query] for query, _ in pairs]}
        texts["document"] = [self.task.documents[document] for _, document in pairs]
        return {
            side: pad_vectors([self.vectors[text].float() for text in names])
            for side, names in texts.items()
        }

    def get_train_dataloader(self) -> DataLoader:
        pairs: Any = self.train_dataset
        sampler = batches_of(pairs, self.args.train_batch_size, self.args.seed)
        return self.accelerator.prepare(
            DataLoader(pairs, batch_sampler=sampler, collate_fn=self.collate)
        )

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        sides = [
            model(**inputs[side]).pooler_output for side in ("query", "document")
        ]  # [B, D] each
        return MultipleNegativesRankingLoss(model).compute_loss_from_embeddings(sides, None)

    def evaluate(
        self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any
    ) -> dict[str, float]:
        scores = self._rank(self.accelerator.unwrap_model(self.model))
        scores = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(scores)
        self.control: Any = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, scores
        )
        return scores


def rank(words: list[str]) -> None:
    """Reads, encodes once, trains a model per seed, and publishes that with the highest validation
    MRR."""
    classes = (VectorModelArguments, PairArguments, DataArguments, FinetuningArguments)
    about = (
        "Trains a model to rank documents for queries. Further values of --model: avg_sbert, sbert."
    )
    options, pairs, data, args = parse(classes, words, "--task ranking", about)
    metric = f"mrr@{pairs.k}"
    args.check_best_metric([metric])
    args.metric_for_best_model = metric
    args.greater_is_better = True
    config = data.dataset_config_name
    sets = data.read_sets(
        lambda _, path, split: read_ranking(path, split, pairs, config), args.seed, hold_out_queries
    )
    reported = "test" if "test" in sets else "validation"
    source = open_source(options, MEANS)
    baseline = options.model in MEANS or source.kind == "other"
    if baseline and args.push_to_hub:
        raise ValueError(
            f"--model {options.model} is a baseline, which is not published; leave out"
            " --push_to_hub."
        )
    if not baseline:
        models.require_layers(options.model)
    vectors = encode_once(
        options, args, source, [text for task, _ in sets.values() for text in task.queries.values()]
    )
    pools = [text for task, _ in sets.values() for text in task.documents.values()]
    vectors |= encode_once(options, args, source, pools)
    size = next(iter(vectors.values())).shape[1]
    new_model = (
        partial(MeanRanker, size) if baseline else partial(models.open_model, options, source)
    )
    args.learning_rate = args.learning_rate or (1e-3 if baseline else 5e-5)

    def rankings(name: str, model: Any = None) -> dict[str, Ranking]:
        return rankings_of(sets[name].task, vectors, model, sets[name].candidates)

    def scores_of(name: str, model: Any = None) -> Scores:
        return retrieval_scores(rankings(name, model), pairs.k)

    def make_trainer(seed_args: FinetuningArguments) -> RankingTrainer:
        model, rank = new_model(), partial(scores_of, "validation")
        return RankingTrainer(sets["train"].task, vectors, rank, model=model, args=seed_args)

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        ranked = {name: rankings(name, trainer.model) for name in sets if name != "train"}
        scores = {name: retrieval_scores(lists, pairs.k) for name, lists in ranked.items()}
        if trainer.args.should_save:
            run = trec_run(ranked[reported], public_name(options.model))
            write_whole(folder / f"{reported}_predictions.trec", run)
        set_seed(trainer.args.seed)
        return {**scores, "before": scores_of(reported, new_model().to(args.device))}, {}

    content = [[*vars(task).values(), named] for task, named in sets.values()]
    settings = {
        "task": "ranking",
        "model": public_name(options.model),
        "weights": source.weights,
        "k": pairs.k,
    }
    settings |= {
        "chunks": str(source.rule),
        "encoder_dtype": options.encoder_dtype,
        "sets": fingerprint(content),
    }
    results = seeds.run_seeds(
        args, settings | args.signature(), make_trainer, score, validated=[metric]
    )
    if not args.should_save:
        return
    rows = {
        "before training": seeds.mean_and_deviation([result.scores["before"] for result in results])
    }
    if source.kind != "other":
        rows[MEAN] = {**scores_of(reported)}
    best, table = seeds.report(args, results, reported, public_name(options.model), rows, metric)
    pool, name = sets[reported], args.repository()
    searched = (
        f"{len(pool.task.documents):,} documents" if pool.candidates is None else "its candidates"
    )
    measured = (
        f"{len(pool.task.queries):,} queries of {training.plain(pool.task.name)}, each ranking"
        f" {searched}."
    )
    facts = seeds.training_facts(args, best, public_name(options.model), models.WITHOUT)
    card = {
        "name": name,
        "snippet": _SNIPPET.replace("{name}", name),
        "limits": _LIMITS,
        "summary": (
            "A model that gives a query and the long documents that answer it nearby vectors."
        ),
        "training": {**facts, "pairs": sum(map(len, sets["train"].task.relevant.values()))},
        "training_note": (
            "Each query looks for its document among those of its batch (cosine × 20,"
            " cross-entropy)."
        ),
        "pictures": {CURVE: "Loss and validation score over epochs"},
        "measured": f"{measured}{seeds.caveat(reported, 'epoch')}\n\n{table}",
        "pipeline_tag": "sentence-similarity",
        "widget": training.SIMILARITY_WIDGET,
        "tags": ["long-documents", "sentence-transformers", "document-ranking"],
        "scores": {metric: best.scores[reported][metric]},
        "scored_task": "text-retrieval",
        "dataset": pool.task.name,
    }
    seeds.publish(
        args,
        best,
        None if baseline else partial(models.with_chunk_encoder, source, AutoModel),
        card,
    )
