"""Peak memory of `model.encode` over the length of one document, each length in a fresh process."""

from __future__ import annotations

import time

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, resident_peak_mib


def measure(encoder: str, source: str, tokens: int) -> tuple[int, int, float, float]:
    """Measures one document: tokens, chunks, seconds of `encode`, and peak MiB of this process."""
    from nextlevelbert import NextLevelBertModel

    model = NextLevelBertModel.from_chunk_encoder(encoder)
    text = measuring.long_text(tokens * measuring.CHARACTERS_PER_TOKEN, source)
    start = time.perf_counter()
    embedding = model.encode(text)
    seconds = time.perf_counter() - start
    peak = resident_peak_mib()  # before the plan, which tokenises once more
    return model.plan(text).tokens, len(embedding.chunks), seconds, peak


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    measuring.add_file_option(parser)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[30_000, 100_000, 300_000], help="tokens, roughly"
    )
    args = parser.parse_args()
    measuring.print_header("float32", "one run for each length, in a fresh process")
    rows = [
        in_fresh_process(measure, args.encoder, args.file, length)
        for length in sorted(args.lengths)
    ]
    first = rows[0]
    measuring.print_table(
        ["tokens", "chunks", "seconds", "peak MiB", "times the text", "times the memory"],
        [
            [
                f"{tokens:,}",
                f"{chunks:,}",
                f"{seconds:.1f}",
                f"{mib:,.0f}",
                f"{tokens / first[0]:.1f}",
                f"{mib / first[3]:.2f}",
            ]
            for tokens, chunks, seconds, mib in rows
        ],
    )


if __name__ == "__main__":
    main()
