"""The CMU Book Summary Corpus as JSON lines: eight made books, alone and in pairs."""

from pathlib import Path

import pytest

from nextlevelbert.data import open_rows
from nextlevelbert.data.labelled import load_classes, read_label_names

from ..scripts import load_script

main = load_script("chunkbert/prepare_book_summaries.py").main
# Of these books, 1 has no genre; the genre of 117 belongs to no other book.
CORPUS = Path(__file__).with_name("booksummaries.txt")


@pytest.mark.parametrize(
    ("name", "ids"),
    [  # by the last decimal digit of `sha256sum`
        ("train", ["101", "102", "103", "104", "105"]),
        ("validation", ["100", "106"]),
        ("test", ["117"]),
    ],
)
def test_books_in_three_sets(tmp_path, capsys, name, ids):
    main([str(CORPUS), str(tmp_path)])

    names = read_label_names(tmp_path / "labels.json")
    train = load_classes(open_rows(tmp_path / "train.jsonl"), class_names=names)
    data = load_classes(open_rows(tmp_path / f"{name}.jsonl"), class_names=names, like=train)

    kinds = [f"Kind {index}" for index in range(7)]
    assert names == ("Fantasy", "Fiction", *kinds)
    assert data["id"][:] == ids
    assert data[0]["text"] == f"Plot of {ids[0]}."
    assert "1 books have no genre and are left out" in capsys.readouterr().out


def test_books_in_pairs(tmp_path, capsys):
    main([str(CORPUS), str(tmp_path), "--paired"])

    names = read_label_names(tmp_path / "labels.json")
    pairs = load_classes(open_rows(tmp_path / "train.jsonl"), class_names=names)

    assert pairs["id"][:] == ["101+102", "103+104"]
    assert pairs["text"][0] == "Plot of 101.\nPlot of 102."
    assert pairs["label"][0] == [1, 3, 4]  # Fiction once, Kind 1, Kind 2
    assert "train: 1 books have no partner" in capsys.readouterr().out


def test_a_malformed_book_is_named(tmp_path):
    path = tmp_path / "booksummaries.txt"
    good = "1\t/m/1\tTitle\tAuthor\t1999\t{}\tA plot."
    bad = "2\t/m/2\tTitle\tAuthor\t1999\t{\tA plot."
    path.write_text(f"{good}\n\n{bad}\n")

    with pytest.raises(
        ValueError, match=r"booksummaries\.txt, line 3, column 'genres': is not JSON"
    ):
        main([str(path), str(tmp_path)])
