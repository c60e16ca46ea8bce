"""What the cards of pretrained models say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from ..corpus import VectorCorpus
from ..corpus.token_corpus import TokenCorpus
from ..training.cards import SIMILARITY_WIDGET, CardFacts, code, plain, safe_name, write_card
from ..training.plots import CURVE, LOSS_CURVE, plot_pretraining, results_table
from ..training.trainer import CardTrainer

_FAMILIES = {
    "nextlevelbert": """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682): it cuts a document of any length into chunks, turns each into a
vector with a frozen sentence encoder, and reads the sequence of vectors with a masked language model over vectors.""",
    "hate": """\
A HATE (Hierarchical Attention-based Text Encoder): it cuts a document of any length into sentences, turns each into
a vector with a frozen sentence encoder, and reads the sequence of vectors with a small Transformer that has learned
to find masked sentences among those of its batch.""",
    "cdlm": """\
A [CDLM](https://arxiv.org/abs/2101.00406): a Longformer that reads a set of related documents in one sequence, with
global attention on what it has to predict.""",
}

_TRAINED_TOKENS = """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682) over static chunk vectors: it cuts a document of any length into
chunks, turns each into the mean of its tokens' vectors, and reads the sequence of vectors. Unlike in the paper, the
chunk encoder is not frozen: the token vectors were trained with the model."""

_VECTORS_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["the text of a whole book", "and of another one"])"""

_CDLM_SNIPPET = """\
from transformers import AutoModelForMaskedLM

import nextlevelbert  # registers the architecture

model = AutoModelForMaskedLM.from_pretrained("{name}")
processor = nextlevelbert.CdlmProcessor.from_model(model)
texts = [f"One document with a {processor.tokenizer.mask_token}.", "Another one about the same."]
batch = processor(texts)
scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits"""

_VECTORS_NOTE = """\
`AutoModel.from_pretrained("{name}").encode(texts)` also gives contextual and plain chunk vectors and their characters.
Without the package installed, `trust_remote_code=True` opens the same folder."""

_MASKED_SCORES = """\
On held-out documents. `masked_accuracy`: how often the predicted vector is nearer (by cosine) to the true one than to
every other masked vector of the batch; `chance_accuracy`: what guessing gives."""
_PASSAGE_SCORES = """\
On held-out documents. `passage_accuracy`: how often a sentence finds the chunk that it was taken from among those of
the document; `chance_accuracy`: what guessing gives."""
_PAIR_SCORES = """\
On held-out documents. `pair_accuracy`: how often a segment finds that of its own document among those of the batch, by
the cosine of document vectors; `chance_accuracy`: what guessing gives."""


def write_vector_card(
    trainer: CardTrainer,
    corpus: VectorCorpus | TokenCorpus,
    objective: Mapping[str, object],
    baseline: Mapping[str, float] | None = None,
) -> None:
    """Writes the card and the learning curve of a NextLevelBERT or HATE.

    Args:
        trainer: after training.
        corpus: the training corpus; or its tokens, where their vectors were trained.
        objective: what was learned, by name.
        baseline: scores of the mean of the context, from `context_mean_baseline`.
    """
    args, log, config = trainer.args, trainer.state.log_history, trainer.config
    name, encoder = model_name(args), config.chunk_encoder_name
    trained = str(objective.get("token vectors", "")).startswith("trained")
    plot_pretraining(log, Path(args.output_dir) / LOSS_CURVE)
    losses = [entry["loss"] for entry in log if "loss" in entry]
    evaluations = [entry for entry in log if "eval_chance_accuracy" in entry]
    kinds = {"pair_accuracy": _PAIR_SCORES, "passage_accuracy": _PASSAGE_SCORES}
    found = [kind for kind in kinds if evaluations and f"eval_{kind}" in evaluations[-1]]
    scored = tuple(found) or ("masked_cosine", "masked_accuracy")
    scored_task = {"pair_accuracy": "segments of one document", "passage_accuracy": "passages found"}
    measured = "Nothing: the run had no evaluation."
    if evaluations:
        columns = _first_and_last(evaluations) | ({"mean of the context": baseline} if baseline else {})
        table = results_table(
            {
                metric: {column: values[metric] for column, values in columns.items() if metric in values}
                for metric in ("loss", *scored, "chance_accuracy")
            }
        )
        measured = f"{kinds.get(scored[0], _MASKED_SCORES)}\n\n{table}"
    write_card(
        args.output_dir,
        CardFacts(
            name=name,
            summary=_TRAINED_TOKENS if trained else _FAMILIES[config.model_type],
            snippet=_VECTORS_SNIPPET.format(name=name),
            note=_VECTORS_NOTE.format(name=name),
            pipeline_tag="sentence-similarity",
            tags=(config.model_type, "long-documents", "sentence-transformers", "feature-extraction"),
            base_model=encoder if "/" in encoder and encoder != name else None,  # a name on the Hub
            model=_vector_model(config, corpus, trained),
            training={**objective, **_recipe(trainer)},
            training_note=f"Training loss went from {losses[0]:.5f} to {losses[-1]:.5f} (first and last logged)."
            if losses
            else "",
            pictures={LOSS_CURVE: "Loss and held-out scores over training"},
            measured=measured,
            scores={metric: evaluations[-1][f"eval_{metric}"] for metric in scored} if evaluations else {},
            dataset="held-out documents",
            scored_task="sentence-similarity" if found else "fill-mask",
            scored_task_name=scored_task.get(scored[0], "masked vector modelling"),
            widget=SIMILARITY_WIDGET,
            limits=(
                "Chunk borders fall wherever the token count says; the chunk encoder's language and domain are the "
                "model's.",
                "A document vector says what a document is about; to find a detail in it, search the chunk vectors or "
                "use BM25.",
                "The scores above tell what the model learned, not how good its document vectors are on your task.",
            ),
        ),
    )


def write_cdlm_card(trainer: CardTrainer, started_from: str, on_hub: bool, sets: Mapping[str, object]) -> None:
    """Writes the card and the learning curve of a CDLM.

    Args:
        trainer: after training.
        started_from: name of the encoder that it was made of.
        on_hub: whether that is a name on the Hub.
        sets: what was read and how it was masked, by name.
    """
    args, log, config = trainer.args, trainer.state.log_history, trainer.config
    plot_pretraining(log, Path(args.output_dir) / CURVE)
    evaluations = [entry for entry in log if "eval_perplexity" in entry]
    rows = {
        column: {"loss": entry["loss"], "cross-document perplexity": entry["perplexity"]}
        for column, entry in (_first_and_last(evaluations) if evaluations else {}).items()
    }
    name = model_name(args)
    write_card(
        args.output_dir,
        CardFacts(
            name=name,
            summary=_FAMILIES["cdlm"],
            snippet=_CDLM_SNIPPET.replace("{name}", name),
            pipeline_tag="fill-mask",
            tags=("cdlm", "longformer", "multi-document", "fill-mask"),
            base_model=started_from if on_hub else None,
            model={
                "started from": code(started_from),
                "layers, hidden size": f"{config.num_hidden_layers}, {config.hidden_size}",
                "longest sequence": f"{config.max_sequence_length} tokens",
                "attention window": f"{config.windows()[0]} tokens",
            },
            training={**sets, **_recipe(trainer)},
            pictures={CURVE: "Loss and perplexity over training"},
            measured="Masked words of held-out sets of related documents, each with the attention pattern of its "
            f"training; perplexity is the exponential of the loss.\n\n{results_table(rows)}",
            scores={"perplexity": evaluations[-1]["eval_perplexity"]} if evaluations else {},
            dataset="held-out sets",
            limits=(
                "Sets that are longer than a sequence are cut, the longest documents first; the processor says how "
                "much is lost.",
                "The language and domain are those of the encoder and of the training documents.",
            ),
        ),
    )


def model_name(args: TrainingArguments) -> str:
    """The model's name: its repository on the Hub, or its folder."""
    return safe_name(args.hub_model_id or Path(args.output_dir).name)


def _first_and_last(evaluations: list[dict[str, float]]) -> dict[str, Mapping[str, float]]:
    """Scores of both evaluations, by their plain names."""
    both = {"first evaluation": evaluations[0], "last evaluation": evaluations[-1]}
    return {
        column: {name.removeprefix("eval_"): value for name, value in entry.items() if name.startswith("eval_")}
        for column, entry in both.items()
    }


def _vector_model(config: Any, corpus: VectorCorpus | TokenCorpus, trained: bool) -> dict[str, object]:
    """What a model over chunk vectors is made of."""
    facts: dict[str, object] = {
        f"chunk encoder ({'trained' if trained else 'frozen'})": f"{code(config.chunk_encoder_name)}, weights "
        f"{code(config.chunk_encoder_fingerprint[:12] + '…')}",
        "chunking": f"{config.chunking}, at most {config.chunk_size} tokens per chunk",
        **({"sentences": f"found by {code(name)}"} if (name := _splitter(corpus)) else {}),
        "encoder over chunks": _over_chunks(config),
    }
    widths = config.bottleneck_widths() if config.model_type == "hate" else []
    if len(widths) > 1:
        facts["bottleneck"] = " → ".join(map(str, widths))
    facts["documents of any length"] = f"`long_documents={config.long_documents!r}`"
    if getattr(config, "whiten_chunks", False):
        facts["chunk vectors"] = "centred and whitened within documents"
    facts["document vector"] = (
        "trained projections of the mean of the chunk vectors and of the contextual ones, added"
        if config.pooling == "residual"
        else f"{config.pooling} of the contextual chunk vectors"
    )
    facts["training corpus"] = (
        f"{len(corpus):,} documents, {corpus.num_tokens:,} tokens, cut into other chunks in every epoch"
        if isinstance(corpus, TokenCorpus)
        else f"{len(corpus):,} documents, {corpus.num_chunks:,} chunks (encoded in "
        f"{plain(corpus.recipe['encoder']['dtype'])})"
    )
    return facts


def _splitter(corpus: VectorCorpus | TokenCorpus) -> str | None:
    return None if isinstance(corpus, TokenCorpus) else corpus.splitter


def _over_chunks(config: Any) -> str:
    upper, neighbours = config.encoder_config, getattr(config, "neighbours", None)
    window = f"{config.max_chunks} chunks in a window"
    if neighbours is None:
        return f"{upper.model_type}, {upper.num_hidden_layers} layers, hidden size {config.hidden_size}, {window}"
    if neighbours == 0:
        return "a linear map of every chunk vector"
    return f"a convolution over {neighbours} chunks on either side, and the mean of the window; {window}"


def _recipe(trainer: CardTrainer) -> dict[str, object]:
    """The training arguments worth telling, by name."""
    args = trainer.args
    return {
        "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "optimizer_steps": trainer.state.global_step,
        **{key: getattr(args, key) for key in ("learning_rate", "weight_decay", "warmup_steps", "seed")},
        "lr_scheduler_type": f"{args.lr_scheduler_type.value} {args.lr_scheduler_kwargs or ''}".strip(),
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "device": str(args.device),
    }
