"""Documents with reference summaries: read, labelled by the greedy ROUGE oracle, and as rows of a training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ..data.rows import open_rows
from ..evaluation.rouge import greedy_oracle
from ..finetuning.arguments import TextModelArguments, option
from ..models.bert_al_sentences import encode_sentences, pad_batch, split_document

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SummaryArguments(TextModelArguments):
    """Which model, which columns, and what a summary is."""

    model_type: str = option(
        "bert-al", "truncated reads only the first segment; extended has a longer position table, random after it.",
        choices=["bert-al", "truncated", "extended"],
    )  # fmt: skip
    text_column: str = option("text", "Column of the documents, texts or lists of sentences.")
    summary_column: str = option("summary", "Column of the reference summaries, texts or lists of sentences.")
    label_column: str | None = option(None, "Column of lists of 0 and 1, one a sentence; else ROUGE labels them.")
    id_column: str = option("id", "Column of row ids.")
    summary_sentences: int = option(3, "Sentences per summary.")
    trigram_blocking: bool = option(False, "Skip sentences that share a trigram with a better one.")

    def __post_init__(self) -> None:
        if self.summary_sentences < 1:
            raise ValueError(f"--summary_sentences must be 1 or more, got {self.summary_sentences}.")


@dataclass(frozen=True)
class SummarizedDocument:
    """A document, its sentences as spans, those of its reference, and a label of each: 1 for one of the summary."""

    id: str
    text: str
    spans: list[tuple[int, int]]
    reference: list[str]
    labels: list[int]

    @property
    def sentences(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]


@dataclass(frozen=True)
class SummarySet:
    """Documents in the order of the rows, and whether their labels were given; otherwise they are the oracle's."""

    documents: list[SummarizedDocument]
    source: str
    labelled: bool


def read_summaries(options: SummaryArguments, source: str, split: str | None, config: str | None) -> SummarySet:
    """Reads documents with reference summaries: from named columns, or CNN/DailyMail as the Hub has it."""
    name, first, rows, _ = open_rows(source, split or "train", config)
    columns = {"text": options.text_column, "summary": options.summary_column}
    if columns == {"text": "text", "summary": "summary"} and {"article", "highlights"} <= first.keys():
        columns = {"text": "article", "summary": "highlights"}
    labelled = options.label_column or ("label" if isinstance(first.get("label"), list) else None)
    documents = []
    for number, (place, values) in enumerate(tqdm(rows, unit="text", desc=f"sentences of {name}", delay=2)):
        sides = []
        for side, column in columns.items():
            value = place.value(values, column, f"--{side}_column")
            lines = value.splitlines() if side == "summary" and isinstance(value, str) else []
            lines = [line for line in lines if line.strip()]  # highlights come a line each
            try:
                text, spans = split_document(lines if len(lines) > 1 else value)
            except (TypeError, ValueError) as error:
                raise place.error(column, str(error)) from error
            sides.append((text, spans, [text[start:end] for start, end in spans]))
        (text, spans, sentences), (_, _, reference) = sides
        if labelled is None:
            chosen = greedy_oracle(sentences, reference)
            labels = [int(each in chosen) for each in range(len(spans))]
        else:
            labels = place.value(values, labelled, "--label_column")
            if not isinstance(labels, list) or len(labels) != len(spans) or not set(labels) <= {0, 1}:
                raise place.error(labelled, f"must be a list of {len(spans)} times 0 or 1, one a sentence.")
        key = str(values.get(options.id_column, number))
        documents.append(SummarizedDocument(key, text, spans, reference, labels))
    if empty := sum(not any(document.labels) for document in documents) if labelled is None else 0:
        message = f"{name}: {empty} of {len(documents)} documents share no word (a to z) with their summary."
        if empty == len(documents):
            raise ValueError(f"{message} Give sentence labels with --label_column.")
        logger.warning(message)
    return SummarySet(documents, name, labelled is not None)


class SummaryRows(Dataset):
    """Documents in BERTSUM's format, cut to `limit` tokens; sentences whose [CLS] is past the cut have no label."""

    def __init__(self, data: SummarySet, tokenizer: Any, limit: int | None) -> None:
        self.padding = tokenizer.pad_token_id or 0
        self.rows: list[dict[str, Any]] = []
        lost: list[int] = []
        for document in tqdm(data.documents, unit="text", desc=f"tokenising {data.source}", delay=2):
            ids, types = encode_sentences(document.sentences, tokenizer)
            lost.append(max(0, len(ids) - limit) if limit else 0)
            labels = torch.tensor(document.labels[: int((ids[:limit] == tokenizer.cls_token_id).sum())])
            self.rows.append({"labels": labels, "document": (ids[:limit], types[:limit])})
        if any(lost):
            counts = f"{np.count_nonzero(lost)} of {len(lost)} documents lose {sum(lost):,} tokens"
            logger.warning("%s: %s to truncation.", data.source, counts)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def collate(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`labels` ``[B, S]``, -100 after the last sentence, and what `pad_batch` gives."""
        labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        return {"labels": labels, **pad_batch([row["document"] for row in rows], self.padding)}
