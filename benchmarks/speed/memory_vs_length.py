"""Peak memory of `model.encode` over the length of one document, each length in a fresh process."""

from __future__ import annotations

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, resident_peak_mib


def measure(encoder: str, source: str, tokens: int) -> tuple[int, int, float]:
    """Measures `encode` of one document: tokens, chunks, and peak MiB of this process."""
    from nextlevelbert import NextLevelBertModel

    model = NextLevelBertModel.from_chunk_encoder(encoder)
    text = measuring.long_text(tokens * measuring.CHARACTERS_PER_TOKEN, source)
    embedding = model.encode(text)
    peak = resident_peak_mib()  # before the plan, which tokenises once more
    return model.plan(text).tokens, len(embedding.chunks), peak


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    measuring.add_file_option(parser)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[30_000, 100_000, 300_000], help="tokens, roughly"
    )
    args = parser.parse_args()
    measuring.print_header("float32", "one run for each length, in a fresh process")
    rows = []
    for length in sorted(args.lengths):
        tokens, chunks, mib = in_fresh_process(measure, args.encoder, args.file, length)
        rows.append([f"{tokens:,}", f"{chunks:,}", f"{mib:,.0f}"])
    measuring.print_table(["tokens", "chunks", "peak MiB"], rows)


if __name__ == "__main__":
    main()
