"""Pretraining on chunk vectors: documents → a corpus of vectors → a NextLevelBERT or HATE with its
card."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from transformers import AutoConfig, set_seed

from ..chunk_vectors import encode_corpus
from ..corpus import VectorCorpus
from ..data.rows import as_documents, hub_dataset, read_documents
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..fitting import fit_whitening
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import ChunkingRule
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
    DataCollatorForSegmentPairs,
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    PackedVectorDataset,
    SegmentPairDataset,
    context_mean_baseline,
    masked_vector_scores,
    pairs_found,
    summarize,
)

logger = logging.getLogger(__name__)

# Options that do not change the result, or that are told by what they lead to.
_UNSIGNED = ("model", "chunk_encoder", "chunk_encoder_name", "include_chunk_encoder")
Family = NextLevelBertArguments | HateArguments
_TIMES = ("_runtime", "_per_second")
_ABOUT = """\
Pretrains a NextLevelBERT or HATE: documents → chunk vectors on disk → masked vector modelling → a checkpoint with its
card. Without --do_train the documents are only encoded. --model_type cdlm --help shows the options of a CDLM."""


def main(words: Sequence[str] | None = None) -> None:
    """Pretrains the ``--model_type`` that a command line asks for: by default, that of this
    process."""
    training.run_command(pretrain, words)


def pretrain(words: list[str]) -> None:
    """Encodes the documents, trains on their vectors and saves the model with its card; a CDLM has
    its own way.

    A run that was killed goes on where it stopped, given the same options.
    """
    words = training.words_of(words)
    model_type, _ = training.take_option(words, "model_type")
    if model_type == "cdlm":
        cdlm.main(words)
        return
    family_class = HateArguments if model_type == "hate" else NextLevelBertArguments
    classes = (
        VectorModelArguments,
        family_class,
        MaskingArguments,
        CorpusArguments,
        PretrainingArguments,
    )
    options, family, masking, corpus_args, args = training.parse(
        classes, words, about=_ABOUT, recipes=""
    )
    set_seed(args.seed)

    # 1. The frozen encoder, which stays out of training, and the model over vectors.
    source = open_encoder(options, family)
    model = new_model(options, family, source, masking.sequence_length)
    objective = objective_of(family, masking, model.config)
    args.check_best_metric(objective.scores)

    # 2. The corpus of chunk vectors, for training and evaluation.
    corpus = encoded_corpus(corpus_args, options, source, model.config.chunking_rule(), args)
    if not args.do_train:
        print(
            f"Encoded {len(corpus):,} documents into {corpus.path}. Nothing was trained: add"
            " --do_train for that."
        )
        return
    corpus.check_model(model.config, corpus.splitter)
    learned, held_out = share_out(
        corpus, corpus_args.validation_share, args.seed, objective.at_least
    )
    output, settings = (
        Path(str(args.output_dir)),
        settings_of(model, args, options, family, masking),
    )
    claim(
        output,
        settings
        | {
            "documents": corpus.fingerprint(),
            "validation_share": corpus_args.validation_share,
        },
    )
    if read_json(output / "results.json") is not None:
        args.upload(output)
        print(
            f"{output} is finished already: nothing to do. Give another --output_dir for another"
            " run."
        )
        return

    # 3. Training, from the last whole checkpoint if the run was killed.
    if getattr(family, "whiten_chunks", False):
        mean, weight = fit_whitening(corpus[number].vectors for number in learned.tolist())
        model.base_model.whitening.load_state_dict({"mean": mean, "weight": weight})
    train_dataset = objective.dataset(corpus, documents=learned, seed=args.seed)
    eval_dataset = (
        objective.dataset(corpus, documents=held_out, seed=args.seed) if len(held_out) else None
    )
    baseline = None
    if eval_dataset is not None and isinstance(objective.collator, DataCollatorForVectorMasking):
        size, prepare = args.per_device_eval_batch_size, model.base_model.prepare_chunks
        baseline = context_mean_baseline(eval_dataset, objective.collator, size, prepare)
        logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))
    checkpoint = last_whole_checkpoint(output)
    args.label_names = [objective.label]
    args.eval_strategy = args.eval_strategy if eval_dataset is not None else "no"
    args.eval_on_start = args.eval_on_start and eval_dataset is not None and checkpoint is None
    scores = {
        "preprocess_logits_for_metrics": objective.batch_scores,
        "compute_metrics": objective.metrics,
    }
    trainer = CardTrainer(model, args, objective.collator, train_dataset, eval_dataset, **scores)
    trainer.train(checkpoint)
    log = trainer.state.log_history
    if eval_dataset is not None and not any("eval_loss" in entry for entry in log[-2:]):
        trainer.evaluate()

    # 4. A checkpoint that needs nothing else, unless a small one is asked for; the results are
    # written last.
    if options.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(source)
    trainer.save_model()
    if args.should_save:
        start = getattr(family, "model", None)
        name = start and training.safe_name(
            Path(start).resolve().name if Path(start).exists() else start
        )
        facts = {
            "started from": name,
            "documents held out": len(held_out),
            "items in an epoch": len(train_dataset),
        }
        facts |= {**vars(masking), **vars(family), "model": None}
        if objective.label == "mask_positions":
            facts["loss"] = model.config.loss
        write_card(trainer, objective, corpus, facts, baseline)
        steps = [entry for entry in log if "train_loss" not in entry]
        steps = [
            {key: value for key, value in entry.items() if not key.endswith(_TIMES)}
            for entry in steps
        ]
        results = json.dumps({"baseline": baseline, "log": steps}, indent=2, sort_keys=True)
        write_whole(output / "results.json", results)
        args.upload(output)
        print(
            f"The model is in {output}, with its card (README.md) and results.json; the vectors in"
            f" {corpus.path}."
        )


class Objective(NamedTuple):
    """What is learned: rows, batches and scores."""

    dataset: Callable[..., Any]
    collator: DataCollatorForVectorMasking | DataCollatorForSegmentPairs
    # what `Trainer` gathers beside the scores of a batch, since vectors would fill the memory
    label: str
    batch_scores: Callable[..., torch.Tensor]
    metrics: Callable[..., dict[str, float]]
    scores: tuple[str, ...]  # that a card tells the Hub
    about_scores: str
    hub_task: str
    at_least: int  # documents to hold out
    without: Any  # options, by name, that it does not use


def objective_of(family: Family, masking: MaskingArguments, config: Any) -> Objective:
    """Segments to compare, or sequences with masks; ValueError for what is longer than the model
    reads at once."""
    window = config.window()[0]
    if isinstance(family, NextLevelBertArguments) and family.objective == "contrastive":
        low, high = family.min_segment, family.max_segment
        if high > window:
            raise ValueError(
                f"--max_segment {high} is above the {window} chunks that the model reads at once."
            )
        names = ("pair_accuracy", "chance_accuracy")
        return Objective(
            partial(SegmentPairDataset, min_segment=low, max_segment=high),
            DataCollatorForSegmentPairs(low, high),
            label="document_ids",
            batch_scores=pairs_found,
            metrics=lambda gathered: dict(
                zip(names, gathered.predictions.mean(axis=0).tolist(), strict=True)
            ),
            scores=names[:1],
            about_scores=_PAIR_SCORES,
            hub_task="sentence-similarity",
            at_least=2,
            without=vars(masking),
        )
    length, most = masking.sequence_length, window + config.special_positions
    if length > most:
        raise ValueError(
            f"--sequence_length {length} is above the {most} positions that the model reads at"
            " once."
        )
    kind = DocumentVectorDataset if isinstance(family, HateArguments) else PackedVectorDataset
    return Objective(
        partial(kind, sequence_length=length),
        DataCollatorForVectorMasking(
            masking.masking_probability, masking.mask_share, masking.random_share
        ),
        label="mask_positions",
        batch_scores=lambda outputs, mask_positions: masked_vector_scores(
            outputs[0], outputs[1], mask_positions
        ),
        metrics=lambda gathered: summarize(torch.as_tensor(gathered.predictions)),
        scores=("masked_cosine", "masked_accuracy"),
        about_scores=_MASKED_SCORES,
        hub_task="fill-mask",
        at_least=1,
        without=("min_segment", "max_segment"),
    )


def settings_of(model: Any, args: PretrainingArguments, *options: Any) -> dict[str, object]:
    """The options that decide the result; those left out have the values of encoder, checkpoint or
    defaults."""
    values = {
        name: value
        for group in options
        for name, value in vars(group).items()
        if name not in _UNSIGNED
    }
    return {
        **{
            name: getattr(model.config, name, None) if value is None else value
            for name, value in values.items()
        },
        "chunk_encoder": model.config.chunk_encoder_fingerprint,
        "weights": (
            weights_fingerprint(model.base_model) if getattr(options[1], "model", None) else None
        ),
        **args.signature(),
    }


def open_encoder(options: VectorModelArguments, family: Family) -> LoadedChunkEncoder:
    """The chunk encoder: as named, that within the model to continue from, or MiniLM."""
    name, model = options.chunk_encoder, getattr(family, "model", None)
    if name is None and model and AutoConfig.from_pretrained(model).include_chunk_encoder:
        name = model
    pooling: Any = getattr(family, "sentence_pooling", "own")
    name = name or "sentence-transformers/all-MiniLM-L6-v2"
    if not (options.include_chunk_encoder or options.chunk_encoder_name) and Path(name).is_dir():
        raise ValueError(
            "--no_include_chunk_encoder needs the encoder's name on the Hub: --chunk_encoder_name."
        )
    return load_chunk_encoder(
        name, options.chunk_encoder_name, None if pooling == "own" else pooling
    )


def new_model(
    options: VectorModelArguments, family: Family, source: LoadedChunkEncoder, sequence_length: int
) -> Any:
    """The model to train, new or a checkpoint to continue from, without its chunk encoder."""
    fields = stated(options, "temperature") | stated(family, "loss", "pooling")
    new = {
        "include_chunk_encoder": False,
        **stated(options, "chunk_size", "chunking", "num_hidden_layers"),
    }
    if isinstance(family, HateArguments):
        fields |= stated(family, "hidden_size", "norm_order")
        fields["max_chunks"] = (
            sequence_length - 1
        )  # it has not learned positions beyond its sequences
        return HateForMaskedSentencePrediction.from_chunk_encoder(source, **fields, **new)
    contrastive = family.objective == "contrastive"
    kind = (
        NextLevelBertForContrastiveLearning if contrastive else NextLevelBertForMaskedVectorModeling
    )
    fields |= stated(family, "loss_mean")
    flags = ("random_layers", "attention_dropout", "whiten_chunks")
    new |= {name: value for name in flags if (value := getattr(family, name))}
    if family.model is None:
        return kind.from_chunk_encoder(source, **fields, **new)
    if names := [name for name in new if name != "include_chunk_encoder"]:
        beside = " (beside a recipe: --attention_dropout 0)" * (names[0] == "attention_dropout")
        raise ValueError(
            f"--{names[0]} is for new models: leave it out{beside}, or leave out --model."
        )
    model: Any = kind.from_pretrained(
        family.model, dtype=torch.float32, **fields
    )  # keeps its chunks and layers
    if model.base_model.chunk_encoder is not None:
        model.base_model.detach_chunk_encoder()
    model.base_model.check_chunk_encoder(source)
    model.base_model.tokenizer = source.tokenizer
    return model


def stated(options: Any, *names: str) -> dict[str, Any]:
    """Those of these options that a command line names."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def encoded_corpus(
    corpus_args: CorpusArguments,
    options: VectorModelArguments,
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    args: PretrainingArguments,
) -> VectorCorpus:
    """The documents as chunk vectors on disk; every process encodes its share of what is
    missing."""
    # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
    folder = Path(corpus_args.corpus_dir or f"{Path(str(args.output_dir))}-corpus")
    columns = corpus_args.text_column, corpus_args.id_column
    if corpus_args.train_file or corpus_args.dataset_name:
        if name := corpus_args.dataset_name:
            split, config = corpus_args.dataset_split, corpus_args.dataset_config_name
            documents = as_documents(
                hub_dataset(name, config, split=split, streaming=True), *columns
            )
        else:
            documents = read_documents(str(corpus_args.train_file), *columns)
        # A copy, since what is saved with the model keeps its precision.
        encoder = copy.deepcopy(source.encoder).to(
            args.device, getattr(torch, options.encoder_dtype)
        )
        source, size = replace(source, encoder=encoder), corpus_args.characters_per_part
        encode_corpus(
            documents, source, rule, folder, characters_per_part=size, progress=args.should_log
        )
        PartialState().wait_for_everyone()
    elif not folder.is_dir():
        raise ValueError(
            "Give the documents with --train_file or --dataset_name, or a finished --corpus_dir."
        )
    corpus = VectorCorpus(folder)
    logger.info("%r", corpus)
    return corpus


def share_out(
    corpus: VectorCorpus, share: float, seed: int, at_least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the documents to train on, and of those to evaluate on."""
    order = np.random.default_rng(seed).permutation(len(corpus))
    held_out = max(at_least, round(share * len(corpus))) if share > 0 else 0
    if held_out >= len(corpus):
        raise ValueError(
            f"{corpus!r} is too small to hold out {held_out} document(s); set --validation_share 0."
        )
    return np.sort(order[held_out:]), np.sort(order[:held_out])


# --- The card

_FAMILIES = {
    "nextlevelbert": (
        """\
A [NextLevelBERT](https://arxiv.org/abs/2402.17682): it cuts a document of any length into chunks, turns each into a
vector with a frozen sentence encoder, and reads the sequence of vectors with a masked language model over vectors."""
    ),
    "hate": (
        """\
A HATE (Hierarchical Attention-based Text Encoder): it cuts a document of any length into sentences, turns each into
a vector with a frozen sentence encoder, and reads the sequence of vectors with a small Transformer that has learned
to find masked sentences among those of its batch."""
    ),
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
    trainer: CardTrainer,
    objective: Objective,
    corpus: VectorCorpus,
    facts: Mapping[str, object],
    baseline: Mapping[str, float] | None,
) -> None:
    """Writes card and learning curve; `facts` are the options of the training by name, `baseline`
    other scores."""
    args: Any = trainer.args
    log, config, name = trainer.state.log_history, trainer.model.config, args.repository()
    columns = ("loss", *objective.scores, "chance_accuracy")
    training.plot_curves([log], columns[1:], Path(args.output_dir) / training.CURVE, x="step")
    evaluations = [
        {name: entry[f"eval_{name}"] for name in columns} for entry in log if "eval_loss" in entry
    ]
    measured = "Nothing: the run had no evaluation."
    if evaluations:
        rows = {"first evaluation": evaluations[0], "last evaluation": evaluations[-1]}
        table = training.results_table(
            {**rows, "mean of the context": baseline} if baseline else rows
        )
        measured = f"{objective.about_scores}\n\n{table}"
    facts = {
        **{
            name: value
            for name, value in facts.items()
            if value is not None and name not in objective.without
        },
        "batch_size": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "optimizer_steps": trainer.state.global_step,
        **{
            name: getattr(args, name)
            for name in ("learning_rate", "weight_decay", "warmup_steps", "seed")
        },
        "lr_scheduler_type": args.lr_scheduler_type.value,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
        "device": args.device.type,
    }
    encoder = config.chunk_encoder_name
    training.model_card(
        name=name,
        summary=_FAMILIES[config.model_type],
        snippet=_SNIPPET.format(name=name),
        note=_NOTE.format(name=name),
        pipeline_tag="sentence-similarity",
        widget=training.SIMILARITY_WIDGET,
        tags=(config.model_type, "long-documents", "sentence-transformers", "feature-extraction"),
        base_model=encoder if "/" in encoder and encoder != name else None,  # a name on the Hub
        model=_model_facts(config, corpus),
        training=facts,
        pictures={training.CURVE: "Loss and held-out scores over training"},
        measured=measured,
        scores={name: evaluations[-1][name] for name in objective.scores} if evaluations else None,
        dataset="held-out documents",
        scored_task=objective.hub_task,
        limits=_LIMITS,
    ).save(f"{args.output_dir}/README.md")


def _model_facts(config: Any, corpus: VectorCorpus) -> dict[str, object]:
    """What the model is made of."""
    layers, weights = (
        config.encoder_config.num_hidden_layers,
        f"{config.chunk_encoder_fingerprint[:12]}…",
    )
    facts: dict[str, object] = {
        "chunk encoder (frozen)": f"{code(config.chunk_encoder_name)}, weights {code(weights)}",
        "chunking": f"{config.chunking}, at most {config.chunk_size} tokens per chunk",
        "encoder over chunks": (
            f"{layers} layers of {config.hidden_size}, {config.max_chunks} chunks in a window"
        ),
        "documents of any length": f"`long_documents={config.long_documents!r}`",
        "document vector": f"`pooling={config.pooling!r}`",
        "training corpus": (
            f"{len(corpus):,} documents, {corpus.num_chunks:,} chunks, encoded in "
            f"{plain(corpus.recipe['encoder']['dtype'])}"
        ),
    }
    if corpus.splitter:
        facts["sentences"] = f"found by {code(corpus.splitter)}"
    if getattr(config, "whiten_chunks", False):
        facts["chunk vectors"] = "centred and whitened within documents"
    return facts
