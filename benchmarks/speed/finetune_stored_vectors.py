"""An epoch of fine-tuning on stored chunk vectors against an epoch that encodes every document
again.

Both train the same head and encoder over chunks on the same documents in the same batches, eight a
step. The second is what `Trainer` does with token ids from the stock tokenizer; the first is
`run_finetune.py`'s way, whose one encoding is timed apart.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertForSequenceClassification, read_documents
from nextlevelbert.models.windows import pad_vectors

BATCH = 8


def steps(model: Any, batches: list[dict[str, torch.Tensor]]) -> float:
    """Measures the seconds of one epoch: forward, backward and update, with the frozen encoder."""
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-5)
    model.train()
    start = time.perf_counter()
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = measuring.parser_with_text(__doc__, tokens=1_500)
    parser.add_argument("--documents", type=int, default=64)
    args = parser.parse_args()
    shortest = args.tokens * measuring.CHARACTERS_PER_TOKEN
    texts = [
        document.text
        for document in read_documents(args.file)
        if len(document.text) >= shortest // 2
    ]
    texts = [text[: 2 * shortest] for text in texts[: args.documents]]
    model: Any = NextLevelBertForSequenceClassification.from_chunk_encoder(args.encoder)
    start = time.perf_counter()
    vectors = [book.plain for book in model.base_model.encode(texts)]
    encoding = time.perf_counter() - start
    stored = []
    whole = []
    for first in range(0, len(texts), BATCH):
        labels = {"labels": torch.arange(first, min(first + BATCH, len(texts))) % 2}
        stored.append({**pad_vectors(vectors[first : first + BATCH]), **labels})
        ids = model.base_model.tokenizer(
            texts[first : first + BATCH], padding=True, return_tensors="pt", verbose=False
        )
        whole.append({**ids, **labels})
    steps(model, stored[:1])  # warm
    seconds = {"stored vectors": steps(model, stored), "encoded again": steps(model, whole)}
    tokens = sum(int(batch["attention_mask"].sum()) for batch in whole)
    measuring.print_header("float32", f"{len(texts)} documents, {tokens:,} tokens")
    rows = [
        [name, f"{value:.2f}"] for name, value in [*seconds.items(), ("(encoding once)", encoding)]
    ]
    measuring.print_table(["an epoch", "seconds"], rows)
    ratio = seconds["encoded again"] / seconds["stored vectors"]
    ten = 10 * seconds["encoded again"] / (encoding + 10 * seconds["stored vectors"])
    print(f"\nAn epoch is {ratio:.0f} x faster; ten epochs with their one encoding {ten:.1f} x.")


if __name__ == "__main__":
    main()
