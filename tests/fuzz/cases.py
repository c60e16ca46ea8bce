"""How many cases are tried, and what may come of them: a result, or an error of our own that says what to do."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import nextlevelbert

LONG = "fuzz"  # the profile of the long run
PACKAGE = str(Path(nextlevelbert.__file__).parent)

# White space, marks, control and unassigned characters, several scripts, what tokenizers treat in ways of their own.
PIECES = (
    "the whale", "swims. ", "Mr. Hill ", "3.5 pages ", " ", "\n", "\t", "\r\n", "\x00", "\x1f", "\x85", "\xa0", "\xad",
    "e\u0301",
    "\u200b", "\u200d", "\u2028", "\u202e", "\ufeff", "\ufffd", "\U000e0001", "ﬁ", "ß", "İ", "한국어", "中文。",
    "ไทย", "أهلا", "👩\u200d👩\u200d👧", "🇩🇪", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]",
    "##s", "<m>", "</m>", "<doc-s>",
    "“No!” ", "a" * 120, "?!…",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
NUMBERS = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1e-38, 1e6, 1e12, 1e16, 1e30, float("inf"), float("-inf"), float("nan")]
)


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


@contextmanager
def only_our_errors() -> Iterator[None]:
    """Passes over an error that the package raises itself, with a sentence; any other one is a defect."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ValueError, TypeError, OSError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1].filename
        if not where.startswith(PACKAGE) or len(str(error).split()) < 5:
            raise
    finally:
        transformers.logging.set_verbosity(verbosity)
