"""ROUGE of extractive summaries and the greedy oracle, both by the `rouge-score` package.

    pip install rouge-score

`summarize.py` imports this file; it is no script of its own.
"""

from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from nextlevelbert.evaluation import split_words

ROUGE = ("rouge1", "rouge2", "rougeL")
_LEAST_GAIN = 1e-9  # smaller gains are rounding errors


def rouge_scores(
    summaries: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Computes mean F1 of ROUGE-1, ROUGE-2 and summary-level ROUGE-L, from 0 to 1.

    Summary-level ROUGE-L takes the union of longest common subsequences. Words of a to z are
    stemmed, as the papers call ROUGE-1.5.5 (``-m``). Other words are compared as they are, and in
    scripts without spaces each character counts as a word.

    Args:
        summaries: the sentences of each summary. A summary without sentences scores 0.
        references: the sentences of the reference for each summary, in the same order.

    Returns:
        ``rouge1``, ``rouge2`` and ``rougeL``.

    Example:
        >>> scores = rouge_scores([["the cat sat"]], [["the cat ran"]])
        >>> {name: round(score, 3) for name, score in scores.items()}
        {'rouge1': 0.667, 'rouge2': 0.5, 'rougeL': 0.667}
    """
    names = ["rouge1", "rouge2", "rougeLsum"]
    scorer = RougeScorer(names, tokenizer=SimpleNamespace(tokenize=_stemmed_words))

    rows = []
    for summary, reference in zip(summaries, references, strict=True):
        scores = scorer.score(_sentence_lines(reference), _sentence_lines(summary))
        rows.append([scores[name].fmeasure for name in names])

    means = np.mean(rows, axis=0).tolist()
    return dict(zip(ROUGE, means, strict=True))


def _stemmed_words(text: str) -> list[str]:
    """Splits a text of any script into words; words of a to z are stemmed by `rouge-score`."""
    english = DefaultTokenizer(use_stemmer=True)
    words = []
    for word in split_words(text):
        if word.isascii():
            words += english.tokenize(word)
        else:
            words.append(word)
    return words


def _sentence_lines(sentences: Sequence[str]) -> str:
    """Puts each sentence on one line, as summary-level ROUGE expects, without its own breaks."""
    return "\n".join(" ".join(sentence.split()) for sentence in sentences)


def greedy_oracle(
    sentences: Sequence[str], reference: Sequence[str], limit: int | None = None
) -> list[int]:
    """Finds the sentences closest to a reference summary by a greedy search.

    Each round adds the sentence that raises ROUGE-1 F1 + ROUGE-2 F1 most (Nallapati et al., 2017;
    BERTSUM). The search ends if no sentence raises this sum.

    Args:
        sentences: the sentences of the document.
        reference: the sentences of the reference summary.
        limit: the most sentences to choose; None for no limit.

    Returns:
        Indices of the chosen sentences, ascending; empty if no sentence shares a word with the
        reference.
    """
    words_of = list(map(_stemmed_words, sentences))
    target = list(chain.from_iterable(map(_stemmed_words, reference)))
    # The words are ready: this tokenizer passes them on.
    scorer = RougeScorer(["rouge1", "rouge2"], tokenizer=SimpleNamespace(tokenize=list))

    def rouge(indices: list[int]) -> float:
        summary = [words_of[index] for index in sorted(indices)]
        scores = scorer.score(target, list(chain.from_iterable(summary)))
        return scores["rouge1"].fmeasure + scores["rouge2"].fmeasure

    most = len(sentences)
    if limit is not None:
        most = min(most, limit)

    chosen: list[int] = []
    best = 0.0
    while len(chosen) < most:
        others = sorted(set(range(len(sentences))) - set(chosen))
        sums = [rouge([*chosen, index]) for index in others]
        highest = max(sums)
        if highest < best + _LEAST_GAIN:
            break
        best = highest
        chosen.append(others[sums.index(highest)])
    return sorted(chosen)
