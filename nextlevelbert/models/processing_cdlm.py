"""CDLM's inputs: documents between separators, marked mentions, questions with paragraphs."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessorMixin

from .tokenizing import private_tokenizer

Row = dict[str, Any]  # one sequence, before padding, under the names of the models' arguments

DOCUMENT = ("<doc-s>", "</doc-s>")
MENTION = ("<m>", "</m>")
QUESTION = ("[q]", "[/q]")
TITLE = ("<t>", "</t>")
SENTENCE = ("<s>", "</s>")
MARKERS = (*DOCUMENT, *MENTION, *QUESTION, *TITLE, *SENTENCE)

_NO_TEXT = (-1, -1, -1)  # the span of a token that belongs to no text

# These values pad each entry of a row to the longest of the batch. Other entries, such as
# `lost_tokens`, are not for the model.
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


@dataclass(frozen=True)
class Piece:
    """Holds a tokenised text.

    Attributes:
        text: the text.
        ids: token ids of the text.
        offsets: characters ``[start, end)`` of each token.
    """

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]

    def tokens_of(self, start: int, end: int, name: str) -> tuple[int, int]:
        """Finds the first token that covers one of the characters, and one past the last.

        Raises:
            ValueError: the span is empty, outside the text, or has no token.
        """
        tokens = [
            index
            for index, (token_start, token_end) in enumerate(self.offsets)
            if token_start < end and token_end > start
        ]
        if not 0 <= start < end <= len(self.text) or not tokens:
            raise ValueError(
                f"{name} has the span {start} to {end}, which contains no word of its"
                f" {len(self.text)} characters. Correct the span."
            )

        return tokens[0], tokens[-1] + 1


class MarkedMention(NamedTuple):
    """Holds a mention's first token, one past its last, and its index in the set."""

    first: int
    end: int
    set_index: int


class _Layout:
    """Lays a sequence out token by token, from [CLS] to [SEP]."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.is_global: list[int] = []
        # A token has the index of its text, and its characters there.
        self.spans: list[tuple[int, int, int]] = []
        self.add_marker(tokenizer.cls_token, is_global=True)

    def __len__(self) -> int:
        return len(self.ids)

    def add_tokens(
        self,
        ids: Sequence[int],
        is_global: bool = False,
        spans: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Appends tokens with their spans; without spans they belong to no numbered text."""
        self.ids += ids
        self.is_global += [int(is_global)] * len(ids)
        if spans:
            self.spans += spans
        else:
            self.spans += [_NO_TEXT] * len(ids)

    def add_marker(self, marker: str, is_global: bool = False) -> None:
        """Appends one special token."""
        token_id = self.tokenizer.convert_tokens_to_ids(marker)
        if token_id in (None, self.tokenizer.unk_token_id):
            raise ValueError(
                f"The tokenizer does not know {marker}. CdlmProcessor.from_model(model) adds it."
            )
        self.add_tokens([token_id], is_global=is_global)

    def finish(self) -> Row:
        """Ends the sequence, and returns its ids and masks."""
        self.add_marker(self.tokenizer.sep_token)
        return {
            "input_ids": self.ids,
            "attention_mask": [1] * len(self),
            "global_attention_mask": self.is_global,
        }


class CdlmProcessor(ProcessorMixin):
    """Lays sets of documents out in sequences.

    A sequence is ``[CLS] <doc-s> … </doc-s> <doc-s> … </doc-s> [SEP]``. If a set is too long, its
    documents are truncated, the longest first, and a warning counts the lost tokens; markers are
    never lost. Markers within a document are plain text; only the tokenizer's mask token keeps its
    meaning. The tokenizer has to know the markers: `from_model` adds them. Methods take a smaller
    `max_length`.

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
        """Makes the processor of any CDLM.

        Missing markers are added to the tokenizer of the model, and embeddings for them to the
        model itself, whose vocabulary grows in place the first time. New embeddings are random, as
        in the paper.

        Args:
            model: a CDLM.
            max_length: most tokens in a sequence; default: as many as the model reads.

        Raises:
            ValueError: `max_length` is larger than the model's limit.
        """
        max_length = _limited(max_length, limit=model.config.max_sequence_length, owner="model")
        tokenizer = model.tokenizer
        vocabulary = tokenizer.get_vocab()
        new_markers = [marker for marker in MARKERS if marker not in vocabulary]
        if new_markers:
            tokenizer.add_special_tokens(
                {"extra_special_tokens": new_markers}, replace_extra_special_tokens=False
            )

        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)

        model.config.mask_token_id = tokenizer.mask_token_id
        return cls(tokenizer, max_length)

    def __call__(
        self,
        documents: Sequence[str] | Sequence[Sequence[str]] | None = None,
        max_length: int | None = None,
        text: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Makes a batch of sets of documents, with global attention on [CLS].

        Args:
            documents: the documents of one set, or a list of sets.
            max_length: most tokens in a sequence; default: the processor's own.
            text: plain texts from sentence-transformers, which go to the tokenizer.
            **kwargs: arguments for the tokenizer from sentence-transformers.

        Raises:
            ValueError: `documents` is neither a set nor a list of sets, or comes with other
                arguments.
        """
        if text is not None and documents is None:
            text_arguments = kwargs.get("text_kwargs", {})
            return self.tokenizer(text, **text_arguments, **kwargs.get("common_kwargs", {}))

        are_texts = {isinstance(item, str) for item in documents or ()}
        is_text = isinstance(documents, str)
        if text is not None or kwargs or is_text or len(are_texts) != 1:
            raise ValueError(
                "Give the documents of a set as a list, or a list of such lists. Besides, only"
                " max_length may be given."
            )

        sets: Any = documents
        if are_texts == {True}:
            sets = [documents]

        rows = [self.cluster(texts, max_length=max_length) for texts in sets]
        warn_of_cuts(rows)
        return self.pad(rows)

    def cluster(self, documents: Sequence[str | Piece], max_length: int | None = None) -> Row:
        """Lays out one set of documents, not padded, with `lost_tokens` by document."""
        return self.mentions(documents, [], max_length=max_length)

    def mentions(
        self,
        documents: Sequence[str | Piece],
        mentions: Sequence[tuple[int, int, int]],
        pairs: Sequence[tuple[int, int]] | None = None,
        labels: Sequence[int] | None = None,
        max_length: int | None = None,
    ) -> Row:
        """Lays out one set of documents with mentions between ``<m>`` and ``</m>``, not padded.

        Global attention is on [CLS], the markers of mentions and their tokens (paper, appendix
        C.1). A document that has to be truncated keeps its mentions: it loses its end first, and
        its beginning if the mentions are too far from it.

        Args:
            documents: the texts.
            mentions: document, first character and one past the last of each mention. The markers
                of nested mentions count as tokens of the outer mention.
            pairs: pairs of mentions to compare, by index (default: none).
            labels: label of each pair.
            max_length: most tokens in the sequence; default: the processor's own.

        Raises:
            ValueError: a document is blank, or a mention is outside its document or does not fit.
        """
        limit = _limited(max_length, limit=self.max_length, owner="processor")
        if not documents:
            raise ValueError("There is no document in the set. Give at least one.")

        pieces = [
            self.tokenize(text, name=f"document {index}") for index, text in enumerate(documents)
        ]
        marked = _mentions_by_document(pieces, mentions)

        lengths = [len(piece.ids) for piece in pieces]
        counts = share_tokens(lengths, budget=limit - 2 - 2 * len(documents) - 2 * len(mentions))

        layout = _Layout(self.tokenizer)
        spans = [[-1, -1] for _ in mentions]
        for index, (piece, count) in enumerate(zip(pieces, counts, strict=True)):
            first = keep_around(marked[index], count=count, name=f"document {index}", piece=piece)
            ids = piece.ids[: first + count]
            layout.add_marker(DOCUMENT[0])
            _add_marked(layout, ids=ids, first=first, mentions=marked[index], spans=spans)
            layout.add_marker(DOCUMENT[1])

        row = layout.finish()
        row["lost_tokens"] = [length - count for length, count in zip(lengths, counts, strict=True)]
        if mentions:
            row["mention_spans"] = spans
        if pairs is not None:
            row["mention_pairs"] = [list(pair) for pair in pairs]
        if labels is not None:
            row["labels"] = list(labels)

        return row

    def question(
        self,
        question: str,
        paragraphs: Sequence[tuple[str, Sequence[str]]],
        max_length: int | None = None,
    ) -> Row:
        """Lays out one question with its paragraphs, not padded (paper, appendix C.3).

        ``[CLS] [q] question [/q] <doc-s> <t> title </t> <s> sentence </s> … </doc-s> … [SEP]``,
        with global attention on [CLS], the question, title starts and sentence starts. (``<s>`` and
        ``</s>``, which are RoBERTa's [CLS] and [SEP], then mark sentences, as in the paper.) Long
        paragraphs lose their ends.

        Args:
            question: the question.
            paragraphs: title and sentences of each paragraph.
            max_length: most tokens in the sequence; default: the processor's own.

        Returns:
            Ids and masks; `sentence_index` and `paragraph_index`, positions of the starts of all
            sentences and titles in order, -1 for a sentence that was lost; `context_mask`; and
            `token_spans`, for each position the index of its text (titles and sentences in order,
            -1 at markers) and its characters in that text.

        Raises:
            ValueError: the question or a title is blank, or there is no paragraph.
        """
        limit = _limited(max_length, limit=self.max_length, owner="processor")
        question_piece = self.tokenize(question, name="the question")
        if not paragraphs:
            raise ValueError("There is no paragraph to answer from. Give at least one.")

        texts = []
        for index, (title, sentences) in enumerate(paragraphs):
            pieces = [self.tokenize(title, name=f"the title of paragraph {index}")]
            pieces += [self.tokenize(sentence, blank=True) for sentence in sentences]
            texts.append(pieces)

        # Each title and each sentence has two markers.
        lengths = [sum(len(piece.ids) + 2 for piece in pieces) for pieces in texts]
        longest_title = max(len(pieces[0].ids) + 2 for pieces in texts)
        budget = limit - 4 - len(question_piece.ids) - 2 * len(texts)
        rooms = share_tokens(lengths, budget=budget, least=longest_title)

        layout = _Layout(self.tokenizer)
        layout.add_marker(QUESTION[0], is_global=True)
        layout.add_tokens(question_piece.ids, is_global=True)
        layout.add_marker(QUESTION[1], is_global=True)
        paragraph_index = []
        sentence_index = []
        lost_tokens = []
        text_index = 0
        for pieces, room in zip(texts, rooms, strict=True):
            layout.add_marker(DOCUMENT[0])
            starts, lost = _add_paragraph(layout, pieces, room=room, text_index=text_index)
            layout.add_marker(DOCUMENT[1])
            paragraph_index.append(starts[0])
            sentence_index += starts[1:]
            lost_tokens.append(lost)
            text_index += len(pieces)

        row = layout.finish()
        row |= {
            "sentence_index": sentence_index,
            "paragraph_index": paragraph_index,
            "context_mask": [int(text >= 0) for text, _, _ in layout.spans],
            "token_spans": layout.spans,
            "lost_tokens": lost_tokens,
        }
        return row

    def pad(self, rows: Sequence[Row]) -> BatchEncoding:
        """Makes a batch of rows, padded to the longest, without entries that no model reads."""
        fills = {**_FILL, "input_ids": self.tokenizer.pad_token_id}
        batch = {}
        for name, fill in fills.items():
            if not any(name in row for row in rows):
                continue
            # An empty list would make a tensor of floats.
            values = [torch.as_tensor(row[name], dtype=torch.long) for row in rows]
            if values[0].ndim == 0:
                batch[name] = torch.stack(values)
            else:
                batch[name] = pad_sequence(values, batch_first=True, padding_value=fill)

        return BatchEncoding(batch)

    def tokenize(self, text: str | Piece, name: str = "a document", blank: bool = False) -> Piece:
        """Tokenises a text; the mask token keeps its meaning, other markers are plain text.

        Args:
            text: the text; a `Piece` is returned unchanged.
            name: name of the text in error messages.
            blank: if true, the text may have no words.

        Raises:
            ValueError: the text is no string, or has no words.
        """
        if isinstance(text, Piece):
            return text
        if not isinstance(text, str):
            raise ValueError(f"A text is needed for {name}, got {text!r}.")

        private = private_tokenizer(self.tokenizer, split_special_tokens=True)
        mask = self.tokenizer.mask_token
        parts = [text]
        if mask:
            parts = re.split(f"({re.escape(mask)})", text)

        words = [part for part in parts if part and part != mask]
        tokens_of_words = iter(private(words))
        ids = []
        offsets = []
        begin = 0  # of the part within the text
        for part in parts:
            if part == mask:
                ids.append(self.tokenizer.mask_token_id)
                offsets.append((begin, begin + len(part)))
            elif part:
                tokens = next(tokens_of_words)
                ids += tokens.input_ids.tolist()
                offsets += zip(
                    (begin + tokens.char_starts).tolist(),
                    (begin + tokens.char_ends).tolist(),
                    strict=True,
                )

            begin += len(part)

        if not ids and not blank:
            raise ValueError(f"A text with words is needed for {name}, got {text[:40]!r}.")

        return Piece(text=text, ids=ids, offsets=offsets)


def _limited(max_length: int | None, limit: int, owner: str) -> int:
    """Returns the length, or the limit of its owner if there is none; checks that it fits."""
    if max_length is None:
        return limit
    if not 1 <= max_length <= limit:
        raise ValueError(f"max_length must be 1 to {limit}, the {owner}'s own, got {max_length}.")
    return max_length


def _mentions_by_document(
    pieces: Sequence[Piece], mentions: Sequence[tuple[int, int, int]]
) -> list[list[MarkedMention]]:
    """Sorts mentions (document, first character, one past the last) by document, as tokens."""
    by_document: list[list[MarkedMention]] = [[] for _ in pieces]
    for index, (document, start, end) in enumerate(mentions):
        if not 0 <= document < len(pieces):
            raise ValueError(
                f"Mention {index} is in document {document}, but the set has {len(pieces)}"
                " documents. Count documents from 0."
            )

        name = f"Mention {index} (document {document})"
        first_token, end_token = pieces[document].tokens_of(start, end, name=name)
        mention = MarkedMention(first=first_token, end=end_token, set_index=index)
        by_document[document].append(mention)

    return by_document


def _add_marked(
    layout: _Layout,
    ids: Sequence[int],
    first: int,
    mentions: Sequence[MarkedMention],
    spans: list[list[int]],
) -> None:
    """Adds a document with the markers of its mentions, which are global like the mentions' tokens.

    Args:
        layout: the sequence that grows.
        ids: tokens of the document, up to the last token to keep.
        first: the first token to keep.
        mentions: the document's mentions.
        spans: positions in the sequence, by index of the mention; filled by this function.
    """
    # Outer mentions open first and close last.
    ordered = sorted(mentions, key=lambda mention: (mention.first, -mention.end))
    borders = {first, len(ids)}
    for mention in mentions:
        borders |= {mention.first, mention.end}

    depth = 0  # of nested mentions
    for border, next_border in itertools.pairwise([*sorted(borders), len(ids)]):
        for mention in reversed(ordered):
            if mention.end == border:
                spans[mention.set_index][1] = len(layout)
                layout.add_marker(MENTION[1], is_global=True)
                depth -= 1

        for mention in ordered:
            if mention.first == border:
                layout.add_marker(MENTION[0], is_global=True)
                spans[mention.set_index][0] = len(layout)
                depth += 1

        layout.add_tokens(ids[border:next_border], is_global=depth > 0)


def _add_paragraph(
    layout: _Layout, pieces: Sequence[Piece], room: int, text_index: int
) -> tuple[list[int], int]:
    """Adds a title and its sentences, as far as there is room.

    Args:
        layout: the sequence that grows.
        pieces: the title and the sentences.
        room: number of tokens for these texts and their markers.
        text_index: the title's index among all texts.

    Returns:
        Start positions of title and sentences, -1 for a sentence that was lost; and the number of
        lost tokens.
    """
    starts = []
    lost = sum(len(piece.ids) for piece in pieces)
    markers = TITLE  # the title comes first
    for index, piece in enumerate(pieces):
        count = min(len(piece.ids), room - 2)
        if count < 0 or (count == 0 and len(piece.ids) > 0):
            # No token fits, so that the rest is lost.
            starts.append(-1)
            room = 0
            continue

        starts.append(len(layout))
        layout.add_marker(markers[0], is_global=True)
        spans = [(text_index + index, *offsets) for offsets in piece.offsets[:count]]
        layout.add_tokens(piece.ids[:count], spans=spans)
        layout.add_marker(markers[1])
        markers = SENTENCE
        room -= count + 2
        lost -= count

    return starts, lost


def share_tokens(lengths: Sequence[int], budget: int, least: int = 1) -> list[int]:
    """Shares a budget of tokens among texts.

    A text keeps all its tokens if there is room, otherwise at most an equal share. It must keep the
    `least` number of tokens, or all if it has fewer.

    Raises:
        ValueError: the budget is too small for the least.
    """
    if budget < sum(min(length, least) for length in lengths):
        raise ValueError(
            f"{len(lengths)} documents ({sum(lengths):,} tokens) do not fit the {max(budget, 0)}"
            " beside the markers. Give fewer documents, or a larger max_length."
        )

    counts = [0] * len(lengths)
    # The shortest text first: the others get what it does not need.
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for done, index in enumerate(order):
        equal_share = budget // (len(lengths) - done)
        counts[index] = min(lengths[index], equal_share)
        budget -= counts[index]

    return counts


def keep_around(mentions: Sequence[MarkedMention], count: int, name: str, piece: Piece) -> int:
    """Chooses the stretch of a document to keep, so that it contains the document's mentions.

    Returns:
        The first token to keep.

    Raises:
        ValueError: the mentions are further apart than `count` tokens.
    """
    last_end = max((mention.end for mention in mentions), default=0)
    first = max(0, last_end - count)
    for mention in mentions:
        if mention.first < first:
            start = piece.offsets[mention.first][0]
            end = piece.offsets[mention.end - 1][1]
            raise ValueError(
                f"Mention {mention.set_index} ({piece.text[start:end]!r}, tokens {mention.first} to"
                f" {mention.end} of {name}) would be lost: {count} tokens are left for the"
                " document. Give a larger max_length, or fewer mentions at a time."
            )

    return first


def read_marked(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Removes ``<m>`` and ``</m>`` (perhaps nested) from a text.

    Returns:
        The text, and the spans ``[start, end)`` that the markers enclosed.

    Raises:
        ValueError: a marker has no partner.

    Example:
        >>> read_marked("Stocks <m>fell</m> on Friday.")
        ('Stocks fell on Friday.', [(7, 11)])
    """
    unmarked = ""
    spans: list[tuple[int, int]] = []
    opened = []  # indices of the spans that have no end yet
    for part in re.split("(</?m>)", text):
        if part == MENTION[0]:
            opened.append(len(spans))
            spans.append((len(unmarked), -1))
        elif part == MENTION[1]:
            if not opened:
                raise ValueError(
                    f"There is a {part} after {unmarked[-30:]!r} without a {MENTION[0]} before it."
                )

            index = opened.pop()
            start, _ = spans[index]
            spans[index] = (start, len(unmarked))
        else:
            unmarked += part

    if opened:
        raise ValueError(
            f"{len(opened)} of {len(spans)} {MENTION[0]} have no {MENTION[1]} after them."
        )

    return unmarked, spans


def warn_of_cuts(rows: Iterable[Row]) -> None:
    """Warns once if the documents of these rows lose tokens, and says how many."""
    lost = [tokens for row in rows for tokens in row["lost_tokens"]]
    if any(lost):
        documents = sum(tokens > 0 for tokens in lost)
        warnings.warn(
            f"{documents} of {len(lost)} documents lose {sum(lost):,} tokens; raise max_length, or"
            " give fewer documents in a set.",
            stacklevel=3,
        )
