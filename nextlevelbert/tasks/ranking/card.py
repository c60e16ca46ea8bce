"""The model card of a document ranker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ...training.plots import CURVE
from .data import RankingData

_KINDS = {"nextlevelbert": "[NextLevelBERT](https://arxiv.org/abs/2402.17682)", "hate": "HATE"}


def write_ranking_card(
    folder: Path,
    name: str,
    config: Any,
    sets: Mapping[str, RankingData],
    reported: str,
    facts: Mapping[str, Any],
    table: str,
    scores: Mapping[str, float],
    base: str | None,
) -> None:
    """Writes ``README.md``.

    Args:
        folder: of the model.
        name: of the model, or its repository on the Hub.
        config: of the model.
        sets: what it was trained and measured on.
        reported: name of the set that the scores are from.
        facts: of the training, by name.
        table: the results in markdown.
        scores: of this very checkpoint.
        base: name on the Hub of what it started from.
    """
    pool, kind = sets[reported].task, _KINDS[config.model_type]
    metric = next(metric for metric in scores if metric.startswith("mrr@"))
    data = ModelCardData(
        license="apache-2.0",
        library_name="nextlevelbert",
        pipeline_tag="sentence-similarity",
        tags=[config.model_type, "long-documents", "sentence-transformers", "document-ranking"],
        base_model=base,
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-retrieval",
                dataset_type="custom",
                dataset_name=pool.name,
                metric_type=metric,
                metric_value=round(scores[metric], 4),
            )
        ],
    )
    rows = "\n".join(f"| {key} | `{value}` |" for key, value in facts.items())
    searched = "its candidates" if sets[reported].candidates is not None else f"{len(pool.documents):,} documents"
    flattery = ""
    if reported == "validation":
        flattery = " The epoch was chosen on this set, too, so the scores flatter the model: there was no test set."
    card = ModelCard(f"""---
{data.to_yaml()}
---
# {name}

A {kind} that gives a query and the long documents which answer it nearby vectors.

```python
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
query = model.encode_query("what the document should be about")
documents = model.encode_document(["the text of a whole document", "and of another one"])
scores = model.similarity(query, documents)
```

## How it was trained

| argument | value |
| --- | --- |
{rows}

Every query looks for its own document among those of its batch (cosine times 20, cross-entropy).

![Loss and validation score over epochs]({CURVE})

## What was measured

{len(pool.queries):,} queries of {pool.name}, each ranking {searched}.{flattery}

{table}

## Limits

- The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector.
- Documents that share names or rare words with a query are found by BM25 without training; compare on your own texts.
""")
    card.save(folder / "README.md")
