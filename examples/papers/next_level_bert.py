"""NextLevelBERT from texts to scores, with a stock Trainer.

Pretraining with masked chunk vectors, then classification and multiple choice (Czinczoll et al.,
ACL 2024, arXiv 2402.17682). The documents are made here, each about one of four subjects; replace
`documents`. The paper's loss, Smooth L1, needs far more text than this: its predictions would only
shrink towards the mean. Here the model learns to find each masked chunk among the others.

python examples/papers/next_level_bert.py [ENCODER, a name or folder [FOLDER]]
"""

from __future__ import annotations

import random

import transformers as hf
from datasets import Dataset

import nextlevelbert as nlb
from nextlevelbert.command import run_command

SUBJECTS = {
    "the sea": (
        "The whale dived below the ship.",
        "A storm tore the sails.",
        "Dawn lit the harbour.",
    ),
    "bread": ("The baker kneaded the dough.", "The oven was hot.", "Flour covered the table."),
    "the stars": ("Saturn rose above the dome.", "A telescope found a comet.", "The galaxy shone."),
    "trains": ("The engine left late.", "The signal turned green.", "Rails crossed the bridge."),
}


def documents(count: int) -> Dataset:
    """Makes texts, whether they are about nature, and the number of their subject."""
    rows = []
    for number in range(count):
        subject = number % 4
        sentences = random.choices(list(SUBJECTS.values())[subject], k=12)
        rows.append({"text": " ".join(sentences), "label": 1 - subject % 2, "subject": subject})
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


def pretrain(name: str, folder: str, training_set: Dataset, held_out: Dataset) -> tuple:
    """Encodes the documents, and trains layers over their chunk vectors."""
    encoder = nlb.load_chunk_encoder(name)
    model = nlb.NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        encoder, chunk_size=16, loss="cross_entropy"
    )
    rule = model.config.chunking_rule()
    vectors = nlb.encode_corpus(training_set, encoder, rule, folder=f"{folder}/vectors")
    held_out_vectors = nlb.encode_corpus(held_out, encoder, rule, folder=f"{folder}/held-out")

    metrics = nlb.MaskedVectorMetrics(model.config.loss)
    label_names = ["mask_positions", "special_ids"]
    arguments = hf.TrainingArguments(
        f"{folder}/pretrained", num_train_epochs=20, learning_rate=3e-4, label_names=label_names
    )
    trainer = hf.Trainer(
        model,
        arguments,
        train_dataset=nlb.PackedVectorDataset(vectors, sequence_length=32),
        eval_dataset=nlb.PackedVectorDataset(held_out_vectors, sequence_length=32),
        data_collator=nlb.DataCollatorForVectorMasking(),
        preprocess_logits_for_metrics=metrics.score_batch,
        compute_metrics=metrics,
    )
    return train(trainer, "masked_accuracy")


def main(name: str = "minilm", folder: str = "next-level-bert") -> dict[str, tuple]:
    hf.set_seed(0)
    training_set = documents(48)
    held_out = documents(32)
    scores = {"pretrained": pretrain(name, folder, training_set=training_set, held_out=held_out)}
    pretrained = f"{folder}/pretrained"
    tokenizer = hf.AutoTokenizer.from_pretrained(pretrained)

    classifier = hf.AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    trainer = hf.Trainer(
        classifier,
        hf.TrainingArguments(f"{folder}/classifier"),
        train_dataset=training_set.map(lambda row: tokenizer(row["text"]), batched=True),
        eval_dataset=held_out.map(lambda row: tokenizer(row["text"]), batched=True),
        data_collator=hf.DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    scores["classifier"] = train(trainer, "accuracy")

    def pairs(row: dict) -> dict:
        """Pairs the document with the question and each candidate, as `run_swag` does."""
        candidates = [f"What is it about? {subject}" for subject in SUBJECTS]
        return {**tokenizer([row["text"]] * 4, candidates), "label": row["subject"]}

    chooser = hf.AutoModelForMultipleChoice.from_pretrained(pretrained)
    trainer = hf.Trainer(
        chooser,
        hf.TrainingArguments(f"{folder}/chooser"),
        train_dataset=training_set.map(pairs),
        eval_dataset=held_out.map(pairs),
        data_collator=hf.DataCollatorForMultipleChoice(tokenizer),
        compute_metrics=accuracy,
    )
    scores["chooser"] = train(trainer, "accuracy")
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(lambda argv: main(*argv)))
