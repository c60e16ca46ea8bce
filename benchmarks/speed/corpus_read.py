"""How fast packed sequences of 512 are read from an encoded corpus, against the same corpus through `datasets`."""

from __future__ import annotations

import tempfile

import numpy as np

from benchmarks.common import measuring
from benchmarks.common.corpora import random_corpus
from nextlevelbert import PackedVectorDataset, VectorCorpus


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--corpus_dir", help="an encoded corpus; random vectors by default")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = VectorCorpus(args.corpus_dir) if args.corpus_dir else random_corpus(args.encoder, folder)
        dataset, rows = PackedVectorDataset(corpus), corpus.to_dataset().with_format("torch")
        order = np.random.default_rng(0).integers(0, len(dataset), 2_000).tolist()

        def ours() -> int:
            return sum(len(dataset[index]["inputs_embeds"]) for index in order)

        def theirs() -> int:  # whole documents, the least that can be read there
            return sum(len(rows[index % len(rows)]["vectors"]) for index in order[:20])

        seconds, read = measuring.interleaved({"`PackedVectorDataset`": ours, "`datasets`": theirs}, args.rounds)
    measuring.print_header("float16 vectors", f"medians of {args.rounds} interleaved rounds")
    rates = {name: vectors / 512 / seconds[name].wall for name, vectors in read.items()}
    slowest = rates["`datasets`"]
    table = [[name, f"{rate:,.0f}", f"{rate / slowest:,.0f}"] for name, rate in rates.items()]
    measuring.print_table(["reader", "sequences of 512 a second", "times `datasets`"], table)


if __name__ == "__main__":
    main()
