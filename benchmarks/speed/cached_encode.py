"""`model.encode` with a cache of chunk vectors: the same novel again, and the novel after a small edit.

The edit puts one sentence near the start. With fixed chunks every later chunk changes; with
``chunking="packed_sentences"`` only those around the edit do, and only they are encoded again.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertModel

SENTENCE = " This one sentence was not in the first edition of the book."


def with_sentence(text: str) -> str:
    """The text with one more sentence behind the first that ends after a hundredth of it."""
    place = text.index(". ", len(text) // 100) + 1
    return text[:place] + SENTENCE + text[place:]


class CountedChunks:
    """Counts the chunks that the frozen encoder really reads."""

    def __init__(self, model: Any) -> None:
        self.chunks = 0
        model.get_chunk_encoder().register_forward_pre_hook(self._count)

    def _count(self, module: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        self.chunks += len(arguments[0])


def one_round(model: Any, counter: CountedChunks, text: str, edited: str) -> dict[str, tuple[float, int]]:
    """Seconds and encoded chunks of four calls, the last three with one cache that is new at the first."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, document, cache in (
            ("no cache", text, None),
            ("first call", text, folder),
            ("the same again", text, folder),
            ("one sentence inserted", edited, folder),
        ):
            counter.chunks, start = 0, time.perf_counter()
            model.encode(document, cache_dir=cache)
            found[name] = (time.perf_counter() - start, counter.chunks)
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=150_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    args = parser.parse_args()
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    edited = with_sentence(text)
    measuring.print_header(args.dtype, f"medians of {args.rounds} rounds, each with a new cache")
    rows = []
    for mode in ("fixed", "packed_sentences"):
        model = NextLevelBertModel.from_chunk_encoder(args.encoder, chunk_size=256, chunking=mode)
        model.get_chunk_encoder().to(getattr(torch, args.dtype))
        counter, chunks = CountedChunks(model), model.plan(edited).chunks
        rounds = [one_round(model, counter, text, edited) for _ in range(args.rounds)]
        first = statistics.median(calls["first call"][0] for calls in rounds)
        for name in rounds[0]:
            seconds = statistics.median(calls[name][0] for calls in rounds)
            encoded = rounds[-1][name][1]
            rows.append([f"{mode}: {name}", f"{seconds:.2f}", f"{first / seconds:.1f}"])
            rows[-1] += [f"{encoded:,}", f"{encoded / chunks:.1%}"]
    measuring.print_table(["call", "seconds", "times the first call's speed", "chunks encoded", "share of all"], rows)


if __name__ == "__main__":
    main()
