"""Model cards written from facts: what went in, how it was trained, what was measured, what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..corpus.layout import Manifest

CURVE = "loss_curve.png"

_SCORES = (
    ("eval_masked_accuracy", "masked vector found", "tab:green"),
    ("eval_masked_cosine", "cosine to target", "tab:purple"),
    ("eval_pair_accuracy", "segment of the same document found", "tab:green"),
)


def plot_learning_curve(log_history: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Training and evaluation loss, and what is found of masked vectors or of pairs, over optimiser steps, as a PNG.

    Args:
        log_history: `trainer.state.log_history`.
        path: where the picture goes.
    """
    from matplotlib.figure import Figure  # no pyplot: a library must not touch a global figure

    def series(name: str) -> tuple[list[int], list[float]]:
        rows = [(entry["step"], entry[name]) for entry in log_history if name in entry]
        return [step for step, _ in rows], [value for _, value in rows]

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    losses.plot(*series("loss"), label="training", color="tab:blue")
    losses.plot(*series("eval_loss"), "o-", label="evaluation", color="tab:orange", markersize=3)
    losses.set(xlabel="optimiser step", ylabel="loss", title="Loss")
    for name, label, colour in _SCORES:
        if series(name)[0]:
            scores.plot(*series(name), "o-", label=label, color=colour, markersize=3)
    scores.plot(*series("eval_chance_accuracy"), "--", label="chance to find", color="tab:gray")
    scores.set(xlabel="optimiser step", title="On held-out documents")
    scores.set_ylim(bottom=0)
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def _table(rows: dict[str, Any], head: tuple[str, str]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {name} | {value} |" for name, value in rows.items()])


_MASKED_SCORES = """\
On held-out documents. `masked_accuracy`: how often the predicted vector is nearer (by cosine) to the true one than to
every other masked vector of the batch; `chance_accuracy`: what guessing gives."""
_PAIR_SCORES = """\
On held-out documents. `pair_accuracy`: how often a segment finds that of its own document among those of the batch, by
the cosine of document vectors; `chance_accuracy`: what guessing gives."""

_FAMILIES = {
    "nextlevelbert": """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682): it cuts a document of any length into chunks, turns each into a
vector with a frozen sentence encoder, and reads the sequence of vectors with a masked language model over vectors.""",
    "hate": """\
A HATE (Hierarchical Attention-based Text Encoder): it cuts a document of any length into sentences, turns each into
a vector with a frozen sentence encoder, and reads the sequence of vectors with a small Transformer that has learned
to find masked sentences among those of its batch.""",
}


def write_pretraining_card(
    folder: str | Path,
    name: str,
    config: Any,
    corpus: Manifest,
    recipe: dict[str, Any],
    log_history: Sequence[dict[str, Any]],
    baseline: dict[str, float] | None = None,
) -> ModelCard:
    """Writes ``README.md`` and the learning curve beside a pretrained model.

    Args:
        folder: the model's folder.
        name: the model's name, or its repository on the Hub.
        config: its configuration.
        corpus: manifest of the training corpus.
        recipe: the training arguments worth telling, by name.
        log_history: `trainer.state.log_history`.
        baseline: scores of the mean of the context, from `context_mean_baseline`.
    """
    folder = Path(folder)
    plot_learning_curve(log_history, folder / CURVE)
    losses = [entry["loss"] for entry in log_history if "loss" in entry]
    evaluations = [entry for entry in log_history if "eval_chance_accuracy" in entry]
    pairs = bool(evaluations) and "eval_pair_accuracy" in evaluations[-1]
    scored = ("pair_accuracy",) if pairs else ("masked_cosine", "masked_accuracy")
    metrics = ("loss", *scored, "chance_accuracy")
    data = ModelCardData(
        license="apache-2.0",
        library_name="nextlevelbert",
        pipeline_tag="sentence-similarity",
        tags=[config.model_type, "long-documents", "sentence-transformers", "feature-extraction"],
        base_model=config.chunk_encoder_name if "/" in config.chunk_encoder_name else None,  # a name on the Hub
    )
    if evaluations:
        data.model_name = name
        data.eval_results = [
            EvalResult(
                task_type="sentence-similarity" if pairs else "fill-mask",
                task_name="segments of one document" if pairs else "masked vector modelling",
                dataset_type="custom",
                dataset_name="held-out documents",
                metric_type=metric,
                metric_value=round(evaluations[-1][f"eval_{metric}"], 4),
            )
            for metric in scored
        ]
    upper = config.encoder_config
    widths = config.bottleneck_widths() if config.model_type == "hate" else []
    facts = {
        "chunk encoder (frozen)": f"`{config.chunk_encoder_name}`, weights `{config.chunk_encoder_fingerprint[:12]}…`",
        "chunking": f"{config.chunking}, at most {config.chunk_size} tokens a chunk",
        "encoder over chunks": f"{upper.model_type}, {upper.num_hidden_layers} layers, "
        f"hidden size {config.hidden_size}, {config.max_chunks} chunks in a window",
        **({"bottleneck": " → ".join(map(str, widths))} if len(widths) > 1 else {}),
        "documents of any length": f"`long_documents={config.long_documents!r}`",
        **({"chunk vectors": "centred and whitened within documents"} if getattr(config, "whiten_chunks", 0) else {}),
        "document vector": "trained projections of the mean of the chunk vectors and of the contextual ones, added"
        if config.pooling == "residual"
        else f"{config.pooling} of the contextual chunk vectors",
        "training corpus": f"{corpus['documents']:,} documents, {corpus['tokens']:,} tokens, "
        f"{corpus['chunks']:,} chunks (encoded in {corpus['encoder']['dtype']})",
    }
    scores = ""
    if evaluations:
        columns = {"first evaluation": evaluations[0], "last evaluation": evaluations[-1]}
        head = ["", *columns, *(["mean of the context"] if baseline else [])]
        rows = [f"| {' | '.join(head)} |", f"| {' | '.join(['---'] * len(head))} |"]
        for metric in metrics:
            cells = [f"{evaluation[f'eval_{metric}']:.4f}" for evaluation in columns.values()]
            if baseline:
                cells.append(f"{baseline[metric]:.4f}" if metric in baseline else "")
            rows.append(f"| {' | '.join([metric, *cells])} |")
        scores = "\n".join(rows)
    training = (
        f"Training loss went from {losses[0]:.5f} to {losses[-1]:.5f} (first and last logged).\n" if losses else ""
    )
    text = f"""---
{data.to_yaml()}
---
# {name}

{_FAMILIES[config.model_type]}

```python
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["the text of a whole book", "and of another one"])
```

`AutoModel.from_pretrained("{name}").encode(texts)` also gives contextual and plain chunk vectors and their characters.
Without the package installed, `trust_remote_code=True` opens the same folder.

## What it is

{_table(facts, ("", ""))}

## How it was trained

{_table({key: f"`{value}`" for key, value in recipe.items()}, ("argument", "value"))}

{training}
![Loss and held-out scores over training]({CURVE})

## What was measured

{_PAIR_SCORES if pairs else _MASKED_SCORES}

{scores or "Nothing: the run had no evaluation."}

## Limits

- Chunk borders fall wherever the token count says; the chunk encoder's language and domain are the model's.
- A document vector says what a document is about; to find a detail in it, search the chunk vectors or use BM25.
- The scores above tell what the model learned, not how good its document vectors are on your task.
"""
    card = ModelCard(text)
    card.save(folder / "README.md")
    return card
