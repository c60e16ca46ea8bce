"""The index of words: a book's own words, and how it follows the files."""

import numpy as np
from scipy import sparse

from nextlevelbert.search.index import book_words


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
