"""ChunkBERT from texts to a score: documents of any length, each classified by all of its chunks.

Jaiswal and Milios, "Breaking the Token Barrier", 2023 (arXiv 2310.20558). Each line of a file is
{"text": "…", "label": "…"}. Without files, documents are made in which one sentence tells the
label, wherever it is: 160 steps, each of about four seconds on one core with MiniLM. To see the
steps in less time, give `--num_train_epochs 2`.

    python examples/papers/chunkbert.py --encoder bert-base-uncased \
        --train_file train.jsonl --test_file test.jsonl
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import AutoConfig, DataCollatorWithPadding, Trainer, TrainingArguments, set_seed

from nextlevelbert import ChunkBertForSequenceClassification, model_path
from nextlevelbert.command import run_command

ELSEWHERE = "The clerk put the papers on the desk and closed the door behind him. "
SUBJECTS = {"sea": "The whale rose beside the ship. ", "kitchen": "She lit the oven for the cake. "}
READ_BY_BERT = 512  # tokens


def parse_arguments(argv: list[str] | None) -> Namespace:
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
    return parser.parse_args(argv)


def read_or_make(file: str | None, count: int, seed: int) -> Dataset:
    if file is not None:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        return Dataset.from_list([json.loads(line) for line in lines])

    draw = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        label = list(SUBJECTS)[index % len(SUBJECTS)]
        sentences = [ELSEWHERE] * int(draw.integers(5, 70))
        position = int(draw.integers(len(sentences)))
        sentences.insert(position, SUBJECTS[label])
        rows.append({"text": "".join(sentences), "label": label})
    return Dataset.from_list(rows)


def main(argv: list[str] | None = None) -> dict[str, float]:
    args = parse_arguments(argv)
    set_seed(args.seed)

    # 1. The sets, and a model for their labels.
    train = read_or_make(args.train_file, count=60, seed=1)
    test = read_or_make(args.test_file, count=30, seed=2)
    labels = sorted(train.unique("label"))
    num_layers = AutoConfig.from_pretrained(model_path(args.encoder)).num_hidden_layers
    model = ChunkBertForSequenceClassification.from_encoder(
        args.encoder,
        chunk_size=args.chunk_size,
        num_averaged_layers=min(5, num_layers + 1),
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )

    # 2. What the model reads: all tokens of a document.
    def tokenize(row: dict) -> dict:
        return {**model.tokenizer(row["text"]), "labels": labels.index(row["label"])}

    train_rows = train.map(tokenize, remove_columns=train.column_names)
    test_rows = test.map(tokenize, remove_columns=test.column_names)

    # 3. Training. The saved model opens by AutoModelForSequenceClassification, or in a pipeline.
    training_args = TrainingArguments(
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
        model,
        training_args,
        data_collator=DataCollatorWithPadding(model.tokenizer),
        train_dataset=train_rows,
    )
    trainer.train()
    trainer.save_model()

    # 4. Accuracy on all documents, and on those that BERT could not read.
    predictions = trainer.predict(test_rows).predictions.argmax(axis=-1)
    is_right = predictions == np.array(test_rows["labels"])
    is_long = np.array([len(ids) > READ_BY_BERT for ids in test_rows["input_ids"]])
    scores = {"accuracy": float(is_right.mean())}
    if is_long.any():
        scores[f"accuracy on more than {READ_BY_BERT} tokens"] = float(is_right[is_long].mean())
    print(json.dumps(scores, indent=2))
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
