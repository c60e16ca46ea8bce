"""How fast a 2-million-token document is tokenised with offsets: ours against one plain call of the same tokenizer."""

from __future__ import annotations

from benchmarks.common import measuring
from nextlevelbert import load_chunk_encoder
from nextlevelbert.models.chunking import tokenize_document


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    tokenizer = load_chunk_encoder(args.encoder).tokenizer
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    cases = {
        "plain call": lambda: tokenizer(text, **options)["input_ids"],
        "`tokenize_document`": lambda: tokenize_document(tokenizer, text).input_ids.tolist(),
    }
    seconds, results = measuring.interleaved(cases, args.rounds)
    plain, ours = results.values()
    measuring.print_header("no network", f"{len(plain):,} tokens; medians of {args.rounds} interleaved rounds")
    rows = []
    for name, took in seconds.items():
        rows.append([name, f"{took.wall:.2f}", f"{len(plain) / took.wall:,.0f}"])
        rows[-1] += [f"{seconds['plain call'].wall / took.wall:.2f}", f"{seconds['plain call'].cpu / took.cpu:.2f}"]
    measuring.print_table(["way", "seconds", "tokens/s", "times the plain call", "the same per CPU-second"], rows)
    print(f"\nSame ids: {plain == ours}")


if __name__ == "__main__":
    main()
