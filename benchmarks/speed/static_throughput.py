"""Tokens a second of a static chunk encoder, beside all else that reads novels: tokenizers,
transformers, word counts.

    python -m benchmarks.speed.static_throughput --encoder MINILM --file DATA/novels/train.jsonl.gz

The static encoder is that of the shipped checkpoint. A transformer reads a part of the text
(``--slow_tokens``); the last column of each half is the rate divided by the transformer's. Rates
are by the clock and by processor seconds of all threads; on a machine that does other work, compare
the latter.
"""

from __future__ import annotations

import copy
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import (
    Document,
    NextLevelBertModel,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
    static_checkpoint,
)
from nextlevelbert.models.chunking import ChunkingRule
from nextlevelbert.models.tokenizing import tokenize_document

Run = Callable[[], Any]
TOKENIZER = "bare tokenizer (`encode_batch_fast`)"
TRANSFORMER = "transformer, float32: `encode`"


def cases(args: Namespace, documents: list[Document]) -> tuple[dict[str, Run], float]:
    """Returns the cases to time, and the share of the text that the transformer reads."""
    from bm25s import BM25, tokenize
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [document.text for document in documents]
    static = load_chunk_encoder(str(static_checkpoint()))
    rule = ChunkingRule.from_tokenizer(static.tokenizer, 256)
    backend = copy.deepcopy(static.tokenizer.backend_tokenizer)
    table = StaticEmbedding(
        copy.deepcopy(backend), static.encoder.model.embedding.weight.detach().float().numpy()
    )
    by_chunk = SentenceTransformer(modules=[table, Normalize()], device="cpu")
    flat = NextLevelBertModel.from_chunk_encoder(static, num_hidden_layers=0)
    shipped = NextLevelBertModel.from_pretrained(static_checkpoint())
    chunks = [text[start:end] for text in texts for start, end in flat.encode(text).spans]
    slow = NextLevelBertModel.from_chunk_encoder(args.encoder)
    part = texts[0][: args.slow_tokens * measuring.CHARACTERS_PER_TOKEN]
    counts = [len(tokenize_document(static.tokenizer, text)) for text in (part, *texts)]

    def corpus() -> None:
        with tempfile.TemporaryDirectory() as target:
            encode_corpus(documents, static, rule, target, progress=False)

    def first_reading() -> None:
        NextLevelBertModel.from_pretrained(static_checkpoint()).encode(texts)

    ways = {
        TOKENIZER: lambda: backend.encode_batch_fast(texts, add_special_tokens=False),
        "**static: corpus written to disk**": corpus,
        "**static: `encode`, no layers**": lambda: flat.encode(texts),
        "**nextlevelbert-static: `encode`, words seen before**": lambda: shipped.encode(texts),
        "nextlevelbert-static: `encode`, just opened": first_reading,
        "sentence-transformers `StaticEmbedding`, on chunks of text": lambda: by_chunk.encode(
            chunks
        ),
        "TF-IDF (scikit-learn, `fit_transform`)": lambda: TfidfVectorizer().fit_transform(texts),
        "BM25 (bm25s, tokenise and index)": (
            lambda: BM25().index(tokenize(texts, show_progress=False))
        ),
        TRANSFORMER: lambda: slow.encode(part),
    }
    return ways, counts[0] / sum(counts[1:])


def measure(args: Namespace) -> None:
    """Measures all ways, and prints a table."""
    documents = list(islice(read_documents(args.file), args.novels))
    tokenizer = load_chunk_encoder(str(static_checkpoint())).tokenizer
    tokens = sum(len(tokenize_document(tokenizer, document.text)) for document in documents)
    ways, share = cases(args, documents)
    seconds, _ = measuring.interleaved(ways, args.rounds)
    read = dict.fromkeys(ways, tokens) | {TRANSFORMER: tokens * share}
    rates = {
        name: (read[name] / took.wall, read[name] / took.cpu) for name, took in seconds.items()
    }
    print(f"\n{args.threads} thread(s), {len(documents)} documents, {tokens:,} tokens:\n")
    bare = rates[TOKENIZER]
    slow = rates[TRANSFORMER]
    rows = []
    for name, (wall, cpu) in rates.items():
        row = [name, f"{wall:,.0f}", f"{wall / bare[0]:.2f}", f"{wall / slow[0]:,.0f}"]
        row += [f"{cpu:,.0f}", f"{cpu / bare[1]:.2f}", f"{cpu / slow[1]:,.0f}"]
        rows.append(row)
    head = ["way", "tokens/s", "times the bare tokenizer", "times the transformer"]
    head += ["tokens/processor second", "times the tokenizer", "times the transformer"]
    measuring.print_table(head, rows)


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    measuring.add_file_option(parser)
    parser.add_argument("--novels", type=int, default=24, help="documents to read; default 24")
    parser.add_argument(
        "--slow_tokens", type=int, default=20_000, help="tokens for the transformer; default 20000"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # read when the tokenizer first runs
    measuring.print_header("float32", f"medians of {args.rounds} interleaved rounds")
    measure(args)


if __name__ == "__main__":
    main()
