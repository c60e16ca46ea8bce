"""Measures the costs of a corpus of up to a million chunks, beside `datasets` on the same files.

    nice -n 15 python -m benchmarks.speed.corpus_costs [--chunks 10000 100000 1000000]

A document has ten chunks of 16 tokens; the installed static encoder makes vectors of 384 values.
Each step runs in a process of its own: its CPU-seconds, and the MiB that it adds at its peak.
Vectors that are mapped into memory count, although the system can take their pages back. The last
row continues the line through the two largest corpora to ten times as many chunks.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, peak_and_seconds

CHUNKS_PER_DOCUMENT = 10
WINDOW = 511
Cost = tuple[float, float]  # MiB and CPU-seconds


def encode(folder: str, chunks: int) -> Cost:
    """Encodes documents, which are made one by one, into a folder."""
    from nextlevelbert import ChunkingRule, encode_corpus, load_chunk_encoder, static_checkpoint

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


def open_corpus(folder: str, chunks: int) -> Cost:
    """Opens the corpus."""
    from nextlevelbert import VectorCorpus

    opened = []
    cost = peak_and_seconds(lambda: opened.append(VectorCorpus(folder)))
    if opened[0].num_chunks != chunks:
        raise ValueError(f"{folder} has {opened[0].num_chunks} chunks, not {chunks}.")
    return cost


def read_in_order(folder: str, chunks: int) -> Cost:
    """Reads all documents in their order."""
    from nextlevelbert import VectorCorpus

    corpus = VectorCorpus(folder)
    return peak_and_seconds(lambda: sum(len(document.plain) for document in corpus))


def read_epoch(folder: str, chunks: int) -> Cost:
    """Reads the sequences of an epoch in random order."""
    from nextlevelbert import PackedVectorDataset, VectorCorpus

    dataset = PackedVectorDataset(VectorCorpus(folder))
    order = np.random.default_rng(0).permutation(len(dataset))
    return peak_and_seconds(lambda: sum(len(dataset[int(index)][0]) for index in order))


def load_by_datasets(folder: str, chunks: int) -> Cost:
    """Loads the same files by `datasets`, which writes them again for Arrow."""
    from datasets import load_dataset

    files = f"{folder}/*.parquet"
    cache = f"{folder}-cache"
    return peak_and_seconds(
        lambda: load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    )


def read_epoch_by_datasets(folder: str, chunks: int) -> Cost:
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


STEPS: dict[str, Callable[[str, int], Cost]] = {
    "`encode_corpus`": encode,
    "`VectorCorpus(folder)`": open_corpus,
    "all documents in order": read_in_order,
    "an epoch of `PackedVectorDataset`": read_epoch,
    "`load_dataset`": load_by_datasets,
    "as many runs of 511 rows by `datasets`": read_epoch_by_datasets,
}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="sizes"
    )
    args = parser.parse_args()
    measuring.print_header("float16 vectors of 384 values")
    costs = np.zeros((len(args.chunks), len(STEPS), 2))
    with tempfile.TemporaryDirectory() as place:
        for row, chunks in enumerate(args.chunks):
            folder = str(Path(place, f"corpus-{chunks}"))
            for column, step in enumerate(STEPS.values()):
                costs[row, column] = in_fresh_process(step, folder, chunks)

    slope = (costs[-1] - costs[-2]) / (args.chunks[-1] - args.chunks[-2])
    further = costs[-1] + slope * 9 * args.chunks[-1]
    sizes = [*(f"{chunks:,}" for chunks in args.chunks), f"{10 * args.chunks[-1]:,} (by the line)"]
    for kind, unit in enumerate(("MiB added at the peak", "CPU-seconds")):
        print(f"\n{unit}\n")
        rows = []
        for column, name in enumerate(STEPS):
            values = [*costs[:, column, kind], further[column, kind]]
            rows.append([name, *(f"{value:,.1f}" for value in values)])
        measuring.print_table(["chunks", *sizes], rows)


if __name__ == "__main__":
    main()
