"""Peak memory of `model.encode` for a short and a very long document, each in a fresh process."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

# Of Python's manual in BERT's vocabulary, roughly; the true count is printed.
TOKENS_PER_CHARACTER = 0.25


def measure(encoder: str, tokens: int, dtype: str) -> dict[str, float]:
    """Encodes one document and reports tokens, seconds and the process's peak resident memory."""
    import torch
    from tokenise_throughput import long_text

    from nextlevelbert import NextLevelBertModel

    model = NextLevelBertModel.from_chunk_encoder(encoder).to(getattr(torch, dtype))
    text = long_text(int(tokens / TOKENS_PER_CHARACTER))
    start = time.perf_counter()
    embedding = model.encode(text)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    return {
        "tokens": model.plan(text).tokens,
        "chunks": len(embedding.chunks),
        "seconds": round(seconds, 1),
        "peak_mib": round(peak, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--lengths", type=int, nargs="+", default=[20_000, 2_000_000])
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.encoder, args.measure, args.dtype)))
        return
    rows = []
    for length in args.lengths:
        command = [
            sys.executable,
            __file__,
            "--encoder",
            args.encoder,
            "--dtype",
            args.dtype,
            "--measure",
            str(length),
        ]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        print("| " + " | ".join(f"{key} {value:,}" for key, value in rows[-1].items()) + " |", flush=True)
    first, last = rows[0], rows[-1]
    print(
        f"{last['tokens'] / first['tokens']:.0f} times the tokens, {last['peak_mib'] / first['peak_mib']:.2f} times "
        f"the peak memory ({last['peak_mib'] - first['peak_mib']:.0f} MiB more)"
    )


if __name__ == "__main__":
    main()
