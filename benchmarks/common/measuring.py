"""Shared parts of the benchmarks: options, the text, interleaved timing, and Markdown tables."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Case = TypeVar("Case", bound=Hashable)

# Of Python's manual in BERT's vocabulary, roughly; every command prints the true count.
CHARACTERS_PER_TOKEN = 4
_RESAMPLES = 2_000


def parser_with_encoder(description: str | None) -> ArgumentParser:
    """Makes an argument parser that asks for the chunk encoder."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--encoder", default="sentence-transformers/all-MiniLM-L6-v2", help="a Hub name or a folder"
    )
    return parser


def add_file_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--file",
        default="python-manual",
        help="a .txt, .jsonl or .parquet; default: Python's manual",
    )


def add_json_option(parser: ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, help="also write the figures to this file")


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Writes a table of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n")


def write_figures(
    path: Path | None, rows: Mapping[str, Mapping[str, Any]], **facts: object
) -> None:
    """Prints the figures of a study, and writes them for `benchmarks.results` if a path is given.

    Args:
        path: file to write.
        rows: figures of each row by column: a number, or a number and its bounds of 95 %.
        facts: what holds for all rows, such as the number of queries.
    """
    columns = dict.fromkeys(itertools.chain.from_iterable(rows.values()))
    table = []
    for name, figures in rows.items():
        table.append([name, *(_shown(figures.get(column, "")) for column in columns)])
    print_table(["", *columns], table)
    if path is not None:
        path.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def _shown(figure: Any) -> str:
    if isinstance(figure, list):
        return "{:.3f} ({:.3f} to {:.3f})".format(*figure)
    if isinstance(figure, float):
        return f"{figure:.3f}"
    return str(figure)


def parser_with_text(description: str | None, tokens: int) -> ArgumentParser:
    """Makes an argument parser that asks for the chunk encoder, a text and its length."""
    parser = parser_with_encoder(description)
    add_file_option(parser)
    parser.add_argument("--tokens", type=int, default=tokens, help="approximate length of the text")
    return parser


def long_text(characters: int, source: str = "python-manual") -> str:
    """Joins documents of a source (see `read_documents`) to one text, repeated if too short."""
    from nextlevelbert import read_documents

    parts: list[str] = []
    length = 0
    for document in read_documents(source):
        parts.append(document.text)
        length += len(document.text) + 2
        if length >= characters:
            break
    text = "\n\n".join(parts)
    return (text * (characters // max(len(text), 1) + 1))[:characters]


def processor() -> str:
    """Names the CPU, the cores that this process may use, and the CPU's bfloat16 instructions."""
    facts: dict[str, str] = {}
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = {
            key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
        }
    name = facts.get("model name") or platform.processor() or platform.machine()
    bf16 = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in facts.get("flags", "").split()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores ({', '.join(bf16) or 'no bfloat16 instructions known'})"


def print_header(dtypes: str, *notes: str) -> None:
    """Prints the machine and the versions, on which every figure depends, and each note."""
    packages = ("torch", "transformers", "sentence-transformers", "tokenizers")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    print(
        f"{processor()}; {dtypes}; Python {platform.python_version()}, {versions}",
        *notes,
        "",
        sep="\n",
        flush=True,
    )


@contextlib.contextmanager
def random_corpus(hidden_size: int) -> Iterator[Any]:
    """Makes a temporary `VectorCorpus` of 100 documents of 1,000 random vectors."""
    import torch
    from transformers import BertConfig

    from nextlevelbert import (
        ChunkingRule,
        Document,
        encode_corpus,
        load_chunk_encoder,
        static_checkpoint,
    )
    from nextlevelbert.models.chunk_encoder import ChunkEncoder

    class RandomVectors(ChunkEncoder):
        def encode(
            self,
            input_ids: np.ndarray,
            boundaries: np.ndarray,
            rule: ChunkingRule,
            tokens_per_batch: int | None = None,
            bar: Any = None,
        ) -> torch.Tensor:
            return torch.randn(len(boundaries) - 1, hidden_size)

    source = load_chunk_encoder(str(static_checkpoint()))
    source.encoder = RandomVectors(BertConfig(hidden_size=hidden_size, num_hidden_layers=0))
    documents = (Document(f"document-{number}", "word " * 14_000) for number in range(100))
    with tempfile.TemporaryDirectory() as folder:
        rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
        yield encode_corpus(documents, source, rule, folder, progress=False)


@dataclass(frozen=True)
class Seconds:
    """Seconds of one run: on the clock, and of all cores together in this process."""

    wall: float
    cpu: float


def interleaved(
    cases: Mapping[Case, Callable[[], Any]], rounds: int
) -> tuple[dict[Case, Seconds], dict[Case, Any]]:
    """Runs every case once in each round, so that a slow minute of the machine affects all of them.

    Args:
        cases: functions to run, by name.
        rounds: number of rounds. The first round counts too; with three or more the median ignores
            it.

    Returns:
        Medians over the rounds, and the last result of each case.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    wall: dict[Case, list[float]] = {name: [] for name in cases}
    cpu: dict[Case, list[float]] = {name: [] for name in cases}
    results: dict[Case, Any] = {}
    for number in range(rounds):
        for name, run in cases.items():
            begin = time.perf_counter()
            begin_cpu = time.process_time()
            results[name] = run()
            wall[name].append(time.perf_counter() - begin)
            cpu[name].append(time.process_time() - begin_cpu)
            print(
                f"round {number + 1} of {rounds}: {name}: {wall[name][-1]:.2f} s",
                file=sys.stderr,
                flush=True,
            )
    return {
        name: Seconds(statistics.median(wall[name]), statistics.median(cpu[name])) for name in cases
    }, results


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a Markdown table; all columns but the first are figures and aligned to the right."""
    for cells in (head, ["---", *["---:"] * (len(head) - 1)], *rows):
        if len(cells) != len(head):
            raise ValueError(
                f"A row must have the {len(head)} cells of the head, got {len(cells)}: {cells!r}."
            )
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def with_interval(differences: np.ndarray, groups: np.ndarray, seed: int) -> list[float]:
    """Averages differences ``[N]``, with bounds of 95 % over resampled groups ``[N]``."""
    _, index = np.unique(groups, return_inverse=True)
    sums = np.bincount(index, differences)
    counts = np.bincount(index)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(_RESAMPLES, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return [float(value) for value in (differences.mean(), *np.percentile(means, [2.5, 97.5]))]
