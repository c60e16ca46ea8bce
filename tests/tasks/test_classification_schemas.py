"""Published layouts and their other arrangements: EURLEX-57K, the CMU Book Summary Corpus. The files are made here."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from nextlevelbert.data.labels import read_label_names
from nextlevelbert.tasks.classification.data import Columns, read_classification

from ..finetuning_toys import start, write


def law(number: int, concepts: list[str]) -> dict:
    """As a file of EURLEX-57K has it."""
    return {
        "celex_id": f"32010R{number:04d}",
        "uri": "http://publications.europa.eu/resource/cellar/x",
        "type": "Regulation",
        "concepts": concepts,
        "title": "Commission Regulation",
        "header": f"COMMISSION REGULATION No {number}",
        "recitals": ", Having regard to the Treaty,",
        "main_body": ["Article one.", "Article two."],
        "attachments": "Done at Brussels.",
    }


@pytest.fixture
def laws(tmp_path):
    folder = tmp_path / "dataset" / "train"
    folder.mkdir(parents=True)
    for number, concepts in enumerate((["192", "2356"], ["192"], ["77"])):
        (folder / f"32010R{number:04d}.json").write_text(json.dumps(law(number, concepts), indent=1))
    return folder / "*.json"


def test_laws_with_their_concepts(laws):
    data = read_classification(laws)
    assert data.problem_type == "multi_label_classification"
    assert data.label_names == ("192", "2356", "77")
    assert [(each.id, each.label) for each in data.examples] == [
        ("32010R0000", (0, 1)), ("32010R0001", (0,)), ("32010R0002", (2,))
    ]  # fmt: skip
    assert data.documents[0] == ("COMMISSION REGULATION No 0 , Having regard to the Treaty, Article one. Article two.")


def test_inverted_laws_say_at_the_end_what_they_are_about(laws):
    straight, inverted = read_classification(laws), read_classification(laws, arrangement="inverted")
    assert inverted.documents[1] == (
        "Article one. Article two. , Having regard to the Treaty, COMMISSION REGULATION No 1"
    )
    assert sorted(inverted.documents[2].split()) == sorted(straight.documents[2].split())
    assert inverted.examples == straight.examples


def book(name: str, genres: dict[str, str] | None) -> str:
    """As a line of booksummaries.txt has it."""
    told = json.dumps(genres) if genres else ""
    return "\t".join([name, f"/m/{name}", f"Title {name}", "Author", "1999-01-01", told, f" Plot of {name}. "])


def split_of(name: str) -> str:
    share = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10
    return "train" if share < 8 else "validation" if share == 8 else "test"


@pytest.fixture
def books(tmp_path):
    names = [str(number) for number in range(100, 160)]
    lines = [book(name, {"/m/a": "Fiction", f"/m/{name[-1]}": f"Kind {name[-1]}"}) for name in names]
    (tmp_path / "booksummaries.txt").write_text("\n".join([*lines[:30], book("1", None), *lines[30:]]) + "\n")
    return tmp_path, names


def test_books_with_their_genres_in_three_parts(books, caplog):
    folder, names = books
    caplog.set_level("INFO")
    found = {split: read_classification(folder, split=split) for split in ("train", "validation", "test")}
    for split, data in found.items():
        assert [each.id for each in data.examples] == [name for name in names if split_of(name) == split]
        assert len(data.examples) > 0
    first = found["train"].examples[0]
    genres = {found["train"].label_names[number] for number in first.label}
    assert genres == {"Fiction", f"Kind {first.id[-1]}"}
    assert found["train"].documents[0] == f"Plot of {first.id}."
    assert f"booksummaries.txt, {split_of('1')}: 1 books without a genre are left out." in caplog.text


def test_paired_books_have_the_genres_of_both(books, caplog):
    folder, _ = books
    single, paired = read_classification(folder), read_classification(folder, arrangement="paired")
    assert len(paired.examples) == len(single.examples) // 2
    one, two = single.examples[:2]
    assert paired.documents[0] == f"{single.documents[0]}\n{single.documents[1]}"
    assert {paired.label_names[n] for n in paired.examples[0].label} == {
        single.label_names[n] for n in (*one.label, *two.label)
    }
    assert ("has no partner and is left out" in caplog.text) == (len(single.examples) % 2 == 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\t/m/1\tTitle", r"booksummaries.txt, row 0 .*stands in the last of 7 fields .* this line has 3"),
        (book("1", None).replace("\t\t Plot", "\tFiction\t Plot"), r"column 'genres': must be a JSON object"),
    ],
)
def test_lines_that_are_no_books(tmp_path, line, message):
    name = next(str(number) for number in range(99) if split_of(str(number)) == "train")
    (tmp_path / "booksummaries.txt").write_text(line.replace("1\t", f"{name}\t", 1) + "\n")
    with pytest.raises(ValueError, match=message):
        read_classification(tmp_path)


def test_what_cannot_be_rearranged(sea_files, books):
    with pytest.raises(ValueError, match="'inverted' is an arrangement of EURLEX-57K"):
        read_classification(sea_files["--train_file"], arrangement="inverted")
    with pytest.raises(ValueError, match="must be a list of classes to be joined"):
        read_classification(sea_files["--train_file"], arrangement="paired")
    with pytest.raises(ValueError, match="is split into train, validation and test here, got 'dev'"):
        read_classification(books[0], split="dev")


def test_a_run_on_laws_with_classes_from_a_file(laws, toy_encoder_path, tmp_path):
    names = tmp_path / "EURLEX57K.json.gz"
    with gzip.open(names, "wt") as file:
        json.dump(
            {"192": {"label": "a"}, "2356": {"label": "b"}, "77": {"label": "c"}, "unseen": {"label": "d"}}, file
        )
    options = {"--train_file": str(laws), "--label_names_file": str(names), "--chunk_encoder": toy_encoder_path}
    start(tmp_path / "out", "untrained", "--max_steps", "1", "--arrangement", "inverted", **options)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert list(config["label2id"]) == ["192", "2356", "77", "unseen"]


def test_pairs_of_other_columns_and_what_a_row_lacks(tmp_path, laws):
    rows = [{"body": f"Text {number}.", "topics": [f"t{number}", "all"]} for number in range(4)]
    columns = Columns("body", label="topics")
    data = read_classification(write(tmp_path / "rows.jsonl", rows), columns, arrangement="paired")
    assert data.documents == ["Text 0.\nText 1.", "Text 2.\nText 3."]
    assert [len(each.label) for each in data.examples] == [3, 3]
    with pytest.raises(ValueError, match=r"row 0 .* has no column 'label'"):
        read_classification(tmp_path / "rows.jsonl", Columns("body"), arrangement="paired")
    (laws.parent / "last.json").write_text(json.dumps({"celex_id": "x", "concepts": []}))
    with pytest.raises(ValueError, match=r"last.json, row 0 .* column 'header': is missing, which the laws before"):
        read_classification(laws)


def test_a_file_of_classes_that_is_none(tmp_path):
    for content, message in (("[1]", "must hold a JSON list of classes"), ("a\nb", "is no JSON")):
        (tmp_path / "names.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            read_label_names(str(tmp_path / "names.json"))
