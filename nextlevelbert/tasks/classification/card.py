"""The model card of a classifier or chooser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...finetuning.task import SeedResult, Task
from ...training.cards import CardFacts, CardText
from ...training.plots import CONFUSION, CURVE
from .data import TaskData

_PICTURES = {CURVE: "Loss and score over epochs", CONFUSION: "Confusion matrix"}
_SETTINGS = ("class_weights", "freeze_encoder")


def classification_card(
    task: Task[Any, TaskData], text: CardText, name: str, best: SeedResult, table: str, settings: dict[str, object]
) -> CardFacts:
    """What the card tells.

    Args:
        task: after its runs; the pictures lie in its output folder.
        text: of the family of models.
        name, best, table, settings: as in `Task.card`.
    """
    sets, args, options = task.sets, task.args, task.options
    kind, adapter = sets.train.problem_type, bool(getattr(options, "lora", False))
    evaluation = f"best epoch by validation {args.metric_for_best_model}"
    epoch = evaluation if args.load_best_model_at_end else "last epoch"
    chosen = f"This checkpoint is the {epoch} of the seed with the lowest validation loss."
    if sets.reported == "validation":
        chosen += " The scores are from that validation set, too, so they flatter the model: there was no test set."
    facts = task.training_facts(best, settings)
    return CardFacts(
        name=name,
        summary=f"A {text.name} fine-tuned on {sets.train.source}. {text.reads}",
        snippet=_snippet(name, sets.train, options.base_model, text.base_arguments if adapter else None),
        model={"classes": ", ".join(sets.train.label_names or ()) or "none", **text.settings},
        training={
            **facts,
            "parameters": f"{facts['parameters']}{text.uncounted}",
            "examples": ", ".join(f"{len(data.examples):,} {part}" for part, data in sets.by_name.items()),
            **{key: settings[key] for key in _SETTINGS if key in settings},
        },
        pictures={file: title for file, title in _PICTURES.items() if (Path(args.output_dir) / file).exists()},
        measured=f"{table}\n\n{chosen}",
        limits=[
            "Small sets have wide margins, and the deviation over seeds does not cover the choice of the set.",
            *text.limits,
        ],
        pipeline_tag="multiple-choice" if kind == "multiple_choice" else "text-classification",
        tags=[*text.tags, "long-documents"],
        adapter=adapter,
        base_model=options.base_model,
        scores={metric: value for metric, value in best.scores[sets.reported].items() if metric != "loss"},
        dataset=sets.scored.source,
        scored_task_name=kind.replace("_", " "),
    )


def _snippet(name: str, train: TaskData, base: str | None, base_arguments: str | None) -> str:
    """Code that opens the model (an adapter on `base`) and reads a document, with a question or candidates."""
    adapter = base_arguments is not None
    choice, pair = train.problem_type == "multiple_choice", train.examples[0].question is not None
    auto_class = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = ["import nextlevelbert  # registers the architecture"]
    if adapter:
        lines.append("from peft import PeftModel")
    lines += [f"from transformers import {auto_class}, AutoTokenizer", ""]
    if adapter:
        lines.append(f'base = {auto_class}.from_pretrained("{base or "the base checkpoint"}"{base_arguments})')
        lines.append(f'model = PeftModel.from_pretrained(base, "{name}").eval()')
    else:
        lines.append(f'model = {auto_class}.from_pretrained("{name}")')
    lines.append(f'tokenizer = AutoTokenizer.from_pretrained("{name}")')
    if not (choice or pair):
        lines.append('scores = model(**tokenizer("the text of a whole document", return_tensors="pt")).logits')
        return "\n".join(lines)
    lines.append('document = tokenizer("the text of a whole document", return_tensors="pt")')
    texts = '["the question? one answer", "the question? another"]' if choice else '["a question about it"]'
    lines.append(f'pair = tokenizer({texts}, padding=True, return_tensors="pt")')
    ids = ['pair_input_ids=pair["input_ids"]', 'pair_attention_mask=pair["attention_mask"]']
    ids = [f"{part}[None]" for part in ids] if choice else ids
    lines.append(f"scores = model(**document, {', '.join(ids)}).logits")
    return "\n".join(lines)
