"""Words of any script: those of ROUGE, of BM25 and of search."""

import pytest

from nextlevelbert.data.words import count_words, search_words, split_terms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't STOP 42", ["don", "t", "stop", "42"]),
        ("Brontë, Bronte\u0308", ["bronte", "bronte"]),
        ("白鯨 Ahab", ["白", "鯨", "ahab"]),
        ("हिन्दी। किताब", ["हिन्दी", "किताब"]),
        ("ปลา นก", ["ปล", "ลา", "นก"]),
        ("フェリー・の", ["フェ", "ェリ", "リー", "の"]),
        ("_Phalarope_ parse_header", ["phalarope", "parse", "header"]),
        ("har\u00adbour mas\u200bter sig\ufeffnal", ["harbour", "master", "signal"]),
        ("ﬁnal Ｌight km²", ["final", "light", "km2"]),
        ("الحوت في البحر،", ["الحوت", "في", "البحر"]),
        ("a naviga-\n  tional chart", ["a", "naviga", "tional", "chart", "navigational"]),
        ("the sea--\nthe 1914-\n18 war", ["the", "sea", "the", "1914", "18", "war"]),
        ("Sign-off by e‑mail", ["sign", "off", "by", "e", "mail", "signoff", "email"]),
        ("a well-\n known COVID-19", ["a", "well", "known", "covid", "19", "wellknown", "covid19"]),
        ("v14.2.1, in 1999.", ["v14", "2", "1", "in", "1999", "14.2.1"]),
        ("Łódź Đà Ørsted ŒUVRE", ["lodz", "da", "orsted", "oeuvre"]),
        ("STRASSE Straße Þór İstanbul ılık", ["strasse", "strasse", "thor", "istanbul", "ilik"]),
        ("Ὀδυσσεύς ΟΔΥΣΣΕΥΣ", ["οδυσσευσ", "οδυσσευσ"]),
        ("הַסְּפִינָה הספינה", ["הספינה", "הספינה"]),
        ("cafe" + 40 * "\u0301" + 40 * "\u0327" + "s क्षि", ["cafes", "क्षि"]),
        ("السَّفِينَةُ الســـفينة أحمد", ["السفينة", "السفينة", "احمد"]),
        ("کشتی\u200cها کشتیها", ["كشتي", "ها", "كشتيها", "كشتيها"]),
    ],
)
def test_words_of_search(text, words):
    assert search_words(text) == words


def test_terms_have_two_letters_or_are_a_character():
    assert split_terms("A cat_1 б ба, 猫x yz") == ["cat_1", "ба", "猫", "yz"]


@pytest.mark.parametrize(("text", "count"), [("猫坐在。", 3), ("the cat, 猫が", 4), (" a  b\n", 2)])
def test_words_are_counted(text, count):
    """Each character of a script without spaces counts, and a mark belongs to the word before."""
    assert count_words(text) == count
