"""HATE from texts to a score: masked sentences among those of the batch, then classification, by a
stock Trainer.

"Hierarchical Attention-based Text Encoder": a small, new Transformer over vectors of a frozen
sentence encoder. The documents are made here: most sentences are on the sea or on bread, which is
the label, and some on the other.

python examples/papers/hate.py [ENCODER [FOLDER]]      # a sentence-transformers model, name or
folder
"""

from __future__ import annotations

import random
import sys

from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    set_seed,
)

import nextlevelbert as nlb

SEA = [
    "The whale dived below the ship.",
    "A storm tore the sails.",
    "The sailors saw the harbour.",
    "The tide rose.",
]
BREAD = [
    "The baker kneaded the dough.",
    "The oven was hot.",
    "Flour covered the table.",
    "The crust was brown.",
]


def documents(count: int) -> Dataset:
    """Texts of four sentences on one subject and two on the other; label 1: most are on the sea."""
    rows = []
    for number in range(count):
        most, few = (SEA, BREAD) if number % 2 else (BREAD, SEA)
        sentences = random.sample(most, 4) + random.sample(few, 2)
        rows.append({"text": " ".join(random.sample(sentences, 6)), "label": number % 2})
    return Dataset.from_list(rows)


def accuracy(prediction) -> dict[str, float]:
    return {
        "accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())
    }


def train(model, folder, epochs, sets, collator, metrics=None, score="loss") -> tuple[float, float]:
    """With a stock `Trainer`; the score on held-out rows before and after. A new model needs a
    higher rate."""
    args = TrainingArguments(
        folder, learning_rate=1e-3, num_train_epochs=epochs, save_strategy="no"
    )
    trainer = Trainer(model, args, collator, *sets, compute_metrics=metrics)
    before = trainer.evaluate()[f"eval_{score}"]
    trainer.train()
    after = trainer.evaluate()[f"eval_{score}"]
    model.save_pretrained(folder)
    print(f"{folder}: {score} {before:.4f} → {after:.4f} on {len(sets[1])} held-out rows")
    return before, after


def main(
    name: str = "sentence-transformers/all-MiniLM-L6-v2", folder: str = "hate"
) -> dict[str, tuple]:
    set_seed(0)
    sets, scores = (documents(64), documents(16)), {}
    encoder = nlb.load_chunk_encoder(name)
    kind = nlb.HateForMaskedSentencePrediction
    model = kind.from_chunk_encoder(
        encoder, hidden_size=64, num_hidden_layers=2, loss="cross_entropy"
    )  # or p_norm
    rule, places = model.config.chunking_rule(), (f"{folder}/vectors", f"{folder}/held-out-vectors")
    corpora = [
        nlb.encode_corpus(rows, encoder, rule, place)
        for rows, place in zip(sets, places, strict=True)
    ]
    data = [nlb.DocumentVectorDataset(corpus, sequence_length=32) for corpus in corpora]
    masking = nlb.DataCollatorForVectorMasking()
    scores["pretrained"] = train(model, f"{folder}/pretrained", 20, data, masking)

    tokenizer = AutoTokenizer.from_pretrained(f"{folder}/pretrained")
    classifier = AutoModelForSequenceClassification.from_pretrained(
        f"{folder}/pretrained", num_labels=2
    )
    rows = [part.map(lambda row: tokenizer(row["text"]), batched=True) for part in sets]
    padding = DataCollatorWithPadding(tokenizer)
    scores["classifier"] = train(
        classifier, f"{folder}/classifier", 3, rows, padding, accuracy, "accuracy"
    )
    return scores


if __name__ == "__main__":
    main(*sys.argv[1:])
