"""Trains layers over chunk vectors to match two segments of a book, with and without masks before.

    python -m benchmarks.studies.masked_trial --folder STUDY
    python -m benchmarks.studies.two_stages --folder STUDY

Each row is one layer over whitened vectors, which reads 300 batches of 64 pairs of segments (4 to
48 chunks; AdamW at 3e-4, a cosine to zero), as nextlevelbert-static did. *Random* layers start
there; the others are first trained on masks, by runs of `masked_trial`. Controls are the whitened
mean of the chunk vectors, and nextlevelbert-static, whose two linear maps were trained by the same
objective on 188 of the 198 novels. *Beside* puts the whitened mean beside the document vector, each
of length 1. Runs that are finished are not trained again.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments, set_seed

from benchmarks.common.measuring import (
    add_json_option,
    print_table,
    with_interval,
    write_figures,
)
from benchmarks.common.objectives import TargetSpace
from benchmarks.studies.masked_objectives import (
    VALIDATION,
    Contextualize,
    new_learner,
    row_of,
    search,
    trained_learner,
)
from benchmarks.studies.masked_trial import book_or_story, options_of, whitened_mean
from nextlevelbert import (
    DataCollatorForSegmentPairs,
    NextLevelBertForContrastiveLearning,
    NextLevelBertModel,
    SegmentPairDataset,
    VectorCorpus,
)
from nextlevelbert.training import SetEpochCallback

STEPS = 300
PAIRS = 64
# Runs of `masked_trial` that come before, one for each seed.
MASKS: dict[str, Sequence[str] | None] = {
    "random": None,
    "masks": ("h", "h, second seed"),
}
SEEDS = 2
CONTROLS = ("whitened mean", "static", "random, beside")


def new_model(folder: Path, masks: str | None) -> NextLevelBertForContrastiveLearning:
    """Makes a model from the random layers of the study, or from those of a run on masks."""
    if masks is None:
        learner = new_learner(folder, row_of("h", best="d"), classes=0)
    else:
        learner = trained_learner(options_of(folder, masks))
    model = NextLevelBertForContrastiveLearning(learner.model.config)
    model.base_model.load_state_dict(learner.model.base_model.state_dict())
    return model


def train_once(folder: Path, row: str, seed: int) -> NextLevelBertModel:
    """Trains the second stage of a row unless it is finished, and returns its model."""
    output = folder / "pairs" / f"{row}-{seed}"
    if not (output / "cpu_seconds.json").exists():
        set_seed(seed)
        masks = None
        runs = MASKS[row]
        if runs is not None:
            masks = runs[seed]
        trainer = Trainer(
            model=new_model(folder, masks),
            args=TrainingArguments(
                str(output),
                max_steps=STEPS,
                per_device_train_batch_size=PAIRS,
                learning_rate=3e-4,
                lr_scheduler_type="cosine",
                seed=seed,
                use_cpu=not torch.accelerator.is_available(),
                dataloader_pin_memory=False,
                save_strategy="no",
                logging_steps=50,
                remove_unused_columns=False,
                report_to="none",
            ),
            data_collator=DataCollatorForSegmentPairs(),
            train_dataset=SegmentPairDataset(VectorCorpus(folder / "train"), seed=seed),
            callbacks=[SetEpochCallback()],
        )
        begin = time.process_time()
        trainer.train()
        trainer.save_model(str(output))
        seconds = time.process_time() - begin
        (output / "cpu_seconds.json").write_text(json.dumps(seconds))
    model = NextLevelBertForContrastiveLearning.from_pretrained(output)
    return model.base_model.eval()


def beside(model: NextLevelBertModel, whiten: Contextualize) -> Contextualize:
    """Makes a function from chunk vectors to document vectors beside whitened means."""

    def contextualize(documents: list[torch.Tensor]) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        vectors, means = whiten(documents)
        pooled = model.contextualize(documents)[1].float()
        return vectors, torch.cat([F.normalize(means, dim=-1), F.normalize(pooled, dim=-1)], dim=-1)

    return contextualize


def scores_of(
    folder: Path, contextualizers: Sequence[Contextualize], task: str, queries: Sequence[str]
) -> np.ndarray:
    """Returns the score of each query by document vectors, a mean over models (seeds)."""
    of_models = []
    for contextualize in contextualizers:
        scores = search(folder, task, contextualize)[f"{task}_document"]
        of_models.append([scores[query] for query in queries])
    return np.mean(of_models, axis=0)


@torch.inference_mode()
def measure(
    folder: Path, rows: dict[str, list[NextLevelBertModel]]
) -> dict[str, dict[str, list[float]]]:
    """Returns scores, and differences to the controls, by row and task."""
    train = VectorCorpus(folder / "train")
    space = TargetSpace(train.hidden_size)
    space.whiten(document.plain for document in train)
    whiten = whitened_mean(space)
    contextualizers: dict[str, list[Contextualize]] = {"whitened mean": [whiten]}
    for name, models in rows.items():
        contextualizers[name] = [model.contextualize for model in models]
        contextualizers[f"{name}, beside"] = [beside(model, whiten) for model in models]

    figures: dict[str, dict[str, list[float]]] = {name: {} for name in contextualizers}
    for task in VALIDATION:
        relevant = json.loads((folder / f"{task}.json").read_text())
        books = np.array([book_or_story(min(documents)) for documents in relevant.values()])
        scores = {}
        for name, of_row in contextualizers.items():
            scores[name] = scores_of(folder, of_row, task, queries=[*relevant])
        for name, values in scores.items():
            figures[name][task] = with_interval(values, books, seed=0)
            for control in CONTROLS:
                differences = with_interval(values - scores[control], books, seed=0)
                figures[name][f"{task}, minus {control}"] = differences
    return figures


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="of `masked_trial`")
    parser.add_argument("--static", default="nextlevelbert/static", help="nextlevelbert-static")
    add_json_option(parser)
    args = parser.parse_args()

    rows = {"static": [NextLevelBertModel.from_pretrained(args.static).eval()]}
    for name in MASKS:
        rows[name] = [train_once(args.folder, name, seed) for seed in range(SEEDS)]
    begin = time.process_time()
    figures = measure(args.folder, rows)
    seconds = time.process_time() - begin
    for path in (args.folder / "pairs").glob("*/cpu_seconds.json"):
        seconds += json.loads(path.read_text())
    write_figures(args.json, figures, steps=STEPS, cpu_seconds=round(seconds))
    columns = [*figures["static"]]
    table = []
    for name, of_row in figures.items():
        cells = []
        for column in columns:
            mean, low, high = of_row[column]
            if "minus" in column:
                cells.append(f"{low:+.3f} to {high:+.3f}")
            else:
                cells.append(f"{mean:.3f}")
        table.append([name, *cells])
    print_table(["", *columns], table)


if __name__ == "__main__":
    main()
