"""Documents with summaries: read from CNN/DailyMail or from named columns, cut into sentences, labelled."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from ...data.rows import Place, fingerprint, open_rows, short
from ...evaluation.rouge import greedy_oracle
from ...models.bert_al_sentences import encode_sentences, pad_batch, split_document
from ...training.resuming import unreadable, write_whole

logger = logging.getLogger(__name__)

_WORTH_PROCESSES = 2000  # documents; fewer are done before other processes have started


@dataclass(frozen=True)
class SummarizedDocument:
    """A document and what is known of its summary.

    Attributes:
        id: from the id column, else the number of the row.
        text: the document; where it came as sentences, those joined by line ends.
        spans: first character of each sentence and one past the last.
        reference: sentences of the reference summary.
        labels: 1 for each sentence that belongs to an extractive summary, else 0: given, or the greedy oracle's.
    """

    id: str
    text: str
    spans: list[tuple[int, int]]
    reference: list[str]
    labels: list[int]

    @property
    def sentences(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans]


@dataclass(frozen=True)
class SummarizationData:
    """A set of documents with summaries.

    Attributes:
        documents: in the order of the rows.
        source: what it was read from (without folders).
        labelled: whether the sentence labels were given; otherwise they are the greedy oracle's.
    """

    documents: list[SummarizedDocument]
    source: str
    labelled: bool

    def content(self) -> Iterator[object]:
        """Everything that a run depends on, for `fingerprint`."""
        return ([each.id, each.text, each.spans, each.reference, each.labels] for each in self.documents)


@dataclass(frozen=True)
class SummaryColumns:
    """Names of the columns. Only where all are left as they are, CNN/DailyMail's are recognised."""

    text: str = "text"
    summary: str = "summary"
    labels: str | None = None
    id: str = "id"


def read_summarization(
    source: str | Path,
    tokenizer: Any,
    columns: SummaryColumns | None = None,
    split: str = "train",
    dataset_config: str | None = None,
    oracle_cache: str | Path | None = None,
) -> SummarizationData:
    """Reads a set of documents with reference summaries.

    Args:
        source: a .jsonl or .parquet (also .gz), or a dataset on the Hub.
        tokenizer: of the encoder; it tells where sentences end.
        columns: texts and summaries are a text or a list of sentences; labels a list of 0 and 1, one a sentence.
            Without labels the greedy oracle makes them.
        split, dataset_config: of a dataset on the Hub.
        oracle_cache: folder where the oracle's labels are kept, and found again.

    Raises:
        ValueError: naming the row and column of what is missing, blank or does not fit.
    """
    columns = columns or SummaryColumns()
    name, first, rows, _ = open_rows(source, split, dataset_config)
    if columns == SummaryColumns() and {"article", "highlights"} <= first.keys() and "text" not in first:
        columns = SummaryColumns(text="article", summary="highlights")
    if columns.labels is None and isinstance(first.get("label"), list):
        columns = replace(columns, labels="label")
    documents = []
    for number, (place, values) in enumerate(tqdm(rows, unit="text", desc=f"sentences of {name}", delay=2)):
        sides = []
        for column, option in ((columns.text, "--text_column"), (columns.summary, "--summary_column")):
            value = place.value(values, column, option)
            try:
                text = _by_line(value) if column == columns.summary else value
                sides.append(split_document(text))
            except (TypeError, ValueError) as error:
                raise place.error(column, str(error)) from error
        (text, spans), (summary, parts) = sides
        reference = [summary[start:end] for start, end in parts]
        labels = [] if columns.labels is None else _check_labels(place, columns.labels, values, len(spans))
        documents.append(SummarizedDocument(str(values.get(columns.id, number)), text, spans, reference, labels))
    if columns.labels is None:
        documents = _with_oracle_labels(documents, name, oracle_cache)
    return SummarizationData(documents, name, columns.labels is not None)


def _with_oracle_labels(
    documents: list[SummarizedDocument], name: str, cache: str | Path | None
) -> list[SummarizedDocument]:
    """Labels by the greedy oracle, on all cores where there are many documents (0.03 s for one of 45 sentences).

    Raises:
        ValueError: if it finds nothing in any document.
    """
    sides = [document.sentences for document in documents], [document.reference for document in documents]
    stored = Path(cache or ".") / f"{fingerprint(sides)}.json"
    if cache is not None and unreadable(stored) is None:
        found = json.loads(stored.read_text())
    else:
        bar = partial(tqdm, total=len(documents), unit="text", desc=f"oracle of {name}", delay=2)
        if len(documents) < _WORTH_PROCESSES:
            found = list(bar(map(greedy_oracle, *sides)))
        else:
            with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
                found = list(bar(pool.map(greedy_oracle, *sides, chunksize=32)))
        if cache is not None:
            stored.parent.mkdir(parents=True, exist_ok=True)
            write_whole(stored, json.dumps(found))
    if empty := sum(not chosen for chosen in found):
        message = (
            f"{name}: the oracle finds no sentence in common with the summary in {empty} of {len(found)} documents "
            "(ROUGE here knows the letters a to z and digits only)."
        )
        if empty == len(found):
            raise ValueError(f"{message} Give sentence labels with --label_column.")
        logger.warning(message)
    return [
        replace(document, labels=[int(number in chosen) for number in range(len(document.spans))])
        for document, chosen in zip(documents, found, strict=True)
    ]


def _by_line(summary: Any) -> Any:
    """Highlights come a line each; a summary in one line is cut like any text."""
    if isinstance(summary, str) and len(lines := [line for line in summary.splitlines() if line.strip()]) > 1:
        return lines
    return summary


def _check_labels(place: Place, column: str, values: dict[str, Any], sentences: int) -> list[int]:
    labels = place.value(values, column, "--label_column")
    if not isinstance(labels, Sequence) or isinstance(labels, str) or any(label not in (0, 1) for label in labels):
        raise place.error(column, f"must be a list of 0 and 1, got {short(labels)}.")
    if len(labels) != sentences:
        raise place.error(column, f"has {len(labels)} labels for {sentences} sentences; give one each.")
    return [int(label) for label in labels]


class SummarizationDataset(Dataset):
    """Documents in BERTSUM's format with a label for every sentence.

    Args:
        data: the documents.
        tokenizer: of the encoder.
        limit: tokens to which a document is cut; None cuts nothing. Sentences whose [CLS] is past the cut have no
            score.

    Attributes:
        lost: tokens of each document past the cut.
    """

    def __init__(self, data: SummarizationData, tokenizer: Any, limit: int | None = None) -> None:
        self.data, self.pad_token_id = data, tokenizer.pad_token_id or 0
        self.rows: list[dict[str, torch.Tensor]] = []
        self.lost: list[int] = []
        for document in tqdm(data.documents, unit="text", desc=f"tokenising {data.source}", delay=2):
            ids, types = encode_sentences(document.sentences, tokenizer)
            self.lost.append(max(0, len(ids) - limit) if limit else 0)
            kept = int((ids[:limit] == tokenizer.cls_token_id).sum())
            self.rows.append(
                {
                    "labels": torch.tensor(document.labels[:kept]),
                    "input_ids": torch.from_numpy(ids[:limit]),
                    "token_type_ids": torch.from_numpy(types[:limit]),
                }
            )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.rows[index]

    def collate(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """A batch of B documents: `labels` ``[B, S]``, -100 after the last sentence, and what `pad_batch` gives."""
        labels = torch.nn.utils.rnn.pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        # Trainer counts examples by the first tensor.
        pairs = [(row["input_ids"].numpy(), row["token_type_ids"].numpy()) for row in rows]
        return {"labels": labels, **pad_batch(pairs, self.pad_token_id)}
