"""What document matching, coreference and multi-hop question answering with CDLM share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from transformers import set_seed

from ..data.rows import fingerprint
from ..finetuning.models import hub_name, public_name
from ..finetuning.seeds import (
    FinetuningArguments,
    Scores,
    caveat,
    publish,
    report,
    run_seeds,
    training_facts,
)
from ..models.chunk_encoder import weights_fingerprint
from ..models.processing_cdlm import CdlmProcessor
from ..pretraining.cdlm import LIMITS, SUMMARY, CdlmModelArguments
from ..training.trainer import CURVE, CardTrainer, write_whole

Logits = tuple[
    np.ndarray, ...
]  # of all sequences of a set, each kind padded to the longest sequence
Predicted = tuple[
    Scores, list[dict[str, Any]]
]  # scores of a set by name, and a JSON object for each of its rows


def train_and_publish(
    model_class: Any,
    model_args: CdlmModelArguments,
    args: FinetuningArguments,
    sets: Mapping[str, Any],
    sequences: Callable[[str, CdlmProcessor], Any],
    predict: Callable[[str, Any, Logits, Scores], Predicted],
    baseline: tuple[str, Callable[[Any], Scores]],
    card: Mapping[str, Any],
    settings: Mapping[str, object],
    choose: Callable[[Any, Logits], Scores] = lambda rows, logits: {},
) -> None:
    """Trains a CDLM once per seed and publishes the one with the lowest validation loss, with its
    card.

    Args:
        sets: training, validation and perhaps test set, by name; all rows have labels.
        sequences: what the model reads of the set of that name.
        predict: scores and records of the set of that name from its sequences, their logits, and
            what was chosen.
        baseline: title and scores, on a set, of what needs no training.
        card: of `model_card` what is of the task: ``snippet``, ``pipeline_tag``, ``tags``,
            ``scores`` (name of one).
        settings: the name of the task, and further options that decide the result.
        choose: fields of the model's configuration, from the sequences of the validation set and
            their logits.
    """
    prints = {name: fingerprint(data) for name, data in sets.items()}
    if twice := [name for name in sets if name != "train" and prints[name] == prints["train"]]:
        raise ValueError(f"The {twice[0]} set is the training set; give another one.")
    args.learning_rate = (
        3e-5 if args.learning_rate is None else args.learning_rate
    )  # as in pretraining
    reported = "test" if "test" in sets else "validation"
    set_seed(args.seed)  # new rows of embeddings are drawn
    reader, processor = model_args.load(model_class)
    rows = {name: sequences(name, processor) for name in sets}
    weights = weights_fingerprint(reader.base_model)
    del reader

    def make_trainer(args: FinetuningArguments) -> CardTrainer:
        model, _ = model_args.load(model_class)
        args.label_names = [
            name for name in rows["train"][0] if name.endswith(("labels", "positions"))
        ]
        return CardTrainer(
            model, args, lambda batch: dict(processor.pad(batch)), rows["train"], rows["validation"]
        )

    def score(trainer: CardTrainer, folder: Path) -> tuple[dict[str, Scores], Scores]:
        scores: dict[str, Scores] = {}
        chosen: Scores = {}
        for name in dict.fromkeys(("validation", reported)):
            output: Any = trainer.predict(rows[name])
            logits = (
                output.predictions
                if isinstance(output.predictions, tuple)
                else (output.predictions,)
            )
            chosen = chosen or choose(
                rows[name], logits
            )  # on the validation set, which comes first
            values, records = predict(name, rows[name], logits, chosen)
            scores[name] = {**values, "loss": output.metrics["test_loss"]}
        if trainer.args.should_save:
            lines = [json.dumps(record, ensure_ascii=False) for record in records]
            write_whole(folder / f"{reported}_predictions.jsonl", "\n".join(lines))
        return scores, chosen

    hub, title = hub_name(model_args.model), public_name(model_args.model)
    decided = {**settings, "model": title, "weights": weights, "max_length": processor.max_length}
    decided |= {"attention_window": model_args.attention_window, **args.signature()}
    decided |= {f"{name} set": value for name, value in prints.items()}
    results = run_seeds(args, decided, make_trainer, score)
    if not args.should_save:
        return
    trivial = {baseline[0]: baseline[1](sets[reported])}
    best, table = report(args, results, reported, f"{title} (cdlm)", trivial)

    def open_best(folder: Path) -> Any:
        model = model_class.from_pretrained(folder)
        for name, value in best.config.items():
            setattr(model.config, name, value)
        processor.save_pretrained(str(args.output_dir))
        return model

    name = args.repository()
    facts = {f"{part} set": f"{len(data)} rows" for part, data in sets.items()}
    chosen = [*(["the epoch"] if args.load_best_model_at_end else []), *best.config]
    card = {
        **card,
        "name": name,
        "summary": SUMMARY,
        "snippet": card["snippet"].replace("{name}", name),
        "training": {**training_facts(args, best, title), **facts, **settings, **best.config},
        "pictures": {CURVE: "Learning curve"},
        "measured": (
            f"The {reported} set. Only the first row is"
            f" trained.{caveat(reported, *chosen)}\n\n{table}"
        ),
        "limits": LIMITS,
        "tags": ["cdlm", "longformer", "multi-document", *card["tags"]],
        "base_model": hub,
        "dataset": reported,
        "scores": {card["scores"]: best.scores[reported][card["scores"]]},
    }
    publish(args, best, open_best, card)
