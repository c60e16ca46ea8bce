"""Pretraining on chunk vectors: documents → a corpus of vectors → a NextLevelBERT or HATE with its card."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from transformers import AutoConfig, EvalPrediction, set_seed

from ..corpus import VectorCorpus, encode_corpus
from ..data.documents import clean_text, read_documents, read_hub_documents
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..fitting import fit_whitening
from ..models.chunk_encoder import weights_fingerprint
from ..models.chunking import ChunkingRule
from ..models.modeling_hate import HateForMaskedSentencePrediction
from ..models.modeling_nextlevelbert import NextLevelBertForContrastiveLearning, NextLevelBertForMaskedVectorModeling
from ..training.trainer import CardTrainer, claim, last_whole_checkpoint, parse, read_json, take_option, write_whole
from .arguments import (
    CorpusArguments,
    HateArguments,
    MaskingArguments,
    NextLevelBertArguments,
    PretrainingArguments,
    VectorModelArguments,
    given,
)
from .card import write_vector_card
from .segment_pairs import DataCollatorForSegmentPairs, SegmentPairDataset, pairs_found
from .sequences import (
    DataCollatorForVectorMasking,
    DocumentVectorDataset,
    PackedVectorDataset,
    context_mean_baseline,
    masked_vector_scores,
    summarize,
)

logger = logging.getLogger(__name__)

_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# Options that do not change the result, or that are told by what they lead to.
_UNSIGNED = ("model", "chunk_encoder", "chunk_encoder_name", "include_chunk_encoder", "attn_implementation")
_TIMES = ("_runtime", "_per_second")
_ABOUT = """\
Pretrains a NextLevelBERT or HATE: documents → chunk vectors on disk → masked vector modelling → a checkpoint with its
card. Without --do_train the documents are only encoded. --model_type cdlm --help shows the options of a CDLM."""


def main(words: list[str]) -> None:
    """Encodes the documents, trains on their vectors and saves the model with its card.

    A run that was killed goes on where it stopped, given the same options.

    Raises:
        FileNotFoundError, ValueError: for documents that cannot be read, options that do not fit each other, the
            checkpoint or the corpus, or a folder of another run; before anything is encoded wherever possible.
    """
    family_class = HateArguments if take_option(words, "model_type")[0] == "hate" else NextLevelBertArguments
    classes = (VectorModelArguments, family_class, MaskingArguments, CorpusArguments, PretrainingArguments)
    options, family, masking, corpus_args, args = parse(classes, words, about=_ABOUT, recipes="")
    set_seed(args.seed)

    # 1. The frozen encoder, which stays out of training, and the model over vectors.
    source = open_encoder(options, family)
    model = new_model(options, family, source, masking.sequence_length)
    objective = objective_of(family, masking, model.config)

    # 2. The corpus of chunk vectors, for training and evaluation.
    corpus = encoded_corpus(corpus_args, options, source, model.config.chunking_rule(), args)
    if not args.do_train:
        print(f"Encoded {len(corpus):,} documents into {corpus.path}. Nothing was trained: add --do_train for that.")
        return
    training, evaluation, held_out = share_out(corpus, corpus_args, args.seed, objective.at_least)
    for each in (corpus, evaluation):
        each.check_model(model.config, each.splitter)
    output, settings = Path(str(args.output_dir)), settings_of(model, options, family, masking, args)
    documents = [corpus.fingerprint(), corpus_args.validation_share, evaluation.fingerprint()]
    claim(output, {**settings, "documents": documents})
    if read_json(output / "results.json") is not None:
        args.upload(output)
        print(f"{output} is finished already: nothing to do. Give another --output_dir for another run.")
        return

    # 3. Training, from the last whole checkpoint if the run was killed.
    if getattr(family, "whiten_chunks", False):
        mean, weight = fit_whitening(corpus[number].vectors for number in training.tolist())
        model.base_model.whitening.load_state_dict({"mean": mean, "weight": weight})
    train_dataset = objective.dataset(corpus, documents=training, seed=args.seed)
    eval_dataset = objective.dataset(evaluation, documents=held_out, seed=args.seed) if len(held_out) else None
    baseline = None
    if eval_dataset is not None and isinstance(objective.collator, DataCollatorForVectorMasking):
        rows, prepare = (eval_dataset[row] for row in range(len(eval_dataset))), model.base_model.prepare_chunks
        baseline = context_mean_baseline(rows, objective.collator, args.per_device_eval_batch_size, prepare)
        logger.info("Mean of the context on the evaluation set: %s", json.dumps(baseline))
    checkpoint = last_whole_checkpoint(output)
    args.label_names = [objective.label]
    args.eval_strategy = args.eval_strategy if eval_dataset is not None else "no"
    args.eval_on_start = args.eval_on_start and eval_dataset is not None and checkpoint is None
    scores = {"preprocess_logits_for_metrics": objective.batch_scores, "compute_metrics": objective.metrics}
    trainer = CardTrainer(model, args, objective.collator, train_dataset, eval_dataset, **scores)
    trainer.train(checkpoint)
    log = trainer.state.log_history
    if eval_dataset is not None and not any("eval_loss" in entry for entry in log[-2:]):
        trainer.evaluate()

    # 4. A checkpoint that needs nothing else, unless a small one is asked for; the results are written last.
    if options.include_chunk_encoder:
        model.base_model.attach_chunk_encoder(source)
    trainer.save_model()
    if args.should_save:
        facts = {"items in an epoch": len(train_dataset), **vars(masking), **vars(family)}
        facts = {name: value for name, value in facts.items() if value is not None and name != "model"}
        write_vector_card(trainer, corpus, facts, baseline)
        steps = [entry for entry in log if "train_loss" not in entry]
        entries = [{key: value for key, value in entry.items() if not key.endswith(_TIMES)} for entry in steps]
        results = {"baseline": baseline, "log": entries}
        write_whole(output / "results.json", json.dumps(results, indent=2, sort_keys=True))
        args.upload(output)
        print(f"The model is in {output}, with its card (README.md) and results.json; the vectors in {corpus.path}.")


class Objective(NamedTuple):
    """What is learned: rows, batches and scores; the label that `Trainer` gathers, since vectors fill the memory."""

    dataset: Callable[..., Any]
    collator: DataCollatorForVectorMasking | DataCollatorForSegmentPairs
    label: str
    batch_scores: Callable[..., torch.Tensor]
    metrics: Callable[..., dict[str, float]]
    at_least: int  # documents to hold out


def objective_of(family: NextLevelBertArguments | HateArguments, masking: MaskingArguments, config: Any) -> Objective:
    """Segments to compare, or sequences with masks; ValueError for what is longer than the model reads at once."""
    window = config.window()[0]
    if isinstance(family, NextLevelBertArguments) and family.objective == "contrastive":
        low, high = family.min_segment, family.max_segment
        if high > window:
            raise ValueError(f"--max_segment {high} is above the {window} chunks that the model reads at once.")

        def pair_scores(prediction: EvalPrediction) -> dict[str, float]:
            means = torch.as_tensor(prediction.predictions).mean(dim=0).tolist()
            return dict(zip(("pair_accuracy", "chance_accuracy"), means, strict=True))

        dataset: Any = partial(SegmentPairDataset, min_segment=low, max_segment=high)
        return Objective(dataset, DataCollatorForSegmentPairs(low, high), "document_ids", pairs_found, pair_scores, 2)
    length, most = masking.sequence_length, window + config.special_positions
    if length > most:
        raise ValueError(f"--sequence_length {length} is above the {most} positions that the model reads at once.")

    def batch_scores(outputs: tuple[torch.Tensor, ...], mask_positions: torch.Tensor) -> torch.Tensor:
        return masked_vector_scores(outputs[0], outputs[1], mask_positions)

    def scores(prediction: EvalPrediction) -> dict[str, float]:
        return summarize(torch.as_tensor(prediction.predictions))

    kind = DocumentVectorDataset if isinstance(family, HateArguments) else PackedVectorDataset
    dataset = partial(kind, sequence_length=length)
    collator = DataCollatorForVectorMasking(masking.masking_probability, masking.mask_share, masking.random_share)
    return Objective(dataset, collator, "mask_positions", batch_scores, scores, 1)


def settings_of(model: Any, *options: Any) -> dict[str, object]:
    """The options that decide the result; those left out have the values of encoder, checkpoint or defaults."""
    *chosen, args = options
    values = {name: value for group in chosen for name, value in vars(group).items() if name not in _UNSIGNED}
    return {
        **{name: getattr(model.config, name, None) if value is None else value for name, value in values.items()},
        "chunk_encoder": model.config.chunk_encoder_fingerprint,
        "weights": weights_fingerprint(model.base_model) if getattr(chosen[1], "model", None) else None,
        **args.signature(),
    }


def open_encoder(options: VectorModelArguments, family: NextLevelBertArguments | HateArguments) -> LoadedChunkEncoder:
    """The chunk encoder: as named, that within the model to continue from, or MiniLM."""
    name, model = options.chunk_encoder, getattr(family, "model", None)
    if name is None and model and AutoConfig.from_pretrained(model).include_chunk_encoder:
        name = model
    pooling: Any = getattr(family, "sentence_pooling", "own")
    source = load_chunk_encoder(name or _MINILM, options.chunk_encoder_name, None if pooling == "own" else pooling)
    if options.attn_implementation:
        source.encoder.model.set_attn_implementation(options.attn_implementation)
    return source


def new_model(
    options: VectorModelArguments,
    family: NextLevelBertArguments | HateArguments,
    source: LoadedChunkEncoder,
    sequence_length: int,
) -> Any:
    """The model to train, new or a checkpoint to continue from, without its chunk encoder."""
    fields = {**given(options, "temperature"), **given(family, "loss", "pooling")}
    sizes = given(options, "chunk_size", "chunking", "num_hidden_layers")
    model: Any
    if isinstance(family, HateArguments):
        fields |= {**sizes, **given(family, "hidden_size", "norm_order")}
        fields["max_chunks"] = sequence_length - 1  # it has not learned positions beyond its sequences
        model = HateForMaskedSentencePrediction.from_chunk_encoder(source, include_chunk_encoder=False, **fields)
        encoder = model.base_model.encoder.layers
    else:
        contrastive = family.objective == "contrastive"
        kind = NextLevelBertForContrastiveLearning if contrastive else NextLevelBertForMaskedVectorModeling
        fields |= given(family, "loss_mean")
        if family.model is None:
            fields |= {**sizes, "random_layers": family.random_layers, "whiten_chunks": family.whiten_chunks}
            fields["attention_dropout"] = family.attention_dropout
            model = kind.from_chunk_encoder(source, include_chunk_encoder=False, **fields)
        else:
            model = _continued(kind, family.model, source, fields, sizes)
        encoder = model.base_model.encoder
    if options.attn_implementation:
        encoder.set_attn_implementation(options.attn_implementation)
    return model


def _continued(kind: Any, name: str, source: LoadedChunkEncoder, fields: dict, sizes: dict[str, Any]) -> Any:
    """A checkpoint to continue from; it keeps its chunks and layers."""
    model = kind.from_pretrained(name, dtype=torch.float32, **fields)
    kept = {**model.config.to_dict(), "num_hidden_layers": model.config.encoder_config.num_hidden_layers}
    for option, value in sizes.items():
        if value != kept[option]:
            raise ValueError(
                f"--{option} {value} does not fit {name}, which has {kept[option]}; leave out one of them."
            )
    if model.base_model.chunk_encoder is not None:
        model.base_model.detach_chunk_encoder()
    model.base_model.check_chunk_encoder(source)
    model.base_model.tokenizer = source.tokenizer
    return model


def encoded_corpus(
    corpus_args: CorpusArguments,
    options: VectorModelArguments,
    source: LoadedChunkEncoder,
    rule: ChunkingRule,
    args: PretrainingArguments,
) -> VectorCorpus:
    """The documents as chunk vectors on disk; every process encodes its share of what is missing."""
    # Beside the model's folder, not in it: --push_to_hub uploads what is in there.
    folder = Path(corpus_args.corpus_dir or f"{Path(str(args.output_dir))}-corpus")
    columns = {"text_column": corpus_args.text_column, "id_column": corpus_args.id_column}
    if corpus_args.train_file or corpus_args.dataset_name:
        if name := corpus_args.dataset_name:
            split, config = corpus_args.dataset_split, corpus_args.dataset_config_name
            documents = read_hub_documents(name, split, config, **columns)
        else:
            documents = read_documents(str(corpus_args.train_file), **columns)
        if corpus_args.clean_text:
            documents = (replace(document, text=clean_text(document.text)) for document in documents)
        # A copy, since what is saved with the model keeps its precision.
        encoder = copy.deepcopy(source.encoder).to(args.device, getattr(torch, options.encoder_dtype))
        source, size = replace(source, encoder=encoder), corpus_args.characters_per_part
        encode_corpus(documents, source, rule, folder, characters_per_part=size, progress=args.should_log)
        PartialState().wait_for_everyone()
    elif not folder.is_dir():
        raise ValueError("Give the documents with --train_file or --dataset_name, or a finished --corpus_dir.")
    corpus = VectorCorpus(folder)
    logger.info("%r", corpus)
    return corpus


def share_out(
    corpus: VectorCorpus, options: CorpusArguments, seed: int, at_least: int
) -> tuple[np.ndarray, VectorCorpus, np.ndarray]:
    """Numbers of the documents to train on; the corpus to evaluate on, and the numbers of its documents."""
    if options.validation_corpus_dir:
        evaluation = VectorCorpus(options.validation_corpus_dir)
        return np.arange(len(corpus)), evaluation, np.arange(len(evaluation))
    order, share = np.random.default_rng(seed).permutation(len(corpus)), options.validation_share
    held_out = max(at_least, round(share * len(corpus))) if share > 0 else 0
    if held_out >= len(corpus):
        raise ValueError(f"{corpus!r} is too small to hold out {held_out} document(s); set --validation_share 0.")
    return np.sort(order[held_out:]), corpus, np.sort(order[:held_out])
