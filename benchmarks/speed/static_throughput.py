"""Tokens a second of static chunk encoders, beside all else that reads novels: tokenizers, transformers, word counts.

    python -m benchmarks.speed.static_throughput --encoder MINILM --static STATIC --file DATA/novels/train.jsonl.gz

``--static`` is a folder that `distill_chunk_encoder` wrote. Every thread setting runs in a process of its own, because
the tokenizers' threads are set when a process starts. A transformer reads a part of the text (``--slow_tokens``).
Rates are by the clock and by processor seconds of all threads; on a machine that does other work, compare the latter.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import (
    Document,
    NextLevelBertModel,
    combine_chunk_encoders,
    encode_corpus,
    fit_tfidf_encoder,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.models.chunking import ChunkingRule, tokenize_document

BOOKS3 = 25e9  # tokens
TOKENIZER = "bare tokenizer (`encode_batch_fast`)"


def cases(args: Namespace, documents: list[Document], folder: Path) -> dict[str, tuple[Callable[[], Any], float]]:
    """What is timed, and the share of the text that it reads."""
    from bm25s import BM25, tokenize
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [document.text for document in documents]
    static, minilm = load_chunk_encoder(args.static), load_chunk_encoder(args.encoder)
    rule = ChunkingRule.from_tokenizer(static.tokenizer, 256)
    backend = static.tokenizer.backend_tokenizer
    theirs = SentenceTransformer(args.static, device="cpu")
    table = static.encoder.model.embedding.weight.numpy()
    words = StaticModel(table, copy.deepcopy(backend), normalize=True)
    flat = NextLevelBertModel.from_chunk_encoder(static, num_hidden_layers=0)
    deep = NextLevelBertModel.from_chunk_encoder(static)
    chunks = [text[start:end] for text in texts for start, end in flat.encode(text).spans]
    tokens = sum(len(tokenize_document(static.tokenizer, text)) for text in texts)
    part = [texts[0][: args.slow_tokens * measuring.CHARACTERS_PER_TOKEN]]
    share = len(tokenize_document(static.tokenizer, part[0])) / tokens
    slow = NextLevelBertModel.from_chunk_encoder(minilm)
    some = [text[:20_000] for text in texts[:4]]  # speed does not depend on what they are fitted to
    both = combine_chunk_encoders([static, minilm], some, folder / "hybrid")
    hybrid = NextLevelBertModel.from_chunk_encoder(both, num_hidden_layers=0)
    counts = fit_tfidf_encoder(static, some, folder / "tfidf")
    words_too = combine_chunk_encoders([static, counts], some, folder / "words", sizes=[None, 1_024])
    lexical = NextLevelBertModel.from_chunk_encoder(words_too, num_hidden_layers=0)

    def corpus() -> None:
        with tempfile.TemporaryDirectory() as target:
            encode_corpus(documents, static, rule, target, progress=False)

    def looked_up() -> None:
        fresh = copy.deepcopy(static.tokenizer)  # which knows no word yet
        for text in texts:
            tokenize_document(fresh, text)

    return {
        TOKENIZER: (lambda: backend.encode_batch_fast(texts, add_special_tokens=False), 1),
        "words looked up (`tokenize_document`), with offsets": (looked_up, 1),
        "**static: corpus written to disk**": (corpus, 1),
        "**static: `encode`, no layers**": (lambda: flat.encode(texts), 1),
        "**static and hashed TF-IDF: `encode`, no layers**": (lambda: lexical.encode(texts), 1),
        "static: `encode`, two layers": (lambda: deep.encode(texts), 1),
        "sentence-transformers `StaticEmbedding`, on chunks of text": (lambda: theirs.encode(chunks), 1),
        "model2vec `encode`, on chunks of text": (lambda: words.encode(chunks, max_length=None), 1),
        "TF-IDF (scikit-learn, `fit_transform`)": (lambda: TfidfVectorizer().fit_transform(texts), 1),
        "BM25 (bm25s, tokenise and index)": (lambda: BM25().index(tokenize(texts, show_progress=False)), 1),
        "MiniLM float32: `encode`": (lambda: slow.encode(part), share),
        "hybrid, static and MiniLM float32: `encode`": (lambda: hybrid.encode(part), share),
    }  # fmt: skip


def measure(args: Namespace) -> None:
    """One thread setting: prints a table."""
    torch.set_num_threads(args.threads[0])
    documents = list(islice(read_documents(args.file), args.novels))
    tokenizer = load_chunk_encoder(args.static).tokenizer
    tokens = sum(len(tokenize_document(tokenizer, document.text)) for document in documents)
    with tempfile.TemporaryDirectory() as folder:
        ways = cases(args, documents, Path(folder))
        seconds, _ = measuring.interleaved({name: run for name, (run, _) in ways.items()}, args.rounds)
    rates = {name: tokens * ways[name][1] / took.wall for name, took in seconds.items()}
    by_processor = {name: tokens * ways[name][1] / took.cpu for name, took in seconds.items()}
    print(f"\n{args.threads[0]} thread(s), {len(documents)} documents, {tokens:,} tokens:\n")
    rows = [
        [name, f"{rate:,.0f}", f"{rate / rates[TOKENIZER]:.2f}", f"{BOOKS3 / rate / 3600:,.1f}",
         f"{by_processor[name]:,.0f}", f"{by_processor[name] / by_processor[TOKENIZER]:.2f}"]
        for name, rate in rates.items()
    ]  # fmt: skip
    head = ["way", "tokens/s", "times the bare tokenizer", "hours for Books3", "tokens/processor second", "times"]
    measuring.print_table(head, rows)


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    parser.add_argument("--static", required=True, help="folder of a static chunk encoder of the same tokenizer")
    measuring.add_file_option(parser)
    parser.add_argument("--novels", type=int, default=24, help="documents to read; default 24")
    parser.add_argument("--slow_tokens", type=int, default=20_000, help="tokens for transformers; default 20000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    args = parser.parse_args()
    if len(args.threads) == 1:
        measure(args)
        return
    measuring.print_header("float32", f"medians of {args.rounds} interleaved rounds; CPU {features()}")
    for threads in args.threads:
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        env |= {"TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
        own = [sys.executable, "-m", "benchmarks.speed.static_throughput", *sys.argv[1:], "--threads", str(threads)]
        subprocess.run(own, check=True, env=env)


def features() -> str:
    """What the processor has that other precisions need."""
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    names = ("avx2", "avx512_f", "avx512_bf16", "avx512_vnni", "amx_bf16", "neon", "bf16")
    return json.dumps({name: told[name] for name in names if name in told})


if __name__ == "__main__":
    main()
