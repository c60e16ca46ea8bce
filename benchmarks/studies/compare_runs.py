"""Is one fine-tuned model better than another? Bootstrap and permutation test on two runs' predictions.

Takes the output folders of two runs of `run_finetune.py` on the same set. Coreference is compared by CoNLL F1 over
topics (CDLM, section 3.2), retrieval by MRR over queries, questions by the official exact match, everything else by
accuracy.

    python -m benchmarks.studies.compare_runs RUN OTHER_RUN
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.measuring import print_table
from nextlevelbert.evaluation.coreference import coreference_scores
from nextlevelbert.evaluation.hotpotqa import normalize_answer
from nextlevelbert.evaluation.significance import Comparison, compare

Record = dict[str, Any]


def topics(records: list[Record]) -> list[list[Record]]:
    """The mentions of each topic; clusters do not reach beyond one."""
    by_topic = sorted(records, key=lambda record: record["document"].split("_")[0])
    return [list(group) for _, group in itertools.groupby(by_topic, lambda record: record["document"].split("_")[0])]


def conll_f1(groups: Sequence[list[Record]]) -> float:
    """CoNLL F1 of the mentions of some topics; a topic that was drawn twice counts twice, as two topics."""
    mentions = [(number, record) for number, group in enumerate(groups) for record in group]
    found = coreference_scores(
        [(number, record["gold"]) for number, record in mentions],
        [(number, record["cluster"]) for number, record in mentions],
    )
    return found["conll_f1"]


def value(record: Record) -> float:
    """The score of one prediction.

    Raises:
        ValueError: for a record without a label, or of another task.
    """
    if "ranks_of_relevant_documents" in record:
        return 1.0 / min(record["ranks_of_relevant_documents"])
    if {"probability", "label"} <= record.keys() and record["label"] is not None:
        return float((record["probability"] > 0.5) == bool(record["label"]))
    if {"answer", "gold"} <= record.keys() and record["gold"] is not None:
        return float(normalize_answer(record["answer"]) == normalize_answer(record["gold"]))
    if {"prediction", "label"} <= record.keys():
        return float(record["prediction"] == record["label"])
    raise ValueError(f"There is nothing to score in a record with {', '.join(record)}; give runs on a labelled set.")


def read_predictions(folder: Path) -> list[Record]:
    """The predictions of a run.

    Raises:
        FileNotFoundError: if there are none.
    """
    files = sorted([*folder.glob("*_predictions.jsonl"), *folder.glob("predictions.jsonl")])
    if not files:
        raise FileNotFoundError(f"No predictions in {folder}; give the --output_dir of a run of run_finetune.py.")
    return [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]


def compare_runs(one: Path, other: Path, resamples: int = 10_000) -> tuple[str, Comparison]:
    """The score by name, and the two runs compared.

    Raises:
        ValueError: for predictions of other rows.
    """
    first, second = read_predictions(one), read_predictions(other)
    keys = [
        [json.dumps([record.get(name) for name in ("id", "query", "document", "start", "end")]) for record in records]
        for records in (first, second)
    ]
    if keys[0] != keys[1]:
        raise ValueError(f"{one} and {other} predict other rows; give two runs on the same set.")
    if "cluster" in first[0]:
        return "CoNLL F1", compare(topics(first), topics(second), conll_f1, resamples)
    name = "MRR" if "ranks_of_relevant_documents" in first[0] else "exact" if "answer" in first[0] else "accuracy"
    return name, compare([value(record) for record in first], [value(record) for record in second], None, resamples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2, type=Path, metavar="RUN", help="output folders of two runs")
    parser.add_argument("--resamples", type=int, default=10_000, help="default 10000")
    args = parser.parse_args()
    name, found = compare_runs(args.runs[0], args.runs[1], args.resamples)
    low, high = found.interval
    print_table(
        ["score", *[run.name for run in args.runs], "difference (95 %)", "p, bootstrap", "p, permutation", "items"],
        [
            [
                name,
                f"{found.first:.4f}",
                f"{found.second:.4f}",
                f"{found.first - found.second:+.4f} ({low:+.4f} to {high:+.4f})",
                f"{found.bootstrap_p:.4f}",
                f"{found.permutation_p:.4f}",
                found.items,
            ]
        ],
    )


if __name__ == "__main__":
    main()
