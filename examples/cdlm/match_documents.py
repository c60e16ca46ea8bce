"""Trains CDLM to decide whether two documents are related: Table 4.

"CDLM: Cross-Document Language Modeling" (Caciularu et al., 2021), section 3.3. In the benchmark of
Zhou et al. (2020, arXiv 2010.01263): does one paper cite the other (AAN, OC, S2ORC), is a document
plagiarised from the other (PAN).

    python examples/cdlm/match_documents.py --recipe examples/recipes/cdlm_matching.yaml \
        --model MODEL --train_file train.csv --validation_file dev.csv --test_file test.csv \
        --output_dir matcher

A `.csv` is one of Zhou et al.: a label, 0 or 1, and two texts in each line, without a line of
names. Any other table has the columns `text1`, `text2` and `label`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import ThreeSetsArguments, open_cdlm, parse_arguments
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score
from transformers import Trainer, set_seed

from nextlevelbert import CdlmForDocumentMatching
from nextlevelbert.command import run_command
from nextlevelbert.data import open_rows


class DocumentPair(NamedTuple):
    """Two documents; the label is 1 if they are related, otherwise 0."""

    first: str
    second: str
    label: int


def read_pairs(source: str | Path) -> list[DocumentPair]:
    """Reads pairs of documents.

    Raises:
        ValueError: for a row that cannot be read.
    """
    if ".csv" in Path(source).suffixes:
        table = pd.read_csv(
            source,
            header=None,
            names=["label", "text1", "text2"],
            usecols=[0, 1, 2],
            dtype=str,
            keep_default_na=False,
        )
        table = table.fillna("").replace("\x01", "", regex=True)  # U+0001 marks citations
        is_blank = table.apply(lambda column: column.str.strip() == "").any(axis=1)
        wrong_rows = table.index[is_blank | ~table["label"].isin(["0", "1"])]
        if len(wrong_rows) > 0:
            raise ValueError(f"{source}, row {wrong_rows[0] + 1}: must be 0 or 1, and two texts.")
        return [
            DocumentPair(first, second, int(label))
            for label, first, second in table.itertuples(index=False)
        ]

    pairs = []
    for location, row in open_rows(source).rows:
        if row.get("label") not in (0, 1):
            raise location.error("label", f"must be 0 or 1, got {row.get('label')!r}.")
        pairs.append(
            DocumentPair(
                location.text(row, "text1", "text1"),
                second=location.text(row, "text2", "text2"),
                label=int(row["label"]),
            )
        )
    return pairs


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    """Trains and evaluates; returns the scores of the test pairs."""
    options, args = parse_arguments(ThreeSetsArguments, argv)
    set_seed(args.seed)

    # 1. The model, and a sequence for each pair; [CLS] has global attention.
    model, processor = open_cdlm(CdlmForDocumentMatching, options)
    sets = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in ("train", "validation", "test"):
        path = getattr(options, f"{name}_file")
        if path is None:
            continue
        sets[name] = read_pairs(path)
        rows[name] = []
        lost_tokens = 0
        for pair in sets[name]:
            row = processor.cluster([pair.first, pair.second])
            lost_tokens += sum(row["lost_tokens"])
            rows[name].append({**row, "labels": pair.label})
        print(f"{name}: {len(sets[name])} pairs lose {lost_tokens:,} tokens.")

    # 2. Training.
    trainer = Trainer(
        model=model,
        args=args,
        data_collator=lambda batch: dict(processor.pad(batch)),
        train_dataset=rows["train"],
        eval_dataset=rows.get("validation"),
        processing_class=processor,
    )
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    trainer.save_model()

    # 3. F1 of the related pairs, beside the F1 of always answering that documents are related.
    logits = trainer.predict(rows["test"]).predictions.astype(np.float64)  # [N, 2]
    probabilities = expit(logits[:, 1] - logits[:, 0])
    labels = [pair.label for pair in sets["test"]]
    predicted = (probabilities > 0.5).astype(int)
    scores = {
        "f1": f1_score(labels, predicted),
        "accuracy": accuracy_score(labels, predicted),
        "f1_of_always_related": f1_score(labels, np.ones_like(predicted)),
    }
    trainer.log_metrics("test", scores)
    trainer.save_metrics("test", scores)
    with (Path(args.output_dir) / "test_predictions.jsonl").open("w", encoding="utf-8") as file:
        for index, (probability, label) in enumerate(zip(probabilities, labels, strict=True)):
            record = {"id": index, "probability": round(probability, 6), "label": label}
            file.write(json.dumps(record) + "\n")
    if args.push_to_hub:
        trainer.push_to_hub()
    return scores


if __name__ == "__main__":
    raise SystemExit(run_command(main))
