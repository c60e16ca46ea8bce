"""An epoch of fine-tuning on stored chunk vectors against an epoch that encodes every document again.

Both train the same head and encoder over chunks on the same documents in the same batches, eight a step. The second
is what `Trainer` does with token ids from the stock tokenizer; the first is `run_finetune.py`'s way, whose one
encoding is timed apart.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.common import measuring
from nextlevelbert import NextLevelBertForSequenceClassification, load_chunk_encoder, read_documents
from nextlevelbert.tasks.labelled_documents import Example, LabelledDocuments, VectorRows

BATCH = 8


def steps(model: Any, batches: list[dict[str, torch.Tensor]]) -> float:
    """Seconds of one epoch: forward, backward and update, the frozen encoder's work included."""
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
    texts = [document.text for document in read_documents(args.file) if len(document.text) >= shortest // 2]
    texts = [text[: 2 * shortest] for text in texts[: args.documents]]
    model: Any = NextLevelBertForSequenceClassification.from_chunk_encoder(load_chunk_encoder(args.encoder))
    examples = [Example(str(number), text, label=number % 2) for number, text in enumerate(texts)]
    data = LabelledDocuments("single_label_classification", examples, ("0", "1"), args.file)

    start = time.perf_counter()
    vectors = {text: book.plain for text, book in zip(texts, model.base_model.encode(texts), strict=True)}
    dataset = VectorRows(data, vectors, sigmoid=False)
    encoding = time.perf_counter() - start
    groups = [list(range(first, min(first + BATCH, len(texts)))) for first in range(0, len(texts), BATCH)]
    stored = [dataset.collate([dataset[number] for number in group]) for group in groups]
    whole = []
    for group in groups:
        ids = model.base_model.tokenizer([texts[n] for n in group], padding=True, return_tensors="pt", verbose=False)
        whole.append({**ids, "labels": torch.tensor([number % 2 for number in group])})
    steps(model, stored[:1])  # warm
    seconds = {"stored vectors": steps(model, stored), "encoded again": steps(model, whole)}
    tokens = sum(int(batch["attention_mask"].sum()) for batch in whole)
    print(f"{measuring.processor()}; {len(texts)} documents, {tokens:,} tokens, fp32\n")
    print("| an epoch | seconds |\n| --- | --- |")
    for name, value in seconds.items():
        print(f"| {name} | {value:.2f} |")
    print(f"| (encoding once) | {encoding:.2f} |")
    ratio = seconds["encoded again"] / seconds["stored vectors"]
    ten = 10 * seconds["encoded again"] / (encoding + 10 * seconds["stored vectors"])
    print(f"\nAn epoch is {ratio:.0f} x faster; ten epochs with their one encoding {ten:.1f} x.")


if __name__ == "__main__":
    main()
