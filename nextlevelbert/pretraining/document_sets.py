"""Sets of related documents for a CDLM: read, sampled into sequences, masked (CDLM, sections 2.2
and 2.3)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..data.rows import Place, Rows, draw, open_rows, short
from ..models.processing_cdlm import DOCUMENT, CdlmProcessor
from .sequences import EpochDataset, draw_vector_mask

logger = logging.getLogger(__name__)

LEAST_DOCUMENTS = 3  # in a set, the paper's (section 2.3)
_MULTI_NEWS = "|||||"  # what separates the documents of a set there


def read_document_sets(
    source: str | Path,
    set_column: str | None = None,
    text_column: str | None = None,
    split: str = "train",
    dataset_config: str | None = None,
) -> dict[str, list[str]]:
    """Reads sets of related documents, each under its name; blank documents are left out.

    Args:
        source: a .jsonl or .parquet (also .gz), a dataset on the Hub, or Multi-News as its authors
            give it: a ``.src`` or ``.src.cleaned`` with a set a line.
        set_column: where a row is a document, what names the set it belongs to. None where a row is
            a set.
        text_column: the text of a document (default ``"text"``); where a row is a set, a list of
            texts, or one with ``|||||`` between documents, as Multi-News has them (default
            ``"document"``).
    """
    column = text_column or ("document" if set_column is None else "text")
    if ".src" in Path(source).suffixes:
        rows, set_column, column = _multi_news(Path(source)), None, "document"
    else:
        rows = open_rows(source, split, dataset_config).rows
    sets: dict[str, list[str]] = {}
    for number, (place, values) in enumerate(rows):
        value = place.value(values, column, "--text_column")
        if set_column is None:
            key, texts = str(number), value.split(_MULTI_NEWS) if isinstance(value, str) else value
        else:
            key, texts = (
                str(place.value(values, set_column, "--cluster_column") or "").strip(),
                [value],
            )
            if not key:
                raise place.error(set_column, "must name the set of the document.")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise place.error(column, f"must be text, or a list of texts, got {short(value)}.")
        sets.setdefault(key, []).extend(text.strip() for text in texts if text.strip())
    if max(map(len, sets.values()), default=0) < 2:
        raise ValueError(
            f"{Path(source).name} has no two documents of one set in column {column!r}: put"
            f" {_MULTI_NEWS} between the documents of a row, or name the column of their set with"
            " --cluster_column."
        )
    return sets


def _multi_news(path: Path) -> Rows:
    """The lines of Multi-News's own files, where NEWLINE_CHAR stands for the end of a line."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            yield (
                Place(path.name, f"row {number}"),
                {"document": line.replace("NEWLINE_CHAR", "\n")},
            )


def hold_out_sets(
    sets: Mapping[str, list[str]], share: float, seed: int
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Splits off a share of the sets that have enough documents: the other sets, and those."""
    large = [name for name, texts in sets.items() if len(texts) >= LEAST_DOCUMENTS]
    held = draw(large, share, seed, f"sets with {LEAST_DOCUMENTS} documents or more")
    rest = {name: texts for name, texts in sets.items() if name not in held}
    return rest, {name: texts for name, texts in sets.items() if name in held}


class TokenSequence(NamedTuple):
    """One sequence: ``input_ids [L]``, ``maskable [L]`` bool (false at separators), and the key of
    its masks."""

    input_ids: np.ndarray
    maskable: np.ndarray
    mask_key: tuple[int, ...]


class ClusterDataset(EpochDataset):
    """A sequence of documents of each set, drawn anew in every epoch until the sequence is full.

    A document that is longer than its share of a sequence gives a stretch of that length, also
    drawn anew; the last document of a sequence is cut where the sequence is full.

    Args:
        sets: texts of each; those of fewer than three are left out (section 2.3).
        max_length: tokens in a sequence; by default the processor's.
        related: False draws each document of a sequence from another set (the paper's "Rand CDLM").
        document_share: of a sequence, the most that one document fills; a third, so that three
            documents fit.
    """

    def __init__(
        self,
        sets: Sequence[Sequence[str]],
        processor: CdlmProcessor,
        max_length: int | None = None,
        related: bool = True,
        seed: int = 42,
        document_share: float = 1 / LEAST_DOCUMENTS,
    ) -> None:
        super().__init__(seed)
        self.max_length, self.related = max_length or processor.max_length, related
        tokenizer = processor.tokenizer
        kept = [texts for texts in sets if len(texts) >= LEAST_DOCUMENTS]
        needed = 1 if related else LEAST_DOCUMENTS
        if len(kept) < needed:
            raise ValueError(
                f"{len(kept)} sets have {LEAST_DOCUMENTS} documents; at least {needed} are needed."
            )
        self._longest = (
            int((self.max_length - 2) * document_share + 1e-6) - 2
        )  # 1e-6: a third of 30 is 10
        if self.max_length < 2 + 4 * LEAST_DOCUMENTS or self._longest < 1 or document_share > 1:
            raise ValueError(
                f"A sequence of {self.max_length} tokens has no room for {LEAST_DOCUMENTS}"
                f" documents of which each fills at most {document_share:.2f}; give a larger"
                " max_length, or another share."
            )
        self._special = tokenizer.convert_tokens_to_ids(
            [tokenizer.cls_token, *DOCUMENT, tokenizer.sep_token]
        )
        self._sets = [
            [np.array(processor.tokenize(text).ids, dtype=np.int32) for text in texts]
            for texts in kept
        ]
        lengths = np.array([len(ids) for documents in self._sets for ids in documents])
        logger.info(
            "%d sets with %d tokens (%d smaller ones left out); %d documents are cut to %d tokens"
            " in a sequence.",
            len(kept),
            lengths.sum(),
            len(sets) - len(kept),
            (lengths > self._longest).sum(),
            self._longest,
        )

    def __len__(self) -> int:
        return len(self._sets)

    def _row(self, index: int, key: tuple[int, ...]) -> TokenSequence:
        rng = np.random.default_rng([*key, 2])
        cls, begin, end, sep = self._special
        ids, room = [cls], self.max_length - 2
        for document in self._documents(index, rng):
            if room < 3:  # not even for one token between separators
                break
            start = int(rng.integers(0, max(len(document) - self._longest, 0) + 1))
            taken = document[start : start + min(self._longest, room - 2)]
            ids += [begin, *taken, end]
            room -= len(taken) + 2
        sequence = np.array([*ids, sep])
        return TokenSequence(sequence, ~np.isin(sequence, self._special), key)

    def _documents(self, number: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Documents in the order in which they fill a sequence."""
        if self.related:
            for document in rng.permutation(len(self._sets[number])):
                yield self._sets[number][document]
        else:  # at most as many, each of another set
            for other in rng.permutation(len(self._sets))[: len(self._sets[number])]:
                yield self._sets[other][int(rng.integers(len(self._sets[other])))]


class DataCollatorForCrossDocumentMasking:
    """Masks 15 % of the words, 80/10/10, and gives them global attention (CDLM, section 2.2).

    Separators and special tokens are never masked. The masks depend on each sequence's own key
    alone. By `pattern`, those to predict have global attention (``"masked"``), as many first ones
    (``"prefix"``), or none (``"none"``).

    Returns (on call):
        `input_ids`, `attention_mask`, `global_attention_mask` and `labels` (-100 elsewhere), ``[B,
        L]`` each.
    """

    def __init__(
        self, processor: CdlmProcessor, pattern: str = "masked", mlm_probability: float = 0.15
    ) -> None:
        if pattern not in ("masked", "prefix", "none"):
            raise ValueError(f"pattern must be masked, prefix or none, got {pattern!r}.")
        self.processor, self.pattern, self.mlm_probability = processor, pattern, mlm_probability
        tokenizer = processor.tokenizer
        self._words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)

    def __call__(self, sequences: Sequence[TokenSequence]) -> dict[str, torch.Tensor]:
        rows = []
        for sequence in sequences:
            ids, key = np.array(sequence.input_ids), sequence.mask_key
            selected, masked, replaced = draw_vector_mask(
                sequence.maskable, key, self.mlm_probability
            )
            labels = np.where(selected, ids, -100)
            ids[masked] = self.processor.tokenizer.mask_token_id
            ids[replaced] = np.random.default_rng([*key, 1]).choice(
                self._words, int(replaced.sum())
            )
            first = round(self.mlm_probability * len(ids)) if self.pattern == "prefix" else 0
            wide = selected if self.pattern == "masked" else np.arange(len(ids)) < first
            row = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
            rows.append({**row, "global_attention_mask": wide})
        return dict(self.processor.pad(rows))
