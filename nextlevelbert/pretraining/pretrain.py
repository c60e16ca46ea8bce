"""Pretrains on chunk vectors: encodes documents as a corpus, and trains a model with its card."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import EvalPrediction, HfArgumentParser, set_seed

from ..models.chunk_encoder import LoadedChunkEncoder
from ..models.configuration_hate import HateConfig
from ..models.configuration_nextlevelbert import NextLevelBertConfig
from ..models.files import read_json, write_whole
from ..models.from_encoder import load_chunk_encoder
from ..models.identity import model_identity
from ..models.modeling_hate import HateForMaskedSentencePrediction
from ..models.modeling_nextlevelbert import (
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
)
from ..training.arguments import open_config
from ..training.cards import (
    name_on_hub,
    public_name,
)
from ..training.plots import Log
from ..training.runs import bind_folder, last_whole_checkpoint, logged_run
from ..training.trainer import CardTrainer
from ..whitening import fit_whitening
from .arguments import PretrainingArguments
from .card import (
    MASKED_SCORES,
    PAIR_SCORES,
    evaluations_of_weights,
    what_was_learned,
    write_card,
)
from .collators import DataCollatorForSegmentPairs, DataCollatorForVectorMasking
from .datasets import (
    DocumentVectorDataset,
    EpochDataset,
    PackedVectorDataset,
    SegmentPairDataset,
    VectorSequenceDataset,
)
from .documents import ChosenDocuments, choose_documents, encode_corpora
from .options import (
    FAMILIES,
    CorpusArguments,
    HateArguments,
    MaskingArguments,
    NewModelArguments,
    NextLevelBertArguments,
)
from .scores import (
    MaskedVectorMetrics,
    context_mean_baseline,
    pair_metrics,
    pairs_found,
)

logger = logging.getLogger(__name__)

FamilyArguments = NextLevelBertArguments | HateArguments
# A model over chunk vectors with the head of its objective; each has its own outputs.
VectorModel = (
    NextLevelBertForMaskedVectorModeling
    | NextLevelBertForContrastiveLearning
    | HateForMaskedSentencePrediction
)
_NUM_CANDIDATES = 8_192  # as in the study of docs/results.md
_FEW = 100  # masked vectors, each a point of accuracy
# Options that do not affect the result, or whose effect is recorded elsewhere (fingerprint,
# weights).
_NO_SETTINGS = ("model", "chunk_encoder", "chunk_encoder_name", "include_chunk_encoder")
_TIMES = ("_runtime", "_per_second")  # entries of a log that differ from run to run


@dataclass
class Options:
    """All options of a run, a group each."""

    model: NewModelArguments
    family: FamilyArguments
    masking: MaskingArguments
    corpus: CorpusArguments
    training: PretrainingArguments


@logged_run()
def pretrain(
    values: dict[str, Any],
    documents: Iterable[Any] | None = None,
    validation_documents: Iterable[Any] | None = None,
) -> None:
    """Encodes the documents, trains on their vectors and saves the model with its card.

    An interrupted run resumes if the same options and documents are given again.

    Args:
        values: options by name, except those that name documents; the others have their defaults.
        documents: documents to train on, see `encode_corpus` (default: those of a finished corpus
            in ``corpus_dir``).
        validation_documents: documents to evaluate on (default: a share of those to train on).
    """
    family = FAMILIES[values.get("model_type", "nextlevelbert")]
    groups = (NewModelArguments, family, MaskingArguments, CorpusArguments, PretrainingArguments)
    options = Options(*HfArgumentParser(groups).parse_dict(values))
    args = options.training
    set_seed(args.seed)

    # 1. The frozen encoder, which stays out of training, and the model over vectors.
    loaded = open_encoder(options.model, options.family)
    model = new_model(
        options.model,
        options.family,
        loaded=loaded,
        sequence_length=options.masking.sequence_length,
    )
    objective = new_objective(options.family, options.masking, model.config)
    args.check_best_metric(objective.scores)

    # 2. The corpus of chunk vectors, for training and evaluation.
    corpus, validation_corpus = encode_corpora(
        documents,
        validation_documents,
        options.corpus,
        args,
        loaded=loaded,
        rule=model.config.chunking_rule(),
        dtype=getattr(torch, options.model.encoder_dtype),
    )
    if not args.do_train:
        print(
            f"Encoded {len(corpus):,} documents into {corpus.path}. Nothing was trained: add"
            " --do_train for that."
        )
        return

    learned, held_out = choose_documents(
        corpus,
        validation_corpus,
        share=options.corpus.validation_share,
        seed=args.seed,
        at_least=objective.at_least,
    )
    for documents in (learned, held_out):
        documents.corpus.check_model(model.config, documents.corpus.splitter)

    bind_folder(args.output_dir, settings_of(model, options, learned=learned, held_out=held_out))
    if is_finished(args):
        return

    # 3. Training, from the last whole checkpoint if the run was interrupted.
    run = train(model, objective, options, learned=learned, held_out=held_out)

    # 4. A checkpoint that needs nothing else, unless a small one is asked for; the results are
    # written last.
    if options.model.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(loaded)

    run.trainer.save_model()
    if args.should_save:
        publish(run, objective, options, learned=learned, held_out=held_out)


def is_finished(args: PretrainingArguments) -> bool:
    """Returns whether the output folder holds a finished run, which is uploaded if asked for."""
    output = Path(args.output_dir)
    if read_json(output / "results.json") is None:
        return False
    args.upload(output)
    print(
        f"{output} is finished already: nothing to do. Give another --output_dir for another run."
    )
    return True


# --- The model


def open_encoder(options: NewModelArguments, family: FamilyArguments) -> LoadedChunkEncoder:
    """Opens the named chunk encoder, the encoder of the model to continue from, or MiniLM.

    Raises:
        ValueError: if the model would have to load a folder by its name.
    """
    name = options.chunk_encoder
    if name is None:
        name = "minilm"
        if family.model and open_config(family.model).include_chunk_encoder:
            name = family.model

    has_hub_name = bool(options.chunk_encoder_name) or name_on_hub(name) is not None
    if not (options.include_chunk_encoder or has_hub_name):
        raise ValueError(
            "--no_include_chunk_encoder needs the encoder's name on the Hub: --chunk_encoder_name."
        )

    pooling: Any = None
    if isinstance(family, HateArguments) and family.sentence_pooling != "own":
        pooling = family.sentence_pooling

    return load_chunk_encoder(name, options.chunk_encoder_name, pooling)


def new_model(
    options: NewModelArguments,
    family: FamilyArguments,
    loaded: LoadedChunkEncoder,
    sequence_length: int,
) -> VectorModel:
    """Makes the model to train, new or a checkpoint to continue from, without its chunk encoder.

    Raises:
        ValueError: for options of new models beside a checkpoint, or another chunk encoder.
    """
    fields = given_options(options, "temperature")
    only_for_new = given_options(options, "chunk_size", "chunking", "num_hidden_layers")
    if isinstance(family, HateArguments):
        fields |= given_options(family, "loss", "pooling", "hidden_size")
        return HateForMaskedSentencePrediction.from_chunk_encoder(
            loaded,
            max_chunks=sequence_length - 1,  # it has not learned positions beyond its sequences
            include_chunk_encoder=False,
            **fields,
            **only_for_new,
        )

    fields |= given_options(family, "loss", "pooling")
    for name in ("attention_dropout", "whiten_chunks"):
        if getattr(family, name):
            only_for_new[name] = getattr(family, name)

    model_class = NextLevelBertForMaskedVectorModeling
    if family.objective == "contrastive":
        model_class = NextLevelBertForContrastiveLearning
    elif family.model is None:
        fields.setdefault("loss", "cross_entropy")

    if fields.get("loss") == "cross_entropy":
        fields["num_candidates"] = _NUM_CANDIDATES
    elif fields.get("loss") == "smooth_l1":
        fields["loss_mean"] = "sequences"  # as in the authors' code

    if family.model is None:
        return model_class.from_chunk_encoder(
            loaded, include_chunk_encoder=False, **fields, **only_for_new
        )

    _refuse_beside_checkpoint(only_for_new)  # it keeps its chunks and layers
    model = model_class.from_pretrained(family.model, dtype=torch.float32, **fields)
    if model.base_model.chunk_encoder is not None:
        model.base_model.detach_chunk_encoder()

    model.base_model.check_chunk_encoder(loaded)
    model.base_model.tokenizer = loaded.tokenizer
    return model


def _refuse_beside_checkpoint(only_for_new: Collection[str]) -> None:
    """Raises a ValueError if options of new models are given."""
    if not only_for_new:
        return

    hint = ""
    if "attention_dropout" in only_for_new:
        hint = " (beside a recipe: --attention_dropout 0)"

    raise ValueError(
        f"Only new models have --{' --'.join(only_for_new)}: leave this out{hint}, or leave out"
        " --model."
    )


def given_options(options: NewModelArguments | FamilyArguments, *names: str) -> dict[str, Any]:
    """Returns the values of these options, if the command line names them."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def settings_of(
    model: VectorModel, options: Options, learned: ChosenDocuments, held_out: ChosenDocuments
) -> dict[str, object]:
    """Collects the settings that decide the result: options, weights and documents.

    Options that are left out get the values of the encoder, the checkpoint or the defaults.
    """
    settings = {}
    for group in (options.model, options.family, options.masking):
        for name, value in vars(group).items():
            if name in _NO_SETTINGS:
                continue
            settings[name] = value
            if value is None:
                settings[name] = getattr(model.config, name, None)

    settings["chunk_encoder"] = model.config.chunk_encoder_fingerprint
    settings["weights"] = None
    if options.family.model:
        base = model.base_model
        settings["weights"] = model_identity(base, base.tokenizer)

    settings |= options.training.result_settings()
    settings["documents"] = learned.corpus.fingerprint()
    settings["validation_share"] = options.corpus.validation_share
    if held_out.corpus is not learned.corpus:
        settings["validation_documents"] = held_out.corpus.fingerprint()

    return settings


# --- What is learned


@dataclass(kw_only=True)
class Objective:
    """Describes the objective of a training: rows, batches and scores.

    Args:
        dataset: function that makes rows of the documents of a corpus.
        collator: collator that makes batches of rows.
        labels: the labels that `Trainer` gathers beside the scores of a batch. It gathers no
            vectors, which would fill the memory.
        batch_scores: function that scores a batch, for `preprocess_logits_for_metrics`.
        metrics: function that computes the metrics of an evaluation from the scores of its batches.
        scores: names of the metrics that a card reports to the Hub.
        about_scores: explanation of the metrics on the card.
        hub_task: the Hub's name of the task.
        at_least: number of documents that an evaluation needs.
        unused: names of the options that the objective does not use.
    """

    dataset: Callable[..., EpochDataset]
    collator: Callable[[list[Any]], dict[str, torch.Tensor]]
    labels: tuple[str, ...]
    batch_scores: Callable[..., torch.Tensor]
    metrics: Callable[[EvalPrediction], dict[str, float]]
    scores: tuple[str, ...]
    about_scores: str
    hub_task: str
    at_least: int
    unused: Collection[str]


def new_objective(
    family: FamilyArguments, masking: MaskingArguments, config: NextLevelBertConfig | HateConfig
) -> Objective:
    """Chooses sequences with masks, or segments to compare.

    Raises:
        ValueError: for sequences or segments that are longer than the model reads at once.
    """
    window, _ = config.window()
    if isinstance(family, NextLevelBertArguments) and family.objective == "contrastive":
        return _contrastive_objective(family, masking, window=window)

    positions = window + config.special_positions
    if masking.sequence_length > positions:
        raise ValueError(
            f"--sequence_length {masking.sequence_length} is above the {positions} positions that"
            " the model reads at once. Lower it."
        )

    dataset_class: type[VectorSequenceDataset] = PackedVectorDataset
    if isinstance(family, HateArguments):
        dataset_class = DocumentVectorDataset

    metrics = MaskedVectorMetrics(config.loss)
    scores: tuple[str, ...] = ("masked_accuracy", "masked_cosine")
    if config.loss == "smooth_l1":
        scores = ("masked_accuracy", "r2", "masked_cosine")

    return Objective(
        dataset=partial(dataset_class, sequence_length=masking.sequence_length),
        collator=DataCollatorForVectorMasking(probability=masking.masking_probability),
        labels=("mask_positions", "special_ids"),
        batch_scores=metrics.score_batch,
        metrics=metrics,
        scores=scores,
        about_scores=MASKED_SCORES,
        hub_task="fill-mask",
        at_least=1,
        unused=("min_segment", "max_segment"),
    )


def _contrastive_objective(
    family: NextLevelBertArguments, masking: MaskingArguments, window: int
) -> Objective:
    if family.max_segment > window:
        raise ValueError(
            f"--max_segment {family.max_segment} is above the {window} chunks that the model reads"
            " at once. Lower it."
        )

    return Objective(
        dataset=partial(
            SegmentPairDataset,
            min_segment=family.min_segment,
            max_segment=family.max_segment,
        ),
        collator=DataCollatorForSegmentPairs(
            min_segment=family.min_segment, max_segment=family.max_segment
        ),
        labels=("document_ids",),
        batch_scores=pairs_found,
        metrics=pair_metrics,
        scores=("pair_accuracy",),
        about_scores=PAIR_SCORES,
        hub_task="sentence-similarity",
        at_least=2,
        unused=vars(masking),
    )


# --- Training


class Run(NamedTuple):
    """A finished training, and the scores of the mean of the context, if vectors are masked."""

    trainer: CardTrainer
    baseline: dict[str, float] | None


def train(
    model: VectorModel,
    objective: Objective,
    options: Options,
    learned: ChosenDocuments,
    held_out: ChosenDocuments,
) -> Run:
    """Trains and evaluates the model, from the last whole checkpoint if there is one."""
    args = options.training
    fit_to_documents(
        model,
        learned,
        whiten_chunks=getattr(options.family, "whiten_chunks", False),
        seed=args.seed,
    )

    def rows_of(documents: ChosenDocuments) -> EpochDataset:
        return objective.dataset(documents.corpus, documents=documents.positions, seed=args.seed)

    train_dataset = rows_of(learned)
    eval_dataset = None
    if len(held_out.positions) > 0:
        eval_dataset = rows_of(held_out)
    else:
        args.eval_strategy = "no"
        args.eval_on_start = False

    baseline = None
    if eval_dataset is not None and isinstance(objective.metrics, MaskedVectorMetrics):
        baseline = context_mean_baseline(
            eval_dataset,
            collate=objective.collator,
            batch_size=args.per_device_eval_batch_size,
            prepare=model.prepare_targets,
            metrics=objective.metrics,
        )
        logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))
        if baseline["count"] < _FEW:
            logger.warning(
                "Masked vectors in the evaluation set: %d. Below %d, its scores say little: hold"
                " out more documents (--validation_share or --validation_file).",
                baseline["count"],
                _FEW,
            )

    args.label_names = list(objective.labels)
    trainer = CardTrainer(
        model=model,
        args=args.without_upload(),
        data_collator=objective.collator,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        preprocess_logits_for_metrics=objective.batch_scores,
        compute_metrics=objective.metrics,
    )
    checkpoint = last_whole_checkpoint(args.output_dir)
    if checkpoint is not None:
        trainer.args.eval_on_start = False  # otherwise the log would have one evaluation more

    trainer.train(resume_from_checkpoint=checkpoint)
    last_entries = trainer.state.log_history[-2:]
    if eval_dataset is not None and not any("eval_loss" in entry for entry in last_entries):
        trainer.evaluate()

    return Run(trainer, baseline)


def fit_to_documents(
    model: VectorModel, learned: ChosenDocuments, whiten_chunks: bool, seed: int
) -> None:
    """Fits mean and matrix of a whitening to the documents, and draws candidates among them.

    A model may have two whitening modules, which get the same mean and matrix: one for the inputs
    of its encoder, and `target_whitening` for its targets and candidates.

    Args:
        model: a new model, or a checkpoint to continue from.
        learned: the documents to train on.
        whiten_chunks: if true, sets the whitening of the inputs; a checkpoint keeps its own.
        seed: seed of the random draw.
    """
    target_whitening = getattr(model, "target_whitening", None)
    if target_whitening is None and not whiten_chunks:
        return

    documents = (learned.corpus[index].plain for index in learned.positions.tolist())
    mean, weight = fit_whitening(documents)
    fitted = {"mean": mean, "weight": weight}
    if whiten_chunks:
        model.base_model.whitening.load_state_dict(fitted)
    if target_whitening is not None:
        target_whitening.load_state_dict(fitted)
        vectors = draw_vectors(learned, model.config.num_candidates, seed=seed)
        model.candidates = target_whitening(vectors)


def draw_vectors(documents: ChosenDocuments, count: int, seed: int) -> torch.Tensor:
    """Draws chunk vectors of these documents without repetition; all if there are fewer.

    Returns:
        The vectors, ``[count, D]`` float16.
    """
    corpus = documents.corpus
    is_chosen = np.isin(np.arange(len(corpus)), documents.positions)
    chunks = np.flatnonzero(is_chosen.repeat(np.diff(corpus.document_offsets)))
    size = min(count, len(chunks))
    drawn = np.random.default_rng(seed).choice(chunks, size, replace=False)
    return torch.cat([corpus.vectors(chunk, chunk + 1) for chunk in drawn.tolist()])


def publish(
    run: Run,
    objective: Objective,
    options: Options,
    learned: ChosenDocuments,
    held_out: ChosenDocuments,
) -> None:
    """Writes card and results, uploads them if asked for, and prints the folder."""
    args = options.training
    log = run.trainer.state.log_history
    settings = {
        "started from": None,
        "documents held out": len(held_out.positions),
        "items in an epoch": len(run.trainer.train_dataset),
        **vars(options.masking),
        **vars(options.family),
    }
    settings.pop("model", None)
    if options.family.model is not None:
        settings["started from"] = public_name(options.family.model)

    is_masked = isinstance(objective.metrics, MaskedVectorMetrics)
    config = run.trainer.model.config
    if is_masked:
        settings["loss"] = config.loss
        if config.num_candidates > 0:
            settings["stored chunk vectors to choose among"] = config.num_candidates

    for name in objective.unused:
        settings.pop(name, None)

    write_card(run, objective, options=options, corpus=learned.corpus, settings=settings)
    write_results(args, log, run.baseline)

    logged = evaluations_of_weights(run.trainer)
    if is_masked and logged:
        print(what_was_learned(logged[-1]))

    print(
        f"The model is in {args.output_dir}, with its card (README.md) and results.json; the"
        f" vectors in {learned.corpus.path}."
    )


def write_results(
    args: PretrainingArguments,
    log: Log,
    baseline: Mapping[str, float] | None,
) -> None:
    """Writes ``results.json``, the mark of a finished run, as the last file; uploads the folder."""
    entries = []
    for entry in log:
        if "train_loss" in entry:  # the summary at the end
            continue
        entries.append({name: value for name, value in entry.items() if not name.endswith(_TIMES)})
    output = Path(args.output_dir)
    content = json.dumps({"baseline": baseline, "log": entries}, indent=2, sort_keys=True)
    write_whole(output / "results.json", content)
    args.upload(output)
