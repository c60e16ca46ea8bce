"""Fine-tunes a long-document encoder on a task, or searches with it, and compares it with plain baselines.

Classification of documents, alone or with a question each; multiple choice about documents; retrieval (no training):

    python run_finetune.py --task classification --model my-model --train_file train.jsonl --test_file test.jsonl \\
        --seeds 0 1 2 3 4 --output_dir classifier
    python run_finetune.py --task multiple_choice --model my-model --train_file QuALITY.v1.0.1.htmlstripped.train \\
        --validation_file QuALITY.v1.0.1.htmlstripped.dev --halve_validation --output_dir chooser
    python run_finetune.py --task retrieval --model my-model --dataset_name kmfoda/booksum --output_dir search

``--model`` is a checkpoint, or a baseline: untrained (a new model around --chunk_encoder), avg_sbert (mean of the
chunk vectors), sbert (the first chunk only), tfidf, and for retrieval bm25. Chunk vectors are encoded once for all
epochs and seeds; runs that are given the same ``--cache_dir`` share them.

``--model_type chunkbert`` or ``bert-al`` trains an encoder from text instead, on whole documents; ``truncated``,
``random`` and ``textrank`` train it on one or two windows of them, to compare with:

    python run_finetune.py --task classification --model_type chunkbert --model google-bert/bert-base-uncased \\
        --train_file train.jsonl --test_file test.jsonl --seeds 0 1 2 3 4 --output_dir classifier

``--task ranking`` teaches a model to rank documents for queries, from pairs or MS MARCO's document files:

    python run_finetune.py --task ranking --model my-model --train_file pairs.jsonl --test_file more_pairs.jsonl \\
        --output_dir ranker

``--task summarization`` teaches BERT-AL to pick the sentences of a summary; the paper's recipe on CNN/DailyMail:

    python run_finetune.py --task summarization --model_type bert-al --model google-bert/bert-base-uncased \\
        --recurrence replace --segment_length 256 --dataset_name abisee/cnn_dailymail --dataset_config_name 3.0.0 \\
        --validation_split validation --test_split test --max_steps 50000 --warmup_steps 10000 --weight_decay 0 \\
        --adam_epsilon 1e-9 --gradient_accumulation_steps 2 --eval_strategy steps --eval_steps 1000 \\
        --save_strategy steps --save_steps 1000 --early_stopping_patience 50 --output_dir summarizer

``--model_type cdlm`` teaches a model that reads several documents at once: ``--task document_matching``,
``coreference`` or ``multihop_qa``, with options of its own (``--model_type cdlm --help``):

    python run_finetune.py --model_type cdlm --task coreference --model biu-nlp/cdlm --train_file ECB+_LREC2014 \\
        --train_split train --validation_split validation --test_split test --output_dir coreference

Every option: ``--help``.
"""

from __future__ import annotations

import logging
import shutil
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, set_seed

from nextlevelbert.evaluation.scores import task_scores
from nextlevelbert.finetuning.arguments import FinetuningArguments, ModelArguments, TaskArguments
from nextlevelbert.finetuning.card import write_finetuning_card
from nextlevelbert.finetuning.checks import check_arguments
from nextlevelbert.finetuning.results import fingerprint, score_long_documents, summarize_seeds
from nextlevelbert.finetuning.seeds import repo_name, run_seeds, upload
from nextlevelbert.finetuning.trainer import PreparedTask, balanced_class_weights, labels_of, train_one_seed
from nextlevelbert.tasks import cdlm as finetuning_cdlm
from nextlevelbert.tasks.cdlm_arguments import CDLM_TASKS
from nextlevelbert.tasks.classification import text_models as finetuning_text
from nextlevelbert.tasks.classification import vector_models as finetuning_vectors
from nextlevelbert.tasks.classification.baselines import tfidf_logistic_regression
from nextlevelbert.tasks.classification.data import (
    Columns,
    TaskData,
    halve_by_document,
    hold_out,
    read_classification,
    read_multiple_choice,
)
from nextlevelbert.tasks.classification.vectors import default_cache
from nextlevelbert.tasks.ranking import task as finetuning_ranking
from nextlevelbert.tasks.retrieval import read_retrieval_task
from nextlevelbert.tasks.retrieval.search import search, write_search
from nextlevelbert.tasks.summarization import task as finetuning_summarization

logger = logging.getLogger("run_finetune")

# Of the settings, those that a card tells.
_CARD_SETTINGS = (
    "learning_rate",
    "num_train_epochs",
    "batch_size",
    "weight_decay",
    "warmup_steps",
    "bf16",
    "class_weights",
)


def read_sets(task: TaskArguments, seed: int) -> dict[str, TaskData]:
    """Training, validation and (where there is one) test set, checked, with one order of classes."""
    columns = Columns(
        task.text_column, task.question_column, task.label_column, task.candidates_column, task.id_column
    )

    def read(file: str | None, split: str | None, names: tuple[str, ...] | None = None) -> TaskData | None:
        source = task.dataset_name if task.dataset_name and split else file
        if source is None:
            return None
        place: dict[str, Any] = {"split": split or "train", "dataset_config": task.dataset_config_name}
        if task.task == "multiple_choice":
            return read_multiple_choice(source, columns, **place)
        problem: Any = task.problem_type or (train and train.problem_type)
        return read_classification(source, columns, label_names=names, problem_type=problem, **place)

    train: TaskData | None = None
    train = read(task.train_file, task.train_split)
    assert train is not None  # one of file and dataset is given
    validation = read(task.validation_file, task.validation_split, train.label_names)
    test = read(task.test_file, task.test_split, train.label_names)
    if task.halve_validation:
        if validation is None or test is not None:
            raise ValueError(
                "--halve_validation makes a test set of half the validation set: give that, and no test set."
            )
        validation, test = halve_by_document(validation)
    if validation is None:
        train, validation = hold_out(train, task.validation_share, seed)
    for name, data in (("training", train), ("validation", validation)):
        if data.examples[0].label is None:
            raise ValueError(f"The {name} set {data.source} has no labels in column {task.label_column!r}.")
    sets = {"train": train, "validation": validation} | ({} if test is None else {"test": test})
    for name in list(sets)[1:]:
        if shared := len(set(train.documents) & set(sets[name].documents)):
            logger.warning("%d documents of the %s set are in the training set, too.", shared, name)
    return sets


def finetune(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    output = Path(args.output_dir)
    if args.learning_rate is None:
        whole = 3e-5 if arguments.from_text else 5e-5  # as the models' papers
        args.learning_rate = 1e-3 if arguments.lora or arguments.head_only else whole

    # 1. The sets; what is reported is the test set where there is one with labels.
    sets = read_sets(task, args.seed)
    for name, data in sets.items():
        logger.info("%s: %d examples, %d documents (%s)", name, len(data.examples), len(data.documents), data.source)
    reported = "test" if "test" in sets and sets["test"].examples[0].label is not None else "validation"
    weights = balanced_class_weights(sets["train"]) if task.class_weights else None

    # 2. What all seeds share: texts as vectors or token ids, and how to make a model.
    family = finetuning_text if arguments.from_text else finetuning_vectors
    prepared = family.prepare(arguments, task, args, sets)
    settings = {
        "task": task.task,
        **arguments.deciding(),
        **prepared.settings,
        "weights": prepared.weights,
        **{f"{name}_examples": len(data.examples) for name, data in sets.items()},
        **{f"{name}_sha256": fingerprint(data) for name, data in sets.items()},
        **args.deciding(),
        "class_weights": task.class_weights,
        "early_stopping_patience": task.early_stopping_patience,
    }

    # 3. One run a seed.
    def train(seed: int, folder: Path) -> dict[str, Any]:
        if prepared.new_model is None:
            result = score_tfidf(seed, sets, reported)
        else:
            evaluations = {name: dataset for name, dataset in prepared.datasets.items() if name != "train"}
            learned, patience = prepared.datasets["train"], task.early_stopping_patience
            result = train_one_seed(seed, folder, prepared.new_model, args, learned, evaluations, patience, weights)
        if prepared.long is not None:
            score_long_documents(result, sets, prepared.long)
        return result

    results = run_seeds(task.seeds if prepared.new_model else task.seeds[:1], args, settings, reported, train, sets)

    # 4. Figures, pictures, and the model of the best seed with everything that opening it needs.
    if args.should_save:
        # An encoder's name alone would not tell what was made of it.
        name = f"{arguments.public_name} ({arguments.model_type})" if arguments.from_text else arguments.public_name
        best, table = summarize_seeds(output, name, sets, results, settings, reported, prepared)
        print(f"\n{table}\n")
        if prepared.publish is None:
            for file in (output / f"seed-{best['seed']}").glob("*.safetensors"):
                shutil.copy(file, output)
        else:
            publish(arguments, args, sets, settings, best, table, reported, prepared)


def score_tfidf(seed: int, sets: dict[str, TaskData], reported: str) -> dict[str, Any]:
    """The result of TF-IDF, laid out as those of `train_one_seed`."""
    evaluations = [name for name in sets if name != "train"]
    logits = tfidf_logistic_regression(sets["train"], [sets[name] for name in evaluations])
    result: dict[str, Any] = {"seed": seed, "curve": [], "logits": dict(zip(evaluations, logits, strict=True))}
    for name in ("validation", reported):
        result[name] = task_scores(sets["train"].problem_type, result["logits"][name], labels_of(sets[name]))
    return result


def publish(
    arguments: ModelArguments,
    args: FinetuningArguments,
    sets: dict[str, TaskData],
    settings: dict[str, Any],
    best: dict[str, Any],
    table: str,
    reported: str,
    prepared: PreparedTask,
) -> None:
    """The model or adapter of the best seed with tokenizer and card, and on the Hub where that is asked for."""
    output, train, words = Path(args.output_dir), sets["train"], prepared.card
    assert prepared.publish is not None  # said by the caller
    assert words is not None  # comes with it
    prepared.publish(output / f"seed-{best['seed']}", output)
    facts = {
        "started from": f"`{arguments.public_name}`" + (" (a local checkpoint)" if arguments.local else ""),
        "classes": ", ".join(train.label_names or ()) or "none",
        "examples": ", ".join(f"{len(data.examples):,} {part}" for part, data in sets.items()),
        "trainable parameters": f"{best['trainable_parameters']:,} of {best['parameters']:,}{words.uncounted}",
        **words.settings,
        **{key: settings[key] for key in _CARD_SETTINGS},
        "seed": best["seed"],
    }
    epoch = f"best epoch by validation {args.metric_for_best_model}" if args.load_best_model_at_end else "last epoch"
    chosen = f"This checkpoint is the {epoch} of the seed with the lowest validation loss."
    if reported == "validation":
        chosen += " The scores are from that validation set, too, so they flatter the model: there was no test set."
    base = None if arguments.local or arguments.model == "untrained" else arguments.model
    name = repo_name(args)
    write_finetuning_card(
        output, name, train, sets[reported], facts, table, best[reported], chosen, words, base, adapter=arguments.lora
    )
    upload(args, name)


def retrieve(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    where, columns = task.dataset_name or task.test_file or "", (task.query_column, task.document_column)
    found = read_retrieval_task(where, *columns, task.test_split or "test", task.dataset_config_name)
    logger.info("%s: %d queries, %d documents", found.name, len(found.queries), len(found.documents))
    cache = task.cache_dir or default_cache(args.output_dir)
    model = None if arguments.model in ("tfidf", "bm25") else finetuning_vectors.load(arguments).to(args.device)
    ranks = search(found, arguments.model, model, dtype=arguments.encoder_dtype, cache_dir=cache)
    print(f"\n{write_search(Path(args.output_dir), found, arguments.public_name, ranks, task.k)}\n")


def main() -> None:
    kind = ArgumentParser(add_help=False, allow_abbrev=False)
    kind.add_argument("--model_type")
    kind.add_argument("--task")
    known, _ = kind.parse_known_args()
    if known.model_type == "cdlm" or known.task in CDLM_TASKS:  # has options of its own
        finetuning_cdlm.main()
        return
    classes = (ModelArguments, TaskArguments, FinetuningArguments)
    parser = HfArgumentParser(classes, description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    arguments, task, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    check_arguments(arguments, task, args)
    set_seed(args.seed)
    others = {
        "retrieval": retrieve,
        "ranking": finetuning_ranking.finetune_ranking,
        "summarization": finetuning_summarization.finetune_summarization,
    }
    others.get(task.task, finetune)(arguments, task, args)


if __name__ == "__main__":
    main()
