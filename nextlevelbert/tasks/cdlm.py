"""Training that document matching, coreference and multi-hop question answering with CDLM share."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, set_seed

from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import ScoredSets, Scores, publish, report, reported_set, run_seeds
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import CdlmProcessor
from ..pretraining.cdlm import CdlmModelArguments
from ..training.cards import CardText, public_name
from ..training.data import DataArguments
from ..training.runs import fingerprint, write_json_lines
from ..training.trainer import CardTrainer

TAGS = ("cdlm", "longformer", "multi-document")  # of the card of every task
# On the card of every task.
MEASURED = (
    "The scores are those of the set that the first row names. Only the first row was trained."
)

# The scores of a set by name, and a JSON object for each of its rows.
Predicted = tuple[Scores, Sequence[Mapping[str, object]]]


def train_and_publish(
    model_class: type[PreTrainedModel],
    sets: Mapping[str, Any],
    *,
    sequences: Callable[[str, CdlmProcessor], Any],
    predict: Callable[..., Predicted],
    choose: Callable[[Any, Any], Scores] | None = None,
    baseline: tuple[str, Callable[[Any], Scores]],
    card: CardText,
    metric: str,
    settings: Mapping[str, object],
    model_args: CdlmModelArguments,
    args: FinetuningArguments,
    data_args: DataArguments,
) -> None:
    """Trains a CDLM once per seed and publishes the one with the lowest validation loss.

    Args:
        model_class: the class of the model.
        sets: training, validation and perhaps test set, by name; all rows have labels.
        sequences: function that makes the model's inputs from the set of a name.
        predict: function that returns the predictions for a set, from its name, its sequences,
            their `logits`, and the fields that were `chosen` on the validation set. Logits are
            padded to the longest sequence, and a tuple if the model has several kinds.
        choose: function that chooses fields of the model's configuration, given the sequences of
            the validation set and their logits (default: none).
        baseline: a row of the table that needs no training: its title, and a function that scores
            a set.
        card: sentences and code that the task adds to the card.
        metric: name of the score in the card's metadata.
        settings: the name of the task, and further options that decide the result.
        model_args: the model to start from.
        args: the arguments of the training.
        data_args: the options of the sets.

    Raises:
        ValueError: if a set is the training set.
    """
    set_fingerprints = {f"{name} set": fingerprint(data) for name, data in sets.items()}
    for name in ("validation set", "test set"):
        if set_fingerprints.get(name) == set_fingerprints["train set"]:
            raise ValueError(f"The {name} is the training set; give another one.")
    if args.learning_rate is None:
        args.learning_rate = 3e-5  # as in pretraining

    # 1. What the model reads of each set.
    set_seed(args.seed)  # new rows of embeddings are drawn
    model, processor = model_args.load(model_class)
    weights = weights_fingerprint(model.base_model)
    del model
    rows = {name: sequences(name, processor) for name in sets}

    # 2. A training per seed.
    def make_trainer(seed_args: FinetuningArguments) -> CardTrainer:
        model, _ = model_args.load(model_class)
        first_row = rows["train"][0]
        seed_args.label_names = [
            name for name in first_row if name.endswith(("labels", "positions"))
        ]
        return CardTrainer(
            model=model,
            args=seed_args,
            data_collator=lambda batch: dict(processor.pad(batch)),
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
        )

    title = public_name(model_args.model)
    results = run_seeds(
        args,
        settings={
            **settings,
            "model": title,
            "weights": weights,
            "max_length": processor.max_length,
            "attention_window": model_args.attention_window,
            **args.result_settings(),
            **set_fingerprints,
        },
        make_trainer=make_trainer,
        score=partial(_score, rows=rows, predict=predict, choose=choose),
    )
    if not args.should_save:
        return

    # 3. The table, and the best model with its card.
    reported = reported_set(sets)
    baseline_title, baseline_scores = baseline
    best, table = report(
        args,
        results=results,
        reported=reported,
        name=f"{title} (cdlm)",
        baselines={baseline_title: baseline_scores(sets[reported])},
    )

    def open_best(folder: Path) -> PreTrainedModel:
        model = model_class.from_pretrained(folder)
        for name, value in best.config.items():
            setattr(model.config, name, value)
        processor.save_pretrained(args.output_dir)
        return model

    chosen = list(best.config)
    if args.load_best_model_at_end:
        chosen = ["the epoch", *chosen]
    sizes = {f"{name} set": f"{len(data)} rows" for name, data in sets.items()}
    publish(
        args,
        card,
        best,
        open_model=open_best,
        reported=reported,
        table=table,
        model=model_args.model,
        model_type="cdlm",
        settings={**sizes, **settings, **best.config},
        metrics=[metric],
        data_name=data_args.dataset_name,
        chosen=chosen,
    )


def _score(
    trainer: CardTrainer,
    folder: Path,
    rows: Mapping[str, Any],
    predict: Callable[..., Predicted],
    choose: Callable[[Any, Any], Scores] | None,
) -> ScoredSets:
    """Scores a trained model, and writes the predictions of the reported set to the folder.

    Returns:
        Scores by set, and the fields that were chosen on the validation set.
    """
    scores = {}
    chosen = {}
    for name in ("validation", "test"):
        if name not in rows:
            continue
        output = trainer.predict(rows[name])
        if name == "validation" and choose is not None:
            chosen = choose(rows[name], output.predictions)
        set_scores, records = predict(name, rows[name], logits=output.predictions, chosen=chosen)
        scores[name] = {**set_scores, "loss": output.metrics["test_loss"]}
        if name == reported_set(rows) and trainer.args.should_save:
            write_json_lines(folder / f"{name}_predictions.jsonl", records)
    return scores, chosen
