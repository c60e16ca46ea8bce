"""Compares tables of token vectors at finding texts of the same document.

    python examples/next_level_bert/distill_static.py texts.jsonl.gz --output_dir tables/new
    python -m benchmarks.studies.token_tables --data DATA --kinds kinds --table tables/new

A document vector is the mean of whitened static chunk vectors of 256 tokens. The tasks are books,
excerpts and SQuALITY of `document_vectors`, names masked, and the excerpts of eight kinds of text
of `second_whitening`. For each table, the whitening is fitted to the training texts of the same
kind (``--kinds``, the folder that `kinds_of_text` makes), and for the first three tasks to the
training novels. Every new table is compared with that of nextlevelbert-static, with intervals of
95 % over documents (books, stories).
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.measuring import (
    add_json_option,
    print_header,
    print_table,
    write_figures,
)
from benchmarks.studies.document_vectors import COLUMNS, by_query, difference, load_tasks
from benchmarks.studies.second_whitening import Map, excerpts_task, first_form
from nextlevelbert import ChunkingRule, load_chunk_encoder, read_documents, static_checkpoint
from nextlevelbert.evaluation import RetrievalTask, rank_documents
from nextlevelbert.models.chunk_encoder import LoadedChunkEncoder
from nextlevelbert.models.chunking import groups_by_length, tokenize_documents

PRESENT = "present table"
WITH_NOVELS = ("books", "excerpts", "squality")  # tasks whose whitening is fitted to novels

Tables = Mapping[str, LoadedChunkEncoder]


def open_tables(folders: Sequence[Path]) -> dict[str, LoadedChunkEncoder]:
    """Opens the present table and new ones, by the names of their folders.

    Raises:
        ValueError: if a table has another vocabulary than the present one.
    """
    present = load_chunk_encoder(static_checkpoint())
    tables = {PRESENT: present}
    for folder in folders:
        table = load_chunk_encoder(str(folder))
        if table.tokenizer.get_vocab() != present.tokenizer.get_vocab():
            raise ValueError(
                f"{folder} has another vocabulary than the present table; compare tables that"
                " examples/next_level_bert/distill_static.py made from the present one."
            )
        tables[folder.name] = table
    return tables


def encode(tables: Tables, texts: Sequence[str]) -> dict[str, list[torch.Tensor]]:
    """Encodes the chunks of texts ``[n, D]`` by each table; each text is tokenized once."""
    tokenizer = tables[PRESENT].tokenizer
    rule = ChunkingRule.from_tokenizer(tokenizer, 256)
    vectors: dict[str, list[torch.Tensor]] = {name: [] for name in tables}
    for group in groups_by_length(texts):
        for document in tokenize_documents(tokenizer, group, rule):
            ids = document.input_ids
            boundaries = rule.boundaries(ids)
            for name, table in tables.items():
                vectors[name].append(table.encoder.encode(ids, boundaries, rule))
    return vectors


def fit(tables: Tables, path: Path) -> dict[str, Map]:
    """Fits the whitening of each table to the documents of a file."""
    vectors = encode(tables, [document.text for document in read_documents(path)])
    return {name: first_form(documents) for name, documents in vectors.items()}


def compare(
    tables: Tables, maps: Mapping[str, Map], task: RetrievalTask, metric: str
) -> dict[str, Any]:
    """Scores each table at a task.

    Args:
        tables: the tables by name.
        maps: from chunk vectors to a document vector, by the name of the table.
        task: the task.
        metric: the score of a query.

    Returns:
        The number of queries, and by name the mean score of each table and the difference of each
        new table from the present one, with bounds of 95 %.
    """
    documents = encode(tables, [*task.documents.values()])
    queries = documents
    if task.queries != task.documents:
        queries = encode(tables, [*task.queries.values()])

    scores = {}
    for name, fitted_map in maps.items():
        of_queries = torch.stack([fitted_map(chunks) for chunks in queries[name]])
        of_documents = torch.stack([fitted_map(chunks) for chunks in documents[name]])
        scores[name] = by_query(rank_documents(task, of_queries, of_documents), metric)

    figures: dict[str, Any] = {"n": len(task.queries)}
    for name, line in scores.items():
        figures[name] = float(np.mean([*line.values()]))
        if name != PRESENT:
            figures[f"{name}, difference"] = difference(task, line, scores[PRESENT])
    return figures


def tasks_by_training_file(data: Path, kinds: Path) -> Iterator[tuple[Path, list[RetrievalTask]]]:
    """Yields the tasks for each file that a whitening is fitted to."""
    tasks = [task for task in load_tasks(data) if task.name in WITH_NOVELS]
    yield kinds / "train/novels.jsonl", tasks
    for path in sorted((kinds / "held_out").glob("*.jsonl")):
        yield kinds / "train" / path.name, [excerpts_task(path)]


@torch.inference_mode()
def main(argv: list[str] | None = None) -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, retrieval/")
    parser.add_argument("--kinds", type=Path, required=True, help="folder of kinds_of_text")
    parser.add_argument("--table", type=Path, nargs="+", required=True, help="folders of tables")
    add_json_option(parser)
    args = parser.parse_args(argv)
    tables = open_tables(args.table)

    figures: dict[str, dict[str, Any]] = {}
    for path, tasks in tasks_by_training_file(args.data, args.kinds):
        maps = fit(tables, path)
        for task in tasks:
            figures[task.name] = compare(tables, maps, task, COLUMNS.get(task.name, "map"))
            print(f"{task.name}: {figures[task.name]}", flush=True)

    fingerprints = {name: table.encoder.fingerprint() for name, table in tables.items()}
    write_figures(args.json, figures, tables=fingerprints)
    print_header("float32")
    rows = []
    for name, cells in figures.items():
        row = [name, f"{cells['n']:,}", f"{cells[PRESENT]:.3f}"]
        for folder in args.table:
            _, low, high = cells[f"{folder.name}, difference"]
            row.append(f"{cells[folder.name]:.3f} ({low:+.3f} to {high:+.3f})")
        rows.append(row)
    print_table(["", "n", PRESENT, *[folder.name for folder in args.table]], rows)


if __name__ == "__main__":
    main()
