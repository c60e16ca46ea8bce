"""What a corpus costs: encoding, bytes, memory, opening, and reading windows of 510 vectors at
random.

    python -m benchmarks.speed.corpus_store --file DATA/novels/train.jsonl.gz [--encoder MINILM]
    [--chunk_size 256]

Encoding runs in a process of its own, whose largest memory is measured. Rates are by the clock and
by processor seconds; on a machine that does other work, compare the latter.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import measuring
from nextlevelbert import (
    ChunkingRule,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
    static_checkpoint,
)

WINDOW = 510


def encode(args: Namespace, folder: str, results: multiprocessing.Queue) -> None:
    """Encodes the corpus, and returns seconds, processor seconds and peak MB, after and before."""
    torch.set_num_threads(1)
    source = load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, args.chunk_size)
    documents = list(itertools.islice(read_documents(args.file), args.documents))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, processor = time.perf_counter(), time.process_time()
    encode_corpus(documents, source, rule, folder, progress=False)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    results.put(
        (seconds, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, before)
    )


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument(
        "--encoder", default=static_checkpoint(), help="Default: that of the shipped checkpoint."
    )
    parser.add_argument("--chunk_size", type=int, default=256)
    parser.add_argument("--documents", type=int, default=None, help="Default: all.")
    parser.add_argument("--windows", type=int, default=20_000)
    measuring.add_file_option(parser)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "corpus"
        results: multiprocessing.Queue = multiprocessing.get_context("spawn").Queue()
        process = multiprocessing.get_context("spawn").Process(
            target=encode, args=(args, str(folder), results)
        )
        process.start()
        seconds, processor, memory, before = results.get()
        process.join()
        size = sum(path.stat().st_size for path in folder.glob("*.parquet"))

        start = time.perf_counter()
        corpus = VectorCorpus(folder)
        opened = time.perf_counter() - start
        start = time.perf_counter()
        for part in range(0, corpus.num_chunks, WINDOW):
            corpus.vectors(part, min(part + WINDOW, corpus.num_chunks))
        decoded = time.perf_counter() - start
        places = (
            np.random.default_rng(0)
            .integers(0, max(corpus.num_chunks - WINDOW, 1), args.windows)
            .tolist()
        )
        start = time.perf_counter()
        for first in places:
            corpus.vectors(first, min(first + WINDOW, corpus.num_chunks)).sum(dtype=torch.float32)
        touched = time.perf_counter() - start
        start = time.perf_counter()
        for first in places:
            corpus.vectors(first, min(first + WINDOW, corpus.num_chunks))
        views = time.perf_counter() - start

    measuring.print_header(
        "float32 encoder, float16 vectors", f"{corpus.num_chunks:,} chunks × {corpus.hidden_size}"
    )
    rows = [
        ["encoding", f"{seconds:.1f} s, {processor:.1f} processor seconds"],
        ["largest memory", f"{memory:,.0f} MB, of which {before:,.0f} MB encoder and texts"],
        [
            "bytes",
            f"{size / 1e6:.1f} MB, {size / corpus.num_chunks / corpus.hidden_size:.2f} a number",
        ],
        ["opening", f"{opened:.2f} s"],
        ["first reading of all", f"{decoded:.2f} s"],
        [f"windows of {WINDOW} × {corpus.hidden_size}", f"{args.windows / views:,.0f} a second"],
        ["the same, and the sum of each", f"{args.windows / touched:,.0f} a second"],
    ]
    measuring.print_table(["corpus", f"{len(corpus)} documents"], rows)


if __name__ == "__main__":
    main()
