"""Is one fine-tuned model better than another? Bootstrap and permutation test on two runs'
predictions.

Takes the output folders of two runs of `run_finetune.py` or of a script of `examples` on the same
set. Coreference is compared by CoNLL F1 over topics (CDLM, section 3.2), retrieval by MRR over
queries, questions by the official exact match, everything else by accuracy. Both tests (Dror et
al., 2018) are SciPy's.

    python -m benchmarks.studies.compare_runs RUN OTHER_RUN
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.common.measuring import print_table
from metrics.conll_coreference.conll_coreference import coreference_scores
from metrics.hotpotqa_joint.hotpotqa_joint import normalize_answer


class Comparison(NamedTuple):
    """One system against another on the same items.

    Attributes:
        first, second: scores of the two systems over all items.
        interval: 95 % interval of the difference (first minus second), by resampling the items.
        bootstrap_p: share of the resamples, both tails together, in which the sign of the
            difference turns.
        permutation_p: two-sided p-value: share of exchanges of the two systems, item by item, with
            a difference as large.
    """

    first: float
    second: float
    interval: tuple[float, float]
    bootstrap_p: float
    permutation_p: float


def compare(
    first: Sequence[Any],
    second: Sequence[Any],
    score: Callable[[Sequence[Any]], Any] = np.mean,
    resamples: int = 10_000,
) -> Comparison:
    """Compares two systems by the `score` of their results on the same items."""
    items, numbers = [*first, *second], np.arange(len(first))
    rng = np.random.default_rng(0)

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        return float(score([items[number] for number in one])) - float(
            score([items[number] for number in other])
        )

    def resampled(chosen: np.ndarray) -> float:
        return difference(chosen, chosen + len(first))

    options: dict[str, Any] = {"vectorized": False, "n_resamples": resamples, "rng": rng}
    drawn = stats.bootstrap((numbers,), resampled, method="percentile", **options)
    samples = (numbers, numbers + len(first))
    permuted = stats.permutation_test(samples, difference, permutation_type="samples", **options)
    tails = [float(np.mean(sign * drawn.bootstrap_distribution <= 0)) for sign in (1, -1)]
    interval = (float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))
    scores = float(score(first)), float(score(second))
    return Comparison(*scores, interval, min(1.0, 2 * min(tails)), float(permuted.pvalue))


def topic(record: dict[str, Any]) -> str:
    return record["document"].split("_")[0]


def conll_f1(groups: Sequence[list[dict[str, Any]]]) -> float:
    """Computes CoNLL F1 of some topics; a topic that was drawn twice counts as two topics."""
    mentions = [(number, record) for number, group in enumerate(groups) for record in group]
    sides = (
        [(number, record[name]) for number, record in mentions] for name in ("gold", "cluster")
    )
    return coreference_scores(*sides)["conll_f1"]


def value(record: dict[str, Any]) -> float:
    """Returns the score of one prediction of a labelled set."""
    if "ranks_of_relevant_documents" in record:
        return 1.0 / min(record["ranks_of_relevant_documents"])
    if "probability" in record:
        return float((record["probability"] > 0.5) == bool(record["label"]))
    if "answer" in record:
        return float(normalize_answer(record["answer"]) == normalize_answer(record["gold"]))
    return float(record["prediction"] == record["label"])


def read_predictions(folder: Path) -> list[dict[str, Any]]:
    """Reads the predictions of a run, of ``test`` if there is one, otherwise of ``validation``."""
    files = sorted([*folder.glob("*predictions.jsonl")])
    if not files:
        raise FileNotFoundError(f"No predictions in {folder}; give the --output_dir of a run.")
    return [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]


def compare_runs(one: Path, other: Path, resamples: int = 10_000) -> tuple[str, Comparison]:
    """Returns the name of the score, and the comparison of the two runs."""
    first, second = read_predictions(one), read_predictions(other)
    names = ("id", "query", "document", "start", "end")
    keys = [
        [[record.get(name) for name in names] for record in records] for records in (first, second)
    ]
    if keys[0] != keys[1]:
        raise ValueError(f"{one} and {other} predict other rows; give two runs on the same set.")
    if "cluster" in first[0]:
        sides = [
            [list(group) for _, group in itertools.groupby(sorted(r, key=topic), topic)]
            for r in (first, second)
        ]
        return "CoNLL F1", compare(sides[0], sides[1], conll_f1, resamples)
    name = (
        "MRR"
        if "ranks_of_relevant_documents" in first[0]
        else "exact"
        if "answer" in first[0]
        else "accuracy"
    )
    return name, compare(
        [value(record) for record in first],
        [value(record) for record in second],
        np.mean,
        resamples,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs=2, type=Path, metavar="RUN", help="output folders of two runs"
    )
    parser.add_argument("--resamples", type=int, default=10_000, help="default 10000")
    args = parser.parse_args()
    name, comparison = compare_runs(args.runs[0], args.runs[1], args.resamples)
    first, second, (low, high), bootstrap_p, permutation_p = comparison
    print_table(
        [
            "score",
            *[run.name for run in args.runs],
            "difference (95 %)",
            "p, bootstrap",
            "p, permutation",
        ],
        [
            [
                name,
                f"{first:.4f}",
                f"{second:.4f}",
                f"{first - second:+.4f} ({low:+.4f} to {high:+.4f})",
                f"{bootstrap_p:.4f}",
                f"{permutation_p:.4f}",
            ]
        ],
    )


if __name__ == "__main__":
    main()
