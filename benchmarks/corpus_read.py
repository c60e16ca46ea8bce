"""How fast packed sequences of 512 are read from an encoded corpus, against the same corpus through `datasets`."""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import torch

from nextlevelbert import ChunkingRule, Document, PackedVectorDataset, VectorCorpus, encode_corpus, load_chunk_encoder
from nextlevelbert.chunk_encoder import ChunkEncoder


class RandomVectors(ChunkEncoder):
    """Stands in for the encoder, because only the reading is measured."""

    def encode(self, input_ids: np.ndarray, boundaries: np.ndarray, *args: object) -> torch.Tensor:
        return torch.randn(len(boundaries) - 1, self.hidden_size)


def random_corpus(encoder: str, folder: str) -> VectorCorpus:
    """100 documents of 1,000 vectors."""
    source = load_chunk_encoder(encoder)
    source.encoder = RandomVectors(source.encoder.model.config)
    documents = (Document(f"document-{number}", "word " * 14_000) for number in range(100))
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    return encode_corpus(documents, source, rule, folder, chunks_per_shard=16_384, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--corpus_dir", help="an encoded corpus; random vectors by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = VectorCorpus(args.corpus_dir) if args.corpus_dir else random_corpus(args.encoder, folder)
        dataset = PackedVectorDataset(corpus)
        order = np.random.default_rng(0).integers(0, len(dataset), 2_000)
        start = time.perf_counter()
        for index in order:
            dataset[int(index)]
        ours = len(order) / (time.perf_counter() - start)
        rows = corpus.to_dataset().with_format("torch")
        start = time.perf_counter()
        chunks = 0
        for index in order[:20]:
            chunks += len(rows[int(index) % len(rows)]["vectors"])
        theirs = chunks / 510 / (time.perf_counter() - start)
    print(f"| PackedVectorDataset | {ours:,.0f} sequences of 512 a second |")
    print(f"| datasets, torch format | {theirs:,.0f} |\n| ratio | {ours / theirs:,.0f} |")


if __name__ == "__main__":
    main()
