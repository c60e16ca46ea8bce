"""Classification from text: ChunkBERT and BERT-AL on token ids, which are made once for all epochs and seeds."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm

from ...finetuning.adapters import copy_adapter, with_lora
from ...finetuning.arguments import FinetuningArguments
from ...finetuning.task import Sets
from ...finetuning.text_models import BertAlOptions, ChunkBertOptions, TextModelOptions, is_saved_model
from ...models.chunk_encoder import INCIDENTAL, weights_fingerprint
from ...models.modeling_bert_al import BertAlForSequenceClassification
from ...models.modeling_chunkbert import ChunkBertForSequenceClassification
from ...models.pretrained import usable_positions
from ...training.cards import CardText
from ...training.trainer import open_checkpoint
from .data import TaskData
from .train import ExampleDataset, Prepared, head_config

logger = logging.getLogger(__name__)

_TEXTS_PER_CALL = 64  # so that the tokenizer uses all cores and the bar moves


@dataclass(frozen=True)
class TokenisedTask:
    """The documents of a task as token ids.

    Attributes:
        documents: ids ``[T]`` of each document of `TaskData.documents`, int32, with special tokens.
        seconds: where a model reads a second sequence of each document, its ids ``[S]``.
    """

    documents: list[torch.Tensor]
    seconds: list[torch.Tensor] | None = None

    @property
    def lengths(self) -> torch.Tensor:
        """``[documents]`` tokens of each, special ones counted."""
        return torch.tensor([len(ids) for ids in self.documents])

    def cut(self, limit: int | None) -> tuple[TokenisedTask, int, int]:
        """The first `limit` tokens of each document, then how many documents and tokens lose by it.

        None cuts nothing. As in `ChunkBertModel`, no special token is added after the cut.
        """
        lost = (self.lengths - limit).clamp(min=0) if limit else torch.zeros(len(self.documents))
        kept = replace(self, documents=[ids[:limit] for ids in self.documents])
        return kept, int((lost > 0).sum()), int(lost.sum())


def tokenise_task(tokenizer: Any, data: TaskData) -> TokenisedTask:
    """Tokenises each distinct document of a task, whole and with special tokens.

    Args:
        tokenizer: a stock tokenizer.
        data: the task.

    Raises:
        ValueError: for a document in which the tokenizer finds no token, naming its examples.
    """
    documents: list[torch.Tensor] = []
    special = tokenizer.num_special_tokens_to_add()
    with tqdm(total=len(data.documents), unit="text", desc=f"tokenising {data.source}", delay=2) as bar:
        for first in range(0, len(data.documents), _TEXTS_PER_CALL):
            texts = data.documents[first : first + _TEXTS_PER_CALL]
            encoded = tokenizer(
                texts, truncation=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
            )
            documents += [torch.tensor(ids, dtype=torch.int32) for ids in encoded["input_ids"]]
            bar.update(len(texts))
    if empty := {number for number, ids in enumerate(documents) if len(ids) <= special}:
        names = [example.id for example in data.examples if example.document in empty]
        raise ValueError(f"{data.source}: documents of {names} contain no token; leave these rows out.")
    return TokenisedTask(documents)


class TaskTokenDataset(ExampleDataset):
    """Examples of a task with the token ids of their documents, which they share.

    Args:
        data: the task.
        tokens: its documents.
        pad_token_id: of the tokenizer.
    """

    def __init__(self, data: TaskData, tokens: TokenisedTask, pad_token_id: int) -> None:
        if len(data.documents) != len(tokens.documents):
            raise ValueError(f"{len(data.documents)} documents, but token ids of {len(tokens.documents)}.")
        self.data, self.tokens, self.pad_token_id = data, tokens, pad_token_id
        self.labels: torch.Tensor | None = None
        if data.labelled:
            single = data.head_type == "single_label_classification"
            labels = torch.tensor(data.labels(), dtype=torch.long if single else torch.float32)
            self.labels = labels[:, None] if data.sigmoid else labels

    def __getitem__(self, index: int) -> dict[str, Any]:
        document = self.data.examples[index].document
        row: dict[str, Any] = {} if self.labels is None else {"labels": self.labels[index]}
        row["input_ids"] = self.tokens.documents[document]
        if self.tokens.seconds is not None:
            row["second_input_ids"] = self.tokens.seconds[document]
        return row

    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of N examples, padded on the right.

        Returns:
            ``labels`` [N] or [N, K] where there are any, ``input_ids`` and ``attention_mask`` [N, T], and where
            there are second sequences ``second_input_ids`` and ``second_attention_mask`` [N, S].
        """
        batch = {"labels": torch.stack([row["labels"] for row in rows])} if "labels" in rows[0] else {}
        for name in ("", "second_"):
            if f"{name}input_ids" in rows[0]:
                ids = [row[f"{name}input_ids"].long() for row in rows]
                batch[f"{name}input_ids"] = pad_sequence(ids, batch_first=True, padding_value=self.pad_token_id)
                lengths = torch.tensor([len(row) for row in ids])
                batch[f"{name}attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return batch


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
        limits="Information flows forward only: a segment is read without knowledge of later ones.",
    ),
}


def check_no_questions(options: TextModelOptions, train: TaskData) -> None:
    """Refuses documents with questions, which models trained from text cannot read."""
    if train.examples[0].question is not None:
        raise ValueError(
            f"{train.source} has a question for each document, but --model_type {options.model_type} reads only "
            "documents. Add --question_first to put each question before its document, or use --model_type "
            "nextlevelbert, which encodes it apart, as its paper does."
        )


def _load(options: ChunkBertOptions | BertAlOptions, saved: bool, train: TaskData) -> Any:
    """A model of whole documents with a head for this task."""
    kind = _KINDS[options.model_type]
    given = {name: getattr(options, name) for name in kind.given}
    config = head_config(train) | {name: value for name, value in given.items() if value is not None}
    if not saved:
        return kind.model.from_encoder(options.model, **config)
    # What was fine-tuned keeps those parts of its classifier that fit, and else gets new ones.
    arguments = {"ignore_mismatched_sizes": True, "dtype": torch.float32}
    model = open_checkpoint(kind.model, options.model, **arguments, **config)
    model.config.check()
    return model


def prepare(options: ChunkBertOptions | BertAlOptions, args: FinetuningArguments, sets: Sets[TaskData]) -> Prepared:
    """Tokenises every document once for all epochs and seeds.

    Training documents are cut as the model would cut them, and a warning counts them.

    Args:
        options: which model; `--model` is an encoder, or a saved model.
        args: of the whole fine-tuning.
        sets: the task.

    Raises:
        ValueError: for a set with questions, or a model of another kind.
    """
    check_no_questions(options, sets.train)
    kind, train, saved = _KINDS[options.model_type], sets.train, is_saved_model(options)
    reader = _load(options, saved, train)
    config, tokenizer = reader.config, reader.tokenizer
    tokens = {name: tokenise_task(tokenizer, data) for name, data in sets.by_name.items()}
    long, window = long_documents(sets, tokens, config.encoder_config)
    tokens["train"], documents, lost = tokens["train"].cut(config.max_training_tokens)
    if documents and args.should_log:
        logger.warning(
            "%s: training reads the first %s tokens of a document (max_training_tokens); %d of %d documents lose %s "
            "tokens. Evaluation reads everything.",
            train.source, f"{config.max_training_tokens:,}", documents, len(train.documents), f"{lost:,}",
        )  # fmt: skip

    def new_model() -> Any:
        model = _load(options, saved, train)
        if options.attn_implementation:
            model.set_attn_implementation(options.attn_implementation)
        return with_lora(model, options) if options.lora else model

    decided: dict[str, object] = {name: getattr(config, name) for name in kind.decided}
    facts = dict(decided)
    weights = weights_fingerprint(reader.base_model.encoder)  # a new head is drawn at random
    if saved:
        weights, architecture = _identity(kind, options.model)
        decided |= architecture
    if options.lora:
        publish: Any = partial(copy_adapter, tokenizer=tokenizer, local=options.local)
    else:
        publish = partial(_publish, kind.model)
    return Prepared(
        datasets={
            name: TaskTokenDataset(data, tokens[name], tokenizer.pad_token_id or 0)
            for name, data in sets.by_name.items()
        },
        new_model=new_model,
        settings={**decided, "weights": weights},
        long=long,
        window=window,
        publish=publish,
        text=CardText(
            name=kind.name,
            reads="It reads documents of any length" + _trained_on(config.max_training_tokens),
            limits=[kind.limits],
            tags=[options.model_type, "nextlevelbert"],
            settings=facts,
            base_arguments=f", num_labels={config.num_labels}, {kind.decided[0]}={decided[kind.decided[0]]}, "
            "ignore_mismatched_sizes=True",
        ),
    )


def _identity(kind: _Kind, model: str) -> tuple[str, dict[str, Any]]:
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


def long_documents(
    sets: Sets[TaskData], tokens: dict[str, TokenisedTask], encoder_config: Any
) -> tuple[dict[str, np.ndarray] | None, int | None]:
    """See `Prepared.long` and `Prepared.window`."""
    window = usable_positions(encoder_config)
    if window is None:
        return None, None
    return {
        name: (tokens[name].lengths > window).numpy()[[example.document for example in data.examples]]
        for name, data in sets.by_name.items()
    }, window
