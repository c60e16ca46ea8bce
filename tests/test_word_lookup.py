"""Looking words up gives the tokenizer's own ids and characters, for any text."""

import copy
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers.normalizers import BertNormalizer

from nextlevelbert import word_lookup
from nextlevelbert.models import tokenizing
from nextlevelbert.models.tokenizing import private_tokenizer, tokenize_document

WORDS = st.sampled_from(
    [
        "don’t",
        "“Go!”",
        "…",
        "—",
        "café",
        "e\u0301",
        "\u0301",
        "ΣΑΣ",
        "İ",
        "ﬁ",
        "日本",
        "\x00",
        "\u200b",
        "\t",
        "\r\n",
        "\u00a0",
        "3.14",
        "__",
        "[SEP",
        "a" * 101,
        "ß",
        "\ufffd",
        "🙂",
        "한국",
        "ก็",
        " ",
        "\n",
        ".",
        "[SEP]",
        "[MASK]",
        "<l>",
        "<r>",
        "<alone>",
        "<two words>",
        "two",
        "words",
    ]
)
TEXTS = st.lists(WORDS | st.text(max_size=5), max_size=40).map("".join) | st.text(max_size=200)


ADDED_TOKENS = [
    AddedToken("<l>", lstrip=True, normalized=False),
    AddedToken("<r>", rstrip=True, normalized=False),
    AddedToken("<alone>", single_word=True, normalized=False),
    AddedToken("<two words>", normalized=False),
    AddedToken("<two", lstrip=True, normalized=False),
]


@pytest.fixture(scope="module", params=["uncased", "cased", "added tokens"])
def tokenizer(minilm, request):
    """MiniLM's own, one that keeps case and accents, and one with added tokens of each kind."""
    tokenizer = copy.deepcopy(minilm.tokenizer)
    if request.param == "cased":
        tokenizer.backend_tokenizer.normalizer = BertNormalizer(lowercase=False)
    if request.param == "added tokens":
        tokenizer.add_tokens(ADDED_TOKENS)
    return tokenizer


def by_tokenizer(tokenizer, text):
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    spans = np.asarray(encoded["offset_mapping"], np.int32).reshape(-1, 2)
    return encoded["input_ids"], spans[:, 0].tolist(), spans[:, 1].tolist()


def table_of(tokenizer):
    return private_tokenizer(tokenizer).look_up_words


def looked_up(tokenizer, text):
    document = tokenize_document(tokenizer, text)
    return document.input_ids.tolist(), document.char_starts.tolist(), document.char_ends.tolist()


@settings(deadline=None)
@given(TEXTS)
@example("")
@example("’")
@example("x’")
@example("\u2018\u0301a")
@example("a \t<l>b <r> \u00a0c")
@example("<r>  <l> x<alone>y <alone> <two  words> <two words>")
@example("<l><r>\r\n")
@example("x <l>y<r>  z <l><r> <r>")
@example("é[SEP]é\n[SEP][SEP] é")
def test_any_text(tokenizer, text):
    assert table_of(tokenizer) is not None
    assert looked_up(tokenizer, text) == by_tokenizer(tokenizer, text)


@settings(deadline=None, max_examples=40)
@given(st.lists(TEXTS, max_size=6), st.integers(1, 60))
def test_texts_of_any_number(tokenizer, texts, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_lookup, "_BLOCK_CHARACTERS", size)
        documents = table_of(tokenizer)(texts)

    for text, arrays in zip(texts, documents, strict=True):
        ids, starts, ends = by_tokenizer(tokenizer, text)
        assert np.array_equal(arrays, [ids, starts, ends])


def test_every_character(tokenizer):
    """Each character of Unicode, between letters and beside each kind of mark."""
    characters = [
        character
        for character in map(chr, range(0x11_0000))
        if unicodedata.category(character) not in ("Cs", "Cn", "Co")
    ]
    characters = characters[:: max(1, len(characters) // 8_000)] + characters[:6_000]
    text = " ".join(map("a{0}b {0}. .{0} ’{0} {0}’".format, characters))

    assert looked_up(tokenizer, text) == by_tokenizer(tokenizer, text)


def test_blocks_of_a_long_text(minilm, monkeypatch):
    text = "The sea, the sea’s tides — unaffected.\n" * 40
    expected = by_tokenizer(minilm.tokenizer, text)
    monkeypatch.setattr(word_lookup, "_BLOCK_CHARACTERS", 50)

    assert looked_up(minilm.tokenizer, text) == expected


def test_an_added_token_changes_no_other_word(minilm):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    text = "A [MASK] here, <doc-s> there."
    before = looked_up(tokenizer, text)
    assert before == by_tokenizer(tokenizer, text)

    tokenizer.add_tokens(["<doc-s>"], special_tokens=True)

    assert looked_up(tokenizer, text) == by_tokenizer(tokenizer, text) != before


def test_a_text_with_an_added_token_sends_only_new_words_to_the_tokenizer(minilm, monkeypatch):
    table = table_of(copy.deepcopy(minilm.tokenizer))
    table(["the sea and the tides [SEP]"])
    new_words = []
    monkeypatch.setattr(table, "_add", new_words.append)

    table(["the tides [SEP] and[SEP]the sea"])

    assert new_words == []


@pytest.fixture(scope="module")
def further_tokens(minilm):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    letters = [AddedToken("qq", normalized=False), AddedToken("qq r", normalized=False)]
    tokenizer.add_tokens([*letters, *ADDED_TOKENS])
    return tokenizer


@pytest.mark.parametrize("size", [1, 4, 1_000])
@pytest.mark.parametrize(
    "text",
    [
        "a qq r b qq c",  # "qq" begins another token, which is longer
        "x<alone>y",  # touches words
        "qq<alone>",  # touches an added token that ends in a letter
        "a <two words> b",
    ],
)
def test_added_tokens_that_begin_touch_or_hold_words(further_tokens, monkeypatch, text, size):
    monkeypatch.setattr(word_lookup, "_BLOCK_CHARACTERS", size)

    found = looked_up(further_tokens, text)

    assert found == by_tokenizer(further_tokens, text)


def test_letters_around_an_added_token_are_words_of_their_own(minilm, monkeypatch):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    tokenizer.add_tokens([AddedToken("qq", normalized=False)])
    table = table_of(tokenizer)
    table(["x qq y"])
    new_words = []
    monkeypatch.setattr(table, "_add", new_words.append)

    [(ids, *_)] = table(["xqqy"])

    assert new_words == []
    assert ids.tolist() == by_tokenizer(tokenizer, "xqqy")[0]


def test_words_are_not_looked_up_if_an_added_token_is_normalised(minilm):
    """Its borders in the text are not known before the text is in lower case, without accents."""
    tokenizer = copy.deepcopy(minilm.tokenizer)
    tokenizer.add_tokens(["Café"])

    found = looked_up(tokenizer, "A CAFÉ, cafes and a cafe.")

    assert table_of(tokenizer) is None
    assert found == by_tokenizer(tokenizer, "A CAFÉ, cafes and a cafe.")


def test_a_tokenizer_that_is_changed(minilm):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    lower = looked_up(tokenizer, "SEA and É")
    tokenizer.backend_tokenizer.normalizer = BertNormalizer(lowercase=False)

    assert looked_up(tokenizer, "SEA and É") == by_tokenizer(tokenizer, "SEA and É") != lower


def test_the_table_stays_small(minilm, monkeypatch):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    monkeypatch.setattr(word_lookup, "_MOST_WORDS", 10)
    for start in range(0, 60, 6):
        text = " ".join(f"word{index}" for index in range(start, start + 9))
        assert looked_up(tokenizer, text) == by_tokenizer(tokenizer, text)
        assert len(table_of(tokenizer)._index_of) <= 10 + 2 * 9


def test_without_the_lookup(minilm, monkeypatch):
    """Where a checkpoint is opened without the package."""
    expected = looked_up(minilm.tokenizer, "The sea’s tides.")
    monkeypatch.setattr(tokenizing, "new_word_lookup", lambda tokenizer: None)
    other = copy.deepcopy(minilm.tokenizer)

    assert looked_up(other, "The sea’s tides.") == expected
    assert table_of(other) is None
