"""Parts of documents: between headings, or of equal length."""

import numpy as np
import pytest

from nextlevelbert.search.app.sections import sections_of

WORDS = "The captain hunts the whale over the sea. " * 15  # longer than the shortest part


@pytest.mark.parametrize(
    "headings",
    [
        [
            "CHAPTER I",
            "Chapter 2. The Chase",
            "CHAPTER III: AT SEA",
            "Chapter the Fourth of nothing",
        ],
        ["# One", "## Two", "### Three", "#hashtag"],
        ["I.", "II", "XIV.", "I see"],
        ["ARTICLE ONE", "Section 2 - Terms", "Item 3.", "Part of it is lost"],
    ],
)
def test_parts_between_headings(headings):
    """The last line of each list is no heading; a table of contents in front is none, either."""
    text = "\n".join(headings[:3]) + "\n\n"
    for heading in headings:
        text += f"{heading}\n\n{WORDS}\n\n"
    sections = sections_of(text, np.array([[0, len(text)]]))
    ends = [*(section.start for section in sections[1:]), len(text)]
    for section, heading, end in zip(sections, headings[:3], ends, strict=True):
        assert section.heading == heading.strip("# ")
        assert text[section.start :].startswith(heading)
        assert section.end == end


def test_parts_of_equal_length():
    spans = np.array([[10 * index, 10 * index + 10] for index in range(95)])
    text = "x" * 950
    sections = sections_of(text, spans)
    assert len(sections) == 30
    assert sections[0] == ("part 1", 0, 40)
    assert sections[-1] == ("part 30", 920, 950)
    assert len(sections_of(text[:20], spans[:2])) == 2
