"""Fine-tunes a long-document encoder on a task, or searches with it, and compares it with plain baselines.

Classification of documents, alone or with a question each; multiple choice about documents; retrieval (no training):

    python run_finetune.py --task classification --model my-model --train_file train.jsonl --test_file test.jsonl \\
        --seeds 0 1 2 3 4 --output_dir classifier
    python run_finetune.py --task multiple_choice --model my-model --train_file QuALITY.v1.0.1.htmlstripped.train \\
        --validation_file QuALITY.v1.0.1.htmlstripped.dev --halve_validation --output_dir chooser
    python run_finetune.py --task retrieval --model my-model --dataset_name kmfoda/booksum --output_dir search

``--model`` is a checkpoint, or a baseline: untrained (a new model around --chunk_encoder), avg_sbert (mean of the
chunk vectors), sbert (the first chunk only), tfidf, and for retrieval bm25. Chunk vectors are encoded once and kept in
``--cache_dir`` for every epoch, seed, model and task. Every option: ``--help``.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import (
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    HfArgumentParser,
    set_seed,
)

from nextlevelbert import (
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    load_chunk_encoder,
)
from nextlevelbert.baselines import ChunkMeanClassifier, tfidf_logistic_regression
from nextlevelbert.evaluation import read_retrieval_task
from nextlevelbert.evaluation.task_scores import task_scores
from nextlevelbert.evaluation.zero_shot import search, write_search
from nextlevelbert.finetuning import (
    FinetuningArguments,
    balanced_class_weights,
    labels_of,
    train_one_seed,
    with_lora,
)
from nextlevelbert.finetuning_card import write_finetuning_card
from nextlevelbert.finetuning_results import read_result, summarize_seeds, write_result
from nextlevelbert.task_data import (
    Columns,
    TaskData,
    halve_by_document,
    hold_out,
    read_classification,
    read_multiple_choice,
)
from nextlevelbert.task_vectors import TaskVectorDataset, TaskVectors, default_cache, encode_task

logger = logging.getLogger("run_finetune")

BASELINES = ("avg_sbert", "sbert", "tfidf", "bm25")
_TOLD = ("learning_rate", "num_train_epochs", "max_steps", "weight_decay", "warmup_steps", "bf16")


@dataclass
class ModelArguments:
    """Which model."""

    model: str = field(metadata={"help": "A checkpoint (folder or name), untrained, avg_sbert, sbert, tfidf or bm25."})
    chunk_encoder: str = field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        metadata={"help": "Sentence encoder of untrained, avg_sbert and sbert: name or folder."},
    )
    chunk_encoder_name: str | None = field(
        default=None, metadata={"help": "The encoder's name on the Hub, where --chunk_encoder is a folder."}
    )
    chunk_size: int = field(default=256, metadata={"help": "Of untrained, avg_sbert and sbert."})
    encoder_dtype: str = field(
        default="float32",
        metadata={"help": "Of the chunk encoder. bfloat16 is faster where the hardware has it.",
                  "choices": ["float32", "bfloat16", "float16"]},
    )  # fmt: skip
    lora: bool = field(default=False, metadata={"help": "Train low-rank adapters and the head only."})
    lora_r: int = field(default=8, metadata={"help": "Rank of the adapters."})
    lora_alpha: int = field(default=16, metadata={"help": "Their scale, divided by the rank."})
    lora_target_modules: list[str] = field(
        default_factory=lambda: ["query", "value"], metadata={"help": "Linear layers that get one, or all-linear."}
    )


@dataclass
class TaskArguments:
    """Which task."""

    task: str = field(metadata={"choices": ["classification", "multiple_choice", "retrieval"]})
    train_file: str | None = field(default=None, metadata={"help": "A .jsonl or .parquet (also .gz)."})
    validation_file: str | None = field(
        default=None, metadata={"help": "Chooses the epoch; else a share is held out."}
    )
    test_file: str | None = field(
        default=None, metadata={"help": "What is reported (else validation); retrieval: pairs, or a folder as BEIR's."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset on the Hub, in place of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration."})
    train_split: str = field(default="train", metadata={"help": "Its split to train on."})
    validation_split: str | None = field(default=None, metadata={"help": "Its split to validate on."})
    test_split: str | None = field(default=None, metadata={"help": "Its split to report on (retrieval: test)."})
    text_column: str = field(default="text", metadata={"help": "The column of the documents."})
    question_column: str | None = field(default=None, metadata={"help": "Of questions that go with them."})
    candidates_column: str | None = field(default=None, metadata={"help": "Of lists of candidate answers."})
    label_column: str = field(default="label", metadata={"help": "Of labels."})
    id_column: str = field(default="id", metadata={"help": "Of names of rows."})
    query_column: str | None = field(default=None, metadata={"help": "Retrieval: of queries."})
    document_column: str | None = field(default=None, metadata={"help": "Retrieval: of their documents."})
    problem_type: str | None = field(
        default=None, metadata={"help": "Single or multi-label classification or regression; guessed from the labels."}
    )
    class_weights: bool = field(default=False, metadata={"help": "Weigh classes by the inverse of their frequency."})
    validation_share: float = field(default=0.15, metadata={"help": "Of the training documents, without a set."})
    halve_validation: bool = field(
        default=False,
        metadata={"help": "Validate on half of the validation documents, report on the others (QuALITY)."},
    )
    early_stopping_patience: int = field(default=3, metadata={"help": "Epochs without progress before stopping."})
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "One run each; the mean is reported."})
    cache_dir: str | None = field(default=None, metadata={"help": "Of chunk vectors. Default: OUTPUT_DIR-vectors."})
    k: int = field(default=10, metadata={"help": "Retrieval: where hit rate and recall cut the ranking."})


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
    if train is None:
        raise ValueError("Give the training set with --train_file or --dataset_name.")
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
    sets = {"train": train, "validation": validation}
    return sets if test is None else {**sets, "test": test}


def load(arguments: ModelArguments, task_class: Any = None, **config: Any) -> Any:
    """The model with a new head, or the bare one; `untrained` and the baselines are made around the chunk encoder."""
    if arguments.model in ("untrained", *BASELINES):
        source = load_chunk_encoder(arguments.chunk_encoder, arguments.chunk_encoder_name)
        ours = {None: NextLevelBertModel, AutoModelForMultipleChoice: NextLevelBertForMultipleChoice}
        cls = ours.get(task_class, NextLevelBertForSequenceClassification)
        return cls.from_chunk_encoder(source, arguments.chunk_size, **config)
    return (task_class or AutoModel).from_pretrained(arguments.model, **config)


def finetune(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    output, baseline = Path(args.output_dir), arguments.model in BASELINES
    if args.learning_rate is None:
        args.learning_rate = 1e-3 if baseline or arguments.lora else 5e-5
    if arguments.model == "bm25" or (arguments.model == "tfidf" and task.task == "multiple_choice"):
        raise ValueError(f"--model {arguments.model} cannot do --task {task.task}; choose another baseline.")

    # 1. The sets; what is reported is the test set where there is one with labels.
    sets = read_sets(task, args.seed)
    train = sets["train"]
    for name, data in sets.items():
        logger.info("%s: %d examples, %d documents (%s)", name, len(data.examples), len(data.documents), data.source)
    reported = "test" if "test" in sets and sets["test"].examples[0].label is not None else "validation"
    choice = train.problem_type == "multiple_choice"
    text_pair = not choice and train.examples[0].question is not None
    weights = balanced_class_weights(train) if task.class_weights else None
    settings = {
        "task": task.task,
        **vars(arguments),
        "examples": {name: len(data.examples) for name, data in sets.items()},
        **{name: getattr(args, name) for name in _TOLD},
        "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "class_weights": task.class_weights,
        "early_stopping_patience": task.early_stopping_patience,
        "validation_seed": args.seed,
    }

    # 2. Every distinct text through the frozen encoder, once for all epochs, seeds and models.
    vectors: dict[str, TaskVectors] = {}
    source: Any = None
    if arguments.model != "tfidf":
        reader = load(arguments).to(args.device)
        encode = {"dtype": arguments.encoder_dtype, "cache_dir": task.cache_dir or default_cache(output)}
        with args.main_process_first(local=False, desc="encoding"):  # the others read what the first one stored
            vectors = {name: encode_task(reader, data, **encode) for name, data in sets.items()}
        if arguments.model == "sbert":
            vectors = {name: TaskVectors([d[:1] for d in v.documents], v.pairs) for name, v in vectors.items()}
        source = reader.cpu().detach_chunk_encoder()
    datasets = {name: TaskVectorDataset(sets[name], vectors[name]) for name in vectors}

    def new_model() -> Any:
        if baseline:
            classes = len(train.label_names or ()) or 1
            return ChunkMeanClassifier(reader.config.hidden_size, train.problem_type, classes, text_pair)
        if choice:
            model = load(arguments, AutoModelForMultipleChoice)
        else:
            names = dict(enumerate(train.label_names or ("value",)))
            config = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
            config |= {"problem_type": train.problem_type, "text_pair": text_pair}
            model = load(arguments, AutoModelForSequenceClassification, **config)
        model.base_model.detach_chunk_encoder()  # stored vectors come in; the encoder goes into the final model
        if arguments.lora:
            return with_lora(model, arguments.lora_r, arguments.lora_alpha, arguments.lora_target_modules)
        return model

    # 3. One run a seed; a seed that was finished before is not run again.
    evaluations = [name for name in sets if name != "train"]
    results = []
    for seed in task.seeds:
        folder = output / f"seed-{seed}"
        result = read_result(folder, settings)
        if result is None and arguments.model == "tfidf":
            logits = tfidf_logistic_regression(train, [sets[name] for name in evaluations])
            result = {"seed": seed, "curve": [], "logits": dict(zip(evaluations, logits, strict=True))}
            for name in ("validation", reported):
                result[name] = task_scores(train.problem_type, result["logits"][name], labels_of(sets[name]))
        elif result is None:
            others = {name: datasets[name] for name in evaluations}
            patience = task.early_stopping_patience
            result = train_one_seed(seed, folder, new_model, args, datasets["train"], others, patience, weights)
        if args.should_save:
            write_result(folder, result, settings, sets)
        logger.info("seed %d, %s: %s", seed, reported, json.dumps(result[reported]))
        results.append(result)
    if not args.should_save:
        return

    # 4. Figures, pictures, and the model of the best seed with everything that opening it needs.
    name = args.hub_model_id or output.name
    best, table = summarize_seeds(output, arguments.model, sets, results, settings, reported)
    print(f"\n{table}\n")
    folder = output / f"seed-{best['seed']}"
    if baseline:
        for file in folder.glob("*.safetensors"):
            shutil.copy(file, output)
        return
    if arguments.lora:
        for file in ("adapter_model.safetensors", "adapter_config.json"):
            shutil.copy(folder / file, output)
        source.tokenizer.save_pretrained(output)
    else:
        task_class = AutoModelForMultipleChoice if choice else AutoModelForSequenceClassification
        model = task_class.from_pretrained(folder)
        model.base_model.attach_chunk_encoder(source)
        model.save_pretrained(output)
    local = arguments.model == "untrained" or Path(arguments.model).exists()
    facts = {
        "started from": "a local checkpoint" if Path(arguments.model).exists() else arguments.model,
        "classes": ", ".join(train.label_names or ()) or "none",
        "examples": ", ".join(f"{len(data.examples):,} {name}" for name, data in sets.items()),
        "trainable parameters": f"{best['trainable_parameters']:,} of {best['parameters']:,} "
        "(the frozen chunk encoder not counted)",
        **{key: settings[key] for key in (*_TOLD, "batch_size", "class_weights", "early_stopping_patience")},
    }
    write_finetuning_card(
        output, name, train, facts, table, best[reported], reported,
        base_model=None if local else arguments.model, adapter=arguments.lora,
    )  # fmt: skip
    if args.push_to_hub:
        api = HfApi(token=args.hub_token)
        repo = api.create_repo(name, private=args.hub_private_repo, exist_ok=True)
        unpublished = ["seed-*", "*.jsonl", "results.json"]  # predictions hold ids of the user's rows
        api.upload_folder(repo_id=repo.repo_id, folder_path=output, ignore_patterns=unpublished)


def retrieve(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    where = task.dataset_name or task.test_file
    if args.push_to_hub or where is None:
        raise ValueError(
            "--task retrieval trains nothing, so there is no model to push; leave --push_to_hub out."
            if args.push_to_hub
            else "Give the task with --test_file (pairs, or a folder as BEIR's) or --dataset_name."
        )
    columns = (task.query_column, task.document_column)
    found = read_retrieval_task(where, *columns, task.test_split or "test", task.dataset_config_name)
    logger.info("%s: %d queries, %d documents", found.name, len(found.queries), len(found.documents))
    cache = task.cache_dir or default_cache(args.output_dir)
    model = None if arguments.model in ("tfidf", "bm25") else load(arguments).to(args.device)
    ranks = search(found, arguments.model, model, dtype=arguments.encoder_dtype, cache_dir=cache)
    print(f"\n{write_search(Path(args.output_dir), found, arguments.model, ranks, task.k)}\n")


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TaskArguments, FinetuningArguments))
    arguments, task, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    set_seed(args.seed)
    (retrieve if task.task == "retrieval" else finetune)(arguments, task, args)


if __name__ == "__main__":
    main()
