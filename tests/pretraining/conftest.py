"""Corpora of vectors that several files of tests read."""

import pytest

from nextlevelbert import VectorCorpus

from ..toys.vectors import corpus_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> VectorCorpus:
    """Four documents: a long one, two that are nearly empty, and one in between."""
    return corpus_of([90, 1, 4, 36], tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def stories(tmp_path_factory) -> VectorCorpus:
    """Twelve documents of growing length, one of them too short for two segments."""
    return corpus_of(
        [16, 21, 28, 34, 40, 1, 46, 52, 59, 66, 72, 80], tmp_path_factory.mktemp("stories")
    )
