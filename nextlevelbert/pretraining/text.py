"""Training on text that is read anew in every epoch, in place of stored chunk vectors: its parts and its needs."""

from __future__ import annotations

from typing import Any

from ..encoders import LoadedChunkEncoder
from ..models.chunk_encoder import StaticEmbeddingModel
from .arguments import NextLevelBertArguments
from .corpus_arguments import CorpusArguments
from .passages import PassageLearner, Passages
from .segment_pairs import SegmentPairs
from .sequences import MaskedVectors
from .trained_tokens import TokenPairs, TokenTable, TrainedTokens


def reads_text(model_args: NextLevelBertArguments, objective: MaskedVectors | SegmentPairs | Passages) -> bool:
    """Whether text is read anew in every epoch, in place of stored chunk vectors.

    Raises:
        ValueError: for dropped tokens of a text that is read only once.
    """
    found = isinstance(objective, Passages) or model_args.train_chunk_encoder
    if not found and model_args.token_dropout:
        raise ValueError("--token_dropout needs --train_chunk_encoder or --objective passages; add one of them.")
    return found


def over_text(
    model: Any,
    objective: MaskedVectors | SegmentPairs | Passages,
    source: LoadedChunkEncoder,
    model_args: NextLevelBertArguments,
    corpus_args: CorpusArguments,
    do_train: bool,
) -> tuple[TokenTable, TokenPairs | Passages]:
    """Model and objective over token ids, made of those over chunk vectors.

    Raises:
        ValueError: for a chunk encoder that is no table of token vectors, or an option that does not fit.
    """
    capacity, dropout = model.config.chunking_rule().capacity, model_args.token_dropout
    dropped = f"{dropout:.0%} of the tokens dropped"
    trained = f"trained, from those of {source.name}; {dropped}" if model_args.train_chunk_encoder else ""
    if isinstance(objective, Passages):
        none = {"a --model without neighbours": model.config.neighbours is None}
        check_reads_text("--objective passages", none, model, source, model_args, corpus_args, do_train)
        learner = PassageLearner(model, source, dropout, model_args.train_chunk_encoder)
        return learner, objective.over(source, capacity, trained or f"frozen; {dropped}")
    pairs = objective if isinstance(objective, SegmentPairs) else None
    unfit = {
        "--objective masked": pairs is None,
        "--objective both": pairs is not None and pairs.collator.masking is not None,
        "--positives neighbours": pairs is not None and pairs.collator.positives == "neighbours",
    }
    check_reads_text("--train_chunk_encoder", unfit, model, source, model_args, corpus_args, do_train)
    assert pairs is not None  # checked above
    return TrainedTokens(model, source, dropout), TokenPairs(pairs, capacity, trained)


def check_reads_text(
    option: str,
    unfit: dict[str, bool],
    model: Any,
    source: LoadedChunkEncoder,
    model_args: NextLevelBertArguments,
    corpus_args: CorpusArguments,
    do_train: bool,
) -> None:
    """Refuses what does not go with training on text, which `option` asks for.

    Raises:
        ValueError: for a chunk encoder that is no table of token vectors, or other options, those of `unfit` first.
    """
    kind = source.encoder.model.config.model_type + (" with Dense layers" if len(source.encoder.dense) else "")
    if not isinstance(source.encoder.model, StaticEmbeddingModel) or len(source.encoder.dense):
        raise ValueError(
            f"{option} needs the token vectors of a static chunk encoder, and {source.name!r} is a {kind}, which "
            "stays frozen. Leave it out, or give a static "
            "--chunk_encoder (distill_chunk_encoder makes one)."
        )
    stored = ("corpus_dir", "validation_corpus_dir")
    unfit |= {
        f"--chunking {model.config.chunking}": model.config.chunking != "fixed",
        "--no_include_chunk_encoder": not model_args.include_chunk_encoder,
        **{f"--{name}": bool(getattr(corpus_args, name)) for name in stored},
        "a run without --do_train": not do_train,
    }
    if found := [name for name, given in unfit.items() if given]:
        objective = "" if option.startswith("--objective") else ", --objective contrastive or passages"
        raise ValueError(
            f"{option} does not go with {', '.join(found)}. It needs --do_train{objective} and fixed chunks, stores "
            "no vectors, and saves the chunk encoder with the model."
        )
