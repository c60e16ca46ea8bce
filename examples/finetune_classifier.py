"""Fine-tune a classifier of long articles with the stock tokenizer and the Hugging Face Trainer.

python examples/finetune_classifier.py --model demo/model --documents train.jsonl --test_documents test.jsonl \\
    --output_dir my-classifier

Every row of both files has a `text`, an article of any length, and a `label`. A ChunkBERT is trained as a whole; of a
NextLevelBERT, the encoder over chunks and the head are trained. Its chunk encoder is frozen, but here it computes the
same chunk vectors again in every epoch, which is short to write and slow to run. run_finetune.py computes them once.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter

from datasets import ClassLabel, load_dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import nextlevelbert  # noqa: F401  (registers the architecture)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    for name in ("model", "documents", "test_documents", "output_dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--epochs", type=float, default=3)
    args = parser.parse_args()

    articles = load_dataset("json", data_files={"train": args.documents, "test": args.test_documents})
    names = sorted(map(str, articles["train"].unique("label")))
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    articles = articles.map(lambda article: tokenizer(article["text"], truncation=False, verbose=False))
    articles = articles.cast_column("label", ClassLabel(names=names)).rename_column("label", "labels")
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    settings = {"num_train_epochs": args.epochs, "learning_rate": 1e-4, "warmup_steps": 0.1, "save_strategy": "no"}
    trainer = Trainer(
        AutoModelForSequenceClassification.from_pretrained(args.model, **labels),
        TrainingArguments(args.output_dir, **settings),
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=articles["train"],
        eval_dataset=articles["test"],
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
    )
    trainer.train()
    trainer.save_model()
    accuracy = trainer.evaluate()["eval_accuracy"]
    print(f"Wrote {args.output_dir}: a classifier into {', '.join(names)}; accuracy {accuracy:.3f}.")


if __name__ == "__main__":
    main()
