"""From documents to the inputs of CDLM: separators around documents, marked mentions, questions and
paragraphs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessorMixin

Row = dict[str, Any]  # one sequence, before padding, under the names by which the models take them

DOCUMENT, MENTION, QUESTION = ("<doc-s>", "</doc-s>"), ("<m>", "</m>"), ("[q]", "[/q]")
TITLE, SENTENCE = ("<t>", "</t>"), ("<s>", "</s>")
MARKERS = (*DOCUMENT, *MENTION, *QUESTION, *TITLE, *SENTENCE)

# A token of a sequence: its id, whether it has global attention, its text by number, and its
# characters there.
Token = tuple[int, bool, int, int, int]

# What pads each entry of a row to the longest of the batch; others, such as `lost_tokens`, are not
# for the model.
_FILL = {
    "input_ids": 0,
    "attention_mask": 0,
    "global_attention_mask": 0,
    "context_mask": 0,
    "labels": -100,
    "mention_spans": -1,
    "mention_pairs": -1,
    "sentence_index": -1,
    "paragraph_index": -1,
    "start_positions": -1,
    "end_positions": -1,
    "type_labels": -100,
    "sentence_labels": -100,
    "paragraph_labels": -100,
}
_PLAIN = {"add_special_tokens": False, "return_offsets_mapping": True, "split_special_tokens": True}


@dataclass(frozen=True)
class Piece:
    """A tokenised text: ids, and the characters ``[start, end)`` of each."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def tokens_of(self, start: int, end: int, name: str) -> tuple[int, int]:
        """First token that covers one of the characters, and one past the last."""
        tokens = [
            number
            for number, (first, last) in enumerate(self.offsets)
            if first < end and last > start
        ]
        if start < 0 or end <= start or end > len(self.text) or not tokens:
            raise ValueError(
                f"{name} spans {start} to {end}, which are no words of its {len(self.text)}"
                " characters."
            )
        return tokens[0], tokens[-1] + 1


class CdlmProcessor(ProcessorMixin):
    """Lays sets of documents out in sequences: ``[CLS] <doc-s> … </doc-s> <doc-s> … </doc-s>
    [SEP]``.

    If a set is too long, its documents are cut, the longest first, and a warning counts the lost
    tokens; markers are never cut. Markers within a document are plain text; only the tokenizer's
    mask token keeps its meaning. The tokenizer has to know the markers: `from_model` adds them.
    Methods take a smaller `max_length`.

    Example:
        >>> from nextlevelbert import CdlmModel
        >>> processor = CdlmProcessor.from_model(CdlmModel.from_encoder(minilm, max_length=64))
        >>> batch = processor([["It rained.", "Rain fell all day."]])
        >>> processor.tokenizer.decode(batch["input_ids"][0])
        '[CLS] <doc-s> it rained. </doc-s> <doc-s> rain fell all day. </doc-s> [SEP]'
    """

    _auto_class = "AutoProcessor"  # its code is saved with it

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int = 4096) -> None:
        super().__init__(tokenizer)
        self.max_length = max_length

    @classmethod
    def from_model(cls, model: PreTrainedModel, max_length: int | None = None) -> CdlmProcessor:
        """The processor of any CDLM; adds missing markers to its tokenizer, and embeddings for them
        to the model.

        The vocabulary grows in place the first time; new rows are random, as in the paper.
        """
        limit = model.config.max_sequence_length
        if max_length is not None and not 1 <= max_length <= limit:
            raise ValueError(
                f"max_length must be 1 to {limit}, the model's limit, got {max_length}."
            )
        tokenizer = model.tokenizer
        vocabulary = tokenizer.get_vocab()
        if new := [marker for marker in MARKERS if marker not in vocabulary]:
            tokenizer.add_special_tokens(
                {"extra_special_tokens": new}, replace_extra_special_tokens=False
            )
        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        model.config.mask_token_id = tokenizer.mask_token_id
        return cls(tokenizer, max_length or limit)

    def __call__(
        self,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        max_length: int | None = None,
        text: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """A batch of the documents of one set, or of a list of sets, with global attention on
        [CLS].

        `text` and `kwargs` come from sentence-transformers, which passes plain texts: they go to
        the tokenizer.
        """
        if text is not None and documents is None:
            return self.tokenizer(
                text, **kwargs.get("text_kwargs", {}), **kwargs.get("common_kwargs", {})
            )
        kinds = {isinstance(item, str) for item in documents or ()}
        if isinstance(documents, str) or len(kinds) != 1 or kwargs or text is not None:
            raise ValueError(
                "Give the documents of a set in a list, or a list of such lists, and max_length"
                " alone."
            )
        sets: Any = [documents] if kinds == {True} else documents
        rows = [self.cluster(texts, max_length) for texts in sets]
        warn_of_cuts(rows)
        return self.pad(rows)

    def cluster(self, documents: Sequence[str | Piece], max_length: int | None = None) -> Row:
        """One set of documents, not padded; `lost_tokens` counts what each document lost."""
        return self.mentions(documents, [], max_length=max_length)

    def mentions(
        self,
        documents: Sequence[str | Piece],
        mentions: Sequence[tuple[int, int, int]],
        pairs: Sequence[tuple[int, int]] | None = None,
        labels: Sequence[int] | None = None,
        max_length: int | None = None,
    ) -> Row:
        """One set of documents with mentions marked by ``<m>`` and ``</m>``, not padded.

        Global attention is on [CLS], the markers of mentions and their tokens (paper, appendix
        C.1). A document that has to be cut keeps its mentions: it loses its end first, and its
        beginning if they are too far from it.

        `mentions` are document, first character and one past the last of each; the markers of
        nested ones count as tokens of the outer one. `pairs` are numbers of the mentions to
        compare, `labels` those of the pairs. A ValueError names a blank document and a mention that
        is outside its document or does not fit.
        """
        limit = self._limit(max_length)
        if not documents:
            raise ValueError("There is no document in the set; give at least one.")
        pieces = [
            self.tokenize(text, f"document {number}") for number, text in enumerate(documents)
        ]
        marked: list[list[tuple[int, int, int]]] = [[] for _ in pieces]  # tokens, and which mention
        for number, (document, start, end) in enumerate(mentions):
            if not 0 <= document < len(documents):
                raise ValueError(
                    f"Mention {number} is in document {document}, but there are {len(documents)}."
                )
            first, last = pieces[document].tokens_of(
                start, end, f"Mention {number} (document {document})"
            )
            marked[document].append((first, last, number))
        kept = share_tokens(
            [len(piece.ids) for piece in pieces], limit - 2 - 2 * len(documents) - 2 * len(mentions)
        )
        tokens, spans = self._mark(self.tokenizer.cls_token, True), [[-1, -1] for _ in mentions]
        for number, (piece, count) in enumerate(zip(pieces, kept, strict=True)):
            first = keep_around(marked[number], count, f"document {number}", piece)
            tokens += self._mark(DOCUMENT[0])
            self._add_marked(tokens, piece.ids[: first + count], first, marked[number], spans)
            tokens += self._mark(DOCUMENT[1])
        row = self._row(tokens + self._mark(self.tokenizer.sep_token))
        for start, end in spans:
            row["global_attention_mask"][start - 1 : end + 1] = [1] * (end - start + 2)
        row["lost_tokens"] = [
            len(piece.ids) - count for piece, count in zip(pieces, kept, strict=True)
        ]
        row |= {"mention_spans": spans} if mentions else {}
        row |= {} if pairs is None else {"mention_pairs": [list(pair) for pair in pairs]}
        return row if labels is None else {**row, "labels": list(labels)}

    def _add_marked(
        self,
        tokens: list[Token],
        ids: list[int],
        at: int,
        marked: list[tuple[int, int, int]],
        spans: list[list[int]],
    ) -> None:
        """Adds a document from token `at` on with the markers of its mentions, whose positions go
        to `spans`."""
        # Where one mention ends and another begins, the end comes first; outer ones open first and
        # close last, and of two with the same span the one that opened last closes first.
        opening = [(begin, 1, -end, mention) for begin, end, mention in marked]
        closing = [(end, 0, -begin, -mention) for begin, end, mention in marked]
        for token, opens, _, mention in sorted([*opening, *closing]):
            tokens += [(number, False, -1, -1, -1) for number in ids[at:token]]
            at = token
            if not opens:
                spans[-mention][1] = len(tokens)
            tokens += self._mark(MENTION[0] if opens else MENTION[1])
            if opens:
                spans[mention][0] = len(tokens)
        tokens += [(number, False, -1, -1, -1) for number in ids[at:]]

    def question(
        self,
        question: str,
        paragraphs: Sequence[tuple[str, Sequence[str]]],
        max_length: int | None = None,
    ) -> Row:
        """One question with its paragraphs, not padded (paper, appendix C.3).

        ``[CLS] [q] question [/q] <doc-s> <t> title </t> <s> sentence </s> … </doc-s> … [SEP]``,
        with global attention on [CLS], the question, title starts and sentence starts. (``<s>`` and
        ``</s>``, which are RoBERTa's [CLS] and [SEP], then mark sentences, as in the paper.)
        `paragraphs` are title and sentences of each; long ones lose their ends.

        Returns:
            Ids and masks; `sentence_index` and `paragraph_index`, positions of the starts of all
            sentences and titles in order, -1 for a sentence after the cut; `context_mask`; and
            `token_spans`, for each position the number of its text (titles and sentences in order,
            -1 at markers) and its characters in that text.
        """
        limit = self._limit(max_length)
        asked = self.tokenize(question, "the question")
        if not paragraphs:
            raise ValueError("There is no paragraph to answer from; give at least one.")
        texts = []
        for number, (title, sentences) in enumerate(paragraphs):
            heading = self.tokenize(title, f"the title of paragraph {number}")
            texts.append(
                [heading, *(self.tokenize(sentence, blank=True) for sentence in sentences)]
            )
        lengths = [
            sum(len(piece.ids) + 2 for piece in pieces) for pieces in texts
        ]  # with the markers of each part
        titles = max(len(pieces[0].ids) + 2 for pieces in texts)
        kept = share_tokens(lengths, limit - 4 - len(asked.ids) - 2 * len(texts), least=titles)
        tokens = self._mark(self.tokenizer.cls_token, True) + self._mark(QUESTION[0], True)
        tokens += [(number, True, -1, -1, -1) for number in asked.ids] + self._mark(
            QUESTION[1], True
        )
        index: dict[tuple[str, str], list[int]] = {TITLE: [], SENTENCE: []}
        text, lost = 0, []
        for pieces, room in zip(texts, kept, strict=True):
            tokens += self._mark(DOCUMENT[0])
            lost.append(sum(len(piece.ids) for piece in pieces))
            for place, piece in enumerate(pieces):
                markers, count = SENTENCE if place else TITLE, min(len(piece.ids), room - 2)
                if count < 0 or (count == 0 and piece.ids):  # after the cut
                    index[markers].append(-1)
                    room = 0
                else:
                    index[markers].append(len(tokens))
                    tokens += self._mark(markers[0], True)
                    parts = zip(piece.ids[:count], piece.offsets, strict=False)
                    tokens += [(number, False, text, *span) for number, span in parts]
                    tokens += self._mark(markers[1])
                    room -= count + 2
                    lost[-1] -= count
                text += 1
            tokens += self._mark(DOCUMENT[1])
        tokens += self._mark(self.tokenizer.sep_token)
        row = self._row(tokens) | {
            "sentence_index": index[SENTENCE],
            "paragraph_index": index[TITLE],
        }
        row["context_mask"] = [int(text >= 0) for _, _, text, _, _ in tokens]
        return row | {"token_spans": [token[2:] for token in tokens], "lost_tokens": lost}

    def pad(self, rows: Sequence[Row]) -> BatchEncoding:
        """A batch of rows: tensors padded to the longest; entries that no model reads are left
        out."""
        batch = {}
        for name, fill in {**_FILL, "input_ids": self.tokenizer.pad_token_id}.items():
            if any(name in row for row in rows):
                values = [
                    torch.as_tensor(row[name], dtype=torch.long) for row in rows
                ]  # [] would be of floats
                batch[name] = (
                    pad_sequence(values, True, fill) if values[0].ndim else torch.stack(values)
                )
        return BatchEncoding(batch)

    def tokenize(self, text: str | Piece, name: str = "a document", blank: bool = False) -> Piece:
        """Token ids of a text with their characters; the mask token keeps its meaning, other
        markers are plain text.

        A piece is returned as it is; `name` is for messages; a `blank` text may have no words.
        """
        if isinstance(text, Piece):
            return text
        if not isinstance(text, str):
            raise ValueError(f"A text is needed for {name}, got {text!r}.")
        mask, at = self.tokenizer.mask_token, 0
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for part in re.split(f"({re.escape(mask)})", text) if mask else [text]:
            if part == mask:
                ids.append(self.tokenizer.mask_token_id)
                offsets.append((at, at + len(mask)))
            elif part:
                encoding = self.tokenizer(part, **_PLAIN)
                ids += encoding["input_ids"]
                offsets += [(start + at, end + at) for start, end in encoding["offset_mapping"]]
            at += len(part)
        if not ids and not blank:
            raise ValueError(f"A text with words is needed for {name}, got {text[:40]!r}.")
        return Piece(text, ids, offsets)

    def _mark(self, marker: str, is_global: bool = False) -> list[Token]:
        number = self.tokenizer.convert_tokens_to_ids(marker)
        if number is None or number == self.tokenizer.unk_token_id:
            raise ValueError(
                f"The tokenizer does not know {marker}; CdlmProcessor.from_model(model) adds it."
            )
        return [(number, is_global, -1, -1, -1)]

    @staticmethod
    def _row(tokens: Sequence[Token]) -> Row:
        ids, is_global = [token[0] for token in tokens], [int(token[1]) for token in tokens]
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "global_attention_mask": is_global,
        }

    def _limit(self, max_length: int | None) -> int:
        if max_length is not None and not 1 <= max_length <= self.max_length:
            raise ValueError(
                f"max_length must be 1 to {self.max_length}, the processor's own, got {max_length}."
            )
        return max_length or self.max_length


def share_tokens(lengths: Sequence[int], budget: int, least: int = 1) -> list[int]:
    """How many tokens each text keeps: all if there is room, otherwise at most an equal share, but
    the `least`."""
    if budget < sum(min(length, least) for length in lengths):
        size = (
            f"{len(lengths)} documents ({sum(lengths):,} tokens) do not fit the {max(budget, 0)}"
            " beside the markers"
        )
        raise ValueError(f"{size}; give fewer documents, or a larger max_length.")
    kept, room = [0] * len(lengths), budget
    order = sorted(range(len(lengths)), key=lambda number: lengths[number])
    for done, number in enumerate(
        order
    ):  # the shortest first: the others get what it does not need
        kept[number] = min(lengths[number], room // (len(lengths) - done))
        room -= kept[number]
    return kept


def keep_around(marked: Sequence[tuple[int, int, int]], count: int, name: str, piece: Piece) -> int:
    """The first of the `count` tokens to keep of a document, such that they contain its
    mentions."""
    first = max(0, max((end for _, end, _ in marked), default=0) - count)
    for begin, end, number in marked:
        if begin < first:
            words = piece.text[piece.offsets[begin][0] : piece.offsets[end - 1][1]]
            raise ValueError(
                f"Mention {number} ({words!r}, tokens {begin} to {end} of {name}) would be lost:"
                f" {count} tokens are left for the document. Give a larger max_length, or fewer"
                " mentions at a time."
            )
    return first


def read_marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """A text without the ``<m>`` and ``</m>`` in it (perhaps nested), and the spans ``[start,
    end)`` they enclose.

    Example:
        >>> read_marked("Stocks <m>fell</m> on Friday.")
        ('Stocks fell on Friday.', [(7, 11)])
    """
    plain = ""
    spans: list[tuple[int, int]] = []
    opened: list[int] = []
    for part in re.split("(</?m>)", text):
        if part == MENTION[0]:
            opened.append(len(spans))
            spans.append((len(plain), -1))
        elif part == MENTION[1]:
            if not opened:
                raise ValueError(
                    f"There is a {part} after {plain[-30:]!r} without a {MENTION[0]} before it."
                )
            number = opened.pop()
            spans[number] = (spans[number][0], len(plain))
        else:
            plain += part
    if opened:
        raise ValueError(
            f"{len(opened)} of {len(spans)} {MENTION[0]} have no {MENTION[1]} after them."
        )
    return plain, spans


def warn_of_cuts(rows: Iterable[Row]) -> None:
    """Warns once of how many tokens the documents of these rows lose."""
    lost = [tokens for row in rows for tokens in row["lost_tokens"]]
    if any(lost):
        cut = f"{sum(map(bool, lost))} of {len(lost)} documents lose {sum(lost):,} tokens"
        warnings.warn(f"{cut}; raise max_length, or give fewer documents in a set.", stacklevel=3)
