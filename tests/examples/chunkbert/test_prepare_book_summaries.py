"""The CMU Book Summary Corpus as JSON lines: sixty made books, alone and in pairs."""

import hashlib
import json

import pytest

from nextlevelbert.data.labelled import read_label_names
from nextlevelbert.tasks.classification import load_classification

from ..scripts import load_script

main = load_script("chunkbert/prepare_book_summaries.py").main
SPLITS = ["train"] * 8 + ["validation", "test"]
NAMES = [str(number) for number in range(100, 160)]


def split_of(name: str) -> str:
    return SPLITS[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10]


@pytest.fixture
def corpus(tmp_path):
    """Sixty books, of which one test book alone is Fantasy, and a book without a genre."""
    genres = {"1": ""}
    for name in NAMES:
        genres[name] = json.dumps({"/m/a": "Fiction", f"/m/{name[-1]}": f"Kind {name[-1]}"})
    tested = next(name for name in NAMES if split_of(name) == "test")
    genres[tested] = json.dumps({"/m/b": "Fantasy"})
    path = tmp_path / "booksummaries.txt"
    with path.open("w") as file:
        for name, field in genres.items():
            file.write(f"{name}\t/m/{name}\tTitle\tAuthor\t1999\t{field}\t Plot of {name}. \n")
    return path


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_books_in_three_sets(corpus, tmp_path, split):
    main([str(corpus), str(tmp_path)])

    names = read_label_names(tmp_path / "labels.json")
    data = load_classification(tmp_path / f"{split}.jsonl", class_names=names)

    assert data["id"][:] == [name for name in NAMES if split_of(name) == split]
    assert data[0]["text"] == f"Plot of {data[0]['id']}."
    assert names == ("Fantasy", "Fiction", *map("Kind {}".format, range(10)))


def test_a_book_without_a_genre_is_left_out(corpus, tmp_path, capsys):
    main([str(corpus), str(tmp_path)])

    assert "1 books have no genre" in capsys.readouterr().out
    for split in ("train", "validation", "test"):
        assert '"1"' not in (tmp_path / f"{split}.jsonl").read_text()


def test_books_in_pairs(corpus, tmp_path, capsys):
    main([str(corpus), str(tmp_path / "single")])
    main([str(corpus), str(tmp_path / "paired"), "--paired"])

    single = load_classification(tmp_path / "single" / "train.jsonl")
    paired = load_classification(tmp_path / "paired" / "train.jsonl")

    one, two = single.select([0, 1])
    assert paired[0]["text"] == f"{one['text']}\n{two['text']}"
    assert paired[0]["id"] == f"{one['id']}+{two['id']}"
    assert paired[0]["label"] == sorted({*one["label"], *two["label"]})
    assert len(paired) == len(single) // 2
    assert f"train: {len(single) % 2} books have no partner" in capsys.readouterr().out


def test_a_malformed_book_is_named(tmp_path):
    path = tmp_path / "booksummaries.txt"
    book = "1\t/m/1\tTitle\tAuthor\t1999\t{}\tA plot."
    path.write_text(f"{book}\n\n{book.replace('{}', '{')}\n")

    with pytest.raises(
        ValueError, match=r"booksummaries\.txt, line 3, column 'genres': is not JSON"
    ):
        main([str(path), str(tmp_path)])
