"""Searching a collection with a model or a baseline: no training, only scores."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from accelerate import PartialState
from transformers import set_seed

from ...corpus.files import write_atomically
from ...data._old import check_source
from ...evaluation.retrieval import DEPTH, Ranking, RetrievalTask, retrieval_scores, write_run
from ...finetuning.vector_models import VectorModelOptions, open_reader
from ...training.plots import results_table
from .data import read_retrieval_task
from .lengths import plot_by_length, scores_by_length
from .search import Score, check_score, search

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SearchArguments:
    """Output folder and device."""

    _argument_group_name = "runs"

    output_dir: str = field(
        default="trainer_output", metadata={"help": "Folder of the results; default trainer_output."}
    )
    use_cpu: bool = field(default=False, metadata={"help": "Use the CPU even if there is an accelerator."})
    seed: int = field(default=42, metadata={"help": "Seed of an untrained model; default 42."})

    @property
    def device(self) -> torch.device:
        return PartialState(cpu=self.use_cpu).device

    @property
    def should_log(self) -> bool:
        return True


@dataclass(kw_only=True)
class RetrievalOptions(VectorModelOptions):
    """The collection and its queries."""

    _argument_group_name = "data"
    arguments: ClassVar = SearchArguments
    baselines = ("avg_sbert", "sbert", "tfidf", "bm25")

    test_file: str | None = field(
        default=None,
        metadata={"help": "A .jsonl, .json, .csv or .parquet (also .gz) of pairs of a query and a document, a quoted "
                          "pattern of these, a folder of save_to_disk, or one in BEIR's layout."},
    )  # fmt: skip
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, instead of a file."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    test_split: str | None = field(
        default=None,
        metadata={
            "help": "Split of the dataset, or of the folder's judgements; train+validation joins two. Default "
            "test, and all splits of BookSum, as in the NextLevelBERT paper."
        },
    )
    query_column: str | None = field(default=None, metadata={"help": "Column of the queries; default query."})
    document_column: str | None = field(default=None, metadata={"help": "Column of documents; default document."})
    k: int = field(default=10, metadata={"help": "Cut-off rank for hit rate, recall and nDCG; default 10."})
    score: str = field(
        default="document",
        metadata={"help": "What is compared: document vectors; chunks, the mean of the --top_chunks nearest pairs of "
                          "chunks of query and document; maxsim, the mean over the query's chunks of the nearest "
                          "chunk; both, the sum of document and chunks. Default document.",
                  "choices": list(get_args(Score))},
    )  # fmt: skip
    top_chunks: int = field(
        default=3, metadata={"help": "Pairs of chunks that count for --score chunks and both; default 3."}
    )
    run_file: str | None = field(
        default=None,
        metadata={"help": f"Where the first {DEPTH} documents of each query go, in TREC's format; default nowhere."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset_name and self.test_file:
            raise ValueError("Give either --dataset_name or --test_file, not both.")
        if not (self.test_file or self.dataset_name):
            raise ValueError("Give the task with --test_file (pairs, or a folder in BEIR's layout) or --dataset_name.")
        if self.k < 1:
            raise ValueError(f"--k must be 1 or more, got {self.k}.")
        if self.top_chunks < 1:
            raise ValueError(f"--top_chunks must be 1 or more, got {self.top_chunks}.")
        check_score(self.model, self.score)


class Retrieval:
    """A search with one model: how high does it rank the relevant documents of each query?"""

    name = "retrieval"
    option_classes: ClassVar[Sequence[type[RetrievalOptions]]] = (RetrievalOptions,)

    def __init__(self, options: RetrievalOptions, args: SearchArguments) -> None:
        self.options, self.args = options, args

    def search(self) -> None:
        """Reads the collection, ranks it, prints and writes the scores.

        Raises:
            FileNotFoundError, ValueError: for a collection that cannot be read, or no such model.
        """
        options, args = self.options, self.args
        check_source(options.test_file)
        set_seed(args.seed)
        where = options.dataset_name or options.test_file or ""
        columns = (options.query_column, options.document_column)
        found = read_retrieval_task(where, *columns, options.test_split, options.dataset_config_name)
        logger.info("%s: %d queries, %d documents", found.name, len(found.queries), len(found.documents))
        model: Any = None
        if options.model not in ("tfidf", "bm25"):
            model = open_reader(options).to(args.device)
        encode: Any = {"dtype": options.precision(args.device), "cache_dir": options.cache(args.output_dir)}
        how: Any = {"score": options.score, "top_chunks": options.top_chunks, "depth": max(DEPTH, options.k)}
        rows = search(found, options.title, model, **how, **encode)
        if options.run_file:
            [(name, first), *_] = rows.items()
            write_run(options.run_file, first, name)
        print(f"\n{write_search(Path(args.output_dir), found, rows, options.k)}\n")


def write_search(output: Path, task: RetrievalTask, rows: Mapping[str, Mapping[str, Ranking]], k: int) -> str:
    """Writes scores, the ranks of each query and a plot over document length.

    Args:
        output: folder for ``results.json``, ``predictions.jsonl`` and ``mrr_by_length.png``.
        task, rows: of `search`; predictions are those of the first row.
        k: cut-off rank for hit rate, recall and nDCG.

    Returns:
        The scores as a table in markdown.
    """
    output.mkdir(parents=True, exist_ok=True)
    [(name, first), *_] = rows.items()
    scores = {row: retrieval_scores(found, k) for row, found in rows.items()}
    lengths = {row: scores_by_length(task, found, k=k) for row, found in rows.items()}
    plot_by_length(lengths, output / "mrr_by_length.png", title=task.name)
    results = {
        "task": task.name,
        "model": name,
        "scores": scores[name],
        "by_length": lengths[name],
        "rows": scores,
    }
    lines = [
        json.dumps({"query": query, "ranks_of_relevant_documents": found.ranks.tolist()}) + "\n"
        for query, found in first.items()
    ]
    write_atomically(output / "predictions.jsonl", "".join(lines).encode())
    write_atomically(output / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    return results_table(scores)
