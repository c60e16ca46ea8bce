"""Classification and multiple choice over chunk vectors, which are made once for all epochs, seeds and models."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

from ...corpus import pad_vectors
from ...encoders import LoadedChunkEncoder
from ...finetuning.adapters import copy_adapter, with_lora
from ...finetuning.arguments import FinetuningArguments, LoraOptions
from ...finetuning.other_encoders import OtherEncoder
from ...finetuning.task import Sets
from ...finetuning.vector_models import (
    MODEL_CLASSES,
    VectorModelOptions,
    encode_in_parts,
    load,
    open_reader,
)
from ...models.chunk_encoder import weights_fingerprint
from ...training.cards import CardText
from .baselines import ChunkMeanClassifier
from .controls import TaskVectors, control_rows
from .data import Example, TaskData
from .train import ExampleDataset, Prepared, head_config

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TrainedVectorOptions(VectorModelOptions, LoraOptions):
    """A model over chunk vectors with a head for a task."""

    freeze_encoder: bool = field(
        default=False, metadata={"help": "Train only the head, on the model's frozen document vectors."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora and self.new:
            raise ValueError(
                f"--lora adapts a checkpoint, and --model {self.model} is not one. (An adapter for an untrained model "
                "would fit no other model. Save the model first: "
                "NextLevelBertModel.from_chunk_encoder(...).save_pretrained(...))"
            )
        if self.freeze_encoder and (self.lora or self.model in self.baselines):
            raise ValueError(
                "--freeze_encoder trains the head of a NextLevelBERT or HATE and nothing else. --lora would train "
                "more, and baselines over vectors are frozen anyway. Remove one of the two."
            )

    @property
    def usual_learning_rate(self) -> float:
        return 1e-3 if self.lora or self.freeze_encoder or self.vectors_only else self.whole_model_rate


def pair_texts(example: Example) -> list[str]:
    """The texts that are read with a document: its question, or the question with each candidate."""
    if example.candidates is None:
        return [] if example.question is None else [example.question]
    return [f"{example.question} {candidate}" for candidate in example.candidates]


def encode_task(model: Any, data: TaskData, **encode: Any) -> TaskVectors:
    """Encodes documents and questions of a task with the frozen encoder, each distinct text once.

    A question longer than a chunk is cut like a document, and represented by the mean of its chunk vectors; a
    warning counts them.

    Args:
        model: a `NextLevelBertModel`.
        data: the task.
        encode: further arguments of `model.encode` (`dtype`, `cache_dir`).

    Raises:
        ValueError: for a document or question in which the tokenizer finds no token, naming the example.
    """
    books = encode_in_parts(model, data.documents, f"encoding documents of {data.source}", **encode)
    documents = [book.plain for book in books]
    if empty := {number for number, vectors in enumerate(documents) if len(vectors) == 0}:
        names = [example.id for example in data.examples if example.document in empty]
        raise ValueError(f"{data.source}: documents of {names} contain no token; leave these rows out.")
    texts = [pair_texts(example) for example in data.examples]
    if not any(texts):
        return TaskVectors(documents, None)
    distinct = list(dict.fromkeys(text for row in texts for text in row))
    questions = encode_in_parts(model, distinct, f"encoding questions of {data.source}", **encode)
    encoded = {text: found.plain for text, found in zip(distinct, questions, strict=True)}
    for example, row in zip(data.examples, texts, strict=True):
        if any(len(encoded[text]) == 0 for text in row):
            raise ValueError(f"{data.source}: the question of {example.id} contains no token; leave this row out.")
    if long := sum(len(vectors) > 1 for vectors in encoded.values()):
        logger.warning(
            "%s: %d of %d questions are longer than a chunk; each is represented by the mean of its chunk vectors.",
            data.source, long, len(encoded),
        )  # fmt: skip
    pairs = [torch.stack([encoded[text].mean(dim=0) for text in row]) for row in texts]  # [C, D] each
    if data.problem_type != "multiple_choice":
        pairs = [pair[0] for pair in pairs]
    return TaskVectors(documents, pairs)


class TaskVectorDataset(ExampleDataset):
    """Examples of a task with their vectors.

    Args:
        data: the task.
        vectors: of `encode_task`.
    """

    def __init__(self, data: TaskData, vectors: TaskVectors) -> None:
        if len(data.documents) != len(vectors.documents):
            raise ValueError(f"{len(data.documents)} documents, but vectors of {len(vectors.documents)}.")
        self.data, self.vectors = data, vectors

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.data.examples[index]
        row: dict[str, Any] = {"document": example.document, "vectors": self.vectors.documents[example.document]}
        if self.vectors.pairs is not None:
            row["pair"] = self.vectors.pairs[index]
        if example.label is not None:
            row["labels"] = self._label(example.label)
        return row

    def _label(self, label: int | float | tuple[int, ...]) -> torch.Tensor:
        if not isinstance(label, tuple):
            return torch.tensor([float(label)]) if self.data.sigmoid else torch.tensor(label)
        row = torch.zeros(self.data.outputs)
        row[list(label)] = 1.0
        return row

    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of N examples over B distinct documents, each of which the model then reads once.

        Returns:
            ``document_index`` [N], ``inputs_embeds`` [B, L, D] and ``attention_mask`` [B, L], and where there are
            any ``pair_embeds`` [N, D] or [N, C, D] and ``labels``.
        """
        place: dict[int, int] = {}
        vectors: list[torch.Tensor] = []
        for row in rows:
            if row["document"] not in place:
                place[row["document"]] = len(vectors)
                vectors.append(row["vectors"])
        # A tensor with one row per example comes first: `Trainer` takes its length for the batch size.
        batch = {"document_index": torch.tensor([place[row["document"]] for row in rows])}
        for name, key in (("labels", "labels"), ("pair_embeds", "pair")):
            if key in rows[0]:
                batch[name] = torch.stack([row[key] for row in rows])
        return batch | pad_vectors(vectors)


def frozen(model: Any) -> Any:
    """The same model with only its head trainable, and without dropout in the encoder."""
    model.base_model.requires_grad_(False)
    for module in model.base_model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its configuration is saved as it was
    return model


def prepare(options: TrainedVectorOptions, args: FinetuningArguments, sets: Sets[TaskData]) -> Prepared:
    """Encodes every distinct text with the frozen encoder, once for all epochs, seeds and models.

    Args:
        options: which model, and where the cache of vectors is.
        args: on which device, in which process.
        sets: the task.
    """
    train, baseline = sets.train, options.vectors_only
    choice = train.problem_type == "multiple_choice"
    text_pair = not choice and train.examples[0].question is not None
    task_class = AutoModelForMultipleChoice if choice else AutoModelForSequenceClassification

    reader: Any = open_reader(options).to(args.device)
    if options.other and (options.lora or options.freeze_encoder):
        raise ValueError(
            f"--model {options.model} gives one frozen vector a document, to which a head is fitted; leave out --lora "
            "and --freeze_encoder."
        )
    if not baseline and task_class not in MODEL_CLASSES[reader.config.model_type]:
        raise ValueError(f"A {reader.config.model_type} has no head for this task; give a NextLevelBERT.")
    encode = {"dtype": options.precision(args.device), "cache_dir": options.cache(args.output_dir)}
    with args.main_process_first(local=False, desc="encoding"):  # the others read what the first one stored
        vectors = {name: encode_task(reader, data, **encode) for name, data in sets.by_name.items()}
    controls = partial(control_rows, sets, vectors) if not isinstance(reader, OtherEncoder) else dict
    if options.model == "sbert":
        vectors = {name: TaskVectors([d[:1] for d in v.documents], v.pairs) for name, v in vectors.items()}
    # A new model has random special vectors, so it is identified by its chunk encoder.
    if options.other:
        weights, hidden_size, source = weights_fingerprint(reader.model), reader.hidden_size, None
    else:
        weights = reader.get_chunk_encoder().fingerprint() if options.new else weights_fingerprint(reader)
        hidden_size, source = reader.config.chunk_hidden_size, reader.cpu().detach_chunk_encoder()
    config = {} if choice else {**head_config(train), "text_pair": text_pair}

    def new_model() -> Any:
        if baseline:
            return ChunkMeanClassifier(hidden_size, train.head_type, train.outputs, text_pair)
        model = load(options, task_class, **config)
        if (
            model.base_model.chunk_encoder is not None
        ):  # not needed for stored vectors; the published model gets it back
            model.base_model.detach_chunk_encoder()
        if options.freeze_encoder:
            return frozen(model)
        return with_lora(model, options) if options.lora else model

    prepared = Prepared(
        {name: TaskVectorDataset(data, vectors[name]) for name, data in sets.by_name.items()},
        new_model,
        {"weights": weights},
        controls=controls,
    )
    if baseline or source is None:
        return prepared
    if options.lora:
        prepared.publish = partial(copy_adapter, tokenizer=source.tokenizer, local=options.local)
    else:
        prepared.publish = partial(_publish, task_class=task_class, source=source)
    prepared.text = CardText(
        name=options.card_name(reader.config.model_type),
        reads="It reads documents of any length.",
        limits=[
            "The frozen chunk encoder sees a chunk at a time: details within a chunk are only as good as its vector."
        ],
        tags=[reader.config.model_type],
        settings={"chunk_size": reader.config.chunk_size},
        uncounted=" (the frozen chunk encoder not counted)",
        base_arguments="" if choice else f", num_labels={train.outputs}, text_pair={text_pair}",
    )
    return prepared


def _publish(folder: Path, output: Path, *, task_class: Any, source: LoadedChunkEncoder) -> None:
    """The model of a seed's folder with its chunk encoder and tokenizer."""
    model = task_class.from_pretrained(folder)
    model.base_model.attach_chunk_encoder(source)
    model.save_pretrained(output)
