"""From documents to the inputs of CDLM: separators around documents, marked mentions, questions and paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.processing_utils import ProcessorMixin

from .cdlm_layout import (
    DOCUMENT,
    MARKERS,
    MENTION,
    QUESTION,
    SENTENCE,
    TITLE,
    Layout,
    Piece,
    Row,
    keep_around,
    pad_rows,
    share_tokens,
    warn_of_cuts,
)


class CdlmProcessor(ProcessorMixin):
    """Lays sets of documents out in sequences: ``[CLS] <doc-s> … </doc-s> <doc-s> … </doc-s> [SEP]``.

    If a set is too long, its documents are cut, the longest first, and a warning counts the lost tokens; markers are
    never cut. Markers within a document are plain text: a ``<doc-s>`` there is no separator. Only the tokenizer's mask
    token keeps its meaning.

    Args:
        tokenizer: one that knows the markers; `from_model` adds them.
        max_length: most tokens in a sequence.

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
        """The processor of a model; adds missing markers to its tokenizer, and embeddings for them to the model.

        Args:
            model: any CDLM; its vocabulary grows in place the first time (new rows are random, as in the paper).
            max_length: most tokens in a sequence; by default as many as the model reads.

        Raises:
            ValueError: for a length above what the model reads, or a model without tokenizer.
        """
        limit = model.config.max_sequence_length
        if max_length is not None and not 1 <= max_length <= limit:
            raise ValueError(f"max_length must be 1 to {limit}, the model's limit, got {max_length}.")
        tokenizer = model.tokenizer
        known = tokenizer.get_vocab()
        if new := [marker for marker in MARKERS if marker not in known]:
            tokenizer.add_special_tokens({"extra_special_tokens": new}, replace_extra_special_tokens=False)
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
        """A batch of sets of documents (B sets, L tokens in the longest), with global attention on [CLS].

        Args:
            documents: the documents of one set, or a list of sets.
            max_length: most tokens in a sequence; by default the processor's.
            text, kwargs: the arguments of sentence-transformers, which passes plain texts: they go to the tokenizer
                alone.

        Returns:
            `input_ids`, `attention_mask` and `global_attention_mask`, ``[B, L]`` each.

        Raises:
            ValueError: for an empty set, a blank document (named), or more documents than fit.
        """
        if text is not None and documents is None:
            return self.tokenizer(text, **kwargs.get("text_kwargs", {}), **kwargs.get("common_kwargs", {}))
        if kwargs or text is not None:
            raise TypeError(f"CdlmProcessor takes documents and max_length, not {', '.join(['text', *kwargs])}.")
        kinds = {isinstance(each, str) for each in documents or ()}
        if isinstance(documents, str) or len(kinds) != 1:
            what = "one text" if isinstance(documents, str) else "texts beside lists" if kinds else "nothing"
            raise ValueError(f"Give a list of documents, or a list of lists of them; got {what}.")
        sets = cast(Sequence[Sequence[str]], [documents] if kinds == {True} else documents)
        rows = [self.cluster(each, max_length) for each in sets]
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

        Global attention is on [CLS], the markers of mentions and their tokens (paper, appendix C.1). A document that
        has to be cut keeps its mentions: it loses its end first, and its beginning if they are too far from it.

        Args:
            documents: texts, or the pieces that `tokenize` made of them.
            mentions: document, first character and one past the last of each. The markers of nested mentions count as
                tokens of the outer one.
            pairs: numbers of the mentions to compare; left out of the row if None.
            labels: those of the pairs.
            max_length: most tokens; by default the processor's.

        Raises:
            ValueError: for no documents, a blank one, a span outside its document or without a token, a mention that
                does not fit (each named), or more documents than fit.
        """
        limit = self._limit(max_length)
        if not documents:
            raise ValueError("There is no document in the set; give at least one.")
        pieces = [self.tokenize(text, f"document {number}") for number, text in enumerate(documents)]
        inside: list[list[tuple[int, int, int]]] = [[] for _ in pieces]  # tokens, and which mention
        for number, (document, start, end) in enumerate(mentions):
            if not 0 <= document < len(documents):
                raise ValueError(f"Mention {number} is in document {document}, but there are {len(documents)}.")
            first, last = pieces[document].tokens_of(start, end, f"Mention {number} (document {document})")
            inside[document].append((first, last, number))
        budget = limit - 2 - 2 * len(documents) - 2 * len(mentions)
        kept = share_tokens([len(piece.ids) for piece in pieces], budget, limit)
        layout, spans = Layout(self.tokenizer), [[-1, -1] for _ in mentions]
        layout.add(self.tokenizer.cls_token, is_global=True)
        for number, (piece, count, marked) in enumerate(zip(pieces, kept, inside, strict=True)):
            layout.add(DOCUMENT[0])
            at = first = keep_around(marked, count, f"document {number}", piece, limit)
            # Where one mention ends and another begins, the end comes first; outer ones open first and close last,
            # and of two with the same span the one that opened last closes first.
            opening = [(begin, 1, -end, mention) for begin, end, mention in marked]
            closing = [
                (end, 0, -begin, -mention) for begin, end, mention in marked
            ]  # of equals, the last opened first
            for token, opens, _, mention in sorted([*opening, *closing]):
                layout.add_ids(piece.ids[at:token])
                at = token
                if opens:
                    layout.add(MENTION[0])
                    spans[mention][0] = len(layout.ids)
                else:
                    spans[-mention][1] = len(layout.ids)
                    layout.add(MENTION[1])
            layout.add_ids(piece.ids[at : first + count])
            layout.add(DOCUMENT[1])
        layout.add(self.tokenizer.sep_token)
        for start, end in spans:
            layout.is_global[start - 1 : end + 1] = [1] * (end - start + 2)
        lost = [len(piece.ids) - count for piece, count in zip(pieces, kept, strict=True)]
        row: Row = {**layout.row(), "lost_tokens": lost}
        if mentions:
            row["mention_spans"] = spans
        if pairs is not None:
            row["mention_pairs"] = [list(pair) for pair in pairs]
        return row if labels is None else {**row, "labels": list(labels)}

    def question(
        self, question: str, paragraphs: Sequence[tuple[str, Sequence[str]]], max_length: int | None = None
    ) -> Row:
        """One question with its paragraphs, not padded (paper, appendix C.3).

        ``[CLS] [q] question [/q] <doc-s> <t> title </t> <s> sentence </s> … </doc-s> … [SEP]``, with global attention
        on [CLS], the question, title starts and sentence starts. (Tokenizers such as RoBERTa's already have
        ``<s>`` and ``</s>`` as their [CLS] and [SEP]; these then mark sentences, as in the paper.)

        Args:
            question: a text.
            paragraphs: title and sentences of each.
            max_length: most tokens; by default the processor's. Paragraphs that are too long lose their ends.

        Returns:
            Ids and masks; `sentence_index` and `paragraph_index`, positions of the starts of all sentences and titles
            in order, -1 for a sentence after the cut; `context_mask`; and `token_spans`, for each position the number
            of its text (titles and sentences counted in order, -1 for others), its first character in that text, and
            one past its last.

        Raises:
            ValueError: for a blank question or title, no paragraph, or more than fits.
        """
        limit = self._limit(max_length)
        asked = self.tokenize(question, "the question")
        if not paragraphs:
            raise ValueError("There is no paragraph to answer from; give at least one.")
        texts = [
            [self.tokenize(title, f"the title of paragraph {number}")]
            + [self.tokenize(sentence, "", blank=True) for sentence in sentences]
            for number, (title, sentences) in enumerate(paragraphs)
        ]
        lengths = [sum(len(piece.ids) + 2 for piece in parts) for parts in texts]  # with the markers of each part
        budget = limit - 2 - len(asked.ids) - 2 - 2 * len(texts)
        kept = share_tokens(lengths, budget, limit, least=max(len(parts[0].ids) + 2 for parts in texts))
        layout = Layout(self.tokenizer)
        layout.add(self.tokenizer.cls_token, is_global=True)
        layout.add(QUESTION[0], is_global=True)
        for token in asked.ids:
            layout.add_id(token, True)
        layout.add(QUESTION[1], is_global=True)
        sentence_index: list[int] = []
        paragraph_index: list[int] = []
        lost, number = [], 0
        for parts, room in zip(texts, kept, strict=True):
            layout.add(DOCUMENT[0])
            lost.append(sum(len(piece.ids) for piece in parts))
            for place, piece in enumerate(parts):
                markers, index = (TITLE, paragraph_index) if place == 0 else (SENTENCE, sentence_index)
                count = min(len(piece.ids), room - 2)
                if count < 0 or (count == 0 and piece.ids):  # after the cut
                    index.append(-1)
                    room = 0
                else:
                    index.append(len(layout.ids))
                    layout.add(markers[0], is_global=True)
                    for token, (start, end) in zip(piece.ids[:count], piece.offsets, strict=False):
                        layout.add_id(token, False, (number, start, end))
                    layout.add(markers[1])
                    room -= count + 2
                    lost[-1] -= count
                number += 1
            layout.add(DOCUMENT[1])
        layout.add(self.tokenizer.sep_token)
        return {
            **layout.row(),
            "context_mask": [int(text >= 0) for text, _, _ in layout.spans],
            "sentence_index": sentence_index,
            "paragraph_index": paragraph_index,
            "token_spans": layout.spans,
            "lost_tokens": lost,
        }

    def pad(self, rows: Sequence[Row]) -> BatchEncoding:
        """A batch of rows: tensors padded to the longest; entries that no model reads are left out."""
        return BatchEncoding(pad_rows(rows, self.tokenizer.pad_token_id))

    def _limit(self, max_length: int | None) -> int:
        """Most tokens in a sequence.

        Raises:
            ValueError: for less than 1, or more than the processor's own.
        """
        if max_length is not None and not 1 <= max_length <= self.max_length:
            raise ValueError(
                f"max_length must be 1 to {self.max_length}, the processor's own, got {max_length}; set a larger one "
                "when you make the processor."
            )
        return max_length or self.max_length

    def tokenize(self, text: str | Piece, name: str = "a document", blank: bool = False) -> Piece:
        """Token ids of a text with their characters; the mask token keeps its meaning, other markers are plain text.

        Args:
            text: a text; a piece is returned as it is.
            name: that of the text, for messages.
            blank: whether it may have no words.
        """
        if isinstance(text, Piece):
            return text
        if not isinstance(text, str) or (not text.strip() and not blank):
            raise ValueError(f"A text is needed for {name}, got {text!r}.")
        piece = Piece.from_text(text, self.tokenizer)
        if not piece.ids and not blank:
            raise ValueError(f"The tokenizer finds no word in {name}: {text[:40]!r}.")
        return piece
