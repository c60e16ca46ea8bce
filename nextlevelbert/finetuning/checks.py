"""Which options of `run_finetune.py` do not go together."""

from __future__ import annotations

from typing import Any

from .legacy import (
    BASELINES,
    OF_BERT_AL,
    OF_VECTOR_MODELS,
    SUMMARIZERS,
    WINDOW_BASELINES,
    FinetuningArguments,
    ModelArguments,
    TaskArguments,
)

_OF_SUMMARIES = ("summary_column", "summary_sentences", "trigram_blocking")


def check_arguments(model: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    """Refuses what would be ignored, before anything is read.

    Raises:
        ValueError: naming the options that do not go together.
    """
    if task.task == "summarization":
        _check_summarizer(model, task, args)
    elif model.from_text:
        _check_text_model(model, task, args.push_to_hub)
    vectors = f"--model_type {model.model_type}, which trains on stored vectors,"
    retrieval, new = task.task == "retrieval", model.model in ("untrained", *BASELINES)
    ranking = task.task == "ranking"
    for refused, message in (
        (model.model == "bm25" and not retrieval, "--model bm25 ranks documents only; use it with --task retrieval."),
        (
            model.model == "tfidf" and task.task == "multiple_choice",
            "--model tfidf cannot choose among candidates; use avg_sbert or sbert.",
        ),
        (
            model.lora and new,
            f"--lora adapts a checkpoint, and --model {model.model} is none. (An adapter for an untrained model would "
            "fit no other: save that first with NextLevelBertModel.from_chunk_encoder(...).save_pretrained(folder).)",
        ),
        (
            model.freeze_encoder and (model.lora or model.model in BASELINES),
            "--freeze_encoder trains the head of a NextLevelBERT or HATE and nothing else: --lora would train more, "
            "and baselines over vectors are frozen anyway. Leave one of both out.",
        ),
        (
            model.freeze_encoder and (retrieval or ranking),
            "--freeze_encoder is for --task classification and multiple_choice; leave it out.",
        ),
        (args.push_to_hub and model.model in BASELINES, f"--model {model.model} is not published; no --push_to_hub."),
        (bool(model.attn_implementation) and not model.from_text, f"{vectors} makes no use of --attn_implementation."),
        (
            model.model_type != "chunkbert" and model.chunk_batch_size != ModelArguments.chunk_batch_size,
            "--chunk_batch_size is for --model_type chunkbert; leave it out.",
        ),
        (
            model.model_type not in ("chunkbert", "bert-al") and model.max_training_tokens is not None,
            "--max_training_tokens is for --model_type chunkbert and bert-al; leave it out.",
        ),
        (
            task.task != "summarization"
            and model.model_type != "bert-al"
            and any(getattr(model, name) is not None for name in OF_BERT_AL),
            "--segment_length and --recurrence are for --model_type bert-al; leave them out.",
        ),
        (
            task.task != "summarization"
            and any(getattr(task, name) != getattr(TaskArguments, name) for name in _OF_SUMMARIES),
            "--summary_column, --summary_sentences and --trigram_blocking belong to --task summarization.",
        ),
        (
            args.dataloader_drop_last
            or args.prediction_loss_only
            or args.batch_eval_metrics
            or not args.eval_do_concat_batches,
            "Every row is scored, so leave out --dataloader_drop_last, --prediction_loss_only, --batch_eval_metrics "
            "and --eval_do_concat_batches.",
        ),
        (
            task.class_weights and model.model == "tfidf",
            "--class_weights has no effect on --model tfidf; leave it out.",
        ),
        (
            retrieval
            and (args.push_to_hub or model.lora or task.class_weights or task.halve_validation or len(task.seeds) > 1),
            "--task retrieval trains nothing: leave out --push_to_hub, --lora, --class_weights, --seeds and "
            "--halve_validation.",
        ),
        (
            retrieval and bool(task.train_file or task.validation_file),
            "--task retrieval reads one set: give it with --test_file, not as --train_file or --validation_file.",
        ),
        (
            bool(task.dataset_name and (task.train_file or task.validation_file or task.test_file)),
            "Give either --dataset_name with its splits or files, not both.",
        ),
        (
            ranking and model.model in BASELINES,
            f"--model {model.model} learns nothing from pairs; measure it with --task retrieval. (The mean of the "
            "chunk vectors stands in the table of --task ranking anyway.)",
        ),
        (
            ranking and (model.lora or task.class_weights or task.halve_validation),
            "--task ranking trains a whole model: leave out --lora, --class_weights and --halve_validation.",
        ),
        (
            ranking and args.metric_for_best_model != "loss",
            "--task ranking keeps the epoch with the highest validation MRR; leave out --metric_for_best_model.",
        ),
        (task.k < 1, f"--k must be 1 or more, got {task.k}."),
        (
            model.max_training_tokens is not None and model.max_training_tokens < 1,
            f"--max_training_tokens must be 1 or more, got {model.max_training_tokens}.",
        ),
        (
            not ranking and bool(task.validation_candidates or task.test_candidates),
            "--validation_candidates and --test_candidates are for --task ranking; leave them out.",
        ),
        (len(set(task.seeds)) < len(task.seeds), f"--seeds names a seed twice: {task.seeds}."),
        (
            retrieval and not (task.test_file or task.dataset_name),
            "Give the task with --test_file (pairs, or a folder as BEIR's) or --dataset_name.",
        ),
        (
            not retrieval and not (task.train_file or task.dataset_name),
            "Give the training set with --train_file or --dataset_name.",
        ),
        (
            bool(args.resume_from_checkpoint),
            "A killed run goes on by itself, given the same --output_dir; leave out --resume_from_checkpoint.",
        ),
    ):
        if refused:
            raise ValueError(message)


def _check_summarizer(model: ModelArguments, task: TaskArguments, args: FinetuningArguments) -> None:
    """Refuses what does not go with extractive summaries."""
    kind = f"--model_type {model.model_type}"
    unused: list[tuple[Any, str]] = [(task, name) for name in ("question_column", "candidates_column", "problem_type")]
    unused += [(task, name) for name in ("class_weights", "halve_validation", "query_column", "document_column", "k")]
    unused += [(model, name) for name in OF_VECTOR_MODELS]
    given = [f"--{name}" for values, name in unused if getattr(values, name) != getattr(type(values), name, None)]
    for refused, message in (
        (
            model.model_type not in SUMMARIZERS,
            f"--task summarization takes --model_type {', '.join(SUMMARIZERS)}, not {model.model_type}.",
        ),
        (
            model.model in ("untrained", *BASELINES),
            f"{kind} takes an encoder as --model (a folder or a name on the Hub), not {model.model}.",
        ),
        (bool(given), f"--task summarization makes no use of {', '.join(given)}; leave that out."),
        (
            model.model_type != "bert-al" and (model.lora or args.push_to_hub or model.recurrence is not None),
            f"{kind} is a baseline that trains its whole encoder; leave out --lora, --push_to_hub and --recurrence.",
        ),
        (task.summary_sentences < 1, f"--summary_sentences must be 1 or more, got {task.summary_sentences}."),
        (
            model.lora and model.segment_length is not None,
            "--lora adapts a BERT-AL with the segments that it has; leave out --segment_length.",
        ),
        (
            bool(args.label_smoothing_factor),
            "--task summarization has a loss of its own; leave out --label_smoothing_factor.",
        ),
        (
            args.metric_for_best_model != "loss",
            "--task summarization keeps the evaluations with the lowest loss; leave out --metric_for_best_model.",
        ),
    ):
        if refused:
            raise ValueError(message)


def _check_text_model(model: ModelArguments, task: TaskArguments, push_to_hub: bool) -> None:
    """Refuses what does not go with a model that is trained from text."""
    kind, windows = f"--model_type {model.model_type}", model.model_type in WINDOW_BASELINES
    unused: list[tuple[Any, str]] = [(task, "question_column"), (task, "cache_dir")]
    unused += [(model, name) for name in OF_VECTOR_MODELS if name != "chunk_size" or model.model_type != "chunkbert"]
    given = [f"--{name}" for values, name in unused if getattr(values, name) != getattr(type(values), name, None)]
    for refused, message in (
        (model.model_type == "extended", f"{kind} is a baseline of --task summarization."),
        (task.task != "classification", f"{kind} classifies documents; use it with --task classification."),
        (
            model.model in ("untrained", *BASELINES),
            f"{kind} takes an encoder as --model (a folder or a name on the Hub); {model.model} belongs to "
            "--model_type nextlevelbert.",
        ),
        (bool(given), f"{kind} makes no use of {', '.join(given)}; leave that out."),
        (windows and model.lora, f"{kind} is a baseline that trains its whole encoder; leave out --lora."),
        (windows and push_to_hub, f"{kind} is a baseline and not published; leave out --push_to_hub."),
    ):
        if refused:
            raise ValueError(message)
