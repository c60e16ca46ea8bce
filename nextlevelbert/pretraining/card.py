"""The card of a pretrained model: what it is, how it was trained, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..corpus.store import VectorCorpus
from ..models.configuration_hate import HateConfig
from ..models.configuration_nextlevelbert import NextLevelBertConfig
from ..models.files import write_whole
from ..training.cards import (
    CITATIONS,
    FAMILY_NAMES,
    SIMILARITY_WIDGET,
    VECTOR_SNIPPET,
    VECTOR_TAGS,
    CardText,
    RunReport,
    code,
    collect_card,
    plain,
    results_table,
)
from ..training.plots import CURVE, Log, plot_curves
from ..training.trainer import CardTrainer

if TYPE_CHECKING:
    from .pretrain import Objective, Options, Run

_SUMMARIES = {
    "nextlevelbert": """\
It splits a document of any
length into chunks, encodes each chunk as a vector with a frozen sentence encoder, and reads the
sequence of vectors with a Transformer.""",
    "hate": """\
It splits a document of any length
into sentences, encodes each sentence as a vector with a frozen sentence encoder, and reads the
sequence of vectors with a small Transformer. In training, this Transformer learned to find each
masked sentence among the masked sentences of its batch.""",
}
_INTENDED_USE = """\
Fine-tune it for tasks on long documents, such as classification, or use its document vectors as
features. Compare them on your documents with the mean of the chunk vectors, which is often as good
for search and clusters."""
_NOTE = """\
`AutoModel.from_pretrained("{name}").encode(texts)` also returns contextual and plain chunk vectors
and their character offsets. Without the package, `trust_remote_code=True` opens the same folder."""
MASKED_SCORES = """\
These scores are on held-out documents. `masked_accuracy` is the share of the masked vectors that
are found: the prediction is nearer to its target (by cosine) than to all other masked vectors of
the batch. Vectors to predict that stay visible do not count. `chance_accuracy` is what guessing
would find. `count` is the number of masked vectors; fewer than 100 say little. `r2` (for the loss
smooth_l1) is 1 - squared error / squared error of the constant mean; 0 is no better than the
mean."""
PAIR_SCORES = """\
These scores are on held-out documents. `pair_accuracy` is the share of segments that find the other
segment of their document in the batch, by the cosine of document vectors. `chance_accuracy` is what
guessing would find, and `count` the number of segments."""
_LIMITS = (
    "The language and domain of the model are those of its chunk encoder.",
    (
        "A document vector says what a document is about; to find a detail in it, search the chunk"
        " vectors or use BM25."
    ),
    (
        "The scores above show what the model learned, not how good its document vectors are for"
        " your task."
    ),
)


def evaluations_of_weights(trainer: CardTrainer) -> Log:
    """Returns the evaluations up to the step of the saved weights, whose own is the last one.

    Leaves out evaluations that masked or compared no vector, because all documents were too short.
    """
    state = trainer.state
    step = state.global_step
    if trainer.args.load_best_model_at_end and state.best_model_checkpoint is not None:
        step = state.best_global_step or 0
    return [
        entry
        for entry in state.log_history
        if entry.get("eval_count", 0) > 0 and entry["step"] <= step
    ]


def what_was_learned(scores: Mapping[str, float]) -> str:
    """Writes the scores of an evaluation as a sentence."""
    accuracy = scores["eval_masked_accuracy"]
    chance = scores["eval_chance_accuracy"]
    count = scores["eval_count"]
    text = (
        f"Held-out documents: {accuracy * count:,.0f} of {count:,} masked vectors found (chance:"
        f" {chance * count:,.0f})"
    )
    if "eval_r2" in scores:
        text += f", R² against the mean {scores['eval_r2']:.3f}"

    return f"{text}."


def write_card(
    run: Run,
    objective: Objective,
    options: Options,
    corpus: VectorCorpus,
    settings: Mapping[str, object],
) -> None:
    """Writes the card and the learning curve."""
    args = options.training
    config = run.trainer.model.config
    log = run.trainer.state.log_history
    accuracy, *others = objective.scores
    columns = (accuracy, "chance_accuracy", *others)
    plot_curves([log], metrics=columns, path=Path(args.output_dir) / CURVE, x="step")
    columns += ("count",)

    logged = evaluations_of_weights(run.trainer)
    measured = "Nothing was measured: no vector of held-out documents was masked or compared."
    table = ""
    scores = {}
    if logged:
        rows = {}
        last = "last evaluation"
        if args.load_best_model_at_end:
            last = "best evaluation"
        for title, entry in (("first evaluation", logged[0]), (last, logged[-1])):
            rows[title] = {name: entry[f"eval_{name}"] for name in (*columns, "loss")}
        scores = {name: rows[last][name] for name in columns}
        measured = objective.about_scores
        if run.baseline:
            rows["mean of the context"] = run.baseline
            measured = f"{what_was_learned(logged[-1])} {measured}"
        table = results_table(rows)

    base_model = config.chunk_encoder_name  # unless it is a folder, or the model itself
    if base_model is None or "/" not in base_model or base_model == args.repository():
        base_model = None

    family = config.model_type
    text = CardText(
        summary=f"This model is a {FAMILY_NAMES[family]}. {_SUMMARIES[family]}",
        intended_use=_INTENDED_USE,
        measured=measured,
        limits=_LIMITS,
        snippet=VECTOR_SNIPPET,
        note=_NOTE,
        pipeline_tag="sentence-similarity",
        scored_task=objective.hub_task,
        tags=(family, *VECTOR_TAGS),
        widget=SIMILARITY_WIDGET,
        caption="Loss and held-out scores over training",
    )
    report = RunReport(
        training=settings,
        model_rows=_model_rows(config, corpus),
        table=table,
        scores=scores,
        dataset="held-out documents",
        citation=CITATIONS[family],
        base_model=base_model,
        log=log,
    )
    card = collect_card(args, text, report)
    write_whole(f"{args.output_dir}/README.md", str(card).encode())


def _model_rows(
    config: NextLevelBertConfig | HateConfig, corpus: VectorCorpus
) -> dict[str, object]:
    """Returns the rows that describe the model on its card."""
    encoder = code(config.chunk_encoder_name)
    weights = code(f"{str(config.chunk_encoder_fingerprint)[:12]}…")
    layers = config.encoder_config.num_hidden_layers
    dtype = plain(corpus.recipe["encoder"]["dtype"])
    rows: dict[str, object] = {
        "chunk encoder (frozen)": f"{encoder}, weights {weights}",
        "chunking": f"{config.chunking}, at most {config.chunk_size} tokens per chunk",
        "encoder over chunks": (
            f"{layers} layers of {config.hidden_size}, {config.max_chunks} chunks in a window"
        ),
        "documents of any length": f"`long_documents={config.long_documents!r}`",
        "document vector": f"`pooling={config.pooling!r}`",
        "training corpus": (
            f"{len(corpus):,} documents, {corpus.num_chunks:,} chunks, encoded in {dtype}"
        ),
    }
    if corpus.splitter:
        rows["sentences"] = f"found by {code(corpus.splitter)}"
    if getattr(config, "whiten_chunks", False):
        rows["chunk vectors"] = "centred and whitened within documents"

    return rows
