"""CDLM from related texts to a score: masked words, then which documents belong together.

Caciularu et al., "CDLM: Cross-Document Language Modeling", 2021 (arXiv 2101.00406). A file
has a line {"documents": ["…", "…"]} for each set. Without files, a set is texts that share a name.

    python examples/papers/cdlm.py --encoder minilm --train_file train.jsonl --test_file test.jsonl
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from transformers import Trainer, TrainingArguments, set_seed

from nextlevelbert import (
    CdlmForDocumentMatching,
    CdlmForMaskedLM,
    CdlmProcessor,
    ClusterDataset,
    DataCollatorForCrossDocumentMasking,
)
from nextlevelbert.command import run_command

NAMES = (
    "Ahab Emma Nemo Jane Dorian Heidi Oliver Alice Hamlet Pip Ishmael Darcy Sinbad Robin Tarzan"
    " Medea"
)
PLACES = ("at sea", "in the garden", "by the fire", "on the road")


def parse_arguments(argv: list[str] | None) -> Namespace:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--encoder", required=True, help="a BERT or RoBERTa: folder or Hub name")
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--attention_window", type=int, default=32)
    parser.add_argument("--pretraining_epochs", type=float, default=3)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--pairs", type=int, default=160)
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", default="cdlm")
    return parser.parse_args(argv)


def read_or_make(file: str | None, seed: int) -> list[list[str]]:
    if file is not None:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["documents"] for line in lines]

    draw = np.random.default_rng(seed)
    sets = []
    for name in NAMES.split():
        places = draw.choice(PLACES, size=(4, 2)).tolist()
        sets.append([f"{name} was seen {first} {second}." for first, second in places])
    return sets


def draw_pairs(sets: list[list[str]], count: int, seed: int) -> list[tuple[list[str], int]]:
    """Draws two documents of one set (label 1) and of two sets (label 0), in turn."""
    draw = np.random.default_rng(seed)
    pairs = []
    for index in range(count):
        one, other = draw.choice(len(sets), 2, replace=False)
        label = 1 - index % 2
        if label == 1:
            other = one
        pairs.append(([str(draw.choice(sets[one])), str(draw.choice(sets[other]))], label))
    return pairs


def main(argv: list[str] | None = None) -> dict[str, float]:
    args = parse_arguments(argv)
    set_seed(args.seed)

    # 1. Pretraining: masked words of sequences of related documents.
    train = read_or_make(args.train_file, seed=1)
    test = read_or_make(args.test_file, seed=2)
    model = CdlmForMaskedLM.from_encoder(
        args.encoder, max_length=args.max_length, attention_window=args.attention_window
    )
    processor = CdlmProcessor.from_model(model)
    training_args = TrainingArguments(
        args.output_dir,
        learning_rate=args.learning_rate,
        num_train_epochs=args.pretraining_epochs,
        seed=args.seed,
        save_strategy="no",
    )
    trainer = Trainer(
        model,
        training_args,
        data_collator=DataCollatorForCrossDocumentMasking(processor),
        train_dataset=ClusterDataset(train, processor, seed=args.seed),
    )
    trainer.train()
    trainer.save_model()

    # 2. Matching of documents. The model opens by AutoModelForSequenceClassification, too.
    rows = []
    for texts, label in draw_pairs(train, args.pairs, seed=args.seed):
        rows.append({**processor.cluster(texts), "labels": label})
    training_args.num_train_epochs = args.epochs
    trainer = Trainer(
        CdlmForDocumentMatching.from_pretrained(args.output_dir),
        training_args,
        data_collator=lambda batch: dict(processor.pad(batch)),
        train_dataset=rows,
    )
    trainer.train()
    trainer.save_model()

    # 3. Accuracy on pairs of other documents.
    test_pairs = draw_pairs(test, 80, seed=args.seed + 1)
    test_rows = [processor.cluster(texts) for texts, _ in test_pairs]
    predictions = trainer.predict(test_rows).predictions.argmax(axis=1)
    labels = np.array([label for _, label in test_pairs])
    scores = {"accuracy": float((predictions == labels).mean()), "chance": 0.5}
    print(json.dumps(scores, indent=2))
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
