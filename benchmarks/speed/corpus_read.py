"""How fast sequences of 512 vectors are read from an encoded corpus: packed by ours, and as rows by `datasets`."""

from __future__ import annotations

import numpy as np
from datasets import load_dataset

from benchmarks.common import measuring
from nextlevelbert import PackedVectorDataset


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--hidden_size", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with measuring.random_corpus(args.hidden_size) as corpus:
        files = [str(path) for path in sorted(corpus.path.glob("*.parquet"))]
        rows = load_dataset("parquet", data_files=files, split="train").with_format("torch")
        dataset = PackedVectorDataset(corpus)
        order = np.random.default_rng(0).integers(0, len(dataset), 2_000).tolist()

        def packed() -> int:
            return 512 * len([dataset[index] for index in order])

        def whole() -> int:
            starts = (index * 512 % (len(rows) - 512) for index in order[:100])
            return sum(len(rows[start : start + 512]["vector"]) for start in starts)

        seconds, read = measuring.interleaved({"`PackedVectorDataset`": packed, "`datasets`": whole}, args.rounds)
    measuring.print_header("float16 vectors", f"medians of {args.rounds} interleaved rounds")
    rates = {name: vectors / 512 / seconds[name].wall for name, vectors in read.items()}
    table = [[name, f"{rate:,.0f}", f"{rate / rates['`datasets`']:,.0f}"] for name, rate in rates.items()]
    measuring.print_table(["reader", "sequences of 512 a second", "times `datasets`"], table)


if __name__ == "__main__":
    main()
