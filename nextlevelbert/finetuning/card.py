"""Cards of fine-tuned models: what was trained on what, what was measured, over how many seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..tasks.classification.data import TaskData
from ..training.cards import CardText
from ..training.plots import CONFUSION, CURVE

_PIPELINES = {
    "single_label_classification": "text-classification",
    "multi_label_classification": "text-classification",
    "regression": "text-classification",
    "multiple_choice": "multiple-choice",
}


def write_finetuning_card(
    folder: str | Path,
    name: str,
    train: TaskData,
    reported: TaskData,
    facts: Mapping[str, Any],
    table: str,
    published: Mapping[str, float],
    choice: str,
    words: CardText,
    base_model: str | None = None,
    adapter: bool = False,
) -> ModelCard:
    """Writes ``README.md`` beside a fine-tuned model; the pictures lie there already.

    Args:
        folder: the model's folder.
        name: the model's name, or its repository on the Hub.
        train: what it was trained on.
        reported: the set that the scores are from.
        facts: what it is made of, and the training arguments worth telling.
        table: of `results_table`, all seeds.
        published: scores of the model in this folder.
        choice: a sentence that says how this model was chosen, and on which set.
        words: on its kind.
        base_model: where that has a name on the Hub.
        adapter: whether the folder holds a LoRA adapter.
    """
    folder, problem_type = Path(folder), train.problem_type
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag=_PIPELINES[problem_type],
        tags=[*words.tags, "long-documents", *(["lora"] if adapter else [])],
        base_model=base_model,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type=_PIPELINES[problem_type],
                task_name=problem_type.replace("_", " "),
                dataset_type="custom",
                dataset_name=reported.source,
                metric_type=metric,
                metric_value=round(value, 4),
            )
            for metric, value in published.items()
            if metric != "loss" and not math.isnan(value)
        ],
    )
    pictures = f"![Loss and score over epochs]({CURVE})\n"
    if (folder / CONFUSION).exists():
        pictures += f"\n![Confusion matrix]({CONFUSION})\n"
    limits = "\n".join(f"- {limit}" for limit in words.limits)
    text = f"""---
{data.to_yaml()}
---
# {name}

A {words.name} fine-tuned on {train.source}. {words.reads}

```python
{_snippet(name, train, base_model or "the base checkpoint", words.base_arguments if adapter else None)}
```

## What was measured

{table}

{choice}

{pictures}
## What it is, and how it was trained

{_two_columns(facts)}

## Limits

- Small sets have wide margins, and the deviation over seeds does not cover the choice of the set.
{limits}
"""
    card = ModelCard(text)
    card.save(folder / "README.md")
    return card


def _snippet(name: str, train: TaskData, base: str, base_arguments: str | None) -> str:
    """Code that opens the model (an adapter on `base`) and reads a document, with a question or candidates."""
    adapter = base_arguments is not None
    choice, pair = train.problem_type == "multiple_choice", train.examples[0].question is not None
    auto_class = "AutoModelForMultipleChoice" if choice else "AutoModelForSequenceClassification"
    lines = ["import nextlevelbert  # registers the architecture"]
    if adapter:
        lines.append("from peft import PeftModel")
    lines += [f"from transformers import {auto_class}, AutoTokenizer", ""]
    if adapter:
        lines.append(f'base = {auto_class}.from_pretrained("{base}"{base_arguments})')
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


def _two_columns(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())])
