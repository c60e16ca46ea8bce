"""ROUGE of extractive summaries and the greedy oracle, both by the `rouge-score` package."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

ROUGE = ("rouge1", "rouge2", "rougeL")
_LEAST_GAIN = 1e-9  # below it is rounding


def rouge_scores(
    summaries: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Mean F1 of ROUGE-1, ROUGE-2 and summary-level ROUGE-L (union of longest common subsequences),
    0 to 1.

    With stemming, as the papers' ROUGE-1.5.5 is called (``-m``). Summaries and references are lists
    of sentences, in the same order; a summary without any scores 0.

    Example:
        >>> {name: round(score, 3) for name, score in rouge_scores([["the cat sat"]], [["the cat ran"]]).items()}
        {'rouge1': 0.667, 'rouge2': 0.5, 'rougeL': 0.667}
    """
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    kinds = ["rouge1", "rouge2", "rougeLsum"]
    # The scorer's own default, which it would announce in the log each time.
    scorer = RougeScorer(kinds, tokenizer=DefaultTokenizer(use_stemmer=True))
    rows = []
    for summary, reference in zip(summaries, references, strict=True):
        scores = scorer.score(_lines(reference), _lines(summary))
        rows.append([scores[kind].fmeasure for kind in kinds])
    return dict(zip(ROUGE, np.mean(rows, axis=0).tolist(), strict=True))


def _lines(sentences: Sequence[str]) -> str:
    """A sentence a line, as summary-level ROUGE wants them, whatever line ends stand within
    them."""
    return "\n".join(" ".join(sentence.split()) for sentence in sentences)


def greedy_oracle(
    sentences: Sequence[str], reference: Sequence[str], limit: int | None = None
) -> list[int]:
    """The sentences that a greedy search finds closest to a reference summary (Nallapati et al.,
    2017; BERTSUM).

    In every round it adds the sentence that raises ROUGE-1 F1 + ROUGE-2 F1 most, and stops when
    none does or there are `limit`. Returns their numbers, ascending: none where no sentence shares
    a word with the reference.
    """
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    words = DefaultTokenizer(use_stemmer=True)
    scorer = RougeScorer(
        ["rouge1", "rouge2"], tokenizer=SimpleNamespace(tokenize=list)
    )  # splits and stems no more
    target = [word for sentence in reference for word in words.tokenize(sentence)]
    tokens = [words.tokenize(sentence) for sentence in sentences]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < min(len(tokens), len(tokens) if limit is None else limit):
        gains = {}
        for number in set(range(len(tokens))) - set(chosen):
            together = [word for taken in sorted([*chosen, number]) for word in tokens[taken]]
            scores = scorer.score(target, together)
            gains[number] = scores["rouge1"].fmeasure + scores["rouge2"].fmeasure
        number = min(gains, key=lambda candidate: (-gains[candidate], candidate))
        if gains[number] < best + _LEAST_GAIN:
            break
        best = gains[number]
        chosen.append(number)
    return sorted(chosen)
