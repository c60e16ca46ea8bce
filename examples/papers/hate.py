"""HATE from texts to a score, with a stock Trainer.

Pretraining with masked sentences, which are chosen among those of the batch, then classification.
HATE ("Hierarchical Attention-based Text Encoder") is a small, new Transformer over vectors of a
frozen sentence encoder. The documents are made here: most sentences are on the sea or on bread,
which is the label, and some on the other.

python examples/papers/hate.py [ENCODER, a name or folder [FOLDER]]
"""

from __future__ import annotations

import random

import transformers as hf
from datasets import Dataset

import nextlevelbert as nlb
from nextlevelbert.command import run_command

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
    """Makes texts with four sentences on the sea and two on bread (label 1), or the reverse (0)."""
    rows = []
    for number in range(count):
        label = number % 2
        most = BREAD
        few = SEA
        if label == 1:
            most = SEA
            few = BREAD
        sentences = random.sample(most, 4) + random.sample(few, 2)
        rows.append({"text": " ".join(random.sample(sentences, 6)), "label": label})
    return Dataset.from_list(rows)


def accuracy(prediction: hf.EvalPrediction) -> dict[str, float]:
    predicted = prediction.predictions.argmax(axis=-1)
    return {"accuracy": float((predicted == prediction.label_ids).mean())}


def train(trainer: hf.Trainer, score: str) -> tuple[float, float]:
    """Trains and saves a model, and prints a score on held-out rows before and after."""
    folder = trainer.args.output_dir
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    trainer.model.save_pretrained(folder)

    text = f"{folder}: {score} {before[f'eval_{score}']:.3f} → {after[f'eval_{score}']:.3f}"
    if "eval_chance_accuracy" in after:
        text += f" (chance {after['eval_chance_accuracy']:.3f})"
    print(f"{text} on {len(trainer.eval_dataset)} held-out rows")
    return before[f"eval_{score}"], after[f"eval_{score}"]


def arguments(folder: str, epochs: int) -> hf.TrainingArguments:
    """Sets the rate of a new model, which is higher than usual."""
    return hf.TrainingArguments(
        folder,
        learning_rate=1e-3,
        num_train_epochs=epochs,
        per_device_eval_batch_size=64,
        save_strategy="no",
    )


def pretrain(name: str, folder: str, training_set: Dataset, held_out: Dataset) -> tuple:
    """Encodes the documents, and trains a document model over their sentence vectors."""
    encoder = nlb.load_chunk_encoder(name)
    model = nlb.HateForMaskedSentencePrediction.from_chunk_encoder(
        encoder, hidden_size=64, num_hidden_layers=2, loss="cross_entropy"
    )
    rule = model.config.chunking_rule()
    vectors = nlb.encode_corpus(training_set, encoder, rule, folder=f"{folder}/vectors")
    held_out_vectors = nlb.encode_corpus(held_out, encoder, rule, folder=f"{folder}/held-out")

    metrics = nlb.MaskedVectorMetrics(model.config.loss)
    args = arguments(f"{folder}/pretrained", epochs=40)
    args.label_names = ["mask_positions", "special_ids"]
    trainer = hf.Trainer(
        model,
        args,
        train_dataset=nlb.DocumentVectorDataset(vectors, sequence_length=32),
        eval_dataset=nlb.DocumentVectorDataset(held_out_vectors, sequence_length=32),
        data_collator=nlb.DataCollatorForVectorMasking(),
        preprocess_logits_for_metrics=metrics.score_batch,
        compute_metrics=metrics,
    )
    return train(trainer, "masked_accuracy")


def main(name: str = "minilm", folder: str = "hate") -> dict[str, tuple]:
    hf.set_seed(0)
    training_set = documents(64)
    held_out = documents(64)
    scores = {"pretrained": pretrain(name, folder, training_set=training_set, held_out=held_out)}

    pretrained = f"{folder}/pretrained"
    tokenizer = hf.AutoTokenizer.from_pretrained(pretrained)
    classifier = hf.AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    trainer = hf.Trainer(
        classifier,
        arguments(f"{folder}/classifier", epochs=3),
        train_dataset=training_set.map(lambda row: tokenizer(row["text"]), batched=True),
        eval_dataset=held_out.map(lambda row: tokenizer(row["text"]), batched=True),
        data_collator=hf.DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    scores["classifier"] = train(trainer, "accuracy")
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(lambda argv: main(*argv)))
