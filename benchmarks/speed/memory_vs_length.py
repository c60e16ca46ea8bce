"""Peak memory of `model.encode` over the length of one document, each length in a fresh process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, resident_peak_mib


def measure(encoder: str, source: str, tokens: int, dtype: str) -> dict[str, float]:
    """Encodes one document and reports tokens, chunks, seconds, and this process's peak memory in MiB."""
    import torch

    from nextlevelbert import NextLevelBertModel

    model = NextLevelBertModel.from_chunk_encoder(encoder)
    text = measuring.long_text(tokens * measuring.CHARACTERS_PER_TOKEN, source)
    start = time.perf_counter()
    embedding = model.encode(text, dtype=getattr(torch, dtype))
    seconds = time.perf_counter() - start
    peak = resident_peak_mib()  # before the plan, which tokenises once more
    return {"tokens": model.plan(text).tokens, "chunks": len(embedding.chunks), "seconds": seconds, "mib": peak}


def plot(rows: Sequence[dict[str, float]], path: str, title: str) -> None:
    """Peak memory over tokens, the tokens on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([row["tokens"] for row in rows], [row["mib"] for row in rows], "o-", color="tab:blue")
    axes.set(xscale="log", xlabel="tokens in the document", ylabel="peak memory (MiB)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = measuring.parser_with_encoder(__doc__)
    measuring.add_file_option(parser)
    lengths = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="tokens, roughly")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--plot", help="where to write a picture (.png, .svg)")
    args = parser.parse_args()
    measuring.print_header(args.dtype, "one run for each length, in a fresh process")
    rows = [in_fresh_process(measure, args.encoder, args.file, length, args.dtype) for length in sorted(args.lengths)]
    measuring.print_table(
        ["tokens", "chunks", "seconds", "peak MiB"],
        [[f"{row['tokens']:,}", f"{row['chunks']:,}", f"{row['seconds']:.1f}", f"{row['mib']:,.0f}"] for row in rows],
    )
    # Not the shortest: below about 30,000 tokens not every buffer has been filled once.
    first = min(rows[:-1] or rows, key=lambda row: abs(row["tokens"] - 30_000))
    last = rows[-1]
    print(
        f"\n{last['tokens']:,} tokens against {first['tokens']:,}: {last['tokens'] / first['tokens']:.0f} times the "
        f"text, {last['mib'] / first['mib']:.2f} times the peak memory ({last['mib'] - first['mib']:+.0f} MiB)"
    )
    if args.plot:
        plot(rows, args.plot, f"model.encode, {args.dtype}")


if __name__ == "__main__":
    main()
