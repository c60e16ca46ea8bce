"""Training that document matching, coreference and multi-hop question answering with CDLM share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, set_seed

from ..finetuning.arguments import FinetuningArguments
from ..finetuning.seeds import Result, Scores, caveat, publish, report, run_seeds, training_facts
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import CdlmProcessor
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.cards import model_card, name_on_hub, public_name
from ..training.plots import CURVE
from ..training.runs import fingerprint, write_whole
from ..training.trainer import CardTrainer

# The logits of all sequences of a set, each kind padded to the longest sequence.
Logits = tuple[np.ndarray, ...]
# The scores of a set by name, and a JSON object for each of its rows.
Predicted = tuple[Scores, list[dict[str, Any]]]
Predict = Callable[[str, Any, Logits, Scores], Predicted]
Choose = Callable[[Any, Logits], Scores]


def _choose_nothing(rows: object, logits: Logits) -> Scores:
    return {}


@dataclass
class _CdlmRun:
    """What all seeds of a run share; most fields are parameters of `train_and_publish`."""

    model_class: type[PreTrainedModel]
    model_args: CdlmModelArguments
    processor: CdlmProcessor
    rows: Mapping[str, Any]
    reported: str
    predict: Predict
    choose: Choose

    def make_trainer(self, args: FinetuningArguments) -> CardTrainer:
        """Returns the trainer of one seed."""
        model, _ = self.model_args.load(self.model_class)
        first_row = self.rows["train"][0]
        args.label_names = [name for name in first_row if name.endswith(("labels", "positions"))]
        return CardTrainer(
            model=model,
            args=args,
            data_collator=lambda batch: dict(self.processor.pad(batch)),
            train_dataset=self.rows["train"],
            eval_dataset=self.rows["validation"],
        )

    def score(self, trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        """Scores a trained model; writes the predictions of the reported set to the folder."""
        logits, loss = self._logits(trainer, "validation")
        chosen = self.choose(self.rows["validation"], logits)
        values, records = self.predict("validation", self.rows["validation"], logits, chosen)
        scores = {"validation": {**values, "loss": loss}}
        if self.reported != "validation":
            logits, loss = self._logits(trainer, self.reported)
            rows = self.rows[self.reported]
            values, records = self.predict(self.reported, rows, logits, chosen)
            scores[self.reported] = {**values, "loss": loss}

        if trainer.args.should_save:
            lines = [json.dumps(record, ensure_ascii=False) for record in records]
            write_whole(folder / f"{self.reported}_predictions.jsonl", "\n".join(lines))
        return scores, chosen

    def _logits(self, trainer: CardTrainer, name: str) -> tuple[Logits, float]:
        output = trainer.predict(self.rows[name])
        logits = output.predictions
        if not isinstance(logits, tuple):
            logits = (logits,)
        return logits, output.metrics["test_loss"]


def train_and_publish(
    model_class: type[PreTrainedModel],
    model_args: CdlmModelArguments,
    args: FinetuningArguments,
    sets: Mapping[str, Any],
    sequences: Callable[[str, CdlmProcessor], Any],
    predict: Predict,
    baseline: tuple[str, Callable[[Any], Scores]],
    card: Mapping[str, Any],
    settings: Mapping[str, object],
    choose: Choose = _choose_nothing,
) -> None:
    """Trains a CDLM once per seed and publishes the one with the lowest validation loss.

    Args:
        model_class: the class of the model.
        model_args: the model to start from.
        args: the arguments of the training.
        sets: training, validation and perhaps test set, by name; all rows have labels.
        sequences: returns what the model reads of the set of that name.
        predict: returns scores and records of the set of that name, from its sequences, their
            logits, and what was chosen.
        baseline: title and scores, on a set, of a row of the table that needs no training.
        card: the arguments of `model_card` that depend on the task: ``snippet``, ``pipeline_tag``,
            ``tags`` and ``scores`` (the name of one).
        settings: the name of the task, and further options that decide the result.
        choose: returns fields of the model's configuration, from the sequences of the validation
            set and their logits.

    Raises:
        ValueError: if a set is the training set.
    """
    fingerprints = {name: fingerprint(data) for name, data in sets.items()}
    for name in ("validation", "test"):
        if fingerprints.get(name) == fingerprints["train"]:
            raise ValueError(f"The {name} set is the training set; give another one.")
    reported = "validation"
    if "test" in sets:
        reported = "test"
    if args.learning_rate is None:
        args.learning_rate = 3e-5  # as in pretraining

    set_seed(args.seed)  # new rows of embeddings are drawn
    model, processor = model_args.load(model_class)
    weights = weights_fingerprint(model.base_model)
    del model
    run = _CdlmRun(
        model_class,
        model_args,
        processor=processor,
        rows={name: sequences(name, processor) for name in sets},
        reported=reported,
        predict=predict,
        choose=choose,
    )

    title = public_name(model_args.model)
    decided = {
        **settings,
        "model": title,
        "weights": weights,
        "max_length": processor.max_length,
        "attention_window": model_args.attention_window,
        **args.result_settings(),
    }
    for name, value in fingerprints.items():
        decided[f"{name} set"] = value
    results = run_seeds(args, settings=decided, make_trainer=run.make_trainer, score=run.score)
    if not args.should_save:
        return

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
        processor.save_pretrained(str(args.output_dir))
        return model

    facts = {
        **training_facts(args, best, started_from=title),
        **{f"{name} set": f"{len(data)} rows" for name, data in sets.items()},
        **settings,
        **best.config,
    }
    name = args.repository()
    whole_card = {
        **card,
        **_shared_card(args, best, table=table, reported=reported),
        "name": name,
        "snippet": card["snippet"].replace("{name}", name),
        "training": facts,
        "tags": ["cdlm", "longformer", "multi-document", *card["tags"]],
        "base_model": name_on_hub(model_args.model),
        "scores": {card["scores"]: best.scores[reported][card["scores"]]},
    }
    publish(args, best=best, open_model=open_best, card=model_card(**whole_card))


def _shared_card(
    args: FinetuningArguments, best: Result, table: str, reported: str
) -> dict[str, object]:
    """Returns the arguments of `model_card` that are the same for every task."""
    chosen = list(best.config)
    if args.load_best_model_at_end:
        chosen = ["the epoch", *chosen]
    return {
        "summary": SUMMARY,
        "pictures": {CURVE: "Learning curve"},
        "measured": (
            f"The {reported} set. Only the first row is"
            f" trained.{caveat(reported, *chosen)}\n\n{table}"
        ),
        "limits": LIMITS,
        "dataset": reported,
    }
