"""The model card of an extractive summariser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .finetuning_card import CURVE
from .summarization_data import SummarizationData


def write_summarization_card(
    folder: Path,
    name: str,
    sets: Mapping[str, SummarizationData],
    reported: str,
    facts: Mapping[str, Any],
    table: str,
    scores: Mapping[str, float],
    sentences: int,
    base: str | None,
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
        sentences: of a summary.
        base: name on the Hub of what it started from.
    """
    data = ModelCardData(
        license="apache-2.0",
        library_name="nextlevelbert",
        pipeline_tag="summarization",
        tags=["bert-al", "long-documents", "extractive-summarization"],
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
    card = ModelCard(f"""---
{data.to_yaml()}
---
# {name}

A BERT-AL that picks the sentences of a document which make up its summary. Documents may have any length.

```python
from nextlevelbert import BertAlForExtractiveSummarization

model = BertAlForExtractiveSummarization.from_pretrained("{name}")
print(model.summarize("the text of a whole document", sentences={sentences}))
```

## How it was trained

| argument | value |
| --- | --- |
{rows}

Sentence labels {labels}: {counts}.

![Loss over epochs]({CURVE})

## What was measured

Summaries of {sentences} sentences of {sets[reported].source}: F1 of ROUGE with stemming, rougeL on the summary as a
whole, and precision, the share of chosen sentences that are labelled. The first row is the mean of the three
evaluations with the lowest validation loss; this checkpoint is the lowest of them ({own}).{flattery}

{table}

## Limits

- Whole sentences are copied, so a pronoun may lose what it stands for.
- Information flows forward only: a sentence is scored without knowledge of the segments behind its own.
- It has learnt what belongs into summaries of one kind of text.
""")
    card.save(folder / "README.md")
