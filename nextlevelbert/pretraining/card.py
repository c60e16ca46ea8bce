"""What the card of a NextLevelBERT or HATE says that was pretrained on chunk vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..corpus import VectorCorpus
from ..training.cards import CURVE, SIMILARITY_WIDGET, code, model_card, plain, plot_curves, results_table
from ..training.trainer import CardTrainer

_FAMILIES = {
    "nextlevelbert": """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682): it cuts a document of any length into chunks, turns each into a
vector with a frozen sentence encoder, and reads the sequence of vectors with a masked language model over vectors.""",
    "hate": """\
A HATE (Hierarchical Attention-based Text Encoder): it cuts a document of any length into sentences, turns each into
a vector with a frozen sentence encoder, and reads the sequence of vectors with a small Transformer that has learned
to find masked sentences among those of its batch.""",
}
_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["the text of a whole book", "and of another one"])"""
_NOTE = """\
`AutoModel.from_pretrained("{name}").encode(texts)` also gives contextual and plain chunk vectors and their characters.
Without the package installed, `trust_remote_code=True` opens the same folder."""
_MASKED_SCORES = """\
On held-out documents. `masked_accuracy`: how often the predicted vector is nearer (by cosine) to the true one than to
every other masked vector of the batch; `chance_accuracy`: what guessing gives."""
_PAIR_SCORES = """\
On held-out documents. `pair_accuracy`: how often a segment finds that of its own document among those of the batch, by
the cosine of document vectors; `chance_accuracy`: what guessing gives."""
_LIMITS = (
    "Chunk borders fall wherever the token count says; the chunk encoder's language and domain are the model's.",
    "A document vector says what a document is about; to find a detail in it, search the chunk vectors or use BM25.",
    "The scores above tell what the model learned, not how good its document vectors are on your task.",
)


def write_vector_card(
    trainer: CardTrainer,
    corpus: VectorCorpus,
    facts: Mapping[str, object],
    baseline: Mapping[str, float] | None = None,
) -> None:
    """Writes the card and the learning curve of a NextLevelBERT or HATE into its output folder.

    Args:
        trainer: after training.
        corpus: what it was trained on.
        facts: options of the objective, by name.
        baseline: scores of the mean of the context, from `context_mean_baseline`.
    """
    model: Any = trainer.model
    args: Any = trainer.args
    log, config, name = trainer.state.log_history, model.config, args.repository()
    evaluations = [entry for entry in log if "eval_chance_accuracy" in entry]
    pairs = bool(evaluations) and "eval_pair_accuracy" in evaluations[-1]
    scored = ["pair_accuracy"] if pairs else ["masked_cosine", "masked_accuracy"]
    plot_curves([log], [*scored, "chance_accuracy"], f"{args.output_dir}/{CURVE}", x="step")
    measured, scores = "Nothing: the run had no evaluation.", {}
    if evaluations:
        columns = {"first evaluation": evaluations[0], "last evaluation": evaluations[-1]}
        if baseline:
            columns["mean of the context"] = {f"eval_{metric}": value for metric, value in baseline.items()}
        table = {
            metric: {column: entry[f"eval_{metric}"] for column, entry in columns.items() if f"eval_{metric}" in entry}
            for metric in ("loss", *scored, "chance_accuracy")
        }
        measured = f"{_PAIR_SCORES if pairs else _MASKED_SCORES}\n\n{results_table(table)}"
        scores = {metric: evaluations[-1][f"eval_{metric}"] for metric in scored}
    encoder = config.chunk_encoder_name
    model_card(
        name=name,
        summary=_FAMILIES[config.model_type],
        snippet=_SNIPPET.format(name=name),
        note=_NOTE.format(name=name),
        pipeline_tag="sentence-similarity",
        tags=(config.model_type, "long-documents", "sentence-transformers", "feature-extraction"),
        base_model=encoder if "/" in encoder and encoder != name else None,  # a name on the Hub
        model=_model_facts(config, corpus),
        training={**facts, **_training_facts(trainer)},
        pictures={CURVE: "Loss and held-out scores over training"},
        measured=measured,
        scores=scores,
        dataset="held-out documents",
        scored_task="sentence-similarity" if pairs else "fill-mask",
        widget=SIMILARITY_WIDGET,
        limits=_LIMITS,
    ).save(f"{args.output_dir}/README.md")


def _model_facts(config: Any, corpus: VectorCorpus) -> dict[str, object]:
    """What the model is made of."""
    upper, fingerprint = config.encoder_config, config.chunk_encoder_fingerprint[:12]
    window = f"{config.max_chunks} chunks in a window"
    facts: dict[str, object] = {
        "chunk encoder (frozen)": f"{code(config.chunk_encoder_name)}, weights {code(fingerprint + '…')}",
        "chunking": f"{config.chunking}, at most {config.chunk_size} tokens per chunk",
        "encoder over chunks": f"{upper.num_hidden_layers} layers of {config.hidden_size}, {window}",
        "documents of any length": f"`long_documents={config.long_documents!r}`",
        "document vector": f"`pooling={config.pooling!r}`",
        "training corpus": f"{len(corpus):,} documents, {corpus.num_chunks:,} chunks, encoded in "
        f"{plain(corpus.recipe['encoder']['dtype'])}",
    }
    if corpus.splitter:
        facts["sentences"] = f"found by {code(corpus.splitter)}"
    if getattr(config, "whiten_chunks", False):
        facts["chunk vectors"] = "centred and whitened within documents"
    return facts


def _training_facts(trainer: CardTrainer) -> dict[str, object]:
    """The training arguments worth telling."""
    args = trainer.args
    return {
        "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "optimizer_steps": trainer.state.global_step,
        **{key: getattr(args, key) for key in ("learning_rate", "weight_decay", "warmup_steps", "seed")},
        "lr_scheduler_type": args.lr_scheduler_type.value,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "device": args.device.type,
    }
