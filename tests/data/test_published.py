"""Published data sets, whose files are made here."""

import hashlib
import json
from pathlib import Path

import pytest
from datasets import List

from nextlevelbert.data.labelled import names_of
from nextlevelbert.data.published import (
    book_summaries,
    cnn_dailymail,
    ecbplus,
    eurlex,
    hotpotqa,
    zhou_pairs,
)
from nextlevelbert.tasks.classification import load_classification

from ..finetuning_toys import write


def test_laws_straight_and_inverted():
    laws = Path(__file__).parent / "eurlex" / "*.json"
    straight = load_classification(laws)
    assert isinstance(straight.features["label"], List)
    assert names_of(straight) == ("192", "2356", "77")
    assert straight["id"][:] == ["32010R0000", "32010R0001", "32010R0002"]
    assert straight["label"][:] == [[0, 1], [0], [2]]
    header = "COMMISSION REGULATION No 1"
    recitals = ", Having regard to the Treaty,"
    body = "Article one. Article two."
    assert straight[1]["text"] == f"{header} {recitals} {body}"
    inverted = load_classification(laws, arrangement="inverted")
    assert inverted[1]["text"] == f"{body} {recitals} {header}"
    assert inverted["label"][:] == straight["label"][:]
    named = load_classification(laws, class_names=["77", "192", "2356", "unseen"])
    assert named["label"][:][2] == [0]


SPLITS = ["train"] * 8 + ["validation", "test"]


def split_of(name: str) -> str:
    return SPLITS[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10]


@pytest.fixture
def books(tmp_path):
    """The CMU Book Summary Corpus of 60 books, and one without a genre."""
    names = [str(number) for number in range(100, 160)]
    genres = {"1": ""}
    for name in names:
        genres[name] = json.dumps({"/m/a": "Fiction", f"/m/{name[-1]}": f"Kind {name[-1]}"})
    tested = next(name for name in names if split_of(name) == "test")
    genres[tested] = json.dumps({"/m/b": "Fantasy"})  # which no other book is
    with (tmp_path / "booksummaries.txt").open("w") as file:
        for name, field in genres.items():
            file.write(f"{name}\t/m/{name}\tTitle\tAuthor\t1999\t{field}\t Plot of {name}. \n")
    return tmp_path, names


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_books_in_three_parts(books, split):
    folder, names = books
    data = load_classification(folder, split)
    assert data["id"][:] == [name for name in names if split_of(name) == split]
    assert data[0]["text"] == f"Plot of {data[0]['id']}."
    kinds = map("Kind {}".format, range(10))
    assert names_of(data) == ("Fantasy", "Fiction", *kinds)


def test_a_book_without_a_genre_is_left_out(books, caplog):
    caplog.set_level("INFO")
    load_classification(books[0], split_of("1"))
    assert f"{split_of('1')}: 1 books without a genre" in caplog.text


def test_books_in_pairs(books, caplog):
    folder, _ = books
    single = load_classification(folder)
    paired = load_classification(folder, arrangement="paired")
    one, two = single.select([0, 1])
    assert paired[0]["text"] == f"{one['text']}\n{two['text']}"
    assert paired[0]["id"] == f"{one['id']}+{two['id']}"
    assert paired[0]["label"] == sorted({*one["label"], *two["label"]})
    assert len(paired) == len(single) // 2
    assert ("no partner" in caplog.text) == (len(single) % 2 == 1)


@pytest.mark.parametrize(
    ("options", "culprit"), [({"split": "dev"}, "dev"), ({"arrangement": "inverted"}, "inverted")]
)
def test_books_that_are_refused(books, options, culprit):
    with pytest.raises(ValueError, match=culprit):
        load_classification(books[0], **options)


# For each set a good row, and then malformed ones.
ROWS = json.loads(Path(__file__).with_name("malformed_rows.json").read_text())


@pytest.mark.parametrize("published", [cnn_dailymail, ecbplus, eurlex, hotpotqa])
def test_a_malformed_row_is_named_by_file_and_line(published, tmp_path):
    good, *malformed = ROWS[published.__name__.rpartition(".")[2]]
    for row in malformed:
        path = write(tmp_path / "rows.jsonl", [good, row])
        with pytest.raises(ValueError, match=r"rows\.jsonl, line 2.*, column '"):
            published.load(path)


def test_a_malformed_pair_of_zhou_et_al_is_named(tmp_path):
    (tmp_path / "train.csv").write_text('1,a,b\n0,"c\nd",e\n1,"f"g,h\n')
    with pytest.raises(ValueError, match=r"train\.csv, line 4: "):
        zhou_pairs.load(tmp_path / "train.csv")
    (tmp_path / "train.csv").write_text("1,a,b\n0,c\n")
    with pytest.raises(ValueError, match=r"train\.csv, line 2, column 'text2'"):
        zhou_pairs.load(tmp_path / "train.csv")


def test_a_malformed_book_is_named(tmp_path):
    book = "1\t/m/1\tTitle\tAuthor\t1999\t{}\tA plot."
    (tmp_path / "booksummaries.txt").write_text(f"{book}\n\n{book.replace('{}', '{')}\n")
    with pytest.raises(
        ValueError, match=r"booksummaries\.txt, line 3, column 'genres': is not JSON"
    ):
        book_summaries.load(tmp_path)
