"""What the next-level pass and tokenising cost in a whole `encode` of a novel: the three phases timed apart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertModel
from nextlevelbert.models.chunking import tokenize_document

TOKENISING, CHUNKS, UPPER, WHOLE = "tokenising and cutting", "chunk vectors", "next-level pass", "`encode`"


def phases(model: Any, text: str, dtype: torch.dtype) -> dict[str, Callable[[], Any]]:
    """Each phase of `encode` on what the phase before it gives, and the whole."""
    rule, encoder = model.config.chunking_rule(), copy.deepcopy(model.get_chunk_encoder()).to(dtype)

    def tokenise() -> tuple[Any, Any]:
        document = tokenize_document(model.tokenizer, text)
        return document.input_ids, rule.boundaries(document.input_ids)

    ids, boundaries = tokenise()
    # The pass costs the same for any vectors, and the real ones would have to be made before they are timed.
    vectors = torch.nn.functional.normalize(torch.randn(len(boundaries) - 1, encoder.hidden_size), dim=-1)

    @torch.no_grad()
    def contextualize() -> Any:
        return model.contextualize([vectors])

    return {
        TOKENISING: tokenise,
        CHUNKS: lambda: encoder.encode(ids, boundaries, rule),
        UPPER: contextualize,
        WHOLE: lambda: model.encode(text, dtype=dtype),
    }


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=150_000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    cases: dict[tuple[str, str], Callable[[], Any]] = {}
    model = NextLevelBertModel.from_chunk_encoder(args.encoder, chunk_size=256)
    plan = model.plan(text)
    for dtype in (torch.float32, torch.bfloat16):
        kind = str(dtype).removeprefix("torch.")
        cases |= {(kind, name): run for name, run in phases(model, text, dtype).items()}
    size = f"{plan.tokens:,} tokens, {plan.chunks:,} chunks of 256, {plan.windows} windows"
    measuring.print_header(
        "chunk encoder in float32 and bfloat16, next-level pass in float32",
        f"{size}; medians of {args.rounds} interleaved rounds",
    )
    seconds, _ = measuring.interleaved(cases, args.rounds)
    rows = []
    for (kind, name), took in seconds.items():
        whole = seconds[kind, WHOLE]
        rows.append([f"{name}, {kind}", f"{took.wall:.2f}", f"{took.wall / whole.wall:.1%}"])
        rows[-1].append(f"{took.cpu / whole.cpu:.1%}")
    measuring.print_table(["phase, dtype", "seconds", "share of `encode`", "share of its CPU-seconds"], rows)


if __name__ == "__main__":
    main()
