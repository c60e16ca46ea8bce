"""Chunking is lossless for any text, and the same whatever way the text comes in."""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import warnings
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from nextlevelbert.models import chunking
from nextlevelbert.models.chunking import (
    ChunkingMode,
    ChunkingRule,
    check_texts,
    chunk_spans,
    flatten_chunks,
    tokenize_document,
)

TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(
        ["A word", "Mr. Brown", "naïve café", "3.14", "ﬁne", "日本語。", "\n\n", " ", "“Go!”", "[SEP]", "\x00"]
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
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["the cat sat. the dog ran! “Why?” said the cat."] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def check_lossless(rule: ChunkingRule, tokenizer, text: str) -> None:
    document = tokenize_document(tokenizer, text)
    boundaries = rule.boundaries(document.input_ids)
    plain = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    chunks = [document.input_ids[a:b].tolist() for a, b in itertools.pairwise(boundaries)]
    assert functools.reduce(operator.iadd, chunks, []) == plain
    assert all(1 <= len(chunk) <= rule.capacity for chunk in chunks)
    spans = chunk_spans(document, boundaries)
    assert spans.shape == (len(chunks), 2)
    assert (spans[:, 0] <= spans[:, 1]).all()
    assert (np.diff(spans[:, 0]) >= 0).all()
    for (start, end), a, b in zip(spans, boundaries[:-1], boundaries[1:], strict=True):
        assert start == document.char_starts[a]
        assert (document.char_ends[a:b] <= end).all()
        assert 0 <= start <= end <= len(text)
    outside = set(range(len(text))) - {c for start, end in spans for c in range(start, end)}
    tokenised = {c for s, e in zip(document.char_starts, document.char_ends, strict=True) for c in range(s, e)}
    assert not outside & tokenised


@settings(deadline=None, max_examples=200)
@given(text=TEXTS, size=st.integers(3, 20), mode=MODES, piece=st.integers(1, 40))
def test_every_token_is_in_exactly_one_chunk(tokenizer, text, size, mode, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_PIECE_CHARACTERS", piece)  # so that short texts are tokenised in pieces too
        check_lossless(ChunkingRule.from_tokenizer(tokenizer, size, mode), tokenizer, text)


@settings(deadline=None, max_examples=200)
@given(text=TEXTS | WORDS, size=st.integers(3, 20), mode=MODES, piece=st.integers(1, 9))
def test_a_tokenizer_that_keeps_spaces_is_cut_between_words_only(byte_level, text, size, mode, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "_PIECE_CHARACTERS", piece)
        check_lossless(ChunkingRule.from_tokenizer(byte_level, size, mode), byte_level, text)
    assert len(list(chunking._pieces("one two  three", 1, chunking.safe_cut(byte_level)))) == 2


def test_a_tokenizer_that_is_not_known_is_given_the_text_whole(byte_level):
    tokenizer = Tokenizer(models.Unigram([("a", -1.0), ("▁", -2.0), ("<unk>", -3.0)], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert chunking.safe_cut(PreTrainedTokenizerFast(tokenizer_object=tokenizer)) is None
    swallowing = copy.deepcopy(byte_level)
    swallowing.add_tokens(AddedToken("<x>", rstrip=True))
    assert chunking.safe_cut(swallowing) is None


def test_a_long_document_is_tokenised_without_a_warning_and_with_the_ids_of_one_call(tokenizer, transformers_log):
    text = "The whale, the sea; nothing else -- for 3.5 days!\n\nAnd then naïve Ahab said: “No.” " * 3_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        document = tokenize_document(tokenizer, text)
    assert not transformers_log.records
    assert document.input_ids.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert "longer than" in transformers_log.text  # a plain call does warn


def test_spans_are_the_characters_of_the_chunk(tokenizer):
    text = "Call me Ishmael. Some years ago, never mind how long precisely."
    rule = ChunkingRule.from_tokenizer(tokenizer, 256, "sentences")
    document = tokenize_document(tokenizer, text)
    spans = chunk_spans(document, rule.boundaries(document.input_ids))
    assert [text[a:b] for a, b in spans] == [
        "Call me Ishmael.",
        "Some years ago, never mind how long precisely.",
    ]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("He came. She left! Why? No one knows…", ["He came.", "She left!", "Why?", "No one knows…"]),
        ("Mr. Brown met Dr. J. Smith. They spoke.", ["Mr. Brown met Dr. J. Smith.", "They spoke."]),
        ("It cost 3.50 dollars. Cheap.", ["It cost 3.50 dollars.", "Cheap."]),
        ('"Go away." He went. "Now?"', ['"Go away."', "He went.", '"Now?"']),
        ("“Go away!” (He went.) Silence", ["“Go away!”", "(He went.)", "Silence"]),
        ("No end here", ["No end here"]),
    ],
)
def test_sentences(tokenizer, text, sentences):
    rule = ChunkingRule.from_tokenizer(tokenizer, 64, "sentences")
    document = tokenize_document(tokenizer, text)
    spans = chunk_spans(document, rule.boundaries(document.input_ids))
    assert [text[a:b] for a, b in spans] == sentences


def test_a_long_sentence_goes_on_in_further_chunks(tokenizer):
    rule = ChunkingRule.from_tokenizer(tokenizer, 6, "sentences")
    document = tokenize_document(tokenizer, "one two three four five six. seven.")
    assert np.diff(rule.boundaries(document.input_ids)).tolist() == [4, 3, 2]


def test_fixed_chunks_count_the_special_tokens(tokenizer):
    rule = ChunkingRule.from_tokenizer(tokenizer, 16, max_chunk_size=512)
    assert (rule.prefix_ids, rule.suffix_ids, rule.capacity) == ((101,), (102,), 14)
    assert rule.boundaries(np.arange(30)).tolist() == [0, 14, 28, 30]
    assert rule.boundaries(np.arange(0)).tolist() == [0]


def test_only_the_tokenizers_own_specials_are_stripped(tokenizer):
    rule = ChunkingRule.from_tokenizer(tokenizer)
    for text in ("a cat", "", "[CLS] a cat [SEP]"):
        wrapped = np.array(tokenizer(text)["input_ids"])
        assert rule.strip_special_tokens(wrapped).tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
    half = np.array([101, 5, 6])
    assert rule.strip_special_tokens(half) is half
    one = np.array([7])  # one token cannot be both ends
    assert ChunkingRule(prefix_ids=(7,), suffix_ids=(7,)).strip_special_tokens(one) is one


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk_size": 2}, "leaves no room"),
        ({"chunk_size": 0}, "leaves no room"),
        ({"chunk_size": 5, "suffix_ids": (102, 103, 104, 105)}, "counts the 5 special tokens"),
        ({"chunk_size": 513, "max_chunk_size": 512}, "above the chunk encoder's limit of 512"),
        ({"mode": "words"}, "'fixed', 'sentences' or 'packed_sentences'"),
        ({"mode": "sentences"}, "from_tokenizer"),
        ({"mode": "packed_sentences"}, "mode='packed_sentences'"),
    ],
)
def test_rules_that_cannot_be(values, message):
    with pytest.raises(ValueError, match=message):
        ChunkingRule(**{"prefix_ids": (101,), "suffix_ids": (102,), **values})


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", 3], TypeError, "document 1 is int"),
        (None, TypeError, "list, array, Series or iterator, got NoneType"),
        (["fine", "bad \ud800"], ValueError, "Document 1 is not valid Unicode: character 4"),
    ],
)
def test_what_is_not_text(texts, error, message):
    with pytest.raises(error, match=message):
        check_texts(texts)


def test_a_python_tokenizer_is_refused():
    with pytest.raises(TypeError, match="not a fast tokenizer"):
        tokenize_document(object(), "text")


def test_flattened_chunks_keep_their_document():
    ids, boundaries, offsets = flatten_chunks(
        [np.arange(5), np.arange(0), np.arange(2)], [np.array([0, 3, 5]), np.array([0]), np.array([0, 2])]
    )
    assert ids.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert boundaries.tolist() == [0, 3, 5, 7]
    assert offsets.tolist() == [0, 2, 2, 3]
