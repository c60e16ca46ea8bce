"""Trains masked vectors at a small scale, beside controls that need no training.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.masked_objectives encode --data DATA --novels novels \
        --texts texts.jsonl --folder STUDY --encoder nextlevelbert/static \
        --num_hidden_layers 1 --offsets 8
    python -m benchmarks.studies.masked_trial --folder STUDY

The runs are rows h to l of `masked_objectives`, and row h with fewer novels, with the texts of
`long_texts`, and with five times the positions. A model is one layer that starts at random, and
reads 300,000 positions in sequences of 128: 512 positions in a step, AdamW at 1e-3 with a warm-up
and a cosine to zero. Runs that are finished are not trained again.

A masked vector is found as in `masked_controls`; all masked vectors are replaced by [MASK]. The
vectors of chapters and stories are means of contextual vectors, which are whitened on the training
novels that are measured, and have length 1; *beside* puts the whitened mean beside them, each of
length 1.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from transformers import TrainerCallback

from benchmarks.common.measuring import (
    add_json_option,
    print_table,
    with_interval,
    write_figures,
)
from benchmarks.common.objectives import TargetSpace
from benchmarks.studies.masked_objectives import (
    CONTROLS,
    MEASURED,
    VALIDATION,
    Contextualize,
    Evaluation,
    Learner,
    facts_of,
    new_trainer,
    run_name,
    search,
    study_parser,
    trained_learner,
)
from nextlevelbert import VectorCorpus
from nextlevelbert.models.configuration_nextlevelbert import SEP

SETTINGS = (
    "--positions 300000 --evaluate_every 300000 --sequence_length 128 --batch_size 4"
    " --learning_rate 1e-3"
)
# Options of each run. Fractions are of 198 novels.
RUNS = {
    "h": "--row h",
    "l": "--row l",
    "i": "--row i",
    "j": "--row j",
    "k": "--row k",
    "h, second seed": "--row h --seed 1",
    "h, 1/2 of the novels": "--row h --novels_used 99",
    "h, 1/4 of the novels": "--row h --novels_used 50",
    "h, 1/8 of the novels": "--row h --novels_used 25",
    "h, 1/8 of the novels, second seed": "--row h --novels_used 25 --seed 1",
    "h, novels and texts": "--row h --more",
    "h, novels and texts, second seed": "--row h --more --seed 1",
    "h, five times": "--row h --positions 1500000",
}
CHOICES = {"in_pool": "of 8,192", "in_all": "of all masked"}
TEXTS = {"": "unseen", "train_": "training"}
Queries = Mapping[str, Mapping[str, float]]


def read_options(folder: Path, words: str) -> Namespace:
    """Reads the options of a run as `masked_objectives` does."""
    return study_parser().parse_args(["train", "--folder", str(folder), *words.split()])


def options_of(folder: Path, name: str) -> Namespace:
    """Returns the options of one of `RUNS`."""
    return read_options(folder, f"{SETTINGS} {RUNS[name]}")


def chunks_of(args: Namespace) -> int:
    """Counts the distinct chunks that a run reads, at one offset."""
    corpus = VectorCorpus(args.folder / "train")
    chunks = int(corpus.document_offsets[args.novels_used or len(corpus)])
    if args.more:
        chunks += VectorCorpus(args.folder / "more").num_chunks
    return chunks


class SaveAtTheEnd(TrainerCallback):
    """Saves a checkpoint after the last step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = state.global_step == state.max_steps


def train_once(args: Namespace) -> float:
    """Trains a run unless it is finished, and returns the CPU-seconds that it took."""
    seconds = args.folder / "runs" / run_name(facts_of(args)) / "cpu_seconds.json"
    if not seconds.exists():
        begin = time.process_time()
        new_trainer(args, [SaveAtTheEnd()]).train()
        seconds.write_text(json.dumps(time.process_time() - begin))
    return float(json.loads(seconds.read_text()))


# --- Masked vectors


def novels_of(batches: Sequence[Mapping[str, torch.Tensor]]) -> np.ndarray:
    """Numbers the novel of each masked vector. A [SEP] ends each novel of the stream."""
    special_ids = torch.cat([batch["special_ids"].flatten() for batch in batches])
    masked = torch.cat([batch["mask_positions"].flatten() for batch in batches])
    return (special_ids == SEP).cumsum(dim=0)[masked].cpu().numpy()


def masked_figures(
    evaluation: Evaluation, right: Mapping[str, Mapping[str, torch.Tensor]], name: str
) -> dict[str, list[float]]:
    """Returns shares of masked vectors that are found, and differences to the weighed neighbours.

    Args:
        evaluation: holds the masked vectors and the controls.
        right: which vectors are found, by the prefix of the texts and the name of the choice.
        name: name of the prediction in `right`.
    """
    figures = {}
    for prefix, text in TEXTS.items():
        novels = novels_of(evaluation.batches[prefix])
        for choice, shown in CHOICES.items():
            hits = right[prefix][f"{name}_{choice}"].double().cpu().numpy()
            control = evaluation.untrained[prefix][f"weighed_{choice}"].double().cpu().numpy()
            key = f"{text}: {shown}"
            figures[key] = with_interval(hits, novels, seed=0)
            figures[f"{key}, minus weighed"] = with_interval(hits - control, novels, seed=0)
    return figures


# --- Document vectors


def whitened_mean(space: TargetSpace) -> Contextualize:
    """Makes a function from chunk vectors to whitened ones of length 1, and to their means."""

    def whiten(documents: list[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
        vectors = [F.normalize(space(document), dim=-1) for document in documents]
        return vectors, torch.stack([document.mean(dim=0) for document in vectors])

    return whiten


def beside_whitened(learner: Learner, evaluation: Evaluation) -> Contextualize:
    """Makes a function from chunk vectors to whitened contextual ones, and to both means."""
    contextualize = learner.model.base_model.contextualize
    corpus = VectorCorpus(evaluation.folder / "train")
    measured = [corpus[index].plain.float() for index in range(min(MEASURED, len(corpus)))]
    states, _ = contextualize(measured)
    space = TargetSpace(states[0].shape[-1])
    space.whiten(states)
    of_chunks = whitened_mean(evaluation.space)
    of_states = whitened_mean(space)

    def contextual(documents: list[torch.Tensor]) -> tuple[Sequence[torch.Tensor], torch.Tensor]:
        vectors, means = of_states(contextualize(documents)[0])
        whitened = F.normalize(of_chunks(documents)[1], dim=-1)
        return vectors, torch.cat([whitened, F.normalize(means, dim=-1)], dim=-1)

    return contextual


def of_queries(evaluation: Evaluation, contextualize: Contextualize) -> Queries:
    scores: dict[str, Mapping[str, float]] = {}
    for task in VALIDATION:
        scores |= search(evaluation.folder, task, contextualize)
    return scores


def book_or_story(document: str) -> str:
    """Returns the book of a chapter, or the story itself."""
    return document.partition("#")[0]


def document_figures(folder: Path, scores: Queries, control: Queries) -> dict[str, list[float]]:
    """Returns MAP of chapters and MRR of stories, and the difference to the whitened mean.

    Args:
        folder: folder of the study.
        scores: of each query, by task and kind of vectors.
        control: those of the whitened mean, which is its kind `document`.
    """
    figures = {}
    for task in VALIDATION:
        of_control = control[f"{task}_document"]
        relevant = json.loads((folder / f"{task}.json").read_text())
        # The right chapters of a chapter are of its book, and the right story of an answer is one.
        books = np.array([book_or_story(min(relevant[query])) for query in of_control])
        for kind, shown in (("contextual", ""), ("document", ", beside")):
            values = np.array([scores[f"{task}_{kind}"][query] for query in of_control])
            differences = values - np.array([*of_control.values()])
            figures[task + shown] = with_interval(values, books, seed=0)
            figures[f"{task}{shown}, minus whitened"] = with_interval(differences, books, seed=0)
    return figures


def run_figures(
    evaluation: Evaluation, learner: Learner, control: Queries
) -> dict[str, list[float]]:
    """Measures a trained model, see `masked_figures` and `document_figures`."""
    right = {}
    for prefix in TEXTS:
        predicted = evaluation.predicted(learner, prefix)
        right[prefix] = evaluation.found(learner, *predicted)
    figures = masked_figures(evaluation, right, "found")
    scores = of_queries(evaluation, beside_whitened(learner, evaluation))
    return figures | document_figures(evaluation.folder, scores, control)


@torch.inference_mode()
def measure(runs: Mapping[str, Namespace]) -> dict[str, dict[str, list[float]]]:
    """Measures finished runs beside the controls, and returns the figures by row."""
    first = next(iter(runs.values()))
    evaluation = Evaluation(first)
    folder = first.folder
    control = of_queries(evaluation, whitened_mean(evaluation.space))
    rows = {name: masked_figures(evaluation, evaluation.untrained, name) for name in CONTROLS}
    rows["whitened mean"] = document_figures(folder, control, control)
    for name, args in runs.items():
        path = folder / "runs" / run_name(facts_of(args)) / "figures.json"
        if not path.exists():
            figures = run_figures(evaluation, trained_learner(args), control)
            path.write_text(json.dumps(figures))
        rows[name] = json.loads(path.read_text())
        print(f"{name}: measured", flush=True)
    return rows


def report(runs: Mapping[str, Namespace], json_path: Path | None) -> None:
    """Trains runs, measures them, and writes and prints the table."""
    trained = {name: train_once(run) for name, run in runs.items()}
    begin = time.process_time()
    measured = measure(runs)
    rows: dict[str, dict[str, object]] = {row: dict(cells) for row, cells in measured.items()}
    for name, run in runs.items():
        rows[name]["chunks"] = chunks_of(run)
        rows[name]["positions"] = run.positions
        rows[name]["CPU-seconds"] = round(trained[name])
    seconds = sum(trained.values()) + time.process_time() - begin
    write_figures(json_path, rows, cpu_seconds=round(seconds))
    columns = [f"{text}: {shown}" for text in TEXTS.values() for shown in CHOICES.values()]
    columns += [*VALIDATION, *(f"{task}, beside" for task in VALIDATION)]
    table = []
    for name, figures in measured.items():
        cells = ["" if key not in figures else f"{figures[key][0]:.3f}" for key in columns]
        table.append([name, *cells])
    print_table(["", *columns], table)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="of `masked_objectives encode`")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[*RUNS], help="default: all")
    add_json_option(parser)
    args = parser.parse_args()
    runs = {name: options_of(args.folder, name) for name in args.runs}
    report(runs, args.json)


if __name__ == "__main__":
    main()
