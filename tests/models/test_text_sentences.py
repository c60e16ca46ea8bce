"""`text_sentences`: gold borders, cases worked by hand, and what holds for any text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextlevelbert import text_sentences

_BREAKS = {"¶": "\n\n", "↵": "\n", "⏎": "\n"}


def gold_documents(half: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Text and sentences of the documents of one half, ``"look"`` or ``"held"``, of the file.

    A line of the file is a sentence. It begins with ¶ after a blank line, ↵ after a line break, and
    otherwise comes after a space; ⏎ is a line break within the sentence of the line before.
    """
    path = Path(__file__).with_name("sentences_gold.txt")
    for block in ("\n" + path.read_text(encoding="utf-8")).split("\n=== ")[1:]:
        head, *lines = block.split("\n")
        if head.split()[1] != half:
            continue
        text, spans = "", []
        for line in filter(None, map(str.rstrip, lines)):
            body = line.lstrip("".join(_BREAKS))
            text += _BREAKS.get(line[0], " ") if text else ""
            start = spans.pop()[0] if line[0] == "⏎" else len(text)
            text += body
            spans.append((start, len(text)))
        yield text, spans


def borders(text: str, spans: list[tuple[int, int]]) -> set[int]:
    """Where sentences end, in characters that are no white space; the end of the text is left
    out."""
    return {len("".join(text[:end].split())) for _, end in spans[:-1]}


@pytest.mark.parametrize(("half", "least"), [("look", 0.98), ("held", 0.97)])
def test_sentences_of_contracts_reports_and_papers(half, least):
    """F1 of the borders within documents; the rules were made with the first half in sight."""
    right = wrong = sentences = 0
    for text, gold in gold_documents(half):
        one, other = borders(text, text_sentences(text)), borders(text, gold)
        right, wrong, sentences = (
            right + len(one & other),
            wrong + len(one ^ other),
            sentences + len(gold),
        )
    assert sentences > 120
    assert 2 * right / (2 * right + wrong) > least


@pytest.mark.parametrize(
    "text",
    [
        "LEASE|This is a lease.|It ends.",
        "1. Grant|Acme Inc. President Roe signed.|He left.|• a;|• b",
        "Sold to Acme Inc.|However, the price rose.|She met Dr. Who.",
        "A line that was\nbroken by hand, and\nends here.|Another.",
        "“Go!” he said.|“Why?”|“Because … it is so.”",
        "In the U.S. Senate.|In the U.S.|The Senate.|See p. 5 (Fig. 3).|The answer is no.|We do.",
        "今日は。|明日は！|The end",
        "call me ishmael.|some years ago i went to sea.|dr. who came, i.e. at 2.5 p.m. or so.|"
        "he left vol. ii and so did i.|why?|see fig. 3 and acme inc. stock.|the end",
        "now is the time.|" + "it goes on.|" * 60 + "NATO too.|yes",
    ],
)
def test_sentences_of_a_text(text):
    """Sentences with | between them: a blank line on both sides of headings and items, or a
    space."""
    pieces = text.split("|")
    apart = [
        one.isupper() or one[0] in "1•" or other[0] == "•"
        for one, other in itertools.pairwise(pieces)
    ]
    plain = pieces[0] + "".join(
        ("\n\n" if new else " ") + piece for new, piece in zip(apart, pieces[1:], strict=True)
    )
    assert [plain[a:b] for a, b in text_sentences(plain)] == pieces


@pytest.mark.parametrize(
    "text",
    [
        "渡轮黎明离开。|它随潮水返回。|你来吗？|来！",
        "「行きますか。」と彼は言った。|私は黙った。|「はい。」|ところで雨だ。",
        "नाव भोर में जाती है।| वह ज्वार के साथ लौटती है।",
        "متى تغادر العبارة؟| تغادر عند الفجر.",
        "¿Cuándo sale?| ¡Ahora!| Bien.",
        "Am 3. Mai kam er.| Die 1. Bundesliga spielt.| Berlin, 3. März 2020.| Er war 3.| Sie war 4.",
        "He was on page 12.| Smith was not.| I read the 2.| The rest I left.",
        "Vraiment ?| Oui !| Bon.",
        "Ինչ է սա։| Սա նավ է։",
    ],
)
def test_sentences_of_other_scripts_and_languages(text):
    plain = text.replace("|", "")
    sentences = [piece.strip() for piece in text.split("|")]
    assert [plain[start:end] for start, end in text_sentences(plain)] == sentences


HOSTILE = st.lists(
    st.sampled_from(
        [
            *".?!\"'”“()•-\n\r\t AaIi1。\u2028\x00",
            "Inc.",
            "No. ",
            "i.e.",
            "U.S.",
            "\n\n",
            "(a) ",
            "1. ",
            "Title",
        ]
    )
).map("".join)


@settings(deadline=None, max_examples=400)
@given(text=HOSTILE | st.text(max_size=200))
def test_sentences_of_any_text_lose_nothing(text):
    spans = text_sentences(text)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)
    between = [0, *itertools.chain(*spans), len(text)]
    assert between == sorted(between)
    assert not "".join(text[a:b] for a, b in zip(between[::2], between[1::2], strict=True)).strip()


@pytest.mark.parametrize(
    "part",
    [".", ". ", '."', "A. ", ".\n", "\n ", "U.S.", "Inc. ", "T\n", '("', ")" * 9, "a" * 30 + "."],
)
def test_a_long_text_of_one_kind_is_read_once(part):
    """A rule that read it again for every mark or line would take hours."""
    text = part * (60_000 // len(part))
    assert [end for _, end in text_sentences(text)][-1:] == [len(text.rstrip())][
        : len(text.strip())
    ]
