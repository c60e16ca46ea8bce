"""NextLevelBERT from texts to scores: pretraining, classification and multiple choice with a stock
Trainer.

Czinczoll et al., "NextLevelBERT: Masked Language Modeling with Higher-Level Representations for
Long Documents", ACL 2024 (arXiv 2402.17682). The documents are made here, each about one of four
subjects; replace `documents`.

python examples/papers/next_level_bert.py [ENCODER [FOLDER]]      # a sentence-transformers model,
name or folder
"""

from __future__ import annotations

import random
import sys

import transformers as hf
from datasets import Dataset

import nextlevelbert as nlb

SUBJECTS = {
    "the sea": [
        "The whale dived below the ship.",
        "A storm tore the sails.",
        "The sailors saw the harbour at dawn.",
    ],
    "bread": [
        "The baker kneaded the dough.",
        "The oven was hot before sunrise.",
        "Flour covered the kitchen table.",
    ],
    "the stars": [
        "Saturn rose above the dome.",
        "The telescope found a comet.",
        "Light left that galaxy long ago.",
    ],
    "trains": [
        "The engine left the station late.",
        "The signal turned green.",
        "Rails crossed the long bridge.",
    ],
}


def documents(count: int) -> Dataset:
    """Texts, whether they are about nature, and the number of their subject among all."""
    rows = [
        (number % 4, random.choices(list(SUBJECTS.values())[number % 4], k=12))
        for number in range(count)
    ]
    return Dataset.from_list(
        [{"text": " ".join(text), "label": 1 - n % 2, "subject": n} for n, text in rows]
    )


def accuracy(prediction) -> dict[str, float]:
    return {
        "accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())
    }


def train(model, folder, sets, collator, metrics=None, score="loss") -> tuple[float, float]:
    """With a stock `Trainer` and the defaults of its arguments; the score on held-out rows before
    and after."""
    trainer = hf.Trainer(
        model, hf.TrainingArguments(folder), collator, *sets, compute_metrics=metrics
    )
    before = trainer.evaluate()[f"eval_{score}"]
    trainer.train()
    after = trainer.evaluate()[f"eval_{score}"]
    model.save_pretrained(folder)
    print(f"{folder}: {score} {before:.4f} → {after:.4f} on {len(sets[1])} held-out rows")
    return before, after


def main(
    name: str = "sentence-transformers/all-MiniLM-L6-v2", folder: str = "next-level-bert"
) -> dict[str, tuple]:
    hf.set_seed(0)
    sets, scores = (documents(48), documents(16)), {}
    encoder = nlb.load_chunk_encoder(name)
    model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(encoder, chunk_size=64)
    rule, places = model.config.chunking_rule(), (f"{folder}/vectors", f"{folder}/held-out-vectors")
    corpora = [
        nlb.encode_corpus(rows, encoder, rule, place)
        for rows, place in zip(sets, places, strict=True)
    ]
    data = [nlb.PackedVectorDataset(corpus, sequence_length=32) for corpus in corpora]
    scores["pretrained"] = train(
        model, f"{folder}/pretrained", data, nlb.DataCollatorForVectorMasking()
    )

    tokenizer = hf.AutoTokenizer.from_pretrained(f"{folder}/pretrained")
    classifier = hf.AutoModelForSequenceClassification.from_pretrained(
        f"{folder}/pretrained", num_labels=2
    )
    rows = [part.map(lambda row: tokenizer(row["text"]), batched=True) for part in sets]
    padding = hf.DataCollatorWithPadding(tokenizer)
    scores["classifier"] = train(
        classifier, f"{folder}/classifier", rows, padding, accuracy, "accuracy"
    )

    def pairs(row: dict) -> dict:
        """The document with the question and each candidate, as in `run_swag`."""
        texts = [f"What is it about? {candidate}" for candidate in SUBJECTS]
        return {**tokenizer([row["text"]] * 4, texts), "label": row["subject"]}

    chooser = hf.AutoModelForMultipleChoice.from_pretrained(f"{folder}/pretrained")
    rows, padding = [part.map(pairs) for part in sets], hf.DataCollatorForMultipleChoice(tokenizer)
    scores["chooser"] = train(chooser, f"{folder}/chooser", rows, padding, accuracy, "accuracy")
    return scores


if __name__ == "__main__":
    main(*sys.argv[1:])
