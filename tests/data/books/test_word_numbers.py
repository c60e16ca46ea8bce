"""Word's numbers of clauses, headings and list items, each worked out by hand."""

import pytest
from lxml import etree

from nextlevelbert.data.books.word_numbers import ParagraphNumbers

from ...toys.books import WORD


def parse(markup):
    return etree.fromstring(f'<w:x xmlns:w="{WORD}">{markup}</w:x>')


def level(index, text, number_format="decimal", more=""):
    return (
        f'<w:lvl w:ilvl="{index}"><w:start w:val="1"/><w:numFmt w:val="{number_format}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def numbering(*levels, more=""):
    return parse(
        f'<w:abstractNum w:abstractNumId="0">{"".join(levels)}</w:abstractNum>'
        f'<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>{more}'
    )


def numbers_of(lists, places, styles=None):
    """The numbers of paragraphs, each in a list and on a level."""
    numbers = ParagraphNumbers(lists, styles)
    labels = []
    for list_id, index in places:
        place = f'<w:ilvl w:val="{index}"/><w:numId w:val="{list_id}"/>'
        [item] = parse(f"<w:p><w:pPr><w:numPr>{place}</w:numPr></w:pPr></w:p>")
        labels.append(numbers.next_of(item))
    return labels


def test_levels_begin_anew_after_a_level_above():
    lists = numbering(level(0, "%1."), level(1, "%1.%2"), level(2, "(%3)", "lowerLetter"))
    places = [(1, 0), (1, 1), (1, 2), (1, 2), (1, 1), (1, 2), (1, 0), (1, 1)]

    labels = numbers_of(lists, places)

    assert labels == ["1. ", "1.1 ", "(a) ", "(b) ", "1.2 ", "(a) ", "2. ", "2.1 "]


def test_a_level_that_never_begins_anew():
    lists = numbering(level(0, "%1."), level(1, "Fig. %2", more='<w:lvlRestart w:val="0"/>'))

    labels = numbers_of(lists, [(1, 0), (1, 1), (1, 0), (1, 1)])

    assert labels == ["1. ", "Fig. 1 ", "2. ", "Fig. 2 "]


def test_legal_numbers_are_digits_on_all_levels():
    lists = numbering(level(0, "Article %1", "upperRoman"), level(1, "%1.%2", more="<w:isLgl/>"))

    assert numbers_of(lists, [(1, 0), (1, 0), (1, 1)]) == ["Article I ", "Article II ", "2.1 "]


def test_two_lists_of_one_definition_count_together_unless_one_begins_anew():
    more = (
        '<w:num w:numId="2"><w:abstractNumId w:val="0"/></w:num>'
        '<w:num w:numId="3"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0">'
        '<w:startOverride w:val="5"/></w:lvlOverride></w:num>'
    )
    lists = numbering(level(0, "%1."), more=more)

    labels = numbers_of(lists, [(1, 0), (2, 0), (3, 0), (3, 0)])

    assert labels == ["1. ", "2. ", "5. ", "6. "]


@pytest.mark.parametrize(
    ("number_format", "last"),
    [
        ("decimal", "28"),
        ("upperRoman", "XXVIII"),
        ("lowerRoman", "xxviii"),
        ("upperLetter", "BB"),
        ("lowerLetter", "bb"),
        ("decimalZero", "28"),
        ("chicago", "28"),
    ],
)
def test_formats_of_numbers(number_format, last):
    lists = numbering(level(0, "%1)", number_format))

    assert numbers_of(lists, [(1, 0)] * 28)[-1] == f"{last}) "


@pytest.mark.parametrize(
    ("number_format", "start", "label"),
    [
        ("lowerLetter", 2_470, f"{'z' * 95}) "),
        ("lowerLetter", 2_601, "2601) "),
        ("upperRoman", 2_147_483_647, "2147483647) "),
        ("decimal", 10**120, "1" + "0" * 99 + " "),
    ],
)
def test_a_label_has_at_most_a_hundred_characters(number_format, start, label):
    lists = numbering(level(0, "%1)", number_format).replace('val="1"', f'val="{start}"'))

    assert numbers_of(lists, [(1, 0)]) == [label]


def test_a_list_has_nine_levels_and_labels_are_no_texts():
    lists = numbering(*(level(index, "%1" * 60) for index in range(12)))

    labels = numbers_of(lists, [(1, 0), (1, 8), (1, 9), (1, 11)])

    assert labels == [f"{'1' * 50} ", f"{'1' * 50} ", "", ""]


@pytest.mark.parametrize("number_format", ["bullet", "none"])
def test_bullets_are_no_text(number_format):
    assert numbers_of(numbering(level(0, "o", number_format)), [(1, 0)]) == [""]


def test_headings_have_the_list_and_the_level_of_their_style():
    lists = numbering(
        level(0, "%1", more='<w:pStyle w:val="Heading1"/>'),
        level(1, "%1.%2", more='<w:pStyle w:val="Heading2"/>'),
    )
    styles = parse(
        '<w:style w:styleId="Heading1"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
        '</w:style><w:style w:styleId="Heading2"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr>'
        '</w:pPr></w:style><w:style w:styleId="Own"><w:basedOn w:val="Heading2"/></w:style>'
    )
    numbers = ParagraphNumbers(lists, styles)

    def label(style, more=""):
        [item] = parse(f'<w:p><w:pPr><w:pStyle w:val="{style}"/>{more}</w:pPr></w:p>')
        return numbers.next_of(item)

    assert label("Heading1") == "1 "
    assert label("Heading2") == "1.1 "
    assert label("Own") == "1.2 "
    assert label("Heading2", more='<w:numPr><w:numId w:val="0"/></w:numPr>') == ""
    assert label("Heading2", more="<w:rPr><w:del/></w:rPr>") == ""
    assert label("Heading2") == "1.3 "
    assert label("Unknown") == ""


def test_a_list_that_is_defined_by_a_style():
    lists = parse(
        f'<w:abstractNum w:abstractNumId="0">{level(0, "§ %1")}</w:abstractNum>'
        '<w:abstractNum w:abstractNumId="1"><w:numStyleLink w:val="Legal"/></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>'
    )
    styles = parse(
        '<w:style w:styleId="Legal"><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>'
    )

    assert numbers_of(lists, [(2, 0), (2, 0)], styles) == ["§ 1 ", "§ 2 "]
