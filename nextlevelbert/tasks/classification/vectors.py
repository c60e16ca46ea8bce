"""Supervised tasks over stored chunk vectors: encoded once, read by every epoch, seed and model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ...models.outputs import DocumentEmbedding
from .data import Example, TaskData

logger = logging.getLogger(__name__)

# Encoded at a time, so that a bar moves and no more than this is held beside what the caller keeps.
_TEXTS_PER_CALL, _CHARACTERS_PER_CALL = 64, 1_000_000


@dataclass(frozen=True)
class TaskVectors:
    """The frozen vectors of a task.

    Attributes:
        documents: chunk vectors ``[n, D]`` of each document of `TaskData.documents`, float32.
        pairs: for each example the vector ``[D]`` of its question, or ``[C, D]`` of question and candidate; None for
            a task without questions.
    """

    documents: list[torch.Tensor]
    pairs: list[torch.Tensor] | None


def encode_in_parts(model: Any, texts: Sequence[str], desc: str, **encode: Any) -> Iterator[DocumentEmbedding]:
    """The embeddings of texts one after another, so that the caller keeps only what it needs of each.

    Args:
        model: a `NextLevelBertModel`.
        texts: whole documents.
        desc: name of the progress bar.
        encode: further arguments of `model.encode` (`dtype`, `cache_dir`, `chunk_encoder`).
    """
    part: list[str] = []
    with tqdm(total=len(texts), unit="text", desc=desc, delay=2) as bar:
        for number, text in enumerate(texts):
            part.append(text)
            full = len(part) == _TEXTS_PER_CALL or sum(map(len, part)) >= _CHARACTERS_PER_CALL
            if full or number == len(texts) - 1:
                yield from model.encode(part, **encode)
                bar.update(len(part))
                part = []


def pair_texts(example: Example) -> list[str]:
    """The texts that stand beside a document: its question, or the question with each candidate."""
    if example.candidates is None:
        return [] if example.question is None else [example.question]
    return [f"{example.question} {candidate}" for candidate in example.candidates]


def encode_task(model: Any, data: TaskData, **encode: Any) -> TaskVectors:
    """Encodes documents and questions of a task with the frozen encoder, each distinct text once.

    A question longer than a chunk is cut like a document, and the mean of its chunk vectors stands for it; a
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
            "%s: %d of %d questions are longer than a chunk; the mean of their chunk vectors stands for them.",
            data.source, long, len(encoded),
        )  # fmt: skip
    pairs = [torch.stack([encoded[text].mean(dim=0) for text in row]) for row in texts]  # [C, D] each
    if data.problem_type != "multiple_choice":
        pairs = [pair[0] for pair in pairs]
    return TaskVectors(documents, pairs)


class TaskVectorDataset(Dataset):
    """Examples of a task with their vectors.

    Args:
        data: the task.
        vectors: of `encode_task`.
    """

    def __init__(self, data: TaskData, vectors: TaskVectors) -> None:
        if len(data.documents) != len(vectors.documents):
            raise ValueError(f"{len(data.documents)} documents, but vectors of {len(vectors.documents)}.")
        self.data, self.vectors = data, vectors

    def __len__(self) -> int:
        return len(self.data.examples)

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
            return torch.tensor(label)
        row = torch.zeros(len(self.data.label_names or ()))
        row[list(label)] = 1.0
        return row

    @staticmethod
    def collate(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
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
        # First what has one row an example: `Trainer` reads the batch size off the first tensor.
        batch = {"document_index": torch.tensor([place[row["document"]] for row in rows])}
        for name, key in (("labels", "labels"), ("pair_embeds", "pair")):
            if key in rows[0]:
                batch[name] = torch.stack([row[key] for row in rows])
        batch["inputs_embeds"] = pad_sequence(vectors, batch_first=True)  # [B, L, D]
        lengths = torch.tensor([len(document) for document in vectors])
        batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()  # [B, L]
        return batch


def default_cache(output_dir: str | Path) -> Path:
    """Beside the model's folder, not in it: what is in there is published."""
    return Path(f"{Path(output_dir)}-vectors")
