"""Places of rows, and errors that name them."""

import pytest

from nextlevelbert.data.rows import RowLocation


def test_text_that_is_no_unicode_is_named_with_its_row():
    location = RowLocation("books.jsonl", "line 3")

    with pytest.raises(
        ValueError, match=r"books.jsonl, line 3, column 'text': is not valid Unicode"
    ):
        location.require_text("half of a pair: \ud800", "text")

    assert location.require_text("naïve", "text") == "naïve"
