"""One table of extractive summaries: BERT-AL beside the paper's baselines, at several segment lengths.

Runs `run_finetune.py --task summarization` for every row; rows that were finished before are only read. Options that
are not listed here go to each of these runs:

    python -m benchmarks.studies.extractive_summaries --train_file train.jsonl --test_file test.jsonl \\
        --output_dir table --segment_lengths 16 128 --max_steps 300 --longer 8

Baselines (paper of BERT-AL, section "Experiment setting"): "truncated" reads the first segment only; "extended" reads
on with random positions after the first segment. Its full attention needs memory, so it always gets
--attn_implementation sdpa. "TF-IDF centre" takes the sentences that are nearest to the mean of all by their words: it
tells how much of the task is counting words.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.common.studies import run_script
from nextlevelbert.models.bert_al_sentences import select_sentences
from nextlevelbert.models.pretrained import load_tokenizer
from nextlevelbert.tasks.summarization.data import SummarizationData, SummaryColumns, read_summarization
from nextlevelbert.tasks.summarization.train import score_summaries, trivial_summaries
from nextlevelbert.training.plots import results_table

ROWS = {
    "truncated": ["--model_type", "truncated"],
    "extended": ["--model_type", "extended"],
    "BERT-AL, replace": ["--model_type", "bert-al", "--recurrence", "replace"],
    "BERT-AL, residual": ["--model_type", "bert-al", "--recurrence", "residual"],
    "BERT-AL, none": ["--model_type", "bert-al", "--recurrence", "none"],
}


def tfidf_centre(train: SummarizationData, test: SummarizationData, count: int) -> dict[str, float]:
    """Scores of the sentences nearest to the document's mean TF-IDF vector, weighed on the training documents."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit(each.text for each in train.documents)
    chosen = []
    for document in test.documents:
        words = vectorizer.transform(document.sentences)  # [S, V], rows of norm 1
        chosen.append(select_sentences(np.asarray(words @ words.mean(axis=0).T).ravel(), count))
    return score_summaries(test, chosen)


def scores_of(predictions: Path, test: SummarizationData, count: int) -> dict[str, float]:
    """Scores of summaries of another length by what a run has stored, of its first seed's best evaluation."""
    stored = [json.loads(line)["scores"] for line in predictions.read_text().splitlines()]
    return score_summaries(test, [select_sentences(np.array(scores), count) for scores in stored])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--segment_lengths", type=int, nargs="+", default=[8, 16, 128, 256])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--output_dir", type=Path, required=True, help="a folder for all rows")
    for name in ("train_file", "test_file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--label_column", help="by default the greedy oracle's labels")
    parser.add_argument("--summary_sentences", type=int, default=3)
    parser.add_argument(
        "--longer", type=int, help="a second table: summaries of so many sentences, of the same scores"
    )
    args, others = parser.parse_known_args()
    for name in ("train_file", "test_file", "text_column", "label_column", "summary_sentences"):
        if (value := getattr(args, name)) is not None:
            others += [f"--{name}", str(value)]
    columns, tokenizer = SummaryColumns(args.text_column, labels=args.label_column), load_tokenizer(args.encoder)
    oracle = args.output_dir / "oracle"
    train, test = (
        read_summarization(file, tokenizer, columns, oracle_cache=oracle) for file in (args.train_file, args.test_file)
    )
    table: dict[str, Any] = {}
    longer: dict[str, Any] = {}
    trivial: dict[str, Any] = {}
    for length in args.segment_lengths:
        for name in args.rows:
            folder = args.output_dir / f"{name.replace(', ', '-').lower()}-{length}"
            run_script(
                "run_finetune.py", "--task", "summarization", "--model", args.encoder, *ROWS[name],
                "--segment_length", length, "--output_dir", folder, *others, "--cache_dir", oracle,
                *(["--attn_implementation", "sdpa"] if name == "extended" else []),
            )  # fmt: skip
            rows = json.loads((folder / "results.json").read_text())["rows"]
            own, *rest = rows
            table[f"{name}, segments of {length}"] = {
                score: tuple(value) if isinstance(value, list) else value for score, value in rows[own].items()
            }
            trivial |= {each: rows[each] for each in rest}
            if args.longer:
                longer[f"{name}, segments of {length}"] = scores_of(
                    folder / "test_predictions.jsonl", test, args.longer
                )
    trivial["TF-IDF centre"] = tfidf_centre(train, test, args.summary_sentences)
    print(results_table({**table, **trivial}))
    if args.longer:
        longer |= trivial_summaries(test, args.longer)
        longer["TF-IDF centre"] = tfidf_centre(train, test, args.longer)
        print(
            f"\n{args.longer} sentences, by the evaluation with the lowest loss of each run\n\n{results_table(longer)}"
        )


if __name__ == "__main__":
    main()
