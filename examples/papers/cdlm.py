"""CDLM from related texts to a score: masked words across documents, then which documents belong
together.

Caciularu et al., "CDLM: Cross-Document Language Modeling", 2021 (arXiv 2101.00406). Every line of a
file is a set of related texts: {"documents": ["…", "…", "…"]}. Without files, sets are made whose
documents share a name.

python examples/papers/cdlm.py --encoder sentence-transformers/all-MiniLM-L6-v2 [--train_file …
--test_file …]
"""

from __future__ import annotations

import json
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
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

NAMES = (
    "Ahab Emma Nemo Jane Dorian Heidi Oliver Alice Hamlet Pip Ishmael Darcy Sinbad Robin Tarzan"
    " Medea".split()
)


def read_or_make(file: str | None, seed: int) -> list[list[str]]:
    if file is not None:
        return [
            json.loads(line)["documents"]
            for line in Path(file).read_text(encoding="utf-8").splitlines()
        ]
    draw = np.random.default_rng(seed)
    places = ("at sea", "in the garden", "by the fire", "on the road")
    return [
        [f"{name} was seen {draw.choice(places)} {draw.choice(places)}." for _ in range(4)]
        for name in NAMES
    ]


def pairs_of(sets: list[list[str]], count: int, seed: int) -> list[tuple[list[str], int]]:
    """Two documents of one set (1), or of two sets (0), in turn."""
    draw = np.random.default_rng(seed)
    pairs = []
    for number in range(count):
        one, other = draw.choice(len(sets), 2, replace=False)
        second = sets[other if number % 2 else one]
        pairs.append(([str(draw.choice(sets[one])), str(draw.choice(second))], 1 - number % 2))
    return pairs


def main(words: list[str] | None = None) -> dict[str, float]:
    parser = ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--encoder", required=True, help="folder or name on the Hub of a BERT or RoBERTa"
    )
    parser.add_argument("--train_file")
    parser.add_argument("--test_file")
    numbers = {
        "max_length": 64,
        "attention_window": 32,
        "pretraining_epochs": 3.0,
        "epochs": 6.0,
        "pairs": 160,
    }
    for name, value in {**numbers, "learning_rate": 1e-4, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--output_dir", default="cdlm")
    args = parser.parse_args(words)
    set_seed(args.seed)
    train = read_or_make(args.train_file, 1)
    test = read_or_make(args.test_file, 2)
    sizes = {"max_length": args.max_length, "attention_window": args.attention_window}
    model = CdlmForMaskedLM.from_encoder(args.encoder, **sizes)
    processor = CdlmProcessor.from_model(model)
    settings = TrainingArguments(
        args.output_dir, seed=args.seed, save_strategy="no", learning_rate=args.learning_rate
    )
    settings.num_train_epochs = args.pretraining_epochs
    masking = DataCollatorForCrossDocumentMasking(processor)
    Trainer(model, settings, masking, ClusterDataset(train, processor, seed=args.seed)).train()
    model.save_pretrained(args.output_dir)

    matcher = CdlmForDocumentMatching.from_pretrained(args.output_dir)
    rows = [
        {**processor.cluster(texts), "labels": label}
        for texts, label in pairs_of(train, args.pairs, args.seed)
    ]
    settings.num_train_epochs = args.epochs
    trainer = Trainer(
        matcher, settings, lambda batch: dict(processor.pad(batch)), train_dataset=rows
    )
    trainer.train()
    trainer.save_model()  # opens by AutoModelForSequenceClassification.from_pretrained
    tests = pairs_of(test, 80, args.seed + 1)
    predictions = trainer.predict(
        [processor.cluster(texts) for texts, _ in tests]
    ).predictions.argmax(axis=1)
    return {"accuracy": float(np.mean(predictions == [label for _, label in tests])), "chance": 0.5}


if __name__ == "__main__":
    print(json.dumps(main(), indent=2))
