"""The model card of an extractive summariser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ...training.plots import CURVE
from .data import SummarizationData


def write_summarization_card(
    folder: Path,
    name: str,
    sets: Mapping[str, SummarizationData],
    reported: str,
    facts: Mapping[str, Any],
    table: str,
    scores: Mapping[str, float],
    averaged: int,
    summarize: str,
    base: str | None,
    adapter: bool,
) -> None:
    """Writes ``README.md``.

    Args:
        folder: of the model.
        name: of the model, or its repository on the Hub.
        sets: what it was trained and measured on.
        reported: name of the set that the scores are from.
        facts: of the training, by name.
        table: the results in markdown.
        scores: of this very checkpoint.
        averaged: evaluations that the table's first row is the mean of.
        summarize: arguments of `summarize` that were measured.
        base: name on the Hub of what it started from.
        adapter: whether the folder holds an adapter and not a model.
    """
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag="summarization",
        tags=["bert-al", "long-documents", "extractive-summarization", *(["lora"] if adapter else [])],
        base_model=base,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="summarization",
                dataset_type="custom",
                dataset_name=sets[reported].source,
                metric_type=metric,
                metric_value=round(scores[metric], 4),
            )
            for metric in ("rouge1", "rouge2", "rougeL")
        ],
    )
    rows = "\n".join(f"| {key} | `{value}` |" for key, value in facts.items())
    counts = ", ".join(f"{len(each.documents):,} documents ({part})" for part, each in sets.items())
    labels = "came with the data" if sets["train"].labelled else "are the greedy ROUGE oracle's"
    flattery = ""
    if reported == "validation":
        flattery = (
            " The evaluation was chosen on this set, too, so the scores flatter the model: there was no test set."
        )
    own = ", ".join(f"{metric} {scores[metric]:.3f}" for metric in ("rouge1", "rouge2", "rougeL"))
    opened = f'model = BertAlForExtractiveSummarization.from_pretrained("{name}")'
    if adapter:
        known = base or "the checkpoint that it started from"
        opened = f"""from peft import PeftModel

base = BertAlForExtractiveSummarization.from_pretrained("{known}")
model = PeftModel.from_pretrained(base, "{name}").get_base_model()"""
    evaluations = f"the {averaged} evaluations" if averaged > 1 else "the evaluation"
    card = ModelCard(f"""---
{data.to_yaml()}
---
# {name}

A BERT-AL that picks the sentences of a document which make up its summary. Documents may have any length.

```python
from nextlevelbert import BertAlForExtractiveSummarization

{opened}
print(model.summarize("the text of a whole document", {summarize}))
```

## How it was trained

| argument | value |
| --- | --- |
{rows}

Sentence labels {labels}: {counts}.

![Loss over epochs]({CURVE})

## What was measured

Summaries of {sets[reported].source} by `summarize(..., {summarize})`: F1 of ROUGE with stemming, rougeL on the summary
as a whole, and precision, the share of chosen sentences that are labelled. The first row is the mean of {evaluations}
with the lowest validation loss; this checkpoint is the lowest of them ({own}).{flattery}

{table}

## Limits

- Whole sentences are copied, so a pronoun may lose what it stands for.
- Information flows forward only: a sentence is scored without knowledge of the segments behind its own.
- It has learnt what belongs into summaries of one kind of text.
""")
    card.save(folder / "README.md")
