"""Model cards of a CDLM that was fine-tuned on a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..training.plots import CURVE

_WHAT = """\
A [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related documents in one sequence, with
global attention on what it has to predict."""

_SNIPPETS = {
    "document_matching": """\
from transformers import AutoModelForSequenceClassification

import nextlevelbert  # registers the architecture

model = AutoModelForSequenceClassification.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
probability = model(**processor([["one document", "the other"]])).logits.softmax(dim=-1)[:, 1]""",
    "coreference": """\
from nextlevelbert import CdlmForCrossDocumentCoreference, CdlmProcessor, read_marked

model = CdlmForCrossDocumentCoreference.from_pretrained("{name}")
processor = CdlmProcessor.from_model(model)
texts, spans = zip(*map(read_marked, ["Apple <m>sued</m> Samsung.", "The <m>lawsuit</m> was filed on Friday."]))
row = processor.mentions(texts, [(number, *span) for number, found in enumerate(spans) for span in found])
probability = model(**processor.pad([row])).logits.sigmoid()
same = probability > model.config.coreference_threshold""",
    "multihop_qa": """\
from transformers import AutoModelForQuestionAnswering

import nextlevelbert  # registers the architecture
from nextlevelbert.tasks.multihop_qa import answer

model = AutoModelForQuestionAnswering.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
print(answer(model, processor, "Who wrote it?", [("A title", ["A sentence.", "Another one."])]))""",
}

_TAGS = {
    "document_matching": ("text-classification", "document-matching"),
    "coreference": ("text-classification", "cross-document-coreference"),
    "multihop_qa": ("question-answering", "multi-hop-question-answering"),
}

_LIMITS = """\
- Sets that are longer than a sequence are cut, the longest documents first; the processor says how much is lost.
- The language and domain are those of the encoder and of the training documents."""


def write_card(
    folder: str | Path,
    name: str,
    task: str,
    dataset: str,
    scores: Mapping[str, float],
    measured: str,
    facts: Mapping[str, Any],
    base: str | None = None,
    adapter: bool = False,
) -> None:
    """Writes ``README.md``.

    Args:
        folder: of the model.
        name: of the model, or its repository on the Hub.
        task: ``"document_matching"``, ``"coreference"`` or ``"multihop_qa"``.
        dataset: name of the set that the scores are from.
        scores: of this checkpoint.
        measured: what was measured, in markdown.
        facts: what it is and how it was trained, by name.
        base: name on the Hub of what it started from.
        adapter: whether it is a LoRA adapter.
    """
    pipeline, tag = _TAGS[task]
    data = ModelCardData(
        license="apache-2.0",
        library_name="peft" if adapter else "nextlevelbert",
        pipeline_tag=pipeline,
        tags=["cdlm", "longformer", "multi-document", tag],
        base_model=base,
    )
    if scores:
        data.model_name = name
        data.eval_results = [
            EvalResult(
                task_type=pipeline,
                dataset_type="custom",
                dataset_name=dataset,
                metric_type=metric,
                metric_value=round(value, 4),
            )
            for metric, value in scores.items()
        ]
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    snippet = _SNIPPETS[task].replace("{name}", base or "the base checkpoint" if adapter else name)
    if adapter:
        opened = f'model = PeftModel.from_pretrained(model, "{name}").eval()\n'
        snippet = "from peft import PeftModel\n" + snippet.replace("processor = ", opened + "processor = ", 1)
        snippet = snippet.replace(".from_model(model)", ".from_model(model.base_model.model)")
    card = ModelCard(f"""---
{data.to_yaml()}
---
# {name}

{_WHAT}

```python
{snippet}
```

## What it is, and how it was trained

| | |
| --- | --- |
{rows}

![Learning curve]({CURVE})

## What was measured

{measured}

## Limits

{_LIMITS}
""")
    card.save(Path(folder) / "README.md")
