"""A trained ChunkBERT read with other chunk sizes than it was trained with (arXiv 2310.20558, section 6).

    python -m benchmarks.studies.chunk_size_at_test_time --model RUN --test_file test.jsonl \\
        --chunk_sizes 64 128 256 512

RUN is a folder written by run_finetune.py --model_type chunkbert; the model of every seed in it is read. Prints the
accuracy on the test set, mean and sample standard deviation over the seeds, for each chunk size.
"""

from __future__ import annotations

import json
import statistics
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.common import measuring
from nextlevelbert import ChunkBertForSequenceClassification, ChunkBertModel
from nextlevelbert.tasks.classification.data import Columns, TaskData, read_classification


def accuracy(model: ChunkBertForSequenceClassification, ids: list[torch.Tensor], data: TaskData) -> float:
    """Share of the documents whose highest score is that of their label; one document at a time, no padding."""
    right = 0
    with torch.inference_mode():
        for example in tqdm(data.examples, unit="document", leave=False):
            logits = model(input_ids=ids[example.document]).logits
            right += int(logits.argmax()) == example.label
    return right / len(data.examples)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, required=True, help="folder written by run_finetune.py, with seed-* folders"
    )
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--chunk_sizes", type=int, nargs="+", default=[64, 128, 256, 512])
    args = parser.parse_args()
    folders = sorted(args.model.glob("seed-*"))
    if not folders:
        parser.error(f"{args.model} has no seed-* folders; give a run of run_finetune.py --model_type chunkbert")
    names = json.loads((args.model / "config.json").read_text())["id2label"]
    order = tuple(names[str(number)] for number in range(len(names)))
    data = read_classification(args.test_file, Columns("text", None, args.label_column, None, "id"), label_names=order)
    tokenizer = ChunkBertModel.from_pretrained(args.model).tokenizer
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text in data.documents]
    rows = []
    for size in args.chunk_sizes:
        found = []
        for folder in folders:
            model = ChunkBertForSequenceClassification.from_pretrained(folder).eval()
            trained, model.config.chunk_size = model.config.chunk_size, size
            found.append(accuracy(model, ids, data))
        spread = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
        rows.append([f"{size}{' (as trained)' if size == trained else ''}", f"{statistics.mean(found):.3f}{spread}"])
    measuring.print_table(["chunk size at test time", f"accuracy, {len(folders)} seeds"], rows)


if __name__ == "__main__":
    main()
