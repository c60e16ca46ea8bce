"""`run_finetune.py --task ranking`: from the sets to the model of the best seed, its table and its card."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers import AutoModel

from ...data.rows import fingerprint
from ...evaluation.retrieval import retrieval_scores
from ...finetuning.legacy import FinetuningArguments, ModelArguments, TaskArguments
from ...finetuning.results import mean_and_deviation
from ...finetuning.seeds import repo_name, row_of_seeds, run_seeds, upload, write_rows
from ...finetuning.vector_models import load
from ...models.chunk_encoder import weights_fingerprint
from ...training.plots import CURVE, plot_curves
from .card import write_ranking_card
from .data import RankingData, hold_out_queries, read_ranking
from .train import encode_ranking, rank, train_ranking

logger = logging.getLogger(__name__)


def read_sets(task: TaskArguments, seed: int) -> dict[str, RankingData]:
    """Training and validation set, and the test set where there is one."""

    def read(file: str | None, split: str | None, candidates: str | None = None) -> RankingData | None:
        source = task.dataset_name if task.dataset_name and split else file
        if source is None and split:
            source = task.train_file  # a folder with several splits
        if source is None:
            if candidates:
                raise ValueError(
                    f"There is no set that the candidates {candidates} are for; give it with its file or split."
                )
            return None
        columns = (task.query_column, task.document_column)
        return read_ranking(source, split or "test", candidates, *columns, task.dataset_config_name)

    train = read(task.train_file, task.train_split)
    assert train is not None  # one of file and dataset is given
    validation = read(task.validation_file, task.validation_split, task.validation_candidates)
    test = read(task.test_file, task.test_split, task.test_candidates)
    if validation is None:
        train, validation = hold_out_queries(train, task.validation_share, seed)
    sets = {"train": train, "validation": validation} | ({} if test is None else {"test": test})
    learned = relevant_texts(train)
    for name in list(sets)[1:]:
        if shared := len(learned & relevant_texts(sets[name])):
            logger.warning("%d relevant documents of the %s set are in the training set, too.", shared, name)
    return sets


def relevant_texts(data: RankingData) -> set[str]:
    """The texts that a query has as an answer; ids say nothing across files."""
    return {data.task.documents[document] for grades in data.task.relevant.values() for document in grades}


def finetune_ranking(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    """Reads, encodes, trains a model a seed, and publishes the best by validation MRR.

    Raises:
        ValueError: for sets that cannot be read, or a folder begun with other settings.
    """
    output, k = Path(args.output_dir), task.k
    args.learning_rate = args.learning_rate or 5e-5
    args.metric_for_best_model, args.greater_is_better = f"mrr@{k}", True
    sets = read_sets(task, args.seed)
    for name, data in sets.items():
        logger.info("%s: %d queries, %d documents", name, len(data.task.queries), len(data.task.documents))
    reported = "test" if "test" in sets else "validation"

    # 1. Chunk vectors, once for all seeds; the processes after the first read what that has stored.
    reader = load(arguments).to(args.device)
    encode = {"dtype": arguments.encoder_dtype, "cache_dir": task.cache_dir or f"{output}-vectors"}
    with args.main_process_first(local=False, desc="encoding"):
        vectors = encode_ranking(reader, sets, **encode)
    settings = {
        "task": task.task,
        **arguments.deciding(),
        "weights": weights_fingerprint(reader),
        **{f"{name}_sha256": fingerprint(data.content()) for name, data in sets.items()},
        **args.deciding(),
        "early_stopping_patience": task.early_stopping_patience,
        "k": k,
    }
    if arguments.model == "untrained":  # random where it does not come from the chunk encoder
        settings["weights"] = reader.get_chunk_encoder().fingerprint()
    source = reader.cpu().detach_chunk_encoder()

    # 2. One run a seed.
    def train(seed: int, folder: Path) -> dict[str, Any]:
        return train_ranking(seed, folder, lambda: _new(arguments), args, vectors, task.early_stopping_patience, k)

    results = run_seeds(task.seeds, args, settings, reported, train)
    if not args.should_save:
        return

    # 3. The table, the picture, and the model of the best seed with everything that opening it needs.
    best = max(results, key=lambda result: result["validation"][f"mrr@{k}"])
    rows: dict[str, Any] = {
        **row_of_seeds(arguments.public_name, results, reported),
        "before training": mean_and_deviation([result["before"] for result in results], reported),
        "mean of the chunk vectors": retrieval_scores(rank(vectors[reported]), k),
    }
    table = write_rows(output, settings, reported, best, rows)
    plot_curves([result["curve"] for result in results], f"mrr@{k}", output / CURVE)
    model = AutoModel.from_pretrained(output / f"seed-{best['seed']}")
    model.attach_chunk_encoder(source)
    model.save_pretrained(output)
    kept = ("learning_rate", "num_train_epochs", "batch_size", "weight_decay", "warmup_steps", "bf16")
    facts: dict[str, Any] = {
        "started from": arguments.public_name,
        "pairs": sum(len(grades) for grades in sets["train"].task.relevant.values()),
        **{key: settings[key] for key in kept},
        "seed": best["seed"],
    }
    base = None if arguments.local or arguments.model == "untrained" else arguments.model
    name = repo_name(args)
    write_ranking_card(output, name, model.config, sets, reported, facts, table, best[reported], base)
    upload(args, name)


def _new(arguments: ModelArguments) -> Any:
    """The model at the start of a run, without its chunk encoder."""
    model = load(arguments)
    model.detach_chunk_encoder()
    return model
