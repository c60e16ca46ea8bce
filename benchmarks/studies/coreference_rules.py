"""Measures how well rules without training link mentions of events across documents of ECB+.

    python -m benchmarks.studies.coreference_rules --file ecbplus/validation.jsonl

The mentions of a subtopic are in one cluster if they have the same text, or the same head by its
stem (NLTK's Snowball stemmer). The head is the word before the first preposition or particle of a
mention, else its last word. Lower bounds: every mention alone, and one cluster for each subtopic.
The score is the CoNLL F1 of `metrics/conll_coreference`, with 95 % over topics.
"""

from __future__ import annotations

import re
import runpy
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from nltk.stem import SnowballStemmer

from benchmarks.common.measuring import add_json_option, write_figures
from benchmarks.studies.compare_runs import conll_f1

ECBPLUS = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "cdlm" / "ecbplus.py"))
_DRAWS = 100
_AFTER_THE_HEAD = frozenset(
    "about after against at away back before behind by down for from in into of off on out over"
    " through to under up with".split()
)
_STEMMER = SnowballStemmer("english")


def head_stem(mention: str) -> str:
    """Returns the stem of the head of a mention."""
    words = re.findall(r"\w+", mention.lower()) or [mention]
    for previous, word in pairwise(words):
        if word in _AFTER_THE_HEAD:
            return _STEMMER.stem(previous)
    return _STEMMER.stem(words[-1])


def same_text(mention: str) -> str:
    return mention.lower()


def one_cluster(mention: str) -> str:
    return ""


RULES: dict[str, Callable[[str], str] | None] = {
    "same stem of the head": head_stem,
    "same text": same_text,
    "every mention alone": None,
    "one cluster for each subtopic": one_cluster,
}


def f1_with_interval(gold: list[str], clusters: list[str], topics: np.ndarray) -> list[float]:
    """Returns the CoNLL F1, with bounds of 95 % over topics drawn anew."""
    groups = []
    for topic in np.unique(topics):
        members = np.flatnonzero(topics == topic).tolist()
        groups.append([{"gold": gold[index], "cluster": clusters[index]} for index in members])
    draws = np.random.default_rng(0).integers(len(groups), size=(_DRAWS, len(groups)))
    scores = [conll_f1([groups[index] for index in draw]) for draw in draws]
    return [conll_f1(groups), *np.percentile(scores, [2.5, 97.5]).tolist()]


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--file", required=True, help="ECB+, as examples/cdlm/ecbplus.py writes it")
    parser.add_argument("--kind", choices=["event", "entity"], default="event")
    add_json_option(parser)
    args = parser.parse_args()
    documents = ECBPLUS["read_documents"](args.file, args.kind)
    gold = ECBPLUS["clusters_of"](documents)
    mentions = []
    subtopics = []
    topics = []
    for document in documents:
        for mention in document.mentions:
            mentions.append(document.text[mention.start : mention.end])
            subtopics.append(document.subtopic)
            topics.append(document.topic)
    figures = {}
    for name, rule in RULES.items():
        clusters = [str(index) for index in range(len(mentions))]
        if rule is not None:
            pairs = zip(subtopics, mentions, strict=True)
            clusters = [f"{subtopic} {rule(mention)}" for subtopic, mention in pairs]
        figures[name] = {"conll_f1": f1_with_interval(gold, clusters, np.array(topics))}
    facts = {"documents": len(documents), "mentions": len(mentions), "topics": len(set(topics))}
    write_figures(args.json, figures, **facts)


if __name__ == "__main__":
    main()
