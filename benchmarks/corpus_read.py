"""How fast packed sequences of 512 are read from an encoded corpus, against the same corpus through `datasets`."""

from __future__ import annotations

import argparse
import tempfile

import measuring
import numpy as np
import torch

from nextlevelbert import ChunkingRule, Document, PackedVectorDataset, VectorCorpus, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunk_encoder import ChunkEncoder


class RandomVectors(ChunkEncoder):
    """Stands in for the encoder, because only the reading is measured."""

    def encode(self, input_ids: np.ndarray, boundaries: np.ndarray, *args: object) -> torch.Tensor:
        return torch.randn(len(boundaries) - 1, self.hidden_size)


def random_corpus(encoder: str, folder: str) -> VectorCorpus:
    """100 documents of 1,000 random vectors."""
    source = load_chunk_encoder(encoder)
    source.encoder = RandomVectors(source.encoder.model.config)
    documents = (Document(f"document-{number}", "word " * 14_000) for number in range(100))
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    return encode_corpus(documents, source, rule, folder, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
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
