"""A few documents that make a corpus of three parts, and comparisons of corpora."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from fsspec import AbstractFileSystem

from nextlevelbert import Document, VectorCorpus
from nextlevelbert.corpus.folder import CorpusFolder

from ..faults.harness import tree

DOCUMENTS = [
    Document("whale", "Call me Ishmael. Some years ago I went to sea. " * 8),
    Document("short", "One line."),
    Document("blank", " \n"),
    Document(
        "tale",
        "It was the best of times, it was the worst of times; we had everything before us. " * 12,
    ),
    Document("family", "All happy families are alike. " * 5),
]
SMALL = {"characters_per_part": 387, "progress": False}  # the first three together


@contextmanager
def interrupted_after_the_first_part() -> Iterator[None]:
    """Interrupts what the block encodes before it writes the second part."""
    write = CorpusFolder.write

    def write_first(self, name, content):
        if name.startswith("part-000001"):
            raise KeyboardInterrupt
        write(self, name, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CorpusFolder, "write", write_first)
        with pytest.raises(KeyboardInterrupt):
            yield


def parts(folder: Path) -> dict[str, bytes]:
    """Returns the content of each file by name, without the vectors for memory mapping."""
    return {name: content for name, content in tree(folder).items() if not name.startswith(".")}


def objects(store: AbstractFileSystem, folder: str) -> dict[str, bytes]:
    """Returns the content of each file of an object store by name."""
    store.invalidate_cache()
    return {path.rsplit("/", 1)[-1]: store.cat_file(path) for path in store.glob(f"{folder}/*")}


def all_equal(one: VectorCorpus, other: VectorCorpus) -> bool:
    """Compares documents in any order: engines write their blocks as they come."""
    if set(one.document_ids) != set(other.document_ids):
        return False
    for document in one:
        same = other[document.id]
        if not torch.equal(document.plain, same.plain):
            return False
        if not torch.equal(document.spans, same.spans):
            return False
    return True


def copied(corpus: VectorCorpus, folder: Path) -> Path:
    """Copies a corpus without the vectors for memory mapping."""
    ignored = shutil.ignore_patterns(".vectors")
    return shutil.copytree(corpus.path, folder / "copy", ignore=ignored)


def in_halves(text: str) -> list[str]:
    """Splits a text, as a caller's own function for sentences may."""
    return [text[: len(text) // 2], text[len(text) // 2 :]]
