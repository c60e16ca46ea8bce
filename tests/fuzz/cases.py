"""How many cases are tried, and the texts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = "fuzz"  # the profile of the long run

# White space, marks, control and unassigned characters, several scripts, what tokenizers treat in ways of their own.
PIECES = (
    "the whale", "swims. ", "Mr. Hill ", "3.5 pages ", " ", "\n", "\t", "\r\n", "\x00", "\x1f", "\x85", "\xa0", "\xad",
    "e\u0301", "\u200b", "\u200d", "\u2028", "\u202e", "\ufeff", "\ufffd", "\U000e0001", "ﬁ", "ß", "İ", "한국어",
    "中文。",
    "ไทย", "أهلا", "👩\u200d👩\u200d👧", "🇩🇪", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "##s", "<m>", "</m>",
    "<doc-s>", "“No!” ", "a" * 120, "?!…",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
DOCUMENTS = st.lists(TEXTS | TEXTS.map(lambda text: (text + " the whale swims.") * 8), min_size=1, max_size=4)


def cases(share: float) -> Callable[[Any], Any]:
    """A share of all cases: of 400 in the suite, always the same ones; of 20,000 others in the long run."""
    long = settings.get_current_profile_name() == LONG
    return settings(
        max_examples=max(1, round(share * (20_000 if long else 400))),
        deadline=10_000,  # milliseconds for one case: nothing hangs
        derandomize=not long,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
