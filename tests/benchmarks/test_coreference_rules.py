"""The rules that link mentions without training."""

import pytest

from benchmarks.studies import coreference_rules


@pytest.mark.parametrize(
    ("mention", "stem"),
    [
        ("filed for bankruptcy", "file"),
        ("Earthquakes", "earthquak"),
        ("guilty plea", "plea"),
        ("take over", "take"),
    ],
)
def test_the_head_of_a_mention(mention, stem):
    assert coreference_rules.head_stem(mention) == stem
