"""Pretraining on chunk vectors: documents → a corpus of vectors → a NextLevelBERT or HATE with its card."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import set_seed

from ..corpus import VectorCorpus, encode_corpus
from ..corpus.int8_encoder import load_int8_chunk_encoder, quantize_chunk_encoder
from ..corpus.token_corpus import TokenCorpus
from ..data.documents import Document, check_documents, clean_text, read_documents, read_hub_documents
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..models.chunking import ChunkingRule
from ..models.modeling_hate import HateForMaskedSentencePrediction
from ..models.modeling_nextlevelbert import NextLevelBertForContrastiveLearning, NextLevelBertForMaskedVectorModeling
from ..models.pretrained import attention_dropout
from ..training.precision import precision_that_pays
from ..training.recipes import against_paper
from ..training.resuming import begin, finish
from ..training.trainer import CardTrainer
from .arguments import HateArguments, NextLevelBertArguments, PretrainingArguments, VectorModelArguments
from .card import model_name, write_vector_card
from .corpus_arguments import CorpusArguments
from .objective_arguments import MaskingArguments, warn_of_untrained_pooling
from .settings import settings_of
from .text import over_text, reads_text
from .trained_tokens import TokenTable, vectors_of

logger = logging.getLogger(__name__)


def run(
    model_args: NextLevelBertArguments | HateArguments,
    objective_args: MaskingArguments,
    corpus_args: CorpusArguments,
    args: PretrainingArguments,
) -> None:
    """Encodes the documents, trains on their vectors and saves the model with its card.

    A run that was killed continues where it stopped, given the same options.

    Raises:
        FileNotFoundError, ValueError: for documents that cannot be read; before anything is loaded or written.
        ValueError: for options that do not fit each other, the checkpoint or the corpus; before anything is encoded
            wherever possible.
    """
    if corpus_args.train_file:
        check_documents(corpus_args.train_file, corpus_args.text_column, corpus_args.id_column)
    set_seed(args.seed)

    # 1. The frozen encoder, which stays out of training, and the model over vectors.
    pooling: Any = getattr(model_args, "sentence_pooling", "own")
    source = load_chunk_encoder(
        model_args.encoder_source, model_args.chunk_encoder_name, None if pooling == "own" else pooling
    )
    if model_args.attn_implementation:
        source.encoder.model.set_attn_implementation(model_args.attn_implementation)
    model = new_model(model_args, source, objective_args)
    warn_of_untrained_pooling(model)
    objective = objective_args.objective_over(model_args.sequences)
    window = model.config.window()[0]
    objective.check(window, window + model.config.special_positions)

    # 2. The corpus of chunk vectors; of tokens where text is read anew in every epoch.
    corpus: Any
    learner = model
    if isinstance(model_args, NextLevelBertArguments) and reads_text(model_args, objective):
        learner, objective = over_text(model, objective, source, model_args, corpus_args, args.do_train)
        corpus = TokenCorpus(documents_of(corpus_args), source.tokenizer)
    else:
        corpus = encoded_corpus(corpus_args, model_args, source, model.config.chunking_rule(), args)
        if not args.do_train:
            return
        corpus.check_model(model.config, corpus.splitter)

    # 3. Sequences or segments to train on and to evaluate on.
    training, (evaluation, held_out) = share_out(corpus, corpus_args, objective.held_out_at_least, args.seed)
    if evaluation is not corpus:
        evaluation.check_model(model.config, corpus.splitter)
    settings = settings_of(model_args, objective_args, corpus_args, args, model, corpus, evaluation)
    if not begin(args, settings):
        return
    if model_args.whiten_chunks:
        model.base_model.fit_whitening(vectors_of(corpus, training, source, model.config.chunking_rule()))
    args.label_names = list(objective.label_names)
    train_dataset: Any = objective.dataset(corpus, training, args.seed)
    eval_dataset: Any = None
    if len(held_out):
        eval_dataset = objective.dataset(evaluation, held_out, args.seed)
    else:
        args.eval_strategy, args.eval_on_start = "no", False
    baseline = None
    if eval_dataset is not None and args.should_log:
        baseline = objective.baseline(eval_dataset, args.per_device_eval_batch_size, model.base_model.prepare_chunks)
        if baseline:
            logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))

    # 4. Training.
    facts = objective.facts(model.config.loss, len(train_dataset))
    dropout = SimpleNamespace(attention_dropout=attention_dropout(model.config.encoder_config))
    facts |= against_paper(model.config.model_type, model.config, dropout, model_args, objective_args, args)
    trainer = CardTrainer(
        model=learner,
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=objective.collator,
        preprocess_logits_for_metrics=objective.scores_of_batch,
        compute_metrics=objective.metrics,
        card=lambda trainer: write_vector_card(trainer, corpus, facts, baseline),
    )
    trainer.train_to_the_end()
    if eval_dataset is not None:
        trainer.log_metrics("eval", metrics := trainer.evaluate())
        trainer.save_metrics("eval", metrics)

    # 5. A checkpoint that needs nothing else, unless a small one is asked for.
    if isinstance(learner, TokenTable):
        trainer.model = learner.finish(model_name(args))
    elif model_args.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(source)
    if model_args.save_dtype != "float32":
        trainer.save_dtype = getattr(torch, model_args.save_dtype)
    trainer.publish()
    finish(args, settings)


def new_model(
    model_args: NextLevelBertArguments | HateArguments, source: LoadedChunkEncoder, objective_args: MaskingArguments
) -> Any:
    """The model to train, without its chunk encoder.

    Raises:
        ValueError: for options that the model or the checkpoint refuses.
    """
    if isinstance(model_args, HateArguments):
        model = _new_hate(model_args, source, objective_args.sequence_length)
        encoder = model.base_model.encoder.layers
    else:
        model = _new_nextlevelbert(model_args, source, objective_args)
        encoder = model.base_model.encoder
    if model_args.attn_implementation:
        encoder.set_attn_implementation(model_args.attn_implementation)
    return model


def _new_nextlevelbert(options: NextLevelBertArguments, source: LoadedChunkEncoder, objective: Any) -> Any:
    """New, or a checkpoint to continue from."""
    kind = NextLevelBertForContrastiveLearning if objective.contrastive else NextLevelBertForMaskedVectorModeling
    given = options.given("loss", "loss_mean", "temperature", "pooling", "residual_start")
    if options.model is None:
        sizes = ("chunk_size", "chunking", "num_hidden_layers", "random_layers", "attention_dropout", "neighbours")
        given = {**objective.own_defaults, **given, **options.given(*sizes)}
        given["whiten_chunks"] = options.whiten_chunks
        return kind.from_chunk_encoder(source, include_chunk_encoder=False, **given)
    model = kind.from_pretrained(options.model, dtype=torch.float32, **given)
    for option in ("chunk_size", "chunking"):
        wanted, own = getattr(options, option), getattr(model.config, option)
        if wanted not in (None, own):
            raise ValueError(
                f"--{option} {wanted} does not fit {options.model}, which was trained with {own}; leave out "
                f"--{option} or --model."
            )
    if model.base_model.chunk_encoder is not None:
        model.base_model.detach_chunk_encoder()
    model.base_model.check_chunk_encoder(source)
    model.base_model.tokenizer = source.tokenizer
    return model


def _new_hate(options: HateArguments, source: LoadedChunkEncoder, sequence_length: int) -> Any:
    sizes = options.given("hidden_size", "num_hidden_layers", "chunk_size", "chunking")
    return HateForMaskedSentencePrediction.from_chunk_encoder(
        source,
        include_chunk_encoder=False,
        max_chunks=sequence_length - 1,  # it has not learned positions beyond its sequences
        **sizes,
        **options.given("loss", "norm_order", "temperature", "pooling"),
    )


def documents_of(options: CorpusArguments) -> Iterator[Document]:
    """The documents, one in memory at a time.

    Raises:
        ValueError: if none are named.
    """
    columns = {"text_column": options.text_column, "id_column": options.id_column}
    if options.dataset_name:
        name, split, config = options.dataset_name, options.dataset_split, options.dataset_config_name
        documents = read_hub_documents(name, split, config, **columns)
    elif options.train_file:
        documents = read_documents(options.train_file, **columns)
    else:
        raise ValueError("Give the documents with --train_file or --dataset_name, or a finished --corpus_dir.")
    if options.clean_text:
        return (replace(document, text=clean_text(document.text)) for document in documents)
    return documents


def encoded_corpus(
    corpus_args: CorpusArguments,
    model_args: VectorModelArguments,
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    args: PretrainingArguments,
) -> VectorCorpus:
    """The documents as chunk vectors on disk; every process encodes its share of what is missing.

    Raises:
        ValueError: if there are no documents, or the folder holds a corpus that was made in another way.
    """
    # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
    folder = Path(corpus_args.corpus_dir or f"{Path(args.output_dir)}-corpus")
    if corpus_args.train_file or corpus_args.dataset_name or not folder.exists():
        precision = precision_that_pays(model_args.encoder_dtype, args.device, "--encoder_dtype")
        if precision == "int8":
            source = in_int8(source, corpus_args, rule, folder / "int8_encoder", args)
        else:
            source = replace(source, encoder=copy.deepcopy(source.encoder).to(args.device, getattr(torch, precision)))
        encode_corpus(documents_of(corpus_args), source, rule, folder)
    corpus = VectorCorpus(folder)
    logger.info("%r", corpus)
    if corpus.splitter:
        logger.warning("Its sentences were found by %s: encode texts with that splitter.", corpus.splitter)
    return corpus


def in_int8(
    source: LoadedChunkEncoder,
    corpus_args: CorpusArguments,
    rule: ChunkingRule,
    folder: Path,
    args: PretrainingArguments,
) -> LoadedChunkEncoder:
    """The int8 form of the encoder: made once, from the first documents, and kept beside the vectors."""
    if args.device.type != "cpu":
        raise ValueError("--encoder_dtype int8 runs on CPUs only; add --use_cpu, or use bfloat16 on this machine.")
    with args.main_process_first(local=False, desc="making the int8 encoder"):
        try:
            return load_int8_chunk_encoder(source, folder)
        except FileNotFoundError:
            texts = (document.text for document in documents_of(corpus_args))
            return quantize_chunk_encoder(source, texts, rule, folder)


def share_out(
    corpus: VectorCorpus, options: CorpusArguments, at_least: int, seed: int
) -> tuple[np.ndarray, tuple[VectorCorpus, np.ndarray]]:
    """Numbers of the documents to train on; and the corpus to evaluate on, with the numbers of its documents."""
    if options.validation_corpus_dir:
        other = VectorCorpus(options.validation_corpus_dir)
        return np.arange(len(corpus)), (other, np.arange(len(other)))
    training, held_out = split(corpus, options.validation_share, seed, at_least)
    return training, (corpus, held_out)


def split(corpus: VectorCorpus, share: float, seed: int, at_least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the documents to train on and of those held out; the same for the same seed.

    Args:
        corpus: of all documents.
        share: held out; 0 for none.
        seed: of the draw.
        at_least: fewest documents to hold out.

    Raises:
        ValueError: if no document is left to train on.
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    held_out = max(at_least, round(share * len(corpus))) if share > 0 else 0
    if held_out >= len(corpus):
        raise ValueError(f"{corpus!r} is too small to hold out {held_out} document(s); set --validation_share 0.")
    return np.sort(order[held_out:]), np.sort(order[:held_out])
