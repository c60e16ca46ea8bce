"""BERT-AL from texts to a score: summaries of documents of any length, made of their own sentences.

"BERT-AL: BERT for Arbitrarily Long Document Understanding", 2020. Each line of a file is {"text":
"…", "summary": "…"}. Without files, documents are made whose summary is their sentences on storms.
The paper's table is in `examples/bert_al`.

    pip install rouge-score
    python examples/papers/bert_al.py --encoder minilm --train_file train.jsonl \
        --test_file test.jsonl
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from transformers import (
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from nextlevelbert import BertAlForExtractiveSummarization, text_sentences
from nextlevelbert.command import run_command
from nextlevelbert.models import encode_sentences

SENTENCES = 3  # of a summary
SCORER = RougeScorer(["rouge1", "rouge2"], use_stemmer=True)


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


def rouge(sentences: list[str], summary: str) -> dict[str, float]:
    scores = SCORER.score(summary, " ".join(sentences))
    return {name: score.fmeasure for name, score in scores.items()}


def main(argv: list[str] | None = None) -> dict[str, dict[str, float]]:
    args = parse_arguments(argv)
    set_seed(args.seed)

    # 1. The sets, and a model that reads segment after segment.
    train = read_or_make(args.train_file, count=60, seed=1)
    test = read_or_make(args.test_file, count=20, seed=2)
    model = BertAlForExtractiveSummarization.from_encoder(
        args.encoder, segment_length=args.segment_length, recurrence=args.recurrence
    )

    # 2. What the model reads: all tokens. Label 1 is for the sentences closest to the summary, each
    # by itself; the paper's greedy search is in `examples/bert_al/rouge.py`.
    def tokenize(row: dict) -> dict:
        sentences = sentences_of(row["text"])
        ids, types = encode_sentences(sentences, model.tokenizer)
        closeness = [rouge([sentence], row["summary"])["rouge1"] for sentence in sentences]
        labels = np.isin(np.arange(len(sentences)), np.argsort(closeness)[-SENTENCES:])
        return {"input_ids": ids, "token_type_ids": types, "labels": labels.astype(int)}

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
    collator = DataCollatorForTokenClassification(model.tokenizer)
    trainer = Trainer(model, training_args, data_collator=collator, train_dataset=rows)
    trainer.train()
    trainer.save_model()

    # 4. ROUGE of the summaries, and of the first sentences.
    scores: dict[str, list[dict[str, float]]] = {"BERT-AL": [], "lead-3": []}
    for row in test:
        summary = model.summarize(row["text"], SENTENCES).sentences
        scores["BERT-AL"].append(rouge(summary, row["summary"]))
        scores["lead-3"].append(rouge(sentences_of(row["text"])[:SENTENCES], row["summary"]))
    means = {}
    for name, rows in scores.items():
        means[name] = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    print(json.dumps(means, indent=2))
    return means


if __name__ == "__main__":
    raise SystemExit(run_command(main))
