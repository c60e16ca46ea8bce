"""ChunkBERT from texts to a score: documents of any length, each classified by all of its chunks.

Jaiswal and Milios, "Breaking the Token Barrier", 2023 (arXiv 2310.20558). Every line of a file is
{"text": "…", "label": "…"}. Without files, documents are made in which one sentence tells the
label, wherever it stands.

python examples/papers/chunkbert.py --encoder bert-base-uncased --train_file train.jsonl --test_file
test.jsonl python examples/papers/chunkbert.py --encoder sentence-transformers/all-MiniLM-L6-v2
--learning_rate 1e-4
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

import numpy as np
from transformers import AutoConfig, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed

from nextlevelbert import ChunkBertForSequenceClassification

ELSEWHERE = "The clerk put the papers on the desk and closed the door behind him. "
SUBJECTS = {"sea": "The whale rose beside the ship. ", "kitchen": "She lit the oven for the cake. "}


def read_or_make(file: str | None, count: int, seed: int) -> list[dict]:
    if file is not None:
        return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = list(SUBJECTS)[number % len(SUBJECTS)]
        sentences = [ELSEWHERE] * int(draw.integers(5, 70))
        sentences.insert(int(draw.integers(len(sentences))), SUBJECTS[label])
        rows.append({"text": "".join(sentences), "label": label})
    return rows


def main(words: list[str] | None = None) -> dict[str, float]:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--encoder", required=True, help="folder or name on the Hub")
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    parser.add_argument("--chunk_size", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=3e-5)
    parser.add_argument("--num_train_epochs", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", default="chunkbert")
    args = parser.parse_args(words)

    set_seed(args.seed)
    train = read_or_make(args.train_file, 60, seed=1)
    test = read_or_make(args.test_file, 30, seed=2)
    names = sorted({row["label"] for row in train})
    layers = AutoConfig.from_pretrained(args.encoder).num_hidden_layers
    model = ChunkBertForSequenceClassification.from_encoder(
        args.encoder,
        chunk_size=args.chunk_size,
        num_averaged_layers=min(5, layers + 1),
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    train_rows, test_rows = (
        [{**model.tokenizer(row["text"]), "labels": names.index(row["label"])} for row in rows]
        for rows in (train, test)
    )
    settings = TrainingArguments(
        args.output_dir,
        per_device_train_batch_size=8,
        learning_rate=args.learning_rate,
        weight_decay=0.0,
        lr_scheduler_type="constant",
        num_train_epochs=args.num_train_epochs,
        seed=args.seed,
        save_strategy="no",
    )
    trainer = Trainer(
        model, settings, DataCollatorWithPadding(model.tokenizer), train_dataset=train_rows
    )
    trainer.train()
    trainer.save_model()  # opens by AutoModelForSequenceClassification, and in a stock pipeline

    right = np.array(
        trainer.predict(test_rows).predictions.argmax(-1) == [row["labels"] for row in test_rows]
    )
    long = np.array([len(row["input_ids"]) > 512 for row in test_rows])
    scores = {
        "accuracy": right.mean(),
        "accuracy on more than 512 tokens": right[long].mean() if long.any() else np.nan,
    }
    print(json.dumps({name: round(float(score), 3) for name, score in scores.items()}))
    return scores


if __name__ == "__main__":
    main()
