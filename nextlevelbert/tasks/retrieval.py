"""``--task retrieval``: a collection is searched without training, by a model, the mean of its chunks, and words."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from transformers import set_seed

from ..collators import pad_vectors
from ..data.rows import open_rows, open_text, placed_rows
from ..evaluation.retrieval import Ranking, RetrievalTask, rank_by_scores, rank_documents, retrieval_scores, write_run
from ..finetuning.models import VectorModelArguments, encode_once, open_model, open_source, public_name
from ..finetuning.seeds import option
from ..training.cards import results_table, save_figure
from ..training.trainer import parse, write_whole

logger = logging.getLogger(__name__)

WORDS, MEANS = ("tfidf", "bm25"), ("avg_sbert", "sbert")
MEAN = "mean of the chunk vectors"
# Columns of kmfoda/booksum on the Hub: a chapter looks for its summaries. A row has many more.
BOOKSUM = ("chapter", "summary_text")
_BATCH = 32  # documents of one pass through a model


@dataclass
class RetrievalArguments:
    """The collection, its queries, and where the scores go."""

    _argument_group_name = "retrieval"

    test_file: str | None = option(None, "Pairs of a query and a document: any table, or a folder in BEIR's layout.")
    dataset_name: str | None = option(None, "A dataset on the Hub, instead of a file.")
    dataset_config_name: str | None = option(None, "Configuration of that dataset.")
    test_split: str | None = option(None, "Split of the dataset or of BEIR's judgements; test, and all of BookSum.")
    query_column: str | None = option(None, "Column of the queries; by default query.")
    document_column: str | None = option(None, "Column of the documents; by default document.")
    k: int = option(10, "Cut-off rank for hit rate, recall and nDCG.")
    run_file: str | None = option(None, "Where the first 1,000 documents of each query go, in TREC's format.")
    output_dir: str = option("trainer_output", "Folder of the results.")
    use_cpu: bool = option(False, "Use the CPU even if there is an accelerator.")
    seed: int = option(42, "Seed of an untrained model.")

    def __post_init__(self) -> None:
        if (self.dataset_name is None) == (self.test_file is None):
            raise ValueError("Give the collection with --test_file or with --dataset_name.")

    @property
    def device(self) -> torch.device:
        return PartialState(cpu=self.use_cpu).device


# --- The collection


def read_retrieval_task(
    source: str | Path,
    query_column: str | None = None,
    document_column: str | None = None,
    split: str | None = None,
    config: str | None = None,
) -> RetrievalTask:
    """Reads rows of a query and a relevant document each, as `open_rows` takes them, or a folder as BEIR's.

    Columns are by default ``query`` and ``document``; in BookSum a chapter looks for its summaries among those of all
    splits (NextLevelBERT, section 3.2), and the other way round the task is called ``booksum-reversed``. BEIR (Thakur
    et al. 2021) has ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv``. The split is by default ``test``.
    """
    path = Path(source)
    if packed(path / "corpus.jsonl").exists():
        return _read_beir(path, split or "test")
    split = split or ("train+validation+test" if path.name == "booksum" else "test")
    rows = (row for _, row in open_rows(source, split, config).rows)
    return task_of_pairs(rows, path.name.split(".")[0], query_column, document_column)


def task_of_pairs(
    rows: Iterable[Mapping[str, Any]], name: str, query_column: str | None = None, document_column: str | None = None
) -> RetrievalTask:
    """A task from rows with a query and a relevant document each; equal texts are one. See `read_retrieval_task`."""
    queries: dict[str, str] = {}  # text → id
    documents: dict[str, str] = {}
    relevant: dict[str, dict[str, int]] = {}
    columns: tuple[str, str] | None = None
    for number, row in enumerate(rows):
        if columns is None:
            usual = BOOKSUM if row.keys() >= {"bid", "summary_id", *BOOKSUM} else ("query", "document")
            columns = (query_column or usual[0], document_column or usual[1])
            name += "-reversed" if columns == BOOKSUM[::-1] else ""
        for column in columns:
            if not isinstance(row.get(column), str) or not row[column].strip():
                raise ValueError(
                    f"Row {number} of {name} (from 0) has no text in column {column!r}; it has {', '.join(row)}. "
                    "Leave it out, or name the columns with --query_column and --document_column."
                )
        query = queries.setdefault(row[columns[0]], f"query-{len(queries):06d}")
        document = documents.setdefault(row[columns[1]], f"document-{len(documents):06d}")
        relevant.setdefault(query, {})[document] = 1
    asked, pool = ({key: text for text, key in texts.items()} for texts in (queries, documents))
    return RetrievalTask(name, asked, pool, relevant)


def _read_beir(folder: Path, split: str) -> RetrievalTask:
    texts: list[dict[str, str]] = []
    for name in ("queries.jsonl", "corpus.jsonl"):
        rows = [row for _, row in placed_rows(packed(folder / name))]
        texts.append({str(r.get("_id", r.get("id"))): f"{r.get('title') or ''} {r['text']}".strip() for r in rows})
    relevant: dict[str, dict[str, int]] = {}
    for query, document, grade in columns_of(folder / "qrels" / f"{split}.tsv", "\t", 3):
        if grade.lstrip("-").isdigit() and int(grade) > 0:  # not the line of headings
            relevant.setdefault(query, {})[document] = int(grade)
    queries = {query: texts[0].get(query, "") for query in relevant}  # BEIR keeps those of all splits in one file
    return RetrievalTask(folder.resolve().name, queries, texts[1], relevant)


def packed(path: Path) -> Path:
    """The file, or the same with ``.gz`` where only that is there."""
    compressed = path.with_name(f"{path.name}.gz")
    return compressed if compressed.exists() and not path.exists() else path


def columns_of(path: Path, delimiter: str | None, count: int) -> Iterator[list[str]]:
    """The first columns of each line; only a line feed ends a line, because texts may hold carriage returns."""
    with open_text(packed(path), newline="\n") as file:
        for number, line in enumerate(file, start=1):
            row = line.rstrip("\n").split(delimiter)
            if line.strip() and len(row) < count:
                raise ValueError(f"Line {number} of {path.name} must have {count} columns, got {len(row)}: {row}.")
            if line.strip():
                yield row[:count]


# --- The search


@torch.no_grad()
def document_vectors(model: Any, chunks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Document vectors ``[N, H]`` of stored chunk vectors ``[n, D]``."""
    rows: dict[int, torch.Tensor] = {}
    order = sorted(range(len(chunks)), key=lambda number: len(chunks[number]))  # little padding
    device = next(model.eval().parameters()).device
    for places in (order[start : start + _BATCH] for start in range(0, len(order), _BATCH)):
        batch = pad_vectors([chunks[place].float() for place in places])
        output = model(**{name: values.to(device) for name, values in batch.items()})
        rows |= zip(places, output.pooler_output.float().cpu(), strict=True)
    return torch.stack([rows[number] for number in range(len(chunks))])


def mean_vectors(chunks: Sequence[torch.Tensor]) -> torch.Tensor:
    """The means ``[N, D]`` of chunk vectors (Avg. SBERT)."""
    return torch.stack([rows.float().mean(dim=0) for rows in chunks])


def tfidf_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Cosines ``[Q, N]`` of TF-IDF vectors: 1 + log of the count, without words in more than half of the pool."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, max_df=0.5, dtype=np.float32)
    pool = vectorizer.fit_transform(documents)  # [N, words], rows of length 1
    return (vectorizer.transform(queries) @ pool.T).toarray()


def bm25_scores(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """BM25 ``[Q, N]`` as Lucene computes it (`bm25s`: k1 1.5, b 0.75, English stop words left out, no stemming)."""
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(documents), show_progress=False), show_progress=False)
    words = bm25s.tokenize(list(queries), return_ids=False, show_progress=False)
    nothing = np.zeros(len(documents), np.float32)  # of a query of stop words only
    return np.stack([index.get_scores(query) if query else nothing for query in words])


def search(
    task: RetrievalTask, options: VectorModelArguments, args: RetrievalArguments
) -> dict[str, dict[str, Ranking]]:
    """The rankings of each row of the table, that of ``--model`` first."""
    queries, documents = list(task.queries.values()), list(task.documents.values())
    if options.model in WORDS:
        scores = tfidf_scores if options.model == "tfidf" else bm25_scores
        return {options.model: rank_by_scores(task, scores(queries, documents))}
    source = open_source(options, MEANS)
    stored = encode_once(options, args, source, queries + documents)
    chunks = [[stored[text] for text in side] for side in (queries, documents)]
    name, means = public_name(options.model), rank_documents(task, mean_vectors(chunks[0]), mean_vectors(chunks[1]))
    if options.model in MEANS or source.kind == "other":
        return {name: means}
    model = open_model(options, source).to(args.device)
    vectors = [document_vectors(model, side) for side in chunks]
    return {name: rank_documents(task, vectors[0], vectors[1]), MEAN: means}


def scores_by_length(task: RetrievalTask, rankings: Mapping[str, Ranking], k: int = 10) -> list[dict[str, float]]:
    """Scores of queries whose pairs have about the same length (NextLevelBERT, figure 2).

    The length of a pair is that of its longer side in words, so in BookSum the chapter's, whichever side looks for the
    other; with several relevant documents it is their mean. Buckets end at powers of two, the first at 128; each has
    ``from_words``, ``below_words`` and its scores.
    """
    words = {document: len(text.split()) for document, text in task.documents.items()}
    buckets: dict[int, dict[str, Ranking]] = {}
    for query, ranking in rankings.items():
        relevant = np.mean([words[document] for document in task.relevant[query] if document != query])
        longer = max(len(task.queries[query].split()), int(relevant), 64)
        buckets.setdefault(longer.bit_length(), {})[query] = ranking
    return [
        {"from_words": 2.0 ** (power - 1) * (power > 7), "below_words": 2.0**power, **retrieval_scores(rows, k)}
        for power, rows in sorted(buckets.items())
    ]


def plot_by_length(results: Mapping[str, list[dict[str, float]]], path: Path, title: str) -> None:
    """MRR over length, a line for each row of the table, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, rows in results.items():
        ticks = [f"{row['from_words']:,.0f}–{row['below_words'] - 1:,.0f}\n({row['queries']:,.0f})" for row in rows]
        axes.plot(ticks, [row["mrr"] for row in rows], "o-", label=name, markersize=4)
    axes.set(xlabel="words of the longer side (number of queries)", ylabel="MRR", ylim=(0, 1.02), title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    save_figure(figure, path)


def main(words: list[str]) -> None:
    """Ranks the collection, prints the table, and writes scores, ranks and the picture over lengths."""
    classes = (VectorModelArguments, RetrievalArguments)
    about = "Searches a collection without training. Further values of --model: avg_sbert, sbert, tfidf, bm25."
    options, args = parse(classes, words, "--task retrieval", about)
    set_seed(args.seed)
    source, columns = args.test_file or args.dataset_name, (args.query_column, args.document_column)
    task = read_retrieval_task(source, *columns, args.test_split, args.dataset_config_name)
    logger.info("%s: %d queries, %d documents", task.name, len(task.queries), len(task.documents))
    rows = search(task, options, args)
    name, first = next(iter(rows.items()))
    scores = {row: retrieval_scores(rankings, args.k) for row, rankings in rows.items()}
    lengths = {row: scores_by_length(task, rankings, args.k) for row, rankings in rows.items()}
    output = Path(args.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    if args.run_file:
        write_run(args.run_file, first, name)
    ranks = [{"query": query, "ranks_of_relevant_documents": row.ranks.tolist()} for query, row in first.items()]
    write_whole(output / "predictions.jsonl", "\n".join(map(json.dumps, ranks)))
    results = {"task": task.name, "model": name, "rows": scores, "by_length": lengths[name]}
    write_whole(output / "results.json", json.dumps(results, indent=2))
    plot_by_length(lengths, output / "mrr_by_length.png", task.name)
    print(f"\n{results_table(scores)}\n")
