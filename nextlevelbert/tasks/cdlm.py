"""`run_finetune.py --model_type cdlm`: from the sets of a task to the model of the best seed, its table, its card."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoTokenizer, EarlyStoppingCallback, HfArgumentParser, set_seed

from ..data.rows import fingerprint
from ..finetuning.legacy import FinetuningArguments
from ..finetuning.seeds import repo_name, row_of_seeds, run_seeds, upload, write_rows
from ..finetuning.trainer import copy_adapter, run_facts, start_seed, with_lora
from ..models.cdlm_layout import MARKERS
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import CdlmProcessor
from ..pretraining.cdlm_card import write_card
from ..training.plots import CURVE, plot_curves
from ..training.trainer import CardTrainer
from .cdlm_arguments import CdlmTaskArguments
from .cdlm_tasks import TASKS, CdlmTask, Rows, write_records

logger = logging.getLogger(__name__)

_RATE, _ADAPTER_RATE = 3e-5, 1e-3  # of a whole model, as in pretraining; of heads and adapters


class CdlmTaskTrainer(CardTrainer):
    """Trains on rows; evaluates them in their order."""

    def logits(self, rows: Rows) -> tuple[tuple[np.ndarray, ...], float]:
        """What the model predicts for all rows, each kind of scores filled up to the longest row, and its loss."""
        found: Any = self.predict(rows, metric_key_prefix="test")
        scores = found.predictions if isinstance(found.predictions, tuple) else (found.predictions,)
        return scores, found.metrics["test_loss"]


def check_adaptable(arguments: CdlmTaskArguments) -> None:
    """An adapter fits only what is the same wherever it is opened: markers have to be in the model already.

    Raises:
        ValueError: for an encoder that would be turned into a CDLM here, or one without the markers.
    """
    known: set[str] = set()
    if AutoConfig.from_pretrained(arguments.model).model_type == "cdlm":
        known = set(AutoTokenizer.from_pretrained(arguments.model).get_vocab())
    if missing := [marker for marker in MARKERS if marker not in known]:
        raise ValueError(
            f"--lora adapts a saved CDLM whose tokenizer knows the markers; {arguments.public_name} lacks "
            f"{', '.join(missing[:4])}. Make one first: model = CdlmModel.from_encoder(name), then "
            "CdlmProcessor.from_model(model) adds them, then model.save_pretrained(folder)."
        )


def read_sets(arguments: CdlmTaskArguments, task: CdlmTask, seed: int) -> dict[str, Any]:
    """Training and validation set, and the test set where there is one."""

    def read(file: str | None, split: str | None) -> Any:
        source = arguments.dataset_name if arguments.dataset_name and split else file
        if source is None and split:
            source = arguments.train_file  # a folder with several splits
        return None if source is None else task.read(arguments, source, split)

    train_split = "train" if arguments.dataset_name and not arguments.train_split else arguments.train_split
    train = read(arguments.train_file, train_split)
    validation = read(arguments.validation_file, arguments.validation_split)
    test = read(arguments.test_file, arguments.test_split)
    if validation is None:
        train, validation = task.hold_out(train, arguments.validation_share, seed)
    sets = {"train": train, "validation": validation} | ({} if test is None else {"test": test})
    learnt = task.documents(train)
    for name, data in sets.items():
        if count := task.unlabelled(data):
            raise ValueError(f"{count} of the {name} set {data.source} have no label; give only rows that have one.")
        if name != "train" and fingerprint(data.content()) == fingerprint(train.content()):
            raise ValueError(f"The {name} set is the training set ({data.source}); give another one.")
        if shared := len(learnt & task.documents(data)) if name != "train" else 0:
            logger.warning("%d texts of the %s set are in the training set, too.", shared, name)
    return sets


def train_one_seed(
    seed: int,
    folder: Path,
    arguments: CdlmTaskArguments,
    args: FinetuningArguments,
    sets: dict[str, Any],
    rows: dict[str, Rows],
    reported: str,
    processor: CdlmProcessor,
) -> dict[str, Any]:
    """One run; one that was killed goes on at its last checkpoint.

    Returns:
        Scores by name of the set, learning curve and counts, and under ``"config"`` what predicting needs.
    """
    task = TASKS[arguments.task]

    def make() -> Any:
        model, _ = arguments.load(task.model)
        if arguments.lora:
            targets = arguments.lora_target_modules
            model = with_lora(model, arguments.lora_r, arguments.lora_alpha, targets)
        return model

    model, args, parameters, resumed = start_seed(seed, folder, make, args)
    args.label_names = list(task.labels)
    logger.info("seed %d: %s of %s parameters are trainable", seed, f"{parameters[0]:,}", f"{parameters[1]:,}")
    trainer = CdlmTaskTrainer(
        model=model,
        args=args,
        train_dataset=rows["train"],  # type: ignore[arg-type]
        eval_dataset=rows["validation"],  # type: ignore[arg-type]
        data_collator=lambda batch: dict(processor.pad(batch)),
        callbacks=[EarlyStoppingCallback(arguments.early_stopping_patience)] if args.load_best_model_at_end else [],
    )
    trained = trainer.train(resume_from_checkpoint=resumed)
    trainer.save_model(str(folder))
    found = run_facts(trainer, trained, parameters) | {"logits": {}}
    predicted = {name: trainer.logits(rows[name]) for name in dict.fromkeys(("validation", reported))}
    if not all(np.isfinite(part).all() for scores, _ in predicted.values() for part in scores):
        raise ValueError(f"Seed {seed} ended with scores that are not finite; lower --learning_rate.")
    logits = {name: each for name, (each, _) in predicted.items()}
    scores, records, config = task.scores(sets, rows, logits, reported, arguments)
    scores["validation"]["loss"] = predicted["validation"][1]
    if args.should_save:
        write_records(folder / f"{reported}_predictions.jsonl", records)
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    return found | scores | {"config": config}


def finetune_cdlm(arguments: CdlmTaskArguments, args: FinetuningArguments) -> None:
    """Reads, trains a model a seed, and publishes the best by validation loss.

    Raises:
        ValueError: for options or sets that do not fit, or a folder begun with other settings.
    """
    arguments.check(args)
    set_seed(args.seed)
    output, task = Path(args.output_dir), TASKS[arguments.task]
    args.learning_rate = args.learning_rate or (_ADAPTER_RATE if arguments.lora else _RATE)

    # 1. Sets as sequences.
    sets = read_sets(arguments, task, args.seed)
    reported = "test" if "test" in sets else "validation"
    baselines = task.baselines(sets[reported])
    if arguments.lora:
        check_adaptable(arguments)
    reader, processor = arguments.load(task.model)
    rows = {name: task.rows(data, processor, name == "train", arguments) for name, data in sets.items()}
    for name, sequences in rows.items():
        logger.info("%s: %d sequences (%s)", name, len(sequences), sets[name].source)
    settings = {
        **arguments.deciding(),
        "weights": weights_fingerprint(reader.base_model),
        **{f"{name}_sha256": fingerprint(data.content()) for name, data in sets.items()},
        **args.deciding(),
    }

    # 2. One run a seed.
    def train(seed: int, folder: Path) -> dict[str, Any]:
        return train_one_seed(seed, folder, arguments, args, sets, rows, reported, processor)

    results = run_seeds(arguments.seeds, args, settings, reported, train)
    if not args.should_save:
        return

    # 3. The table, the picture, and the model of the best seed with everything that opening it needs.
    best = min(results, key=lambda result: result["validation"]["loss"])
    shown = row_of_seeds(f"{arguments.public_name} (cdlm)", results, reported)
    rows_of_table = {
        name: {score: value for score, value in scores.items() if score != "loss"}
        for name, scores in {**shown, **baselines}.items()
    }
    by_seed = {result["seed"]: {**result[reported], **result["config"]} for result in results}
    table = write_rows(output, settings, reported, best, rows_of_table, seeds=by_seed)
    plot_curves([result["curve"] for result in results], None, output / CURVE)
    folder = output / f"seed-{best['seed']}"
    shutil.copy(folder / f"{reported}_predictions.jsonl", output)
    if arguments.lora:
        copy_adapter(folder, output, processor.tokenizer, arguments.local)
    else:
        model = task.model.from_pretrained(folder)
        for name, value in best["config"].items():
            setattr(model.config, name, value)
        model.save_pretrained(output)
    processor.save_pretrained(output)
    publish(arguments, args, task, sets, settings, best, reported, table)


def publish(
    arguments: CdlmTaskArguments,
    args: FinetuningArguments,
    task: CdlmTask,
    sets: dict[str, Any],
    settings: dict[str, Any],
    best: dict[str, Any],
    reported: str,
    table: str,
) -> None:
    """The card, and the Hub where that is asked for."""
    kept = ("learning_rate", "num_train_epochs", "max_steps", "batch_size", "weight_decay", "warmup_steps", "bf16")
    facts = {
        "started from": f"`{arguments.public_name}`",
        "parameters": f"{best['parameters']:,}",
        "trainable parameters": f"{best['trainable_parameters']:,}",
        **{key: f"`{settings[key]}`" for key in (*kept, *_told(arguments))},
        **best["config"],
        "steps": best["steps"],
        "seed": best["seed"],
    }
    flattery = ""
    if reported == "validation":
        chosen = [*(["epoch"] if args.load_best_model_at_end else []), *best["config"]]
        if chosen:
            flattery = f"\n\nChosen on this set, too, so that the scores flatter the model: {', '.join(chosen)}."
    name = repo_name(args)
    main = {task.metric: best[reported][task.metric]}
    measured = f"{sets[reported].source}. Without a seed: what needs no training.\n\n{table}{flattery}"
    base = None if arguments.local else arguments.model
    source = sets[reported].source
    write_card(args.output_dir, name, arguments.task, source, main, measured, facts, base, arguments.lora)
    upload(args, name)


def _told(arguments: CdlmTaskArguments) -> Sequence[str]:
    """Options of the task that a card tells."""
    return ("mention_kind", "context", "mentions_at_once", "group_by") if arguments.task == "coreference" else ()


def main() -> None:
    parser = HfArgumentParser((CdlmTaskArguments, FinetuningArguments))
    arguments, args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.INFO if args.should_log else logging.WARNING, format="%(message)s")
    finetune_cdlm(arguments, args)
