"""``--task retrieval``: searches a collection without training, and reports scores."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import PartialState
from torch import nn
from transformers import set_seed

from ..data.pairs import load_queries
from ..data.published import booksum
from ..data.tables import open_rows
from ..evaluation.retrieval import (
    Ranking,
    RetrievalTask,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    trec_run,
)
from ..evaluation.scores import bm25_scores, scores_by_length, tfidf_scores
from ..finetuning.arguments import VectorModelArguments
from ..finetuning.vector_source import VectorSource
from ..models.pretrained import evaluation_mode
from ..models.windows import pad_vectors
from ..training.cards import public_name, results_table
from ..training.options import option, parse
from ..training.plots import plot_by_length
from ..training.runs import bind_folder, fingerprint, write_json_lines, write_whole

logger = logging.getLogger(__name__)

WORD_COUNTS = {"tfidf": tfidf_scores, "bm25": bm25_scores}
MEANS = ("avg_sbert", "sbert")
MEAN_ROW = "mean of the chunk vectors"
_BATCH = 32  # documents of one pass through a model


@dataclass
class PairArguments:
    """Names the columns of pairs, and sets the cut-off rank of the scores."""

    _argument_group_name = "pairs"

    query_column: str | None = option(None, "Column of the queries (default: query).")
    document_column: str | None = option(
        None, "Column of the relevant documents (default: document)."
    )
    k: int = option(10, "Rank k of MRR@k, hit rate@k, recall@k and nDCG@k.")


@dataclass
class RetrievalArguments:
    """Names the collection, and the folder of the scores."""

    _argument_group_name = "retrieval"

    test_file: str | None = option(
        None,
        "Table with a query and a relevant document in each row (.jsonl, .json, .csv or .parquet).",
    )
    dataset_name: str | None = option(None, "Data set on the Hub, instead of --test_file.")
    dataset_config_name: str | None = option(None, "Configuration of the data set on the Hub.")
    test_split: str | None = option(
        None, "Split of the data set (default: test; for BookSum, all splits)."
    )
    output_dir: str = option("trainer_output", "Folder of the results.")
    use_cpu: bool = option(default=False, help="Use the CPU even if there is an accelerator.")
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
    """Reads rows of a query and a relevant document; equal texts are one query or document.

    In BookSum a chapter is the query for its summaries, among the summaries of all splits
    (NextLevelBERT, section 3.2). With the columns the other way round the task is called
    ``booksum-reversed``.

    Args:
        source: a file, folder or name on the Hub, as `open_rows` accepts it.
        pairs: options that name the columns (default: ``query`` and ``document``).
        split: split to read (default: ``test``, but all splits of BookSum).
        config: the configuration of a dataset on the Hub.

    Raises:
        ValueError: a column holds no text; the message names the row and the column.
    """
    name = Path(source).name
    if split is None:
        split = "test"
        if name == "booksum":
            split = booksum.ALL_SPLITS
    table = open_rows(source, split, config)

    columns = {name: value for name, value in vars(pairs).items() if value is not None}
    del columns["k"]
    if booksum.recognises(table.first):
        rows = booksum.load(table, **columns)
    else:
        rows = load_queries(table, **columns)
    name = name.split(".")[0]
    if (pairs.query_column, pairs.document_column) == (booksum.SUMMARY, booksum.CHAPTER):
        name += "-reversed"

    query_ids: dict[str, str] = {}  # by text
    document_ids: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    for row in rows:
        query_id = query_ids.setdefault(row["query"], f"query-{len(query_ids):06d}")
        document_id = document_ids.setdefault(row["document"], f"document-{len(document_ids):06d}")
        relevant.setdefault(query_id, {})[document_id] = 1

    queries = {query: text for text, query in query_ids.items()}
    documents = {document: text for text, document in document_ids.items()}
    return RetrievalTask(name, queries=queries, documents=documents, relevant=relevant)


# --- The search


@torch.no_grad()
def document_vectors(model: nn.Module, chunks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Computes document vectors from stored chunk vectors.

    Args:
        model: a model over chunk vectors.
        chunks: the chunk vectors ``[n, D]`` of N documents.

    Returns:
        The document vectors, ``[N, H]``, in float32 on the CPU.
    """
    device = next(model.parameters()).device
    lengths = torch.tensor([len(vectors) for vectors in chunks])
    by_length = lengths.argsort(stable=True)  # so that batches need little padding

    batches = []
    with evaluation_mode(model):
        for indices in by_length.split(_BATCH):
            padded = pad_vectors([chunks[index].float() for index in indices.tolist()])
            batch = {name: values.to(device) for name, values in padded.items()}
            batches.append(model(**batch).pooler_output.float().cpu())
    return torch.cat(batches)[by_length.argsort()]


def rankings_of(
    task: RetrievalTask,
    vectors: Mapping[str, torch.Tensor],
    model: nn.Module | None = None,
) -> dict[str, Ranking]:
    """Ranks the pool for each query by the vectors of whole texts.

    Args:
        task: the queries and the pool.
        vectors: the chunk vectors ``[n, D]`` of every text of the task.
        model: model that computes document vectors; without a model, a text gets the mean of its
            chunk vectors.

    Returns:
        The ranking of each query, by its id.
    """
    encoded = []
    for texts in (task.queries, task.documents):
        chunks = [vectors[text] for text in texts.values()]
        if model is None:
            encoded.append(torch.stack([rows.float().mean(dim=0) for rows in chunks]))
        else:
            encoded.append(document_vectors(model, chunks))
    queries, documents = encoded
    return rank_documents(task, query_vectors=queries, document_vectors=documents)


def main(argv: list[str]) -> None:
    """Ranks a collection, prints the table of scores, and writes ranks and scores by length."""
    about = (
        "Searches a collection without training. The baselines of this task are avg_sbert, sbert,"
        " tfidf and bm25."
    )
    options, pairs, args = parse(
        (VectorModelArguments, PairArguments, RetrievalArguments),
        argv,
        prog="--task retrieval",
        about=about,
    )
    set_seed(args.seed)

    # 1. The collection, and a folder that belongs to it and to the model.
    task = read_retrieval_task(
        args.test_file or args.dataset_name,
        pairs,
        split=args.test_split,
        config=args.dataset_config_name,
    )
    logger.info("%s: %d queries, %d documents", task.name, len(task.queries), len(task.documents))
    name = public_name(options.model)
    settings = {"task": "retrieval", **vars(options), "model": name, "cache_dir": None}
    if options.chunk_encoder:
        settings["chunk_encoder"] = public_name(options.chunk_encoder)
    settings |= {"k": pairs.k, "set": fingerprint(vars(task).values())}
    bind_folder(args.output_dir, settings)

    # 2. The rankings: by word counts, or by the vectors of whole texts.
    if options.model in WORD_COUNTS:
        queries = list(task.queries.values())
        scores = WORD_COUNTS[options.model](queries, list(task.documents.values()))
        rows = {name: rank_by_scores(task, scores)}
    else:
        rows = _rank_by_vectors(task, options, args)

    # 3. The table, and files of ranks and scores.
    _write_results(task, rows, name=name, k=pairs.k, output=Path(args.output_dir))


def _rank_by_vectors(
    task: RetrievalTask, options: VectorModelArguments, args: RetrievalArguments
) -> dict[str, dict[str, Ranking]]:
    """Returns rankings by row of the table: of the model, unless it is a baseline, and of means."""
    source = VectorSource.open(options, MEANS)
    vectors = source.encode(args, task.queries.values())
    vectors |= source.encode(args, task.documents.values())

    name = public_name(options.model)
    means = rankings_of(task, vectors)
    if source.is_baseline:
        return {name: means}
    model = source.new_model().to(args.device)
    return {name: rankings_of(task, vectors, model=model), MEAN_ROW: means}


def _write_results(
    task: RetrievalTask,
    rows: Mapping[str, Mapping[str, Ranking]],
    name: str,
    k: int,
    output: Path,
) -> None:
    """Prints the table; writes scores, the ranks of the row `name`, its run file and a picture."""
    scores = {}
    by_length = {}
    for row, rankings in rows.items():
        scores[row] = retrieval_scores(rankings, k)
        by_length[row] = scores_by_length(task, rankings, k)

    records = []
    for query, ranking in rows[name].items():
        ranks = ranking.ranks.tolist()
        records.append({"query": query, "ranks_of_relevant_documents": ranks})
    write_json_lines(output / "predictions.jsonl", records)
    write_whole(output / "predictions.trec", trec_run(rows[name], name))

    results = {"task": task.name, "model": name, "rows": scores, "by_length": by_length[name]}
    write_whole(output / "results.json", json.dumps(results, indent=2))
    plot_by_length(by_length, output / "mrr_by_length.png", title=task.name)
    print(
        f"\n{results_table(scores)}\n\nWritten to {output}: results.json, predictions, a picture.\n"
    )
