"""What classification writes: predictions and scores, the table and its pictures, and the card of the best seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..evaluation.scores import majority_scores, task_scores
from ..finetuning.arguments import FinetuningArguments, hub_name, public_name
from ..finetuning.seeds import Result, caveat, mean_and_deviation, publish, report, training_facts
from ..training.cards import CONFUSION, CURVE, plain, plot_confusion
from .labelled_documents import LabelledDocuments, write_predictions

Sets = dict[str, LabelledDocuments]
_CHUNKS = "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector."
_CARDS = {
    "nextlevelbert": ("[NextLevelBERT](https://arxiv.org/abs/2402.17682)", _CHUNKS),
    "hate": ("HATE (Hierarchical Attention-based Text Encoder)", _CHUNKS),
    "chunkbert": (
        "[ChunkBERT](https://arxiv.org/abs/2310.20558)",
        "Attention stays within a chunk; only convolutions a few tokens wide look across its borders.",
    ),
    "bert-al": ("BERT-AL", "Information flows forward only: a segment is read without knowledge of later ones."),
    "truncated": ("encoder", "Only the start of a document is read, as many tokens as the encoder has positions."),
}


class Model(NamedTuple):
    """What all seeds share, whatever the kind of model."""

    kind: str
    rows: dict[str, Any]  # the sets, as it reads them
    new: Callable[[], Any]  # at the start of a seed
    trained: Callable[[Path], Any] | None  # from the folder of a seed, to be published; None for a baseline
    weights: str  # hash of what a training starts from
    rate: float  # usual learning rate
    adapter: bool
    base: dict[str, Any]  # what opens the base of an adapter, beside its name
    window: int | None = None  # most tokens that the encoder reads at once, where that says something


def scored(
    args: FinetuningArguments, folder: Path, name: str, data: LabelledDocuments, logits: np.ndarray, model: Any = None
) -> dict[str, dict[str, float]]:
    """Writes predictions; the scores of a set, and (``"NAME, long"``) of what the encoder cannot read at once."""
    if args.should_save:
        folder.mkdir(parents=True, exist_ok=True)
        write_predictions(folder / f"{name}_predictions.jsonl", data, logits)
    if not data.labelled:
        return {}
    labels, parts = data.labels(), {name: np.ones(len(logits), bool)}
    if model and model.window and 0 < (long := model.rows[name].lengths > model.window).sum() < len(long):
        parts[f"{name}, long"] = long
    return {part: task_scores(data.problem_type, logits[rows], labels[rows]) for part, rows in parts.items()}


def finish(
    args: FinetuningArguments,
    results: list[Result],
    sets: Sets,
    source: str,
    model: Model | None,
) -> None:
    """Prints and draws the results of all seeds, and publishes the model of the best with its card."""
    train, reported = sets["train"], "test" if "test" in sets and sets["test"].labelled else "validation"
    data, output, classes = (
        sets[reported],
        Path(str(args.output_dir)),
        len(train.label_names or train.examples[0].choices),
    )
    title = public_name(source) + (f" ({model.kind})" if model and model.window else "")
    trivial = "mean of the labels" if train.problem_type == "regression" else "most frequent label"
    rows: dict[str, Any] = {trivial: majority_scores(train.problem_type, train.labels(), data.labels(), classes)}
    if model and f"{reported}, long" in results[0].scores:
        lengths = model.rows[reported].lengths
        count = f"{(lengths > model.window).sum()} of {len(lengths)} documents over {model.window} tokens"
        long = mean_and_deviation([result.scores[f"{reported}, long"] for result in results])
        rows = {f"{title}, {reported}, long ({count})": long, **rows}
    best, table = report(args, results, reported, title, rows, "loss" if model else "accuracy", not model)
    if train.problem_type == "single_label_classification":
        files = [output / f"seed-{result.seed}" / f"{reported}_predictions.jsonl" for result in results]
        found = [json.loads(line)["prediction"] for file in files for line in file.read_text().splitlines()]
        names = list(train.label_names or ())
        numbers = np.array([names.index(name) for name in found])
        plot_confusion(np.tile(data.labels(), len(results)), numbers, names, output / CONFUSION)
    trained = model.trained if model else None
    publish(args, best, trained, card(args, sets, model, best, reported, table, source) if model and trained else {})


def card(
    args: FinetuningArguments, sets: Sets, model: Model, best: Result, reported: str, table: str, source: str
) -> Any:
    """Arguments of `model_card`."""
    train, name, (paper, limit) = sets["train"], args.repository(), _CARDS[model.kind]
    choice = train.problem_type == "multiple_choice"
    chosen = f"This checkpoint is the best epoch by {args.metric_for_best_model} of the seed with the lowest loss."
    pictures = {CURVE: "Loss over epochs", CONFUSION: "Confusion matrix"}
    examples = ", ".join(f"{len(data.examples):,} {part}" for part, data in sets.items())
    return {
        "name": name,
        "summary": f"A {paper} fine-tuned on {plain(train.source)}.",
        "snippet": snippet(name, train, hub_name(source) or "the base checkpoint", model),
        "model": {"classes": ", ".join(map(plain, train.label_names or ())) or "none"},
        "training": {**training_facts(args, best, public_name(source)), "examples": examples},
        "pictures": {file: text for file, text in pictures.items() if (Path(str(args.output_dir)) / file).exists()},
        "measured": f"{table}\n\n{chosen}{caveat(reported, 'the checkpoint')}",
        "limits": [
            "Small sets have wide margins; the deviation over seeds does not cover the choice of the set.",
            limit,
        ],
        "pipeline_tag": "multiple-choice" if choice else "text-classification",
        "tags": [model.kind, "long-documents"],
        "adapter": model.adapter,
        "base_model": hub_name(source),
        "scores": {metric: value for metric, value in best.scores[reported].items() if metric != "loss"},
        "dataset": sets[reported].source,
    }


def snippet(name: str, train: LabelledDocuments, base: str, model: Model) -> str:
    """Code that opens the model, or an adapter on its base, and reads a document, with what is asked about it."""
    choice, asked = train.problem_type == "multiple_choice", train.examples[0].asked
    auto = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = [
        "import nextlevelbert  # registers the architecture",
        f"from transformers import {auto}, AutoTokenizer",
        "",
    ]
    if model.adapter:
        lines.insert(1, "from peft import PeftModel")
        more = "".join(f", {key}={value!r}" for key, value in model.base.items())
        lines.append(f'base = {auto}.from_pretrained("{base}"{more})')
        lines.append(f'model = PeftModel.from_pretrained(base, "{name}").eval()')
    else:
        lines.append(f'model = {auto}.from_pretrained("{name}")')
    lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{name}")')
    lines.append('document = tokenizer("the text of a whole document", return_tensors="pt")')
    if not asked:
        return "\n".join([*lines, "scores = model(**document).logits"])
    texts = '["the question? one answer", "the question? another"]' if choice else '["a question about it"]'
    lines.append(f'pair = tokenizer({texts}, padding=True, return_tensors="pt")')
    ids = ", ".join(f'pair_{key}=pair["{key}"]' + "[None]" * choice for key in ("input_ids", "attention_mask"))
    return "\n".join([*lines, f"scores = model(**document, {ids}).logits"])
