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
    items = [*first, *second]
    numbers = np.arange(len(first))

    def difference(one: np.ndarray, other: np.ndarray) -> float:
        of_one = score([items[number] for number in one])
        of_other = score([items[number] for number in other])
        return float(of_one) - float(of_other)

    def resampled(chosen: np.ndarray) -> float:
        return difference(chosen, chosen + len(first))

    options: dict[str, Any] = {
        "vectorized": False,
        "n_resamples": resamples,
        "rng": np.random.default_rng(0),
    }
    drawn = stats.bootstrap((numbers,), resampled, method="percentile", **options)
    samples = (numbers, numbers + len(first))
    permuted = stats.permutation_test(samples, difference, permutation_type="samples", **options)
    low, high = drawn.confidence_interval
    below = float(np.mean(drawn.bootstrap_distribution <= 0))
    above = float(np.mean(drawn.bootstrap_distribution >= 0))
    return Comparison(
        first=float(score(first)),
        second=float(score(second)),
        interval=(float(low), float(high)),
        bootstrap_p=min(1.0, 2 * min(below, above)),
        permutation_p=float(permuted.pvalue),
    )


def topic(record: dict[str, Any]) -> str:
    return record["document"].split("_")[0]


def conll_f1(groups: Sequence[list[dict[str, Any]]]) -> float:
    """Computes CoNLL F1 of some topics; a topic that was drawn twice counts as two topics."""
    gold = []
    clusters = []
    for number, group in enumerate(groups):
        gold += [(number, record["gold"]) for record in group]
        clusters += [(number, record["cluster"]) for record in group]
    return coreference_scores(gold, clusters)["conll_f1"]


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


def row_of(record: dict[str, Any]) -> list[Any]:
    """Returns what a prediction is about."""
    return [record.get(name) for name in ("id", "query", "document", "start", "end")]


def by_topic(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups = itertools.groupby(sorted(records, key=topic), key=topic)
    return [list(group) for _, group in groups]


def score_name(record: dict[str, Any]) -> str:
    """Returns the name of what `value` measures."""
    if "ranks_of_relevant_documents" in record:
        return "MRR"
    if "answer" in record:
        return "exact"
    return "accuracy"


def compare_runs(one: Path, other: Path, resamples: int = 10_000) -> tuple[str, Comparison]:
    """Returns the name of the score, and the comparison of the two runs."""
    first = read_predictions(one)
    second = read_predictions(other)
    if list(map(row_of, first)) != list(map(row_of, second)):
        raise ValueError(f"{one} and {other} predict other rows; give two runs on the same set.")
    if "cluster" in first[0]:
        compared = compare(by_topic(first), by_topic(second), score=conll_f1, resamples=resamples)
        return "CoNLL F1", compared
    compared = compare(list(map(value, first)), list(map(value, second)), resamples=resamples)
    return score_name(first[0]), compared


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "runs", nargs=2, type=Path, metavar="RUN", help="output folders of two runs"
    )
    parser.add_argument("--resamples", type=int, default=10_000, help="default 10000")
    args = parser.parse_args()
    one, other = args.runs
    name, compared = compare_runs(one, other, resamples=args.resamples)
    gain = compared.first - compared.second
    low, high = compared.interval
    runs = [run.name for run in args.runs]
    print_table(
        ["score", *runs, "difference (95 %)", "p, bootstrap", "p, permutation"],
        [
            [
                name,
                f"{compared.first:.4f}",
                f"{compared.second:.4f}",
                f"{gain:+.4f} ({low:+.4f} to {high:+.4f})",
                f"{compared.bootstrap_p:.4f}",
                f"{compared.permutation_p:.4f}",
            ]
        ],
    )


if __name__ == "__main__":
    main()
