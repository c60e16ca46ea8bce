"""Pretraining on chunk vectors: documents → a corpus of vectors → a model with its card."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from transformers import AutoConfig, EvalPrediction, PreTrainedModel, set_seed

from ..chunk_vectors import encode_corpus
from ..corpus import VectorCorpus
from ..data.rows import Document, as_documents, hub_dataset, read_documents
from ..fitting import fit_whitening
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import ChunkingRule
from ..models.configuration_hate import HateConfig
from ..models.configuration_nextlevelbert import NextLevelBertConfig
from ..models.from_encoder import LoadedChunkEncoder, load_chunk_encoder
from ..models.modeling_hate import HateForMaskedSentencePrediction
from ..models.modeling_nextlevelbert import (
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
)
from ..training import trainer as training
from ..training.trainer import (
    CardTrainer,
    claim,
    code,
    last_whole_checkpoint,
    plain,
    read_json,
    write_whole,
)
from . import cdlm
from .arguments import (
    CorpusArguments,
    HateArguments,
    MaskingArguments,
    NextLevelBertArguments,
    PretrainingArguments,
    VectorModelArguments,
)
from .sequences import (
    REGRESSION_LOSSES,
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    EpochDataset,
    MaskedVectorMetrics,
    PackedVectorDataset,
    SegmentPairDataset,
    VectorSequenceDataset,
    context_mean_baseline,
    pairs_found,
)

logger = logging.getLogger(__name__)

# Options that do not affect the result, or whose effect is recorded elsewhere (fingerprint,
# weights).
_UNSIGNED = ("model", "chunk_encoder", "chunk_encoder_name", "include_chunk_encoder")
Family = NextLevelBertArguments | HateArguments
_TIMES = ("_runtime", "_per_second")
_ABOUT = """\
Pretrains a NextLevelBERT or HATE: documents → chunk vectors on disk → masked vector modelling → a
checkpoint with its card. Without --do_train the documents are only encoded. --model_type cdlm
--help shows the options of a CDLM."""


def main(words: Sequence[str] | None = None) -> None:
    """Pretrains the ``--model_type`` that a command line asks for.

    Args:
        words: the command line's, by default those of this process.
    """
    training.run_command(pretrain, words)


@dataclass
class Options:
    """All options of a run, a group each."""

    model: VectorModelArguments
    family: Family
    masking: MaskingArguments
    corpus: CorpusArguments
    training: PretrainingArguments

    @classmethod
    def parse(cls, words: list[str], model_type: str | None) -> Options:
        """Reads them from a command line; errors end the program."""
        family: type[Family] = NextLevelBertArguments
        if model_type == "hate":
            family = HateArguments
        groups = (
            VectorModelArguments,
            family,
            MaskingArguments,
            CorpusArguments,
            PretrainingArguments,
        )
        return cls(*training.parse(groups, words, about=_ABOUT, recipes=""))


class Documents(NamedTuple):
    """Documents of a corpus, by their positions."""

    corpus: VectorCorpus
    positions: np.ndarray


def pretrain(words: list[str]) -> None:
    """Encodes the documents, trains on their vectors and saves the model with its card.

    A run that was killed goes on where it stopped, given the same options. A CDLM is trained from
    tokens, by `cdlm.main`.

    Args:
        words: of a command line.
    """
    words = training.words_of(words)
    model_type, _ = training.take_option(words, "model_type")
    if model_type == "cdlm":
        cdlm.main(words)
        return
    options = Options.parse(words, model_type)
    args = options.training
    set_seed(args.seed)

    # 1. The frozen encoder, which stays out of training, and the model over vectors.
    source = open_encoder(options.model, options.family)
    model = new_model(options.model, options.family, source, options.masking.sequence_length)
    objective = objective_of(options.family, options.masking, model.config)
    args.check_best_metric(objective.scores)

    # 2. The corpus of chunk vectors, for training and evaluation.
    corpus, validation_corpus = encoded_corpora(options, source, model.config.chunking_rule())
    if not args.do_train:
        print(
            f"Encoded {len(corpus):,} documents into {corpus.path}. Nothing was trained: add"
            " --do_train for that."
        )
        return
    learned, held_out = choose_documents(options, corpus, validation_corpus, objective.at_least)
    for documents in (learned, held_out):
        documents.corpus.check_model(model.config, documents.corpus.splitter)
    output = Path(str(args.output_dir))
    claim(output, settings_of(model, options, learned, held_out))
    if read_json(output / "results.json") is not None:
        args.upload(output)
        print(
            f"{output} is finished already: nothing to do. Give another --output_dir for another"
            " run."
        )
        return

    # 3. Training, from the last whole checkpoint if the run was killed.
    run = train(model, objective, options, learned, held_out)

    # 4. A checkpoint that needs nothing else, unless a small one is asked for; the results are
    # written last.
    if options.model.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(source)
    run.trainer.save_model()
    if args.should_save:
        publish(run, objective, options, learned, held_out)


@dataclass
class Objective:
    """What is learned: rows, batches and scores."""

    dataset: Callable[..., EpochDataset]
    collator: DataCollatorForVectorMasking | DataCollatorForSegmentPairs
    # what `Trainer` gathers beside the scores of a batch, since vectors would fill the memory
    label: str
    batch_scores: Callable[..., torch.Tensor]
    metrics: Callable[[EvalPrediction], dict[str, float]]
    scores: tuple[str, ...]  # that a card tells the Hub
    about_scores: str
    hub_task: str
    at_least: int  # documents to hold out
    without: Collection[str]  # options, by name, that it does not use


def objective_of(
    family: Family, masking: MaskingArguments, config: NextLevelBertConfig | HateConfig
) -> Objective:
    """Chooses segments to compare, or sequences with masks.

    Args:
        family: the options of the family, which say what is learned.
        masking: how sequences are made and masked.
        config: of the model.

    Returns:
        The objective.

    Raises:
        ValueError: for sequences that are longer than the model reads at once.
    """
    if isinstance(family, NextLevelBertArguments) and family.objective == "contrastive":
        return _segments_to_compare(family, masking, config)
    most = config.window()[0] + config.special_positions
    length = masking.sequence_length
    if length > most:
        raise ValueError(
            f"--sequence_length {length} is above the {most} positions that the model reads at"
            " once."
        )
    kind: type[VectorSequenceDataset] = PackedVectorDataset
    if isinstance(family, HateArguments):
        kind = DocumentVectorDataset
    metrics = MaskedVectorMetrics(config.loss)
    scores: tuple[str, ...] = ("masked_accuracy", "masked_cosine")
    if config.loss in REGRESSION_LOSSES:
        scores = ("masked_accuracy", "r2", "masked_cosine")
    return Objective(
        dataset=partial(kind, sequence_length=length),
        collator=DataCollatorForVectorMasking(
            probability=masking.masking_probability,
            mask_share=masking.mask_share,
            random_share=masking.random_share,
        ),
        label="mask_positions",
        batch_scores=metrics.score_batch,
        metrics=metrics,
        scores=scores,
        about_scores=_MASKED_SCORES,
        hub_task="fill-mask",
        at_least=1,
        without=("min_segment", "max_segment"),
    )


def _segments_to_compare(
    family: NextLevelBertArguments, masking: MaskingArguments, config: NextLevelBertConfig
) -> Objective:
    window = config.window()[0]
    low = family.min_segment
    high = family.max_segment
    if high > window:
        raise ValueError(
            f"--max_segment {high} is above the {window} chunks that the model reads at once."
        )

    def metrics(evaluation: EvalPrediction) -> dict[str, float]:
        accuracy, chance = evaluation.predictions.mean(axis=0).tolist()
        return {"pair_accuracy": accuracy, "chance_accuracy": chance}

    return Objective(
        dataset=partial(SegmentPairDataset, min_segment=low, max_segment=high),
        collator=DataCollatorForSegmentPairs(low, high),
        label="document_ids",
        batch_scores=pairs_found,
        metrics=metrics,
        scores=("pair_accuracy",),
        about_scores=_PAIR_SCORES,
        hub_task="sentence-similarity",
        at_least=2,
        without=vars(masking),
    )


def settings_of(
    model: PreTrainedModel, options: Options, learned: Documents, held_out: Documents
) -> dict[str, object]:
    """Collects what decides the result: options, weights and documents.

    Options that are left out have the values of the encoder, the checkpoint or the defaults.
    """
    settings: dict[str, object] = {}
    for group in (options.model, options.family, options.masking):
        for name, value in vars(group).items():
            if name in _UNSIGNED:
                continue
            settings[name] = value
            if value is None:
                settings[name] = getattr(model.config, name, None)
    settings["chunk_encoder"] = model.config.chunk_encoder_fingerprint
    settings["weights"] = None
    if _checkpoint_of(options.family):
        settings["weights"] = weights_fingerprint(model.base_model)
    settings |= options.training.signature()
    settings["documents"] = learned.corpus.fingerprint()
    settings["validation_share"] = options.corpus.validation_share
    if held_out.corpus is not learned.corpus:
        settings["validation_documents"] = held_out.corpus.fingerprint()
    return settings


def _checkpoint_of(family: Family) -> str | None:
    """The checkpoint to continue from; a HATE always starts anew."""
    if isinstance(family, NextLevelBertArguments):
        return family.model
    return None


def open_encoder(options: VectorModelArguments, family: Family) -> LoadedChunkEncoder:
    """Opens the chunk encoder: as named, that within the model to continue from, or MiniLM.

    Args:
        options: of the model.
        family: names the checkpoint to continue from, or how sentences are pooled.

    Returns:
        The frozen encoder.

    Raises:
        ValueError: if the model would have to load a folder by its name.
    """
    name = options.chunk_encoder
    checkpoint = _checkpoint_of(family)
    if name is None and checkpoint is not None:
        if AutoConfig.from_pretrained(checkpoint).include_chunk_encoder:
            name = checkpoint
    if name is None:
        name = "sentence-transformers/all-MiniLM-L6-v2"

    has_name_on_hub = bool(options.chunk_encoder_name) or not Path(name).is_dir()
    if not (options.include_chunk_encoder or has_name_on_hub):
        raise ValueError(
            "--no_include_chunk_encoder needs the encoder's name on the Hub: --chunk_encoder_name."
        )

    pooling = None
    if isinstance(family, HateArguments) and family.sentence_pooling != "own":
        pooling = family.sentence_pooling
    return load_chunk_encoder(name, options.chunk_encoder_name, pooling)


def new_model(
    options: VectorModelArguments, family: Family, source: LoadedChunkEncoder, sequence_length: int
) -> Any:
    """Makes the model to train, new or a checkpoint to continue from, without its chunk encoder.

    Args:
        options: of the model.
        family: options of the family, with the checkpoint to continue from.
        source: the chunk encoder.
        sequence_length: positions in a training sequence.

    Returns:
        The model with the head of its objective.

    Raises:
        ValueError: for options of new models beside a checkpoint, or another chunk encoder.
    """
    new = stated(options, "chunk_size", "chunking", "num_hidden_layers")
    if isinstance(family, HateArguments):
        fields = stated(options, "temperature")
        fields |= stated(family, "loss", "pooling", "hidden_size", "norm_order")
        return HateForMaskedSentencePrediction.from_chunk_encoder(
            source,
            max_chunks=sequence_length - 1,  # it has not learned positions beyond its sequences
            include_chunk_encoder=False,
            **fields,
            **new,
        )

    kind: Any = NextLevelBertForMaskedVectorModeling
    if family.objective == "contrastive":
        kind = NextLevelBertForContrastiveLearning
    fields = stated(options, "temperature") | stated(family, "loss", "pooling", "loss_mean")
    for name in ("random_layers", "attention_dropout", "whiten_chunks"):
        if getattr(family, name):
            new[name] = getattr(family, name)
    if family.model is None:
        return kind.from_chunk_encoder(source, include_chunk_encoder=False, **fields, **new)

    if new:
        name = next(iter(new))
        hint = ""
        if name == "attention_dropout":
            hint = " (beside a recipe: --attention_dropout 0)"
        raise ValueError(f"--{name} is for new models: leave it out{hint}, or leave out --model.")
    # The checkpoint keeps its chunks and layers.
    model = kind.from_pretrained(family.model, dtype=torch.float32, **fields)
    if model.base_model.chunk_encoder is not None:
        model.base_model.detach_chunk_encoder()
    model.base_model.check_chunk_encoder(source)
    model.base_model.tokenizer = source.tokenizer
    return model


def stated(options: VectorModelArguments | Family, *names: str) -> dict[str, Any]:
    """Picks those of these options that a command line names."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


# --- Documents


def encoded_corpora(
    options: Options, source: LoadedChunkEncoder, rule: ChunkingRule
) -> tuple[VectorCorpus, VectorCorpus | None]:
    """Encodes the documents to train on and those of ``--validation_file``, if there is one.

    Args:
        options: which documents, and where their vectors are kept.
        source: the chunk encoder.
        rule: cuts documents into chunks.

    Returns:
        Both corpora; None in place of the second if it is a share of the first.

    Raises:
        ValueError: if neither documents nor a finished corpus are given.
    """
    corpus_args = options.corpus
    folder = corpus_args.corpus_dir
    if folder is None:
        # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
        folder = f"{Path(str(options.training.output_dir))}-corpus"
    documents = None
    if corpus_args.dataset_name:
        rows = hub_dataset(
            corpus_args.dataset_name,
            corpus_args.dataset_config_name,
            split=corpus_args.dataset_split,
            streaming=True,
        )
        documents = as_documents(rows, corpus_args.text_column, corpus_args.id_column)
    elif corpus_args.train_file:
        documents = _read(corpus_args.train_file, corpus_args)
    elif not Path(folder).is_dir():
        raise ValueError(
            "Give the documents with --train_file or --dataset_name, or a finished --corpus_dir."
        )
    corpus = _encoded(documents, Path(folder), options, source=source, rule=rule)
    if corpus_args.validation_file is None:
        return corpus, None
    documents = _read(corpus_args.validation_file, corpus_args)
    folder = f"{Path(folder)}-validation"
    return corpus, _encoded(documents, Path(folder), options, source=source, rule=rule)


def _read(file: str, corpus_args: CorpusArguments) -> Iterator[Document]:
    return read_documents(file, corpus_args.text_column, corpus_args.id_column)


def _encoded(
    documents: Iterable[Document] | None,
    folder: Path,
    options: Options,
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
) -> VectorCorpus:
    """Encodes documents into a folder, each process its share of what is missing, and opens it."""
    if documents is not None:
        dtype = getattr(torch, options.model.encoder_dtype)
        # A copy, since what is saved with the model keeps its precision.
        encoder = copy.deepcopy(source.encoder).to(options.training.device, dtype)
        encode_corpus(
            documents,
            replace(source, encoder=encoder),
            rule,
            folder,
            characters_per_part=options.corpus.characters_per_part,
            progress=options.training.should_log,
        )
        PartialState().wait_for_everyone()
    corpus = VectorCorpus(folder)
    logger.info("%r", corpus)
    return corpus


def choose_documents(
    options: Options, corpus: VectorCorpus, validation_corpus: VectorCorpus | None, at_least: int
) -> tuple[Documents, Documents]:
    """Chooses the documents to train on and those to evaluate on.

    Args:
        options: how many to hold out without a validation set.
        corpus: the documents to train on.
        validation_corpus: those to evaluate on; None to hold out some of the others.
        at_least: how many documents an evaluation needs.

    Returns:
        Documents to learn from, and documents to evaluate on, perhaps none.

    Raises:
        ValueError: if too few documents are left.
    """
    if validation_corpus is not None:
        if len(validation_corpus) < at_least:
            raise ValueError(
                f"--validation_file has {len(validation_corpus)} document(s); evaluation needs"
                f" {at_least}."
            )
        everything = np.arange(len(corpus))
        held_out = np.arange(len(validation_corpus))
        return Documents(corpus, everything), Documents(validation_corpus, held_out)
    learned, held_out = share_out(
        corpus, options.corpus.validation_share, options.training.seed, at_least=at_least
    )
    return Documents(corpus, learned), Documents(corpus, held_out)


def share_out(
    corpus: VectorCorpus, share: float, seed: int, at_least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Divides the documents of a corpus into those to train on and those to evaluate on.

    Args:
        corpus: all documents.
        share: of the documents, to hold out; 0 for none.
        seed: of the draw.
        at_least: documents to hold out if `share` is above 0.

    Returns:
        Positions of the documents to train on, and of those to evaluate on.

    Raises:
        ValueError: if no document is left to train on.
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    held_out = 0
    if share > 0:
        held_out = max(at_least, round(share * len(corpus)))
    if held_out >= len(corpus):
        raise ValueError(
            f"{corpus!r} is too small to hold out {held_out} document(s); set --validation_share 0."
        )
    return np.sort(order[held_out:]), np.sort(order[:held_out])


# --- Training


class Run(NamedTuple):
    """A finished training, and the scores of the mean of the context, if there are any."""

    trainer: CardTrainer
    baseline: dict[str, float] | None


def train(
    model: Any, objective: Objective, options: Options, learned: Documents, held_out: Documents
) -> Run:
    """Trains and evaluates the model, from the last whole checkpoint if there is one."""
    args = options.training
    if getattr(options.family, "whiten_chunks", False):
        vectors = (learned.corpus[number].vectors for number in learned.positions.tolist())
        mean, weight = fit_whitening(vectors)
        model.base_model.whitening.load_state_dict({"mean": mean, "weight": weight})

    def rows(documents: Documents) -> EpochDataset:
        return objective.dataset(documents.corpus, documents=documents.positions, seed=args.seed)

    train_dataset = rows(learned)
    eval_dataset = None
    baseline = None
    if len(held_out.positions) > 0:
        eval_dataset = rows(held_out)
        baseline = _baseline(model, objective, eval_dataset, args.per_device_eval_batch_size)
    else:
        args.eval_strategy = "no"
    checkpoint = last_whole_checkpoint(args.output_dir)
    args.label_names = [objective.label]
    if eval_dataset is None or checkpoint is not None:
        args.eval_on_start = False
    trainer = CardTrainer(
        model,
        args,
        objective.collator,
        train_dataset,
        eval_dataset,
        preprocess_logits_for_metrics=objective.batch_scores,
        compute_metrics=objective.metrics,
    )
    trainer.train(checkpoint)
    last_entries = trainer.state.log_history[-2:]
    if eval_dataset is not None and not any("eval_loss" in entry for entry in last_entries):
        trainer.evaluate()
    return Run(trainer, baseline)


def _baseline(
    model: Any, objective: Objective, eval_dataset: EpochDataset, batch_size: int
) -> dict[str, float] | None:
    """Scores the mean of the context, if vectors are masked."""
    collator = objective.collator
    metrics = objective.metrics
    if isinstance(collator, DataCollatorForSegmentPairs) or not isinstance(
        metrics, MaskedVectorMetrics
    ):
        return None
    baseline = context_mean_baseline(
        eval_dataset,
        collator,
        batch_size=batch_size,
        prepare=model.base_model.prepare_chunks,
        metrics=metrics,
    )
    logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))
    return baseline


def publish(
    run: Run, objective: Objective, options: Options, learned: Documents, held_out: Documents
) -> None:
    """Writes card and results, uploads them on request, and says where they are."""
    args = options.training
    output = Path(str(args.output_dir))
    log = run.trainer.state.log_history
    facts: dict[str, object] = {
        "started from": None,
        "documents held out": len(held_out.positions),
        "items in an epoch": len(run.trainer.train_dataset),
    }
    checkpoint = _checkpoint_of(options.family)
    if checkpoint is not None:
        if Path(checkpoint).exists():
            checkpoint = Path(checkpoint).resolve().name
        facts["started from"] = training.safe_name(checkpoint)
    facts |= vars(options.masking) | vars(options.family)
    facts["model"] = None
    is_masked = isinstance(objective.metrics, MaskedVectorMetrics)
    if is_masked:
        facts["loss"] = run.trainer.model.config.loss
    write_card(run, objective, learned.corpus, facts)

    steps = [without_times(entry) for entry in log if "train_loss" not in entry]
    results = {"baseline": run.baseline, "log": steps}
    write_whole(output / "results.json", json.dumps(results, indent=2, sort_keys=True))
    args.upload(output)
    if is_masked and len(held_out.positions) > 0:
        print(_what_was_learned(log))
    print(
        f"The model is in {output}, with its card (README.md) and results.json; the vectors in"
        f" {learned.corpus.path}."
    )


def without_times(entry: Mapping[str, float]) -> dict[str, float]:
    """Leaves out what differs from run to run."""
    return {name: value for name, value in entry.items() if not name.endswith(_TIMES)}


def _what_was_learned(log: Sequence[Mapping[str, float]]) -> str:
    """Writes the last evaluation as a sentence."""
    scores = [entry for entry in log if "eval_masked_accuracy" in entry][-1]
    found = scores["eval_masked_accuracy"]
    chance = scores["eval_chance_accuracy"]
    text = f"Held-out documents: {found:.1%} of the masked vectors found (chance {chance:.1%})"
    if "eval_r2" in scores:
        text += f", R² against the mean {scores['eval_r2']:.3f}"
    return f"{text}."


# --- The card

_FAMILIES = {
    "nextlevelbert": """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682). It splits a document of any length into chunks,
encodes each chunk as a vector with a frozen sentence encoder, and reads the sequence of vectors
with a masked language model over vectors.""",
    "hate": """\
A HATE (Hierarchical Attention-based Text Encoder). It splits a document of any length into
sentences, encodes each sentence as a vector with a frozen sentence encoder, and reads the sequence
of vectors with a small Transformer that has learned to find masked sentences among those of its
batch.""",
}
_SNIPPET = """\
import nextlevelbert  # registers the architecture
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["the text of a whole book", "and of another one"])"""
_NOTE = """\
`AutoModel.from_pretrained("{name}").encode(texts)` also gives contextual and plain chunk vectors
and their characters. Without the package, `trust_remote_code=True` opens the same folder."""
_MASKED_SCORES = """\
These scores are on held-out documents. `masked_accuracy` is the share of the masked vectors that
are found: the prediction is nearer to its target (by cosine) than to all other masked vectors of
the batch. `chance_accuracy` is what guessing would find. `r2` (for the losses smooth_l1, l1 and l2)
is 1 - squared error / squared error of the constant mean; 0 is no better than the mean."""
_PAIR_SCORES = """\
These scores are on held-out documents. `pair_accuracy` is the share of segments that find the other
segment of their document in the batch, by the cosine of document vectors. `chance_accuracy` is what
guessing would find."""
_LIMITS = (
    "The chunk encoder's language and domain are the model's.",
    (
        "A document vector says what a document is about; to find a detail in it, search the chunk"
        " vectors or use BM25."
    ),
    (
        "The scores above tell what the model learned, not how good its document vectors are on"
        " your task."
    ),
)


def write_card(
    run: Run, objective: Objective, corpus: VectorCorpus, facts: Mapping[str, object]
) -> None:
    """Writes the card and the learning curve.

    Args:
        run: the training, with the scores of its baseline.
        objective: what was learned.
        corpus: the documents that the model was trained on.
        facts: options of the training by name; those that are None are left out.
    """
    args: Any = run.trainer.args
    log = run.trainer.state.log_history
    config = run.trainer.model.config
    name = args.repository()
    found, *others = objective.scores
    columns = (found, "chance_accuracy", *others)
    training.plot_curves([log], columns, Path(args.output_dir) / training.CURVE, x="step")

    evaluations = [
        {column: entry[f"eval_{column}"] for column in (*columns, "loss")}
        for entry in log
        if "eval_loss" in entry
    ]
    measured = "Nothing: the run had no evaluation."
    scores = None
    if evaluations:
        rows = {"first evaluation": evaluations[0], "last evaluation": evaluations[-1]}
        if run.baseline:
            rows["mean of the context"] = run.baseline
        measured = f"{objective.about_scores}\n\n{training.results_table(rows)}"
        scores = {column: evaluations[-1][column] for column in objective.scores}

    base_model = None
    encoder = config.chunk_encoder_name
    if "/" in encoder and encoder != name:  # a name on the Hub
        base_model = encoder
    training.model_card(
        name=name,
        summary=_FAMILIES[config.model_type],
        snippet=_SNIPPET.format(name=name),
        note=_NOTE.format(name=name),
        pipeline_tag="sentence-similarity",
        widget=training.SIMILARITY_WIDGET,
        tags=(config.model_type, "long-documents", "sentence-transformers", "feature-extraction"),
        base_model=base_model,
        model=_model_facts(config, corpus),
        training=_training_facts(run.trainer, objective, facts),
        pictures={training.CURVE: "Loss and held-out scores over training"},
        measured=measured,
        scores=scores,
        dataset="held-out documents",
        scored_task=objective.hub_task,
        limits=_LIMITS,
    ).save(f"{args.output_dir}/README.md")


def _training_facts(
    trainer: CardTrainer, objective: Objective, facts: Mapping[str, object]
) -> dict[str, object]:
    """How the model was trained."""
    args: Any = trainer.args
    shown = {
        name: value
        for name, value in facts.items()
        if value is not None and name not in objective.without
    }
    shown["batch_size"] = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    shown["optimizer_steps"] = trainer.state.global_step
    for name in ("learning_rate", "weight_decay", "warmup_steps", "seed"):
        shown[name] = getattr(args, name)
    shown["lr_scheduler_type"] = args.lr_scheduler_type.value
    shown["precision"] = "fp32"
    if args.bf16:
        shown["precision"] = "bf16"
    elif args.fp16:
        shown["precision"] = "fp16"
    shown["device"] = args.device.type
    return shown


def _model_facts(
    config: NextLevelBertConfig | HateConfig, corpus: VectorCorpus
) -> dict[str, object]:
    """What the model is made of."""
    encoder = code(config.chunk_encoder_name)
    weights = code(f"{str(config.chunk_encoder_fingerprint)[:12]}…")
    layers = config.encoder_config.num_hidden_layers
    dtype = plain(corpus.recipe["encoder"]["dtype"])
    facts: dict[str, object] = {
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
        facts["sentences"] = f"found by {code(corpus.splitter)}"
    if getattr(config, "whiten_chunks", False):
        facts["chunk vectors"] = "centred and whitened within documents"
    return facts
