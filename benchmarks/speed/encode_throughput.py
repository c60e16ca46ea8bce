"""From text to a document vector: tokens a second, beside the bare forward pass that nothing can be faster than.

Every way reads the same text in chunks of 254 tokens and two special ones, and counts the text's tokens only:

- bare forward: the sentence encoder over ids that lie ready, 8 chunks at a time, no mask, no pooling. No tokenising.
- `NextLevelBertModel.encode`: tokenising, chunk encoding, next-level pass (always float32), pooling.
  The int8 encoder (OpenVINO) stands beside the bare forward in bfloat16.
- sentence-transformers: what one writes without this package: cut the ids, decode them, `SentenceTransformer.encode`,
  mean of the chunk vectors. No next-level pass.
- authors' recipe in plain transformers: a reconstruction, since their batch sizes are not known: as the line before,
  then a BERT of the same size over the chunk vectors, padded to 512 with an attention mask; float32.
- Longformer, ModernBERT, NomicBERT: one window of their own length, of ids that lie ready, random weights. They are
  many times slower, so each reads one window once, in the process in which its memory is measured; transformers
  has no kernel for local attention on a CPU, and hides what lies outside by a mask.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from benchmarks.common import measuring
from benchmarks.common.fresh_process import in_fresh_process, resident_peak_mib
from benchmarks.common.models import LONG_MODELS, one_window
from nextlevelbert import NextLevelBertModel, load_chunk_encoder, load_int8_chunk_encoder, quantize_chunk_encoder
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder

Run = Callable[[], Any]
BARE, OURS, BY_HAND = "bare forward", "`NextLevelBertModel.encode`", "sentence-transformers + mean"
AUTHORS = "authors' recipe in plain transformers"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CAPACITY, WINDOW = 254, 510  # tokens in a chunk, chunks in a window
RSS_TOKENS = 16_384


def read_ids(encoder: str, text: str) -> tuple[Any, torch.Tensor]:
    """The tokenizer, and the ids ``[T]`` of a text without special tokens."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    return tokenizer, torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def bare(encoder: str, text: str, dtype: torch.dtype) -> tuple[Run, int]:
    tokenizer, ids = read_ids(encoder, text)
    chunks = [[tokenizer.cls_token_id, *chunk.tolist(), tokenizer.sep_token_id] for chunk in ids.split(CAPACITY)]
    batches = torch.tensor([chunk for chunk in chunks if len(chunk) == CAPACITY + 2]).split(8)  # each [8, 256]
    model = AutoModel.from_pretrained(encoder, dtype=dtype).eval()

    def run() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(input_ids=batch)

    return run, CAPACITY * sum(map(len, batches))


def new_model(encoder: str) -> tuple[LoadedChunkEncoder, Any]:
    """The chunk encoder and an untrained model around it, whose new vectors are the same every time."""
    source = load_chunk_encoder(encoder)
    torch.manual_seed(0)
    return source, NextLevelBertModel.from_chunk_encoder(source, chunk_size=CAPACITY + 2)


def ours(encoder: str, text: str, dtype: torch.dtype) -> tuple[Run, int]:
    _, model = new_model(encoder)
    return lambda: model.encode(text, dtype=dtype), model.plan(text).tokens


def ours_in_int8(encoder: str, text: str, folder: str) -> tuple[Run, int]:
    """With the int8 form of the chunk encoder from a folder; calibrated on the manual if it is empty."""
    source, model = new_model(encoder)
    if not list(Path(folder).iterdir()):
        quantize_chunk_encoder(source, [measuring.long_text(200_000)], model.config.chunking_rule(), folder)
    int8 = load_int8_chunk_encoder(source, folder)
    return lambda: model.encode(text, chunk_encoder=int8), model.plan(text).tokens


def by_hand(encoder: str, text: str, dtype: torch.dtype, upper: bool = False) -> tuple[Run, int]:
    model = SentenceTransformer(encoder, device="cpu", model_kwargs={"dtype": dtype})
    network = AutoModel.from_pretrained(encoder, dtype=dtype, add_pooling_layer=False).eval() if upper else None

    def run() -> torch.Tensor:
        ids = model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces = [ids[start : start + CAPACITY] for start in range(0, len(ids), CAPACITY)]
        vectors = model.encode(model.tokenizer.batch_decode(pieces), convert_to_tensor=True)  # [n, D]
        if network is None:
            return vectors.float().mean(dim=0)
        windows = vectors.split(WINDOW)
        embeds = torch.zeros(len(windows), WINDOW + 2, vectors.shape[1], dtype=dtype)  # [W, S, D]
        mask = torch.zeros(embeds.shape[:2], dtype=torch.long)
        for row, window in enumerate(windows):
            embeds[row, 1 : len(window) + 1] = window
            mask[row, : len(window) + 2] = 1
        with torch.inference_mode():
            hidden = network(inputs_embeds=embeds, attention_mask=mask).last_hidden_state
        return hidden[mask.bool()].float().mean(dim=0)

    return run, len(read_ids(encoder, text)[1])


def long_model(name: str, encoder: str, text: str, dtype: torch.dtype) -> tuple[Run, int]:
    return one_window(name, read_ids(encoder, text)[1], dtype)


def ways(int8_folder: str) -> dict[str, Callable[[str, str], tuple[Run, int]]]:
    """``"name, dtype"`` and what builds it from the encoder and the text: a run, and the tokens it reads."""
    makers: dict[str, Callable[..., tuple[Run, int]]] = {BARE: bare, OURS: ours, BY_HAND: by_hand}
    makers |= {name: partial(long_model, name) for name in LONG_MODELS}
    found: dict[str, Callable[[str, str], tuple[Run, int]]] = {
        f"{name}, {key}": partial(make, dtype=dtype) for name, make in makers.items() for key, dtype in DTYPES.items()
    }
    found[f"{OURS}, int8"] = partial(ours_in_int8, folder=int8_folder)
    return found | {f"{AUTHORS}, float32": partial(by_hand, dtype=torch.float32, upper=True)}


def is_long(name: str) -> bool:
    return name.rpartition(", ")[0] in LONG_MODELS


def alone(encoder: str, file: str, name: str, int8_folder: str) -> dict[str, float]:
    """One run of one way on a short text: tokens, seconds, and the peak memory of this process; "" runs nothing."""
    text = measuring.long_text(RSS_TOKENS * measuring.CHARACTERS_PER_TOKEN, file)
    run, tokens = ways(int8_folder)[name](encoder, text) if name else (lambda: None, 0)
    seconds, _ = measuring.interleaved({name: run}, rounds=1)
    return {"tokens": tokens, "wall": seconds[name].wall, "cpu": seconds[name].cpu, "mib": resident_peak_mib()}


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-long-models", action="store_true")
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        compare(args, folder)


def compare(args: argparse.Namespace, folder: str) -> None:
    """Runs all ways and prints the table; `folder` takes the int8 encoder."""
    text = measuring.long_text(args.tokens * measuring.CHARACTERS_PER_TOKEN, args.file)
    chosen = {name: make for name, make in ways(folder).items() if not (args.without_long_models and is_long(name))}
    runs = {name: make(args.encoder, text) for name, make in chosen.items() if not is_long(name)}
    measuring.print_header("float32, bfloat16 and int8", f"medians of {args.rounds} interleaved rounds")
    seconds, vectors = measuring.interleaved({name: run for name, (run, _) in runs.items()}, args.rounds)
    rates = {name: (runs[name][1] / took.wall, runs[name][1] / took.cpu) for name, took in seconds.items()}
    rows = []
    for name in chosen:
        one = in_fresh_process(alone, args.encoder, args.file, name, folder)
        tokens = runs[name][1] if name in runs else one["tokens"]
        rate = rates[name] if name in runs else (tokens / one["wall"], tokens / one["cpu"])
        base = rates[f"{BARE}, {name.rpartition(', ')[2]}".replace("int8", "bfloat16")]  # torch has no bare int8
        shares = [f"{ours / theirs:.3f}" for ours, theirs in zip(rate, base, strict=True)]
        rows.append([name, f"{tokens:,}", *(f"{value:,.0f}" for value in rate), *shares, f"{one['mib']:,.0f}"])
    head = ["way, dtype", "tokens", "tokens/s", "tokens per CPU-s", "of bare", "of bare, per CPU-s"]
    measuring.print_table([*head, f"peak MiB ({RSS_TOKENS:,} tokens)"], rows)
    idle = in_fresh_process(alone, args.encoder, args.file, "", folder)["mib"]
    print(f"\nA process that only imports the libraries and reads the text has a peak of {idle:,.0f} MiB.")
    for dtype in ("bfloat16", "int8"):
        cosines = [
            torch.cosine_similarity(
                getattr(vectors[f"{OURS}, float32"], level), getattr(vectors[f"{OURS}, {dtype}"], level), dim=-1
            )
            for level in ("document", "plain")
        ]
        print(
            f"Cosine of {dtype} to float32: document {cosines[0]:.6f}, chunk vectors at least {cosines[1].min():.6f}"
        )


if __name__ == "__main__":
    main()
