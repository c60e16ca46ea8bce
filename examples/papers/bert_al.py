"""BERT-AL from texts to a score: summaries of documents of any length, made of their own sentences.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", 2020. Each line of a file is {"text":
"…", "summary": "…"}. Without files, documents are made whose summary is their sentences on storms.

    python examples/papers/bert_al.py --encoder sentence-transformers/all-MiniLM-L6-v2 \
        --train_file train.jsonl --test_file test.jsonl
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments, set_seed

from nextlevelbert import BertAlForExtractiveSummarization, text_sentences
from nextlevelbert.evaluation import greedy_oracle, rouge_scores
from nextlevelbert.models import encode_sentences, pad_batch

SENTENCES = 3  # of a summary


def parse_arguments(argv: list[str] | None) -> Namespace:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--encoder", required=True, help="folder or name on the Hub")
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    parser.add_argument("--recurrence", default="replace", help="replace (the paper's) or residual")
    parser.add_argument("--segment_length", type=int, default=128)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--num_train_epochs", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", default="bert-al")
    return parser.parse_args(argv)


def read_or_make(file: str | None, count: int, seed: int) -> list[dict]:
    if file is not None:
        return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]

    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        days = SENTENCES + int(draw.integers(5, 25))
        stormy_days = set(draw.choice(days, SENTENCES, replace=False).tolist())
        text = []
        summary = []
        for day in range(days):
            if day in stormy_days:
                text.append(f"On day {day} there was a storm.")
                summary.append(text[-1])
            else:
                text.append(f"On day {day} there was bread.")
        rows.append({"text": " ".join(text), "summary": " ".join(summary)})
    return rows


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in text_sentences(text)]


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    args = parse_arguments(argv)
    set_seed(args.seed)

    # 1. The sets, and a model that reads segment after segment.
    train = read_or_make(args.train_file, count=60, seed=1)
    test = read_or_make(args.test_file, count=20, seed=2)
    model = BertAlForExtractiveSummarization.from_encoder(
        args.encoder, segment_length=args.segment_length, recurrence=args.recurrence
    )

    # 2. What the model reads: all tokens; the labels are the sentences closest to the summary.
    def tokenize(row: dict) -> dict:
        sentences = sentences_of(row["text"])
        labels = torch.zeros(len(sentences), dtype=torch.long)
        labels[greedy_oracle(sentences, sentences_of(row["summary"]))] = 1
        return {"document": encode_sentences(sentences, model.tokenizer), "labels": labels}

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        labels = [row["labels"] for row in rows]
        documents = [row["document"] for row in rows]
        batch = pad_batch(documents, model.config.pad_token_id or 0)
        batch["labels"] = pad_sequence(labels, batch_first=True, padding_value=-100)
        return batch

    # 3. Training. The saved model opens by BertAlForExtractiveSummarization.from_pretrained.
    training_args = TrainingArguments(
        args.output_dir,
        learning_rate=args.learning_rate,
        num_train_epochs=args.num_train_epochs,
        seed=args.seed,
        save_strategy="no",
        remove_unused_columns=False,
    )
    rows = [tokenize(row) for row in train]
    trainer = Trainer(model, training_args, data_collator=collate, train_dataset=rows)
    trainer.train()
    trainer.save_model()

    # 4. ROUGE of the summaries, and of the first sentences.
    references = [sentences_of(row["summary"]) for row in test]
    summaries = [model.summarize(row["text"], SENTENCES).sentences for row in test]
    first_sentences = [sentences_of(row["text"])[:SENTENCES] for row in test]
    return {
        "BERT-AL": rouge_scores(summaries, references),
        "lead-3": rouge_scores(first_sentences, references),
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
