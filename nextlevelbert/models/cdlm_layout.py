"""How the texts of one sequence share its length, and where their tokens go."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

# One sequence, before padding: lists and numbers under the names by which the models take them. What is not for a
# model, such as `lost_tokens`, is left out of batches.
Row = dict[str, Any]

DOCUMENT = ("<doc-s>", "</doc-s>")
MENTION = ("<m>", "</m>")
QUESTION, TITLE, SENTENCE = ("[q]", "[/q]"), ("<t>", "</t>"), ("<s>", "</s>")
MARKERS = (*DOCUMENT, *MENTION, *QUESTION, *TITLE, *SENTENCE)


@dataclass(frozen=True)
class Piece:
    """A tokenised text: ids, and the characters ``[start, end)`` of each."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    @classmethod
    def from_text(cls, text: str, tokenizer: PreTrainedTokenizerBase) -> Piece:
        """Tokenises a text; the mask token stays one, other markers are text."""
        mask = tokenizer.mask_token
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        at = 0
        for number, part in enumerate(text.split(mask) if mask else [text]):
            if number:
                ids.append(tokenizer.mask_token_id)
                offsets.append((at, at + len(mask)))
                at += len(mask)
            if part:
                found = tokenizer(
                    part, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True,
                    return_attention_mask=False, verbose=False,
                )  # fmt: skip
                ids += found["input_ids"]
                offsets += [(start + at, end + at) for start, end in found["offset_mapping"]]
            at += len(part)
        return cls(text, ids, offsets)

    def tokens_of(self, start: int, end: int, name: str) -> tuple[int, int]:
        """First token that covers one of the characters, and one past the last.

        Raises:
            ValueError: for a span outside the text, or without a token; `name` goes into the message.
        """
        tokens = [number for number, (first, last) in enumerate(self.offsets) if first < end and last > start]
        if start < 0 or end <= start or end > len(self.text) or not tokens:
            raise ValueError(
                f"{name} spans the characters {start} to {end}; it must contain words, and lie within its document of "
                f"{len(self.text)} characters."
            )
        return tokens[0], tokens[-1] + 1


class Layout:
    """A sequence that grows token by token.

    Attributes:
        ids, is_global: one for each position.
        spans: for each position its text, first character and one past the last; -1 at markers.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.ids: list[int] = []
        self.is_global: list[int] = []
        self.spans: list[tuple[int, int, int]] = []

    def add(self, marker: str, is_global: bool = False) -> None:
        """Adds a marker."""
        number = self._tokenizer.convert_tokens_to_ids(marker)
        if number is None or number == self._tokenizer.unk_token_id:
            raise ValueError(
                f"The tokenizer does not know {marker}: make the processor with CdlmProcessor.from_model(model), "
                "which adds the markers and their embeddings."
            )
        self.add_id(number, is_global)

    def add_id(self, number: int, is_global: bool, span: tuple[int, int, int] = (-1, -1, -1)) -> None:
        """Adds a token of a text."""
        self.ids.append(number)
        self.is_global.append(int(is_global))
        self.spans.append(span)

    def add_ids(self, ids: Sequence[int]) -> None:
        """Adds tokens of a text, without global attention."""
        self.ids += ids
        self.is_global += [0] * len(ids)
        self.spans += [(-1, -1, -1)] * len(ids)

    def row(self) -> Row:
        """The inputs that every model reads."""
        return {
            "input_ids": self.ids,
            "attention_mask": [1] * len(self.ids),
            "global_attention_mask": self.is_global,
        }


def share_tokens(lengths: Sequence[int], budget: int, limit: int, least: int = 1) -> list[int]:
    """How many tokens each text keeps: all if there is room, otherwise at most an equal share.

    Args:
        lengths: tokens of each text.
        budget: tokens for all of them.
        limit: length of the sequence with its markers, for the message.
        least: tokens that each text must keep, if it has so many.

    Raises:
        ValueError: for too many texts.
    """
    if budget < sum(min(length, least) for length in lengths):
        raise ValueError(
            f"{len(lengths)} documents ({sum(lengths):,} tokens) do not fit a sequence of {limit} tokens: markers "
            f"leave room for {max(budget, 0)}. Give fewer documents, or a larger max_length."
        )
    kept, room = [0] * len(lengths), budget
    order = sorted(range(len(lengths)), key=lambda number: lengths[number])
    for done, number in enumerate(order):  # the shortest first: the others get what it does not need
        kept[number] = min(lengths[number], room // (len(lengths) - done))
        room -= kept[number]
    return kept


def keep_around(marked: Sequence[tuple[int, int, int]], count: int, name: str, piece: Piece, limit: int) -> int:
    """The first of the `count` tokens to keep of a document, such that they contain its mentions.

    Args:
        marked: first token and one past the last of each mention, and its number.
        count: tokens to keep.
        name, piece: those of the document.
        limit: length of the sequence, for the message.

    Raises:
        ValueError: if the mentions are further apart than that; names the one that is lost.
    """
    first = max(0, max((end for _, end, _ in marked), default=0) - count)
    for begin, end, number in marked:
        if begin < first:
            words = piece.text[piece.offsets[begin][0] : piece.offsets[end - 1][1]]
            raise ValueError(
                f"Mention {number} ({words!r}, tokens {begin} to {end} of {name}) would be lost: a sequence of "
                f"{limit} tokens leaves {count} for the document, and its mentions are further apart. Give a larger "
                "max_length, or fewer mentions at a time."
            )
    return first


# What pads each entry of a row to the longest of the batch; entries not named here are not for the model.
_FILL = {
    "input_ids": 0, "attention_mask": 0, "global_attention_mask": 0, "context_mask": 0, "labels": -100,
    "mention_spans": -1, "mention_pairs": -1, "sentence_index": -1, "paragraph_index": -1, "start_positions": -1,
    "end_positions": -1, "type_labels": -100, "sentence_labels": -100, "paragraph_labels": -100,
}  # fmt: skip


def pad_rows(rows: Sequence[Row], pad_token_id: int) -> dict[str, torch.Tensor]:
    """Rows as tensors, padded to the longest; entries that no model reads are left out."""
    if not rows:
        raise ValueError("Got no rows; a batch needs at least one.")
    batch = {}
    for name, fill in _FILL.items():
        having = [name in row for row in rows]
        if not any(having):
            continue
        if not all(having):
            raise ValueError(
                f"Row {having.index(False)} of the batch has no {name}, but others have; give it for "
                "all rows or for none."
            )
        values = [torch.as_tensor(row[name], dtype=torch.long) for row in rows]  # an empty list would be of floats
        if values[0].ndim == 0:
            batch[name] = torch.stack(values)
        else:
            fill = pad_token_id if name == "input_ids" else fill
            batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=fill)
    return batch


def read_marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A text without the ``<m>`` and ``</m>`` in it, and the spans ``[start, end)`` that they enclose.

    Args:
        text: a text with marked mentions; they may be nested.

    Raises:
        ValueError: for markers that do not match (with their place).

    Example:
        >>> read_marked("Stocks <m>fell</m> on Friday.")
        ('Stocks fell on Friday.', [(7, 11)])
    """
    plain, last = "", 0
    spans: list[tuple[int, int]] = []
    opened: list[int] = []
    for marker in re.finditer("|".join(map(re.escape, MENTION)), text):
        plain += text[last : marker.start()]
        last = marker.end()
        if marker.group() == MENTION[0]:
            opened.append(len(spans))
            spans.append((len(plain), -1))
        elif opened:
            number = opened.pop()
            spans[number] = (spans[number][0], len(plain))
        else:
            raise ValueError(
                f"There is a {MENTION[1]} at character {marker.start()} without a {MENTION[0]} before it."
            )
    if opened:
        raise ValueError(
            f"{len(opened)} {MENTION[0]} without a {MENTION[1]} after it; the text has {len(spans)} in all."
        )
    return plain + text[last:], spans


def warn_of_cuts(rows: Sequence[Row]) -> None:
    """Warns once of how many tokens the documents of these rows lose."""
    lost = [tokens for row in rows for tokens in row["lost_tokens"]]
    if total := sum(lost):
        warnings.warn(
            f"{sum(map(bool, lost))} of {len(lost)} documents lose {total:,} tokens, so that {len(rows)} sets fit "
            "their sequences; raise max_length, or give fewer documents.",
            stacklevel=3,
        )
