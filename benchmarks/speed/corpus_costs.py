"""Measures the costs of a corpus of up to a million chunks, beside `datasets` on the same files.

    nice -n 15 python -m benchmarks.speed.corpus_costs [--chunks 10000 100000 1000000] [--rounds 3]

A document has ten chunks of 16 tokens; the installed static encoder makes vectors of 384 values.
Each step runs in processes of its own. CPU-seconds are measured after the same step on one part
of a corpus, which pays for imports, the first calls of libraries, and the system's memory for a
part; the least of several rounds counts. The MiB that a step adds at its peak are measured once,
after the step on 100 chunks. Vectors that are mapped into memory count, although the system can
take their pages back.

The line between two sizes has a slope, the cost of a further chunk. The last column of a table
continues the line through the two largest sizes to ten times as many chunks.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, peak_and_seconds

CHUNKS_PER_DOCUMENT = 10
FEW_CHUNKS = 100
CHUNKS_OF_A_PART = 57_150
WINDOW = 511
Cost = tuple[float, float]  # MiB and CPU-seconds


def encode(folder: Path, chunks: int) -> Cost:
    """Encodes documents, which are made one by one, into a folder."""
    from nextlevelbert import ChunkingRule, encode_corpus, load_chunk_encoder, static_checkpoint

    shutil.rmtree(folder, ignore_errors=True)
    loaded = load_chunk_encoder(static_checkpoint())
    rule = ChunkingRule.from_tokenizer(loaded.tokenizer, 16)
    tokens = 16 - len(rule.prefix_ids) - len(rule.suffix_ids)
    text = "word " * tokens * CHUNKS_PER_DOCUMENT

    def documents() -> Iterator[tuple[str, str]]:
        for index in range(chunks // CHUNKS_PER_DOCUMENT):
            yield f"document-{index:08d}", text

    return peak_and_seconds(
        lambda: encode_corpus(documents(), loaded, rule, folder, progress=False)
    )


def open_corpus(folder: Path, chunks: int) -> Cost:
    """Opens the corpus."""
    from nextlevelbert import VectorCorpus

    opened = []
    cost = peak_and_seconds(lambda: opened.append(VectorCorpus(folder)))
    if opened[0].num_chunks != chunks:
        raise ValueError(f"{folder} has {opened[0].num_chunks} chunks, not {chunks}.")
    return cost


def read_in_order(folder: Path, chunks: int) -> Cost:
    """Reads all documents in their order."""
    from nextlevelbert import VectorCorpus

    corpus = VectorCorpus(folder)
    return peak_and_seconds(lambda: sum(len(document.plain) for document in corpus))


def read_epoch(folder: Path, chunks: int) -> Cost:
    """Reads the sequences of a first epoch in random order."""
    shutil.rmtree(folder / ".vectors", ignore_errors=True)
    return read_another_epoch(folder, chunks)


def read_another_epoch(folder: Path, chunks: int) -> Cost:
    """Reads the sequences of a further epoch in random order."""
    from nextlevelbert import PackedVectorDataset, VectorCorpus

    dataset = PackedVectorDataset(VectorCorpus(folder))
    order = np.random.default_rng(0).permutation(len(dataset))
    return peak_and_seconds(lambda: sum(len(dataset[int(index)][0]) for index in order))


def load_by_datasets(folder: Path, chunks: int) -> Cost:
    """Loads the same files by `datasets`, which writes them again for Arrow."""
    from datasets import load_dataset

    files = f"{folder}/*.parquet"
    cache = f"{folder}-cache"
    shutil.rmtree(cache, ignore_errors=True)
    return peak_and_seconds(
        lambda: load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    )


def read_epoch_by_datasets(folder: Path, chunks: int) -> Cost:
    """Reads runs of rows of the same length in random order by `datasets`."""
    from datasets import load_dataset

    files = f"{folder}/*.parquet"
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=f"{folder}-cache")
    rows = rows.select_columns(["vector"]).with_format("arrow")
    starts = np.random.default_rng(0).permutation(np.arange(0, chunks, WINDOW))

    def read() -> None:
        for start in starts.tolist():
            values = rows[start : start + WINDOW]["vector"].combine_chunks().flatten()
            np.from_dlpack(values).astype(np.float16)

    return peak_and_seconds(read)


STEPS: dict[str, Callable[[Path, int], Cost]] = {
    "`encode_corpus`": encode,
    "`VectorCorpus(folder)`": open_corpus,
    "all documents in order": read_in_order,
    "the first epoch of `PackedVectorDataset`": read_epoch,
    "a further epoch": read_another_epoch,
    "`load_dataset`": load_by_datasets,
    "as many runs of 511 rows by `datasets`": read_epoch_by_datasets,
}


def first_and_further_cost(
    step: Callable[[Path, int], Cost], place: Path, first: int, chunks: int
) -> tuple[Cost, Cost]:
    """Returns the cost of a step on the first chunks, and then in the same process on all."""
    first_cost = step(place / f"first-{first}", first)
    return first_cost, step(place / f"corpus-{chunks}", chunks)


def measure(place: Path, first: int, sizes: list[int], rounds: int) -> np.ndarray:
    """Measures every step at every size.

    Returns:
        The costs of each step on the first chunks, and then on all, ``[sizes, steps, 2, 2]``.
    """
    costs = np.zeros((rounds, len(sizes), len(STEPS), 2, 2))
    for case in np.ndindex(costs.shape[:3]):
        _, row, column = case
        name = list(STEPS)[column]
        cost = in_fresh_process(
            first_and_further_cost,
            STEPS[name],
            place,
            first,
            sizes[row],
        )
        costs[case] = cost
        print(f"{sizes[row]} {name}: {cost}", file=sys.stderr)
    return costs.min(axis=0)


def print_costs(sizes: list[int], measured: np.ndarray) -> None:
    """Prints the costs of one kind ``[sizes, steps, 2]``, and their slopes."""
    first = measured[:, :, 0].min(axis=0)
    costs = measured[:, :, 1]
    slopes = np.diff(costs, axis=0).T / np.diff(sizes)  # [steps, sizes - 1]
    further = costs[-1] + slopes[:, -1] * 9 * sizes[-1]
    head = ["chunks", "first step", *(f"{chunks:,}" for chunks in sizes)]
    rows = []
    for name, start, values, end in zip(STEPS, first, costs.T, further, strict=True):
        rows.append([name, *(f"{value:,.3g}" for value in (start, *values, end))])
    measuring.print_table([*head, f"{10 * sizes[-1]:,} (by the line)"], rows)

    head = [f"{one:,} to {other:,}" for one, other in itertools.pairwise(sizes)]
    rows = []
    for name, values in zip(STEPS, slopes, strict=True):
        ratio = values[-1] / values[0]
        rows.append([name, *(f"{1_000_000 * value:,.3g}" for value in values), f"{ratio:.2f}"])
    print("\nslope: for each further million chunks\n")
    measuring.print_table(["chunks", *head, "last / first"], rows)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="sizes"
    )
    parser.add_argument("--rounds", type=int, default=3, help="the least of all rounds counts")
    args = parser.parse_args()
    measuring.print_header("float16 vectors of 384 values")
    with tempfile.TemporaryDirectory() as place:
        memory = measure(Path(place), FEW_CHUNKS, args.chunks, rounds=1)
        seconds = measure(Path(place), CHUNKS_OF_A_PART, args.chunks, rounds=args.rounds)
    print("\nMiB added at the peak\n")
    print_costs(args.chunks, memory[..., 0])
    print("\nCPU-seconds\n")
    print_costs(args.chunks, seconds[..., 1])


if __name__ == "__main__":
    main()
