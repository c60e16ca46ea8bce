"""Fine-tunes a long-document encoder on a task, or searches with it, and compares it with plain baselines.

Classification of documents, alone or with a question each; multiple choice about documents; retrieval (no training):

    python run_finetune.py --task classification --model my-model --train_file train.jsonl --test_file test.jsonl \\
        --seeds 0 1 2 3 4 --output_dir classifier
    python run_finetune.py --task multiple_choice --model my-model --train_file QuALITY.v1.0.1.htmlstripped.train \\
        --validation_file QuALITY.v1.0.1.htmlstripped.dev --halve_validation --output_dir chooser
    python run_finetune.py --task retrieval --model my-model --dataset_name kmfoda/booksum --output_dir search

``--model`` is a checkpoint, or a baseline: untrained (a new model around --chunk_encoder), avg_sbert (mean of the
chunk vectors), sbert (the first chunk only), tfidf, and for retrieval bm25. Chunk vectors are encoded once for all
epochs and seeds; runs that are given the same ``--cache_dir`` share them. Every option: ``--help``.
"""

from __future__ import annotations

import json
import logging
import shutil
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from transformers import (
    AutoConfig,
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
from nextlevelbert.chunk_encoder import LoadedChunkEncoder, weights_fingerprint
from nextlevelbert.evaluation import read_retrieval_task
from nextlevelbert.evaluation.task_scores import task_scores
from nextlevelbert.evaluation.zero_shot import search, write_search
from nextlevelbert.finetuning import balanced_class_weights, labels_of, train_one_seed, with_lora
from nextlevelbert.finetuning_arguments import (
    BASELINES,
    FinetuningArguments,
    ModelArguments,
    TaskArguments,
    check_arguments,
)
from nextlevelbert.finetuning_card import write_finetuning_card
from nextlevelbert.finetuning_results import (
    fingerprint,
    read_result,
    summarize_seeds,
    write_result,
    write_settings,
)
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


def load(arguments: ModelArguments, task_class: Any = None, **config: Any) -> Any:
    """The model with a head, or the bare one; `untrained` and the baselines are made around the chunk encoder."""
    if arguments.model in ("untrained", *BASELINES):
        source = load_chunk_encoder(arguments.chunk_encoder, arguments.chunk_encoder_name)
        ours = {None: NextLevelBertModel, AutoModelForMultipleChoice: NextLevelBertForMultipleChoice}
        cls = ours.get(task_class, NextLevelBertForSequenceClassification)
        return cls.from_chunk_encoder(source, arguments.chunk_size, **config)
    words = f"Otherwise --model is one of untrained, {', '.join(BASELINES)}."
    try:
        kind = AutoConfig.from_pretrained(arguments.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--model {arguments.model!r} is no folder with a checkpoint, and not on the Hub. {words}"
        ) from error
    if kind != "nextlevelbert":
        raise ValueError(f"--model {arguments.model!r} is a {kind}; give a NextLevelBERT. {words}")
    # A checkpoint that was fine-tuned keeps its classifier where it fits, and else gets a new one.
    return (task_class or AutoModel).from_pretrained(arguments.model, ignore_mismatched_sizes=True, **config)


def public_name(model: str) -> tuple[bool, str]:
    """Whether the model is a folder here, and its name in tables and cards: never a path of this machine."""
    local = model not in ("untrained", *BASELINES) and Path(model).exists()
    return local, Path(model).resolve().name if local else model


def finetune(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    output, baseline = Path(args.output_dir), arguments.model in BASELINES
    _, model_name = public_name(arguments.model)
    if args.learning_rate is None:
        args.learning_rate = 1e-3 if baseline or arguments.lora else 5e-5

    # 1. The sets; what is reported is the test set where there is one with labels.
    sets = read_sets(task, args.seed)
    train = sets["train"]
    for name, data in sets.items():
        logger.info("%s: %d examples, %d documents (%s)", name, len(data.examples), len(data.documents), data.source)
    reported = "test" if "test" in sets and sets["test"].examples[0].label is not None else "validation"
    choice = train.problem_type == "multiple_choice"
    text_pair = not choice and train.examples[0].question is not None
    weights = balanced_class_weights(train) if task.class_weights else None

    # 2. Every distinct text through the frozen encoder, once for all epochs, seeds and models.
    vectors: dict[str, TaskVectors] = {}
    source: Any = None
    model_weights = None
    if arguments.model != "tfidf":
        reader = load(arguments).to(args.device)
        encode = {"dtype": arguments.encoder_dtype, "cache_dir": task.cache_dir or default_cache(output)}
        with args.main_process_first(local=False, desc="encoding"):  # the others read what the first one stored
            vectors = {name: encode_task(reader, data, **encode) for name, data in sets.items()}
        if arguments.model == "sbert":
            vectors = {name: TaskVectors([d[:1] for d in v.documents], v.pairs) for name, v in vectors.items()}
        # What is made around a chunk encoder has random special vectors, so it is told by that encoder.
        made_here = baseline or arguments.model == "untrained"
        model_weights = reader.get_chunk_encoder().fingerprint() if made_here else weights_fingerprint(reader)
        source = reader.cpu().detach_chunk_encoder()
    datasets = {name: TaskVectorDataset(sets[name], vectors[name]) for name in vectors}
    settings = {
        "task": task.task,
        **{**vars(arguments), "model": model_name, "chunk_encoder": Path(arguments.chunk_encoder).name},
        "weights": model_weights,
        **{f"{name}_examples": len(data.examples) for name, data in sets.items()},
        **{f"{name}_sha256": fingerprint(data) for name, data in sets.items()},
        **args.deciding(),
        "class_weights": task.class_weights,
        "early_stopping_patience": task.early_stopping_patience,
    }

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

    # 3. One run a seed; a seed that was finished before is not run again, and one that was killed goes on.
    evaluations = [name for name in sets if name != "train"]
    results = []
    for seed in task.seeds[:1] if arguments.model == "tfidf" else task.seeds:
        folder = output / f"seed-{seed}"
        result = read_result(folder, settings)
        if result is None:
            if args.should_save:
                write_settings(folder, settings)
            if arguments.model == "tfidf":
                logits = tfidf_logistic_regression(train, [sets[name] for name in evaluations])
                result = {"seed": seed, "curve": [], "logits": dict(zip(evaluations, logits, strict=True))}
                for name in ("validation", reported):
                    result[name] = task_scores(train.problem_type, result["logits"][name], labels_of(sets[name]))
            else:
                others = {name: datasets[name] for name in evaluations}
                patience = task.early_stopping_patience
                result = train_one_seed(seed, folder, new_model, args, datasets["train"], others, patience, weights)
            if args.should_save:
                write_result(folder, result, sets)
        logger.info("seed %d, %s: %s", seed, reported, json.dumps(result[reported]))
        results.append(result)
    # 4. Figures, pictures, and the model of the best seed with everything that opening it needs.
    if args.should_save:
        best, table = summarize_seeds(output, model_name, sets, results, settings, reported)
        print(f"\n{table}\n")
        for file in (output / f"seed-{best['seed']}").glob("*.safetensors") if baseline else ():
            shutil.copy(file, output)
        if not baseline:
            publish(arguments, args, sets, settings, best, table, reported, source)


def publish(
    arguments: ModelArguments,
    args: FinetuningArguments,
    sets: dict[str, TaskData],
    settings: dict[str, Any],
    best: dict[str, Any],
    table: str,
    reported: str,
    source: LoadedChunkEncoder,
) -> None:
    """The model or adapter of the best seed with tokenizer and card, and on the Hub where that is asked for."""
    output, train = Path(args.output_dir), sets["train"]
    local, model_name = public_name(arguments.model)
    folder = output / f"seed-{best['seed']}"
    if arguments.lora:
        shutil.copy(folder / "adapter_model.safetensors", output)
        adapter = json.loads((folder / "adapter_config.json").read_text())
        if local:
            adapter["base_model_name_or_path"] = None  # a path of this machine means nothing to others
        (output / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
        source.tokenizer.save_pretrained(output)
    else:
        choice = train.problem_type == "multiple_choice"
        task_class = AutoModelForMultipleChoice if choice else AutoModelForSequenceClassification
        model = task_class.from_pretrained(folder)
        model.base_model.attach_chunk_encoder(source)
        model.save_pretrained(output)
    api, name = HfApi(token=args.hub_token), output.name
    if args.push_to_hub:
        name = api.create_repo(args.hub_model_id or name, private=args.hub_private_repo, exist_ok=True).repo_id
    facts = {
        "started from": f"`{model_name}`" + (" (a local checkpoint)" if local else ""),
        "classes": ", ".join(train.label_names or ()) or "none",
        "examples": ", ".join(f"{len(data.examples):,} {part}" for part, data in sets.items()),
        "trainable parameters": f"{best['trainable_parameters']:,} of {best['parameters']:,} "
        "(the frozen chunk encoder not counted)",
        **{key: settings[key] for key in _CARD_SETTINGS},
        "seed": best["seed"],
    }
    epoch = f"best epoch by validation {args.metric_for_best_model}" if args.load_best_model_at_end else "last epoch"
    chosen = f"This checkpoint is the {epoch} of the seed with the lowest validation loss."
    if reported == "validation":
        chosen += " The scores are from that validation set, too, so they flatter the model: there was no test set."
    base = None if local or arguments.model == "untrained" else arguments.model
    write_finetuning_card(
        output, name, train, sets[reported], facts, table, best[reported], chosen, base, adapter=arguments.lora
    )
    if args.push_to_hub:
        unpublished = ["seed-*", "*.jsonl", "results.json"]  # predictions hold ids of the user's rows
        api.upload_folder(repo_id=name, folder_path=output, ignore_patterns=unpublished)


def retrieve(arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    where, columns = task.dataset_name or task.test_file or "", (task.query_column, task.document_column)
    found = read_retrieval_task(where, *columns, task.test_split or "test", task.dataset_config_name)
    logger.info("%s: %d queries, %d documents", found.name, len(found.queries), len(found.documents))
    cache = task.cache_dir or default_cache(args.output_dir)
    model = None if arguments.model in ("tfidf", "bm25") else load(arguments).to(args.device)
    ranks = search(found, arguments.model, model, dtype=arguments.encoder_dtype, cache_dir=cache)
    _, name = public_name(arguments.model)
    print(f"\n{write_search(Path(args.output_dir), found, name, ranks, task.k)}\n")


def main() -> None:
    classes = (ModelArguments, TaskArguments, FinetuningArguments)
    parser = HfArgumentParser(classes, description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    arguments, task, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    check_arguments(arguments, task, args)
    set_seed(args.seed)
    (retrieve if task.task == "retrieval" else finetune)(arguments, task, args)


if __name__ == "__main__":
    main()
