"""The card of a fine-tuned model: code that opens it, how it was trained, and how it was scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from huggingface_hub import ModelCard

from ..training.cards import (
    CITATIONS,
    FAMILY_NAMES,
    CardText,
    RunReport,
    collect_card,
    plain,
    public_name,
)
from .seeds import Result

if TYPE_CHECKING:
    from .run import ClassifierRun, Reader

_CHUNKS = (
    "The frozen chunk encoder reads one chunk at a time, so details within a chunk may be lost in"
    " its vector."
)
_SMALL = (
    "Scores on small sets are uncertain; the standard deviation over seeds does not include"
    " sampling of the test set."
)
_LIMITS = {
    "nextlevelbert": _CHUNKS,
    "hate": _CHUNKS,
    "chunkbert": (
        "Chunks do not attend to each other; only the convolutions read across their borders."
    ),
    "truncated": (
        "Only the beginning of a document is read, as many tokens as the encoder has positions."
    ),
}
_OPENING = """\
import nextlevelbert  # registers the architecture
from transformers import AUTO_CLASS, AutoTokenizer

model = AUTO_CLASS.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
document = tokenizer("the text of a whole document", return_tensors="pt")
"""
_WITH_PAIR = """\
pair = tokenizer(PAIR, padding=True, return_tensors="pt")
pair_ids = pair["input_ids"]AXIS
pair_mask = pair["attention_mask"]AXIS
scores = model(**document, pair_input_ids=pair_ids, pair_attention_mask=pair_mask).logits"""


def make_card(
    run: ClassifierRun,
    reader: Reader,
    *,
    best: Result,
    table: str,
    intended_use: str,
    snippet: str,
    pipeline_tag: str,
) -> ModelCard:
    """Makes the card of the best model of a run.

    Args:
        run: the run, with its sets and labels.
        reader: reader of the model.
        best: result of the best seed.
        table: table of the scores, in Markdown.
        intended_use: uses that the model is meant for.
        snippet: code that opens the model, see `card_snippet`.
        pipeline_tag: the Hub's name of the task.
    """
    data = "its author's documents"
    if run.data_name is not None:
        data = plain(run.data_name)

    text = CardText(
        summary=f"This model is a {FAMILY_NAMES[reader.family]}, fine-tuned on {data}.",
        intended_use=intended_use,
        measured=_measured_in_words(run, best),
        limits=[_SMALL, _LIMITS[reader.family]],
        snippet=snippet,
        pipeline_tag=pipeline_tag,
        tags=[reader.family, "long-documents"],
        caption="Loss over epochs",
    )
    trained, total = best.parameters
    dataset = f"{run.reported} set, {len(run.sets[run.reported])} examples"
    if run.data_name is not None:
        dataset = f"{run.data_name}, {dataset}"

    model_rows = {}
    if run.labels.names:
        model_rows["classes"] = ", ".join(map(plain, run.labels.names))

    scores = best.scores[run.reported]
    report = RunReport(
        training={
            "started from": public_name(run.model),
            "parameters trained": f"{trained:,} of {total:,}{reader.uncounted}",
            **reader.trained_parts,
            "examples": ", ".join(f"{len(rows):,} {name}" for name, rows in run.sets.items()),
            "seed": best.seed,
        },
        model_rows=model_rows,
        table=table,
        scores={name: value for name, value in scores.items() if name != "loss"},
        dataset=dataset,
        citation=CITATIONS.get(reader.family, ""),
        base_model=reader.base_model,
        log=best.log,
    )
    return collect_card(run.args, text, report)


def _measured_in_words(run: ClassifierRun, best: Result) -> str:
    """Returns a paragraph on what was scored, and how the checkpoint was chosen."""
    epoch = "last epoch"
    if run.args.load_best_model_at_end:
        epoch = f"best epoch by {run.args.metric_for_best_model}"

    selected = "lowest loss"
    if run.metric != "loss":
        selected = f"highest {run.metric}"

    scores = best.scores[run.reported]
    measured = (
        f"The scores are those of the {len(run.sets[run.reported])} examples of the"
        f" {run.reported} set. This checkpoint is the {epoch} of the seed with the"
        f" {selected} (accuracy {scores['accuracy']:.4f}). The row of the most frequent label"
        " is chance."
    )
    if "f1" in scores:
        measured += f" `f1` is the F1 of the class {plain(run.labels.names[-1])}."
    if run.reported == "validation":
        measured += " Chosen on this set, too: the checkpoint; so the scores are likely too high."

    return measured


def card_snippet(auto_class: str, family: str, pair: str = "", axis: str = "") -> str:
    """Returns code that opens a model and reads a document, perhaps with a question.

    Args:
        auto_class: name of the auto class in transformers.
        family: family of the model.
        pair: list of questions or choices, as code; "" for documents alone.
        axis: index that adds an axis to the ids of `pair`, as code.
    """
    snippet = _OPENING.replace("AUTO_CLASS", auto_class)
    if family == "truncated":
        snippet = snippet.replace('"pt")', '"pt", truncation=True)')
    if pair:
        return snippet + _WITH_PAIR.replace("PAIR", pair).replace("AXIS", axis)
    return f"{snippet}scores = model(**document).logits"
