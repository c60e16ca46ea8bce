"""Texts of any length become ids, and the next groups are prepared in threads, in order."""

import copy
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, models
from transformers import PreTrainedTokenizerFast

from nextlevelbert.models import tokenizing
from nextlevelbert.models.tokenizing import (
    default_threads,
    groups_by_length,
    iter_texts,
    prepare_ahead,
    tokenize_document,
)


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (6, 3), (16, 4)])
def test_there_is_a_thread_for_every_two_cores_and_at_most_four(cores, threads, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    assert default_threads() == threads


def test_items_come_in_order_whatever_their_time():
    release = threading.Event()

    def prepare(number):
        if number == 0:
            release.wait()
        if number == 1:
            release.set()  # only a second thread gets here before item 0 is ready
        return 10 * number

    assert list(prepare_ahead(prepare, range(5), threads=2)) == [0, 10, 20, 30, 40]


def test_later_items_are_prepared_while_the_caller_works_on_the_first():
    is_prepared = [threading.Event() for _ in range(6)]

    def prepare(number):
        is_prepared[number].set()
        return number

    items = prepare_ahead(prepare, range(6), threads=1)
    next(items)

    assert is_prepared[2].wait(timeout=60)
    items.close()
    assert not is_prepared[3].is_set()  # the number of items in memory is limited


def test_a_caller_that_stops_waits_for_no_further_item(monkeypatch):
    """Item 1 is ready only after the generator has begun to close; item 2 waits for its turn."""
    release = threading.Event()
    prepared = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, **options):
            super().shutdown(**{**options, "wait": False})
            release.set()
            super().shutdown()

    def prepare(number):
        if number == 1:
            release.wait(timeout=60)
        prepared.append(number)

    monkeypatch.setattr(tokenizing, "ThreadPoolExecutor", Pool)
    items = prepare_ahead(prepare, range(6), threads=1)
    next(items)
    items.close()

    assert release.is_set()
    assert set(prepared) <= {0, 1}


def test_items_are_read_in_the_thread_of_the_caller():
    readers = []

    def read():
        for number in range(4):
            readers.append(threading.current_thread())
            yield number

    assert list(prepare_ahead(str, read(), threads=2)) == ["0", "1", "2", "3"]
    assert set(readers) == {threading.current_thread()}


def test_an_error_of_an_item_comes_after_the_items_before_it():
    def prepare(number):
        if number == 3:
            raise ValueError("item 3")
        return number

    items = prepare_ahead(prepare, range(9), threads=4)

    assert [next(items), next(items), next(items)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(items)


def test_an_error_of_reading_comes_after_the_items_before_it():
    def read():
        yield from range(3)
        raise OSError("the disk")

    items = prepare_ahead(str, read(), threads=4)

    assert [next(items), next(items), next(items)] == ["0", "1", "2"]
    with pytest.raises(OSError, match="the disk"):
        next(items)


def test_a_tokenizer_that_reads_across_spaces_gets_a_long_text_whole(monkeypatch):
    monkeypatch.setattr(tokenizing, "_PIECE_CHARACTERS", 1_000)
    letters = {letter: index for index, letter in enumerate("ab .")}
    merges = [("b", " "), ("b ", "a")]
    vocabulary = {**letters, "b ": 4, "b a": 5}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocabulary, merges)))
    text = "ab " * 1_500

    document = tokenize_document(tokenizer, text)

    assert len(tokenizing.piece_borders(text)) > 3
    assert document.input_ids.tolist() == tokenizer(text)["input_ids"]


def test_an_added_token_that_gets_other_flags_is_read_by_the_new_ones(minilm):
    tokenizer = copy.deepcopy(minilm.tokenizer)
    tokenizer.add_tokens([AddedToken("<sea>", normalized=False)])
    before = tokenize_document(tokenizer, "x<sea>y")
    size = len(tokenizer)

    tokenizer.add_tokens([AddedToken("<sea>", normalized=False, single_word=True)])

    document = tokenize_document(tokenizer, "x<sea>y")
    assert len(tokenizer) == size
    assert document.input_ids.tolist() != before.input_ids.tolist()
    assert (
        document.input_ids.tolist() == tokenizer("x<sea>y", add_special_tokens=False)["input_ids"]
    )


def test_groups_grow_from_an_eighth_of_the_largest():
    groups = groups_by_length(["x" * 125_000] * 40)

    assert list(map(len, groups)) == [1, 2, 4, 8, 8, 8, 8, 1]


def test_texts_before_an_error_are_a_group():
    def read():
        yield "one"
        yield "two"
        raise OSError("the disk")

    groups = groups_by_length(read())

    assert next(groups) == ["one", "two"]
    with pytest.raises(OSError, match="the disk"):
        next(groups)


@pytest.mark.parametrize(
    ("texts", "error", "word"),
    [
        (["a", 3], TypeError, "1"),
        ({"a": "b"}, TypeError, "dict"),
        (["x", "\ud800"], ValueError, "1"),
    ],
)
def test_what_is_not_text(texts, error, word):
    with pytest.raises(error, match=word):
        list(iter_texts(texts))


def test_a_column_of_a_data_set_holds_texts():
    table = Dataset.from_dict({"text": ["a", "b"], "id": ["x", "y"]})

    texts = list(iter_texts(table["text"]))

    assert texts == ["a", "b"]
    assert list(iter_texts(table.to_iterable_dataset()["text"])) == texts


def test_the_name_of_a_file_is_a_text_with_a_warning(tmp_path):
    file = tmp_path / "book.txt"
    file.write_text("Call me Ishmael.")

    with pytest.warns(UserWarning, match="is the name of a file.*read_documents"):
        texts = list(iter_texts(str(file)))

    assert texts == [str(file)]
    assert list(iter_texts("A. " * 10_000)) == ["A. " * 10_000]
    assert list(iter_texts("No.\0")) == ["No.\0"]
