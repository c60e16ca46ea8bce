"""From text to a document vector: tokens a second, beside the bare forward pass that nothing can be
faster than.

Every way reads the same text in chunks of 254 tokens and two special ones, and counts the text's
tokens only:

- bare forward: the sentence encoder over ids that lie ready, 8 chunks at a time, no mask, no
  pooling. No tokenising.
- `NextLevelBertModel.encode`: tokenising, chunk encoding, next-level pass (always float32),
  pooling.
- sentence-transformers: what one writes without this package: cut the ids, decode them,
  `SentenceTransformer.encode`, mean of the chunk vectors. No next-level pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertModel

BARE, OURS, BY_HAND = "bare forward", "`NextLevelBertModel.encode`", "sentence-transformers + mean"
CAPACITY = 254  # tokens in a chunk


def bare(encoder: str, text: str, dtype: torch.dtype) -> Callable[[], Any]:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    ids = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    chunks = [
        [tokenizer.cls_token_id, *chunk.tolist(), tokenizer.sep_token_id]
        for chunk in ids.split(CAPACITY)
    ]
    full = [chunk for chunk in chunks if len(chunk) == CAPACITY + 2]
    batches = torch.tensor(full).split(8)  # each [8, 256]
    model = AutoModel.from_pretrained(encoder, dtype=dtype).eval()

    def run() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(input_ids=batch)

    return run


def by_encode(encoder: str, text: str, dtype: torch.dtype) -> Callable[[], Any]:
    torch.manual_seed(0)  # new vectors are the same for every dtype
    model: Any = NextLevelBertModel.from_chunk_encoder(encoder, chunk_size=CAPACITY + 2)
    model.chunk_encoder.to(dtype)
    return lambda: model.encode(text)


def by_hand(encoder: str, text: str, dtype: torch.dtype) -> Callable[[], Any]:
    model = SentenceTransformer(encoder, device="cpu", model_kwargs={"dtype": dtype})

    def run() -> torch.Tensor:
        ids = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces = [ids[start : start + CAPACITY] for start in range(0, len(ids), CAPACITY)]
        texts = model.tokenizer.batch_decode(pieces)
        return model.encode(texts, convert_to_tensor=True).float().mean(dim=0)

    return run


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    cases = {
        (name, kind): make(args.encoder, text, dtype)
        for name, make in {BARE: bare, OURS: by_encode, BY_HAND: by_hand}.items()
        for kind, dtype in dtypes.items()
    }
    tokens = NextLevelBertModel.from_chunk_encoder(args.encoder).plan(text).tokens
    note = f"{tokens:,} tokens; medians of {args.rounds} interleaved rounds"
    measuring.print_header("float32 and bfloat16", note)
    seconds, vectors = measuring.interleaved(cases, args.rounds)
    rows = []
    for (name, kind), took in seconds.items():
        base = seconds[BARE, kind]
        rate = f"{tokens / took.wall:,.0f}"
        rows.append([f"{name}, {kind}", rate, f"{base.wall / took.wall:.2f}"])
    measuring.print_table(["way, dtype", "tokens/s", "times bare"], rows)
    full = vectors[OURS, "float32"]
    half = vectors[OURS, "bfloat16"]
    least = torch.cosine_similarity(full.plain, half.plain, dim=-1).min()
    print(f"\nCosine of chunk vectors in bfloat16 to those in float32: at least {least:.6f}")


if __name__ == "__main__":
    main()
