"""Fine-tuning end to end from text: ChunkBERT, BERT-AL and the baselines over windows, from task to `PreparedTask`."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import AutoConfig

from ...finetuning.arguments import FinetuningArguments, ModelArguments, TaskArguments
from ...finetuning.trainer import PreparedTask, copy_adapter, head_config, with_lora
from ...models.backbones import load_tokenizer, usable_positions
from ...models.chunk_encoder import INCIDENTAL, weights_fingerprint
from ...models.modeling_bert_al import BertAlForSequenceClassification
from ...models.modeling_chunkbert import ChunkBertForSequenceClassification
from ...training.cards import CardText
from .data import TaskData
from .tokens import TaskTokenDataset, TokenisedTask, tokenise_task
from .window_classifier import WindowClassifier
from .windows import first_window, random_window, textrank_window

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Kind:
    """A model of whole documents.

    Attributes:
        model: its class.
        given: options that are fields of its configuration.
        decided: fields that decide the weights that come out.
        architecture: what else makes a saved one that model.
        name, limits: for its card.
    """

    model: Any
    given: tuple[str, ...]
    decided: tuple[str, ...]
    architecture: tuple[str, ...]
    name: str
    limits: str


_KINDS = {
    "chunkbert": _Kind(
        ChunkBertForSequenceClassification,
        given=("chunk_size", "chunk_batch_size", "max_training_tokens"),
        decided=("chunk_size", "max_training_tokens"),
        architecture=("num_averaged_layers", "num_filters", "filter_sizes", "classifier_dropout"),
        name="[ChunkBERT](https://arxiv.org/abs/2310.20558)",
        limits="Attention stays within a chunk; only convolutions a few tokens wide look across its borders.",
    ),
    "bert-al": _Kind(
        BertAlForSequenceClassification,
        given=("segment_length", "recurrence", "max_training_tokens"),
        decided=("segment_length", "recurrence", "max_training_tokens"),
        architecture=("classifier_dropout",),
        name="BERT-AL",
        limits="Information flows forward only: a segment is read without knowledge of those behind it.",
    ),
}


def prepare(
    arguments: ModelArguments, task: TaskArguments, args: FinetuningArguments, sets: dict[str, TaskData]
) -> PreparedTask:
    """Tokenises every document once for all epochs and seeds, whole or as the windows of a baseline.

    Args:
        arguments: which model; `--model` is an encoder, or a ChunkBERT.
        task: not used; the same arguments for every kind of model.
        args: of the whole fine-tuning; `seed` draws the random windows.
        sets: the task.

    Raises:
        ValueError: for a task with questions, or a model that is none of these.
    """
    if sets["train"].examples[0].question is not None:
        raise ValueError(
            f"{sets['train'].source} has a question beside each document, and --model_type {arguments.model_type} "
            "reads documents only; use --model_type nextlevelbert."
        )
    saved = is_saved_model(arguments)
    if arguments.model_type in _KINDS:
        return _prepare_whole(arguments, args, sets, saved)
    return _prepare_windows(arguments, args, sets)


def is_saved_model(arguments: ModelArguments) -> bool:
    """Whether --model is a saved ChunkBERT or BERT-AL and not an encoder.

    Raises:
        ValueError: if there is no such model, or it is of another kind than --model_type takes.
    """
    named, wanted = f"--model {arguments.model!r}", f"--model_type {arguments.model_type}"
    try:
        kind = AutoConfig.from_pretrained(arguments.model).model_type
    except (OSError, ValueError) as error:
        raise ValueError(f"{named} is no folder with an encoder, and not on the Hub.") from error
    if kind == "nextlevelbert":
        raise ValueError(f"{named} is a NextLevelBERT; leave out {wanted}.")
    if kind in _KINDS and kind != arguments.model_type:
        raise ValueError(f"{named} is a {kind}, and {wanted} takes a plain encoder (BERT or the like).")
    if kind in _KINDS and arguments.recurrence is not None:
        raise ValueError(f"{named} is a {kind}, whose recurrence is part of it; leave out --recurrence.")
    if arguments.lora and kind not in _KINDS:
        raise ValueError(
            f"--lora adapts a checkpoint, and {named} is an encoder, whose new parts are drawn at random. Save a "
            f"{arguments.model_type} first, with its from_encoder(...) and save_pretrained(folder)."
        )
    return kind in _KINDS


def _load(arguments: ModelArguments, saved: bool, train: TaskData) -> Any:
    """A model of whole documents with a head for this task."""
    kind = _KINDS[arguments.model_type]
    given = {name: getattr(arguments, name) for name in kind.given}
    config = head_config(train) | {name: value for name, value in given.items() if value is not None}
    if not saved:
        return kind.model.from_encoder(arguments.model, **config)
    # What was fine-tuned keeps those parts of its classifier that fit, and else gets new ones.
    model = kind.model.from_pretrained(arguments.model, ignore_mismatched_sizes=True, dtype=torch.float32, **config)
    model.config.check()
    return model


def _prepare_whole(
    arguments: ModelArguments, args: FinetuningArguments, sets: dict[str, TaskData], saved: bool
) -> PreparedTask:
    """Whole documents; those of the training set cut as the model would cut them, which is told once."""
    kind = _KINDS[arguments.model_type]
    train, reader = sets["train"], _load(arguments, saved, sets["train"])
    config, tokenizer = reader.config, reader.tokenizer
    tokens = {name: tokenise_task(tokenizer, data) for name, data in sets.items()}
    long, window = _long_documents(sets, tokens, config.encoder_config)
    tokens["train"], documents, lost = tokens["train"].cut(config.max_training_tokens)
    if documents and args.should_log:
        logger.warning(
            "%s: training reads the first %s tokens of a document (max_training_tokens); %d of %d documents lose %s "
            "tokens. Evaluation reads everything.",
            train.source, f"{config.max_training_tokens:,}", documents, len(train.documents), f"{lost:,}",
        )  # fmt: skip

    def new_model() -> Any:
        model = _load(arguments, saved, train)
        if arguments.attn_implementation:
            model.set_attn_implementation(arguments.attn_implementation)
        if arguments.lora:
            return with_lora(model, arguments.lora_r, arguments.lora_alpha, arguments.lora_target_modules)
        return model

    decided: dict[str, Any] = {name: getattr(config, name) for name in kind.decided}
    facts = dict(decided)
    weights = weights_fingerprint(reader.base_model.encoder)  # a new head is drawn at random
    if saved:
        weights, architecture = _told_by(kind, arguments.model)
        decided |= architecture
    if arguments.lora:
        publish: Any = partial(copy_adapter, tokenizer=tokenizer, local=arguments.local)
    else:
        publish = partial(_publish, kind.model)
    return PreparedTask(
        datasets={name: TaskTokenDataset(sets[name], tokens[name], tokenizer.pad_token_id or 0) for name in sets},
        new_model=new_model,
        weights=weights,
        settings=decided,
        long=long,
        window=window,
        publish=publish,
        card=CardText(
            name=kind.name,
            reads="It reads documents of any length" + _trained_on(config.max_training_tokens),
            limits=[kind.limits],
            tags=[arguments.model_type, "nextlevelbert"],
            settings=facts,
            base_arguments=f", num_labels={config.num_labels}, {kind.decided[0]}={decided[kind.decided[0]]}, "
            "ignore_mismatched_sizes=True",
        ),
    )


def _told_by(kind: _Kind, model: str) -> tuple[str, dict[str, Any]]:
    """Hash of a saved model's weights, with its head where it has one; and what else makes it that model."""
    found: Any
    found, info = kind.model.from_pretrained(model, dtype=torch.float32, output_loading_info=True)
    headless = any(name.startswith("classifier.") for name in info["missing_keys"])
    encoder = {key: value for key, value in found.config.encoder_config.to_dict().items() if key not in INCIDENTAL}
    architecture = {name: getattr(found.config, name) for name in kind.architecture}
    architecture["encoder_sha256"] = hashlib.sha256(json.dumps(encoder, sort_keys=True).encode()).hexdigest()
    return weights_fingerprint(found.base_model if headless else found), architecture


def _trained_on(limit: int | None) -> str:
    return "." if limit is None else f"; in training it saw at most the first {limit:,} tokens of each."


def _publish(model: Any, folder: Path, output: Path) -> None:
    """The model of a seed's folder, with the tokenizer that lies there."""
    model.from_pretrained(folder).save_pretrained(output)


def _prepare_windows(arguments: ModelArguments, args: FinetuningArguments, sets: dict[str, TaskData]) -> PreparedTask:
    """The first window of each document, alone or beside a second one.

    Random windows are drawn once, from `args.seed`, set by set in the order of the documents; key sentences are
    ranked once. So all epochs and all seeds read the same windows.
    """
    train, kind = sets["train"], arguments.model_type
    classes, count = len(train.label_names or ()) or 1, 1 if kind == "truncated" else 2

    def new_model() -> Any:
        model: Any = WindowClassifier.from_encoder(arguments.model, train.problem_type, classes, count)
        if arguments.attn_implementation:
            model.encoder.set_attn_implementation(arguments.attn_implementation)
        return model

    reader, tokenizer = new_model(), load_tokenizer(arguments.model)
    positions = reader.positions
    if positions is None:
        raise ValueError(
            f"--model {arguments.model!r} has no longest input, so --model_type {kind} has no window to cut; use "
            "--model_type chunkbert, or another encoder."
        )
    whole = {name: tokenise_task(tokenizer, data) for name, data in sets.items()}
    long, window = _long_documents(sets, whole, reader.encoder.config)
    lengths = torch.cat([tokens.lengths for tokens in whole.values()])
    unseen = (lengths - positions).clamp(min=0)
    logger.info(
        "%d of %d documents are longer than the window of %d tokens; the first window leaves out %s of %s tokens.",
        int((unseen > 0).sum()), len(lengths), positions, f"{int(unseen.sum()):,}", f"{int(lengths.sum()):,}",
    )  # fmt: skip
    draw = np.random.default_rng(args.seed)
    datasets = {}
    for name, data in sets.items():
        ids = [document.tolist() for document in whole[name].documents]
        firsts, seconds = [first_window(document, tokenizer, positions) for document in ids], None
        if kind == "random":
            seconds = [random_window(document, tokenizer, positions, draw) for document in ids]
        if kind == "textrank":
            bar = tqdm(data.documents, unit="text", desc=f"ranking sentences of {data.source}", delay=2)
            seconds = [textrank_window(text, tokenizer, positions) for text in bar]
        tokens = TokenisedTask(_tensors(firsts), None if seconds is None else _tensors(seconds))
        datasets[name] = TaskTokenDataset(data, tokens, tokenizer.pad_token_id or 0)
    return PreparedTask(
        datasets=datasets,
        new_model=new_model,
        weights=weights_fingerprint(reader.encoder),
        settings={"window_seed": args.seed} if kind == "random" else {},
        long=long,
        window=window,
    )


def _tensors(windows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor(ids, dtype=torch.int32) for ids in windows]


def _long_documents(
    sets: dict[str, TaskData], tokens: dict[str, TokenisedTask], encoder_config: Any
) -> tuple[dict[str, np.ndarray] | None, int | None]:
    """See `PreparedTask.long` and `PreparedTask.window`."""
    window = usable_positions(encoder_config)
    if window is None:
        return None, None
    return {
        name: (tokens[name].lengths > window).numpy()[[example.document for example in data.examples]]
        for name, data in sets.items()
    }, window
