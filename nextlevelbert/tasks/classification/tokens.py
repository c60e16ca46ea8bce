"""Supervised tasks as token ids of whole documents: tokenised once, read by every epoch and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ...finetuning.trainer import labels_of
from .data import TaskData

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

        None cuts nothing. As in `ChunkBertModel`, no special token is put behind the cut.
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


class TaskTokenDataset(Dataset):
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
        if data.examples[0].label is not None:
            single = data.problem_type == "single_label_classification"
            self.labels = torch.tensor(labels_of(data), dtype=torch.long if single else torch.float32)

    def __len__(self) -> int:
        return len(self.data.examples)

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
