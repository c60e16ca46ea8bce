"""Fine-tune a classifier of long articles with the stock tokenizer and the Hugging Face Trainer.

python examples/finetune_classifier.py --model demo/model --documents train.jsonl --test_documents test.jsonl \\
    --output_dir my-classifier

Both files hold a `text` and a `label` in every row. Whole articles go in, of any length. What is trained is the
encoder over chunks and the head; the chunk encoder is frozen, yet here it computes the same chunk vectors again in
every epoch: that is short to write and slow to run. run_finetune.py computes them once.
"""

from __future__ import annotations

import argparse

from datasets import load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import nextlevelbert  # noqa: F401  (registers the architecture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a checkpoint")
    parser.add_argument("--documents", required=True, help="articles to learn from (.jsonl with text and label)")
    parser.add_argument("--test_documents", required=True, help="articles to be tested on, of the same kind")
    parser.add_argument("--output_dir", required=True, help="where the classifier goes")
    parser.add_argument("--epochs", type=float, default=3)
    args = parser.parse_args()

    articles = load_dataset("json", data_files={"train": args.documents, "test": args.test_documents})
    names = [str(label) for label in sorted(set(articles["train"]["label"]))]
    if unknown := {str(label) for label in articles["test"]["label"]} - set(names):
        parser.error(f"labels of --test_documents that --documents does not have: {', '.join(sorted(unknown))}")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    articles = articles.map(
        lambda article: {
            **tokenizer(article["text"], truncation=False, verbose=False),
            "labels": names.index(str(article["label"])),
        },
        remove_columns=articles["train"].column_names,
    )
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )
    trainer = Trainer(
        model,
        TrainingArguments(
            args.output_dir,
            num_train_epochs=args.epochs,
            learning_rate=1e-4,
            warmup_steps=0.1,
            save_strategy="no",
        ),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=articles["train"],
        eval_dataset=articles["test"],
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
    )
    trainer.train()
    trainer.save_model()
    accuracy = trainer.evaluate()["eval_accuracy"]
    print(
        f"Wrote {args.output_dir}: a classifier into {', '.join(names)}; "
        f"accuracy {accuracy:.3f} on {len(articles['test'])} articles."
    )


if __name__ == "__main__":
    main()
