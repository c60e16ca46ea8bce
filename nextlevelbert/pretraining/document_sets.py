"""Sets of related documents: read, sampled into sequences, masked (CDLM, section 2.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ..data._old import read_lines
from ..data.rows import Place, Rows, draw, open_rows, short
from ..models.processing_cdlm import DOCUMENT, CdlmProcessor
from .masking import draw_vector_mask

logger = logging.getLogger(__name__)

PATTERNS = ("masked", "prefix", "none")
LEAST_DOCUMENTS = 3  # in a set, the paper's (section 2.3)
_MULTI_NEWS = "|||||"  # what separates the documents of a set there


@dataclass(frozen=True)
class DocumentClusters:
    """Sets of related documents.

    Attributes:
        clusters: texts of each.
        names: of each.
        source: what they were read from (without folders).
    """

    clusters: list[list[str]]
    names: list[str]
    source: str


def read_document_clusters(
    source: str | Path,
    cluster_column: str | None = None,
    text_column: str | None = None,
    split: str = "train",
    dataset_config: str | None = None,
) -> DocumentClusters:
    """Reads sets of related documents; blank documents are left out.

    Args:
        source: a .jsonl or .parquet (also .gz), a dataset on the Hub, or Multi-News as its authors give it: a ``.src``
            or ``.src.cleaned`` with a set a line.
        cluster_column: where a row is a document, what names the set it belongs to. None where a row is a set.
        text_column: the text of a document (default ``"text"``); where a row is a set, a list of texts, or one with
            ``|||||`` between documents, as Multi-News has them (default ``"document"``).
        split, dataset_config: of a dataset on the Hub.

    Raises:
        ValueError: naming the row and column of what is missing or does not fit; or for no documents at all.
    """
    column = text_column or ("document" if cluster_column is None else "text")
    if ".src" in Path(source).suffixes:
        name, rows, cluster_column, column = Path(source).name, _multi_news(Path(source)), None, "document"
    else:
        name, _, rows, _ = open_rows(source, split, dataset_config)
    found: dict[str, list[str]] = {}
    one_text = None  # the first row that is not several
    for number, (place, values) in enumerate(tqdm(rows, unit="row", desc=f"reading {name}", delay=2)):
        value = place.value(values, column, "--text_column")
        if cluster_column is not None:
            key = place.value(values, cluster_column, "--cluster_column")
            if key is None or not str(key).strip():
                raise place.error(cluster_column, f"must name the set of the document, got {short(key)}.")
            key = str(key)
            texts = [value]
        else:
            key = str(number)
            texts = value.split(_MULTI_NEWS) if isinstance(value, str) else value
            if isinstance(value, str) and len(texts) == 1:
                one_text = one_text or place
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise place.error(column, f"must be text, or a list of texts, got {short(value)}.")
        found.setdefault(key, []).extend(text.strip() for text in texts if text.strip())
    if not any(found.values()):
        raise ValueError(f"{name} has no text in column {column!r}.")
    if one_text is not None and max(map(len, found.values())) == 1:
        raise one_text.error(
            column,
            f"is one text without {_MULTI_NEWS}, like all others: name the column of their set with --cluster_column.",
        )
    return DocumentClusters(list(found.values()), list(found), name)


def _multi_news(path: Path) -> Rows:
    """The lines of Multi-News's own files, where NEWLINE_CHAR stands for the end of a line."""
    for line, text in read_lines(path):
        yield Place(path.name, f"line {line}"), {"document": text.replace("NEWLINE_CHAR", "\n")}


def hold_out_clusters(data: DocumentClusters, share: float, seed: int) -> tuple[DocumentClusters, DocumentClusters]:
    """Splits off a share of the sets that have enough documents: the other sets, and those.

    Raises:
        ValueError: as `draw`.
    """
    large = [number for number, texts in enumerate(data.clusters) if len(texts) >= LEAST_DOCUMENTS]
    held = draw(large, share, seed, f"sets of {data.source} with {LEAST_DOCUMENTS} documents or more")

    def part(inside: bool) -> DocumentClusters:
        chosen = [number for number in range(len(data.clusters)) if (number in held) == inside]
        return replace(
            data, clusters=[data.clusters[each] for each in chosen], names=[data.names[each] for each in chosen]
        )

    return part(False), part(True)


class TokenSequence(TypedDict):
    """One sequence: ``input_ids [L]``, ``maskable [L]`` bool (false at separators), and the key of its masks."""

    input_ids: np.ndarray
    maskable: np.ndarray
    mask_key: tuple[int, ...]


class ClusterDataset(Dataset):
    """Sequences of documents of one set each, drawn anew in every epoch until a sequence is full.

    A document longer than a third of a sequence gives a stretch of that length, also drawn anew; the last document of
    a sequence is cut where the sequence is full.

    Args:
        data: sets of documents; those of fewer than three are left out (paper, section 2.3).
        processor: its tokenizer knows the separators.
        max_length: tokens in a sequence; by default the processor's.
        related: False draws the documents of a sequence from all sets, each from another (the paper's "Rand CDLM").
        samples_per_cluster: sequences of each set in an epoch.
        seed: of what is drawn.

    Attributes:
        epoch: set it at the start of an epoch (`SetEpochCallback` does) to draw anew.
        left_out: sets that have too few documents.

    Raises:
        ValueError: if no set is left, or a sequence is too short for three documents.
    """

    def __init__(
        self,
        data: DocumentClusters,
        processor: CdlmProcessor,
        max_length: int | None = None,
        related: bool = True,
        samples_per_cluster: int = 1,
        seed: int = 42,
    ) -> None:
        self.max_length = max_length or processor.max_length
        self.related, self.samples_per_cluster, self.seed, self.epoch = related, samples_per_cluster, seed, 0
        tokenizer = processor.tokenizer
        kept = [texts for texts in data.clusters if len(texts) >= LEAST_DOCUMENTS]
        self.left_out = len(data.clusters) - len(kept)
        if not kept or (not related and len(kept) < LEAST_DOCUMENTS):
            raise ValueError(
                f"{data.source} has {len(kept)} sets of at least {LEAST_DOCUMENTS} documents (and {self.left_out} "
                f"smaller ones); at least {'one is' if related else 'three are'} needed."
            )
        if self.max_length < 2 + 4 * LEAST_DOCUMENTS:
            raise ValueError(f"A sequence of {self.max_length} tokens has no room for {LEAST_DOCUMENTS} documents.")
        self._special = tokenizer.convert_tokens_to_ids([tokenizer.cls_token, *DOCUMENT, tokenizer.sep_token])
        self._clusters = [
            [np.array(processor.tokenize(text).ids, dtype=np.int32) for text in texts]
            for texts in tqdm(kept, unit="set", desc=f"tokenising {data.source}", delay=2)
        ]
        self._longest = (self.max_length - 2) // LEAST_DOCUMENTS - 2
        long = sum(len(ids) > self._longest for documents in self._clusters for ids in documents)
        total = sum(map(len, self._clusters))
        logger.info(
            "%s: %d sets with %d documents and %s tokens. %d documents are longer than the %d tokens that one gives "
            "to a sequence. %d sets have fewer than %d documents and are left out.",
            data.source, len(kept), total, f"{sum(len(ids) for documents in self._clusters for ids in documents):,}",
            long, self._longest, self.left_out, LEAST_DOCUMENTS,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._clusters) * self.samples_per_cluster

    def __getitem__(self, index: int) -> TokenSequence:
        if not 0 <= index < len(self):
            raise IndexError(f"Sequence {index} is not among the {len(self)} of this dataset.")
        key = (self.seed, self.epoch, index)
        rng = np.random.default_rng([*key, 2])
        cls, begin, end, sep = self._special
        ids, maskable = [np.array([cls])], [np.array([False])]
        room = self.max_length - 2
        for document in self._documents(index // self.samples_per_cluster, rng):
            if room < 3:  # not even for one token between separators
                break
            start = int(rng.integers(0, max(len(document) - self._longest, 0) + 1))
            taken = document[start : start + min(self._longest, room - 2)]
            ids += [np.array([begin]), taken, np.array([end])]
            maskable += [np.array([False]), np.ones(len(taken), dtype=bool), np.array([False])]
            room -= len(taken) + 2
        ids.append(np.array([sep]))
        maskable.append(np.array([False]))
        return {"input_ids": np.concatenate(ids), "maskable": np.concatenate(maskable), "mask_key": key}

    def _documents(self, cluster: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Documents in the order in which they fill a sequence."""
        if self.related:
            for number in rng.permutation(len(self._clusters[cluster])):
                yield self._clusters[cluster][number]
        else:  # at most as many, each of another set
            for other in rng.permutation(len(self._clusters))[: len(self._clusters[cluster])]:
                yield self._clusters[other][int(rng.integers(len(self._clusters[other])))]


@dataclass
class DataCollatorForCrossDocumentMasking:
    """Masks 15 % of the words, 80/10/10, and gives them global attention (CDLM, section 2.2).

    Separators and special tokens are never masked. The masks depend on each sequence's own key alone.

    Args:
        processor: its tokenizer says what [MASK] and padding are.
        pattern: which tokens have global attention: ``"masked"``, those to predict; ``"prefix"``, as many first ones
            of the sequence; ``"none"``.
        mlm_probability: share of the words to predict.
        mask_replace_prob, random_replace_prob: of these, the shares that become [MASK] and another token.

    Returns (on call):
        `input_ids`, `attention_mask`, `global_attention_mask` and `labels` (-100 where nothing is to be predicted),
        ``[B, L]`` each.

    Raises:
        ValueError: for an unknown pattern, shares that do not fit, or (on call) a batch without a masked position.
    """

    processor: CdlmProcessor
    pattern: str = "masked"
    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise ValueError(f"pattern must be one of {', '.join(PATTERNS)}, got {self.pattern!r}.")
        tokenizer = self.processor.tokenizer
        self._words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
        shares = (self.mask_replace_prob, self.random_replace_prob)
        if not 0 < self.mlm_probability <= 1 or not all(0 <= share <= 1 for share in shares):  # NaN, too
            raise ValueError(
                f"mlm_probability must be above 0 and at most 1, and shares from 0 to 1; got {self.mlm_probability}, "
                f"{self.mask_replace_prob} and {self.random_replace_prob}."
            )
        if sum(shares) > 1:
            raise ValueError(f"mask_replace_prob and random_replace_prob must not exceed 1 in total, got {shares}.")

    def __call__(self, sequences: Sequence[TokenSequence]) -> dict[str, torch.Tensor]:
        rows = []
        for sequence in sequences:
            ids, key = np.array(sequence["input_ids"]), sequence["mask_key"]
            mask = draw_vector_mask(
                sequence["maskable"], key, self.mlm_probability, self.mask_replace_prob, self.random_replace_prob
            )
            labels = np.where(mask.selected, ids, -100)
            ids[mask.masked] = self.processor.tokenizer.mask_token_id
            ids[mask.replaced] = np.random.default_rng([*key, 1]).choice(self._words, int(mask.replaced.sum()))
            wide = mask.selected
            if self.pattern != "masked":
                first = round(self.mlm_probability * len(ids)) if self.pattern == "prefix" else 0
                wide = np.arange(len(ids)) < first
            rows.append(
                {"input_ids": ids, "attention_mask": np.ones_like(ids), "global_attention_mask": wide.astype(int),
                 "labels": labels}
            )  # fmt: skip
        if all((row["labels"] == -100).all() for row in rows):
            lengths = [len(row["labels"]) for row in rows]
            raise ValueError(
                f"No position is masked in a batch of sequences of {lengths} tokens with mlm_probability "
                f"{self.mlm_probability}; give longer sequences, or a higher probability."
            )
        return dict(self.processor.pad(rows))
