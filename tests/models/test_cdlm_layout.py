"""How texts share the room of a sequence, and mentions marked in a text."""

from __future__ import annotations

import pytest

from nextlevelbert import read_marked
from nextlevelbert.models.processing_cdlm import share_tokens


@pytest.mark.parametrize(
    ("lengths", "budget", "kept"),
    [
        ([10, 3, 5], 18, [10, 3, 5]),
        ([10, 3, 5], 12, [5, 3, 4]),  # 12 / 3 = 4: all 3; 9 / 2: 4 of the 5; the other 5
        ([10, 10, 10], 11, [3, 4, 4]),
        ([1, 100, 100], 21, [1, 10, 10]),
        ([7], 1, [1]),
        ([0, 4], 2, [0, 2]),
    ],
)
def test_room_is_shared_out_as_worked_by_hand(lengths, budget, kept):
    assert share_tokens(lengths, budget, limit=99) == kept


@pytest.mark.parametrize(
    ("marked", "plain", "spans"),
    [
        ("Stocks <m>fell</m> on Friday.", "Stocks fell on Friday.", [(7, 11)]),
        ("<m>All</m>", "All", [(0, 3)]),
        ("<m>the <m>dog</m> and <m>cat</m></m>!", "the dog and cat!", [(0, 15), (4, 7), (12, 15)]),
        ("no mention", "no mention", []),
        ("a < m> b", "a < m> b", []),
    ],
)
def test_marked_text_is_read(marked, plain, spans):
    assert read_marked(marked) == (plain, spans)
    assert [plain[start:end] for start, end in spans] == [plain[slice(*span)] for span in spans]


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("one </m> two", "There is a </m> at character 4 without a <m> before it"),
        ("<m>a</m> b</m>", "at character 10"),
        ("<m>a <m>b</m>", "1 <m> without a </m> after it; the text has 2 in all"),
    ],
)
def test_markers_that_do_not_match_are_refused(marked, message):
    with pytest.raises(ValueError, match=message):
        read_marked(marked)
