"""Chunking is lossless for any text, and the same whatever way the text comes in."""

import dataclasses
import functools
import hashlib
import itertools
import warnings
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from nextlevelbert import NextLevelBertModel, read_documents
from nextlevelbert.models.chunking import ChunkingMode, ChunkingRule, chunk_spans, pack_sentences
from nextlevelbert.models.prompts import tokenize_documents, with_prompt
from nextlevelbert.models.sentences import sentence_boundaries
from nextlevelbert.models.tokenizing import tokenize_document

TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(
        [
            "A word",
            "Mr. Brown",
            "naïve café",
            "3.14",
            "ﬁne",
            "日本語。",
            "\n\n",
            " ",
            "“Go!”",
            "[SEP]",
            "\x00",
        ]
    )
).map(" ".join)
MODES = st.sampled_from(get_args(ChunkingMode))
WORDS = st.lists(st.sampled_from(["cat", "the", "dog", "ran", "7", "é", " ", ". "])).map(" ".join)


@pytest.fixture(scope="module")
def tokenizer(minilm):
    return minilm.tokenizer


@pytest.fixture(scope="module")
def byte_level() -> PreTrainedTokenizerFast:
    """A GPT-style tokenizer, for which the space is part of the word."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(["the cat sat. the dog ran! “Why?” said the cat."] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@functools.cache
def rule_of_mode(tokenizer, mode: ChunkingMode) -> ChunkingRule:
    return ChunkingRule.from_tokenizer(tokenizer, mode=mode)


def check_lossless(tokenizer, text: str, size: int, mode: ChunkingMode) -> None:
    rule = dataclasses.replace(rule_of_mode(tokenizer, mode), chunk_size=size)
    document = tokenize_document(tokenizer, text)
    plain = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    assert document.input_ids.tolist() == plain
    borders = rule.boundaries(document.input_ids)
    assert (borders[0], borders[-1]) == (0, len(plain))
    sizes = np.diff(borders)
    assert ((sizes >= 1) & (sizes <= rule.capacity)).all()
    spans = chunk_spans(document, borders)
    assert spans.shape == (len(sizes), 2)
    assert (np.diff(spans[:, 0]) >= 0).all()
    for (start, end), a, b in zip(spans, borders[:-1], borders[1:], strict=True):
        assert 0 <= start <= end <= len(text)
        assert start == document.char_starts[a]
        assert (document.char_starts[a:b] >= start).all()
        assert (document.char_ends[a:b] <= end).all()


@settings(deadline=None)
@given(text=TEXTS, size=st.integers(3, 20), mode=MODES)
def test_every_token_is_in_exactly_one_chunk(tokenizer, text, size, mode):
    check_lossless(tokenizer, text, size, mode)


@settings(deadline=None)
@given(text=TEXTS | WORDS, size=st.integers(3, 20), mode=MODES)
def test_a_tokenizer_that_keeps_spaces_loses_nothing_either(byte_level, text, size, mode):
    check_lossless(byte_level, text, size, mode)


def test_a_long_document_is_tokenised_without_a_warning_and_with_the_ids_of_one_call(
    tokenizer, transformers_log
):
    text = (
        "The whale, the sea; nothing else -- for 3.5 days!\n\nAnd then naïve Ahab said: “No.” "
        * 3_000
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = tokenize_document(tokenizer, text)

    assert not transformers_log.records

    tokenizer.deprecation_warnings.clear()  # another test may have called it

    assert document.input_ids.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert "longer than" in transformers_log.text  # a plain call does warn


def test_the_space_before_the_first_word_behind_a_prompt_is_no_part_of_the_text(byte_level):
    rule = with_prompt(ChunkingRule(suffix_ids=(0,)), byte_level, "the dog! ")

    [document] = tokenize_documents(byte_level, ["the cat sat."], rule)

    assert document.char_starts[:2].tolist() == [0, 3]
    assert document.char_ends[:2].tolist() == [3, 7]


def test_a_long_sentence_goes_on_in_further_chunks(tokenizer):
    rule = ChunkingRule.from_tokenizer(tokenizer, 6, "sentences")
    document = tokenize_document(tokenizer, "one two three four five six. seven.")

    assert np.diff(rule.boundaries(document.input_ids)).tolist() == [4, 3, 2]


def test_only_the_tokenizers_own_specials_are_stripped(tokenizer):
    rule = ChunkingRule.from_tokenizer(tokenizer)
    for text in ("a cat", "", "[CLS] a cat [SEP]"):
        wrapped = np.array(tokenizer(text)["input_ids"])
        assert (
            rule.strip_special_tokens(wrapped).tolist()
            == tokenizer(text, add_special_tokens=False)["input_ids"]
        )
    half = np.array([101, 5, 6])

    assert rule.strip_special_tokens(half) is half

    one = np.array([7])  # one token cannot be both ends

    assert ChunkingRule(prefix_ids=(7,), suffix_ids=(7,)).strip_special_tokens(one) is one


END = 1
CLOSE = 2
QUOTE = 3
ABBREVIATION = 4
NUMBER = 5
CLASSES = {
    "end": [END],
    "close": [CLOSE],
    "quote": [QUOTE],
    "abbreviation": [ABBREVIATION],
    "number": [NUMBER],
}
IDS = st.lists(
    st.sampled_from([END, END, CLOSE, QUOTE, QUOTE, ABBREVIATION, NUMBER, 10, 11, 12]), max_size=60
)
LANDMARKS = (
    [23, END],
    [38, 39, END],
    [55, 56, END],
)
SENTENCES = st.lists(
    st.sampled_from([*LANDMARKS, [END], [10, END], [10, 11, 12, END], [13] * 9]), max_size=15
)


def rule_of(capacity: int) -> ChunkingRule:
    return ChunkingRule(capacity + 2, "packed_sentences", (101,), (102,), CLASSES)


def number_of(sentence: Sequence[int] | np.ndarray) -> float:
    """What decides whether a sentence is a landmark, from 0 to 1."""
    digest = hashlib.blake2b(np.array(sentence, "<i4").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def test_a_quote_without_its_mark_does_not_turn_all_later_ones(tokenizer):
    """The second is misread; two in a row put all others right."""
    text = '"One. "Two." "Three." He left. “Four.”) Five?!'
    document = tokenize_document(tokenizer, text)
    spans = chunk_spans(
        document, rule_of_mode(tokenizer, "sentences").boundaries(document.input_ids)
    )
    sentences = ['"One. "', 'Two."', '"Three."', "He left.", "“Four.”)", "Five?!"]

    assert [text[a:b] for a, b in spans] == sentences


@settings(deadline=None, max_examples=300)
@given(
    ids=IDS | SENTENCES.map(lambda sentences: [*itertools.chain(*sentences)]),
    capacity=st.integers(1, 12),
)
def test_borders_are_sentence_ends_unless_a_sentence_is_too_long(ids, capacity):
    ids = np.array(ids, np.int32)
    sentences = sentence_boundaries(ids, CLASSES)
    numbers = {}
    for before, end in itertools.pairwise(sentences.tolist()):
        numbers[end] = number_of(ids[before:end])
    borders = rule_of(capacity).boundaries(ids)

    assert borders.dtype == np.int64
    assert (borders[0], borders[-1]) == (0, len(ids))

    for start, stop in itertools.pairwise(borders.tolist()):
        last = start + capacity
        landmarks = {}
        for end in range(start + (capacity + 1) // 2, last + 1):
            if numbers.get(end, 1) < 1 / 20:
                landmarks[end] = numbers[end]
        if len(ids) <= last:
            assert stop == len(ids)  # the rest goes in
        elif landmarks:
            assert landmarks[stop] == min(landmarks.values())
        else:
            within = sentences[(sentences > start) & (sentences <= last)]
            assert stop == [last, *within][-1]


def test_an_edit_of_a_novel_changes_about_one_percent_of_its_chunks(minilm, shared):
    """Sentences of other chapters inserted, taken away and replaced in the first twentieth of a
    book."""
    rule = rule_of_mode(minilm.tokenizer, "packed_sentences")
    novel = next(read_documents(shared / "data" / "novels" / "validation.jsonl.gz"))
    ids = tokenize_document(minilm.tokenizer, novel.text).input_ids
    sentences = sentence_boundaries(ids, rule.sentence_token_ids)

    def chunks_of(ids):
        return [ids[a:b].tobytes() for a, b in itertools.pairwise(rule.boundaries(ids))]

    before = chunks_of(ids)
    assert len(ids) / len(before) / rule.capacity > 0.86
    random = np.random.default_rng(0)
    shares = []
    for _ in range(3):
        start, end = sentences[random.integers(len(sentences) // 20) :][:2]
        other, behind = sentences[random.integers(len(sentences) // 20, len(sentences) - 1) :][:2]
        words = ids[other:behind]
        for edit in ([words, ids[start:end]], [], [words]):
            after = chunks_of(np.concatenate([ids[:start], *edit, ids[end:]]))
            shares.append(len(set(after) - set(before)) / len(after))
    assert np.mean(shares) <= 0.01


SPLITTERS = {
    "spans": lambda text: [(0, 9), (10, 24), (25, len(text))],
    "texts": lambda text: [text[:10], text[10:24], " ", text[25:]],
    "gaps": lambda text: [(2, 5), (10, 12), (25, 26)],
    "arrays": lambda text: np.array([(0, 9), (10, 24), (25, len(text))]),
}


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize(
    ("chunking", "chunks"),
    [
        ("sentences", ["One. Two;", "three, four;", "five six."]),
        ("packed_sentences", ["One. Two;", "three, four; five six."]),  # seven tokens a chunk
    ],
)
def test_a_splitter_finds_the_sentences_instead_of_the_rule(
    toy_encoder_path, name, chunking, chunks
):
    """What it leaves out belongs to the sentence before, or to the first."""
    text = "One. Two; three, four; five six."
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunking=chunking, chunk_size=9)
    embedding = model.encode(text, splitter=SPLITTERS[name])

    assert [text[a:b] for a, b in embedding.spans] == chunks
    assert model.plan(text, splitter=SPLITTERS[name]).chunks == len(embedding.plain)
    assert model.plan([" \n"], splitter=SPLITTERS[name])[0].chunks == 0


@pytest.mark.parametrize("start", [8, 9])
def test_a_sentence_begins_with_the_token_that_reaches_into_it(byte_level, start):
    """Whether the space before a word, which is part of its token, belongs to the sentence or
    not."""
    text = "the cat. the dog"
    document = tokenize_document(byte_level, text)
    rule = rule_of_mode(byte_level, "sentences")

    boundaries = rule.text_boundaries(text, document, lambda text: [(0, 8), (start, 16)])

    spans = chunk_spans(document, boundaries)
    assert [text[a:b] for a, b in spans] == ["the cat.", " the dog"]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"chunk_size": 2}, "give 3"),
        ({"chunk_size": 513, "max_chunk_size": 512}, "to 512"),
        ({"mode": "words"}, "mode='words'"),
        ({"mode": "sentences"}, "from_tokenizer"),
    ],
)
def test_rules_that_cannot_be(values, word):
    with pytest.raises(ValueError, match=word):
        ChunkingRule(**{"prefix_ids": (101,), "suffix_ids": (102,), **values})


def test_landmarks_end_a_chunk():
    """Worked by hand; capacity 8, so that landmarks are looked for 4 to 8 ids behind a chunk's
    start."""
    # Of each sentence, the number by which it is chosen, in twentieths; the first three are
    # landmarks.
    sentences = {
        0.64: [55, 56, END],
        0.36: [38, 39, END],
        0.27: [36],
        11.04: [42],
        9.27: [24, 25, END],
        13.66: [26, 27, 28, END],
        4.16: [30, END],
    }
    for number, ids in sentences.items():
        assert round(20 * number_of(ids), 2) == number
    ids = np.concatenate([*sentences.values()])
    borders = np.array([0, 3, 6, 7, 8, 11, 15, 17])

    # From 0: the landmark at 3 is too near, of those at 6 and 7 the second is smaller; 8, which
    # fits too, is none. From 7: no landmark, so the last that fits, 15. From 15: the rest.
    assert pack_sentences(ids, borders, 8).tolist() == [0, 7, 15, 17]
    # From 6: none ends at 9, so 8, the last before. From 11: none ends up to 14, so the sentence is
    # cut.
    assert pack_sentences(ids, borders, 3).tolist() == [0, 3, 6, 8, 11, 14, 17]
