"""BERT-AL from texts to a score: summaries of documents of any length, made of their own sentences.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", 2020. Every line of a file is {"text":
"…", "summary": "…"}. Without files, documents are made whose summary is what they say of the storm.

python examples/papers/bert_al.py --encoder sentence-transformers/all-MiniLM-L6-v2 [--train_file …
--test_file …]
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments, set_seed

from nextlevelbert import BertAlForExtractiveSummarization, text_sentences
from nextlevelbert.evaluation.rouge import greedy_oracle, rouge_scores
from nextlevelbert.models.bert_al_sentences import encode_sentences, pad_batch

SENTENCES = 3


def sentences_of(text: str) -> list[str]:
    return [text[start:end] for start, end in text_sentences(text)]


def read_or_make(file: str | None, count: int, seed: int) -> list[dict]:
    if file is not None:
        return [json.loads(line) for line in open(file, encoding="utf-8")]
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        storms = draw.permutation([True] * SENTENCES + [False] * int(draw.integers(5, 25)))
        text = [
            f"On day {day} there was {'a storm' if storm else 'bread'}."
            for day, storm in enumerate(storms, 1)
        ]
        rows.append(
            {"text": " ".join(text), "summary": " ".join(text[day] for day in storms.nonzero()[0])}
        )
    return rows


def main(words: list[str] | None = None) -> dict[str, dict[str, float]]:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--encoder", required=True, help="folder or name on the Hub")
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    parser.add_argument("--recurrence", default="replace", help="replace (the paper's) or residual")
    for name, value in {
        "segment_length": 128,
        "learning_rate": 2e-5,
        "num_train_epochs": 5.0,
        "seed": 0,
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--output_dir", default="bert-al")
    args = parser.parse_args(words)
    set_seed(args.seed)
    train = read_or_make(args.train_file, 60, seed=1)
    test = read_or_make(args.test_file, 20, seed=2)
    sizes = {"segment_length": args.segment_length, "recurrence": args.recurrence}
    model = BertAlForExtractiveSummarization.from_encoder(args.encoder, **sizes)

    def tokenize(row: dict) -> dict:
        sentences = sentences_of(row["text"])
        picked = greedy_oracle(sentences, sentences_of(row["summary"]))
        labels = torch.tensor([int(number in picked) for number in range(len(sentences))])
        return {"document": encode_sentences(sentences, model.tokenizer), "labels": labels}

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        labels = pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100)
        return {
            **pad_batch([row["document"] for row in rows], model.config.pad_token_id or 0),
            "labels": labels,
        }

    settings = TrainingArguments(
        args.output_dir, seed=args.seed, save_strategy="no", remove_unused_columns=False
    )
    settings.learning_rate = args.learning_rate
    settings.num_train_epochs = args.num_train_epochs
    trainer = Trainer(model, settings, collate, train_dataset=[tokenize(row) for row in train])
    trainer.train()
    trainer.save_model()  # opens by BertAlForExtractiveSummarization.from_pretrained

    references = [sentences_of(row["summary"]) for row in test]
    picked = [model.summarize(row["text"], SENTENCES).sentences for row in test]
    first = [sentences_of(row["text"])[:SENTENCES] for row in test]
    return {
        "BERT-AL": rouge_scores(picked, references),
        "lead-3": rouge_scores(first, references),
    }


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
