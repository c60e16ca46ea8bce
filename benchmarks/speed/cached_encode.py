"""`model.encode` with a cache of chunk vectors: the same novel again, and the novel after a small
edit.

The edit puts one sentence near the start. With fixed chunks every later chunk changes; with
``chunking="packed_sentences"`` only those around the edit do, and only they are encoded again.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.common import measuring
from nextlevelbert import CachedEncoder, NextLevelBertModel

SENTENCE = " This one sentence was not in the first edition of the book."


def with_sentence(text: str) -> str:
    """Inserts a sentence near the beginning of a text."""
    place = text.index(". ", len(text) // 100) + 1
    return text[:place] + SENTENCE + text[place:]


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=150_000)
    args = parser.parse_args()
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    calls = {
        "first call": text,
        "the same again": text,
        "one sentence inserted": with_sentence(text),
    }
    measuring.print_header("float32", "one round, with a new cache for each chunking")
    rows = []
    for mode in ("fixed", "packed_sentences"):
        model: Any = NextLevelBertModel.from_chunk_encoder(
            args.encoder, chunk_size=256, chunking=mode
        )
        counts: list[int] = []  # chunks that the frozen encoder really reads
        model.chunk_encoder.register_forward_pre_hook(
            lambda module, arguments, counts=counts: counts.append(len(arguments[0]))
        )
        seconds = {}
        with tempfile.TemporaryDirectory() as folder:
            cached = CachedEncoder(model.chunk_encoder, folder)
            for name, document in calls.items():
                counts.clear()
                start = time.perf_counter()
                chunks = len(model.encode(document, chunk_encoder=cached).chunks)
                seconds[name] = time.perf_counter() - start
                ratio = seconds["first call"] / seconds[name]
                rows.append([f"{mode}: {name}", f"{seconds[name]:.2f}", f"{ratio:.1f}"])
                rows[-1] += [f"{sum(counts):,}", f"{sum(counts) / chunks:.1%}"]
    measuring.print_table(
        ["call", "seconds", "times the first call's speed", "chunks encoded", "share of all"], rows
    )


if __name__ == "__main__":
    main()
