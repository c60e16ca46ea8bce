"""The index of words and vectors: its counts, its weights, and what makes it anew."""

import numpy as np
import pytest
from scipy import sparse

from nextlevelbert import NextLevelBertModel, static_checkpoint
from nextlevelbert.search.index import book_words, count_words
from nextlevelbert.search.shelf import open_shelf


@pytest.fixture
def model_of_words() -> NextLevelBertModel:
    """The installed model, for which a word of any length is one token."""
    return NextLevelBertModel.from_pretrained(static_checkpoint())


def test_a_word_that_two_chunks_share_is_found(model_of_words, tmp_path, reading):
    """It is a word of both, as the sentence is."""
    sentence = "The harbour pilot counted the phalaropes. "
    (tmp_path / "a.txt").write_text(sentence * 60)
    shelf = open_shelf(str(tmp_path), model_of_words, reading)
    matrix, _, vocabulary, *_ = count_words(shelf)
    counts = matrix[:, [vocabulary["phalaropes"]]].toarray()
    assert len(counts) > 1
    assert counts.sum() == 60 + len(counts) - 1  # a sentence on a border counts twice


def test_the_words_of_a_book_are_those_that_are_its_own():
    """Often in the book, in few other books and in few passages; once or twice does not count."""
    passages = [[1, 1, 1, 9], [1, 9, 9, 5], [2, 2, 2, 9], [9, 2, 6, 6]]
    counts = sparse.csr_array(
        np.stack([np.bincount(row, minlength=10) for row in passages]).astype(np.float32)
    )
    assert book_words(counts, [0, 2, 4]).indices.tolist() == [1, 2]
    assert book_words(counts, [0, 4]).nnz == 0  # one book: nothing tells it apart


def test_the_index_of_words_follows_the_files(toy, books, open_library, tmp_path):
    assert open_library(toy, books).ask("moon").bm25.max() == 0
    (books / "moon.txt").write_text("A walk on the moon.")
    library = open_library(toy, books)
    assert library.ask("moon").bm25.argmax() == library.starts[2]
    assert len(list(tmp_path.rglob("index-*"))) == 1


def test_a_word_more_often_than_65535_times(model_of_words, tmp_path, reading):
    (tmp_path / "matrix.txt").write_text("0│" * 70_000 + "0")
    shelf = open_shelf(str(tmp_path / "matrix.txt"), model_of_words, reading)
    assert count_words(shelf).matrix.max() == 70_001


def test_an_index_that_is_damaged_is_made_again_at_once(toy, books, open_library, tmp_path):
    right = open_library(toy, books).ask("Who hunts a whale?").score
    [index] = (tmp_path / "cache").rglob("index-*.safetensors")
    content = index.read_bytes()
    for number in range(8):
        place = len(content) * number // 8
        damaged = bytearray(content)
        damaged[place] ^= 1 << number % 8
        for data in (damaged, content[:place]):
            index.write_bytes(data)
            library = open_library(toy, books)
            np.testing.assert_array_equal(library.ask("Who hunts a whale?").score, right)
            assert index.read_bytes() == content
