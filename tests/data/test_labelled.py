"""Labelled documents: what is recognised, what is refused, published data sets, splits."""

from __future__ import annotations

import gzip
import hashlib
import json

import datasets
import pytest
from datasets import Dataset, List
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer

from nextlevelbert.data.labelled import (
    USUAL,
    Columns,
    distinct_texts,
    halve_by_document,
    hold_out_documents,
    load_classes,
    names_of,
    source_of,
)
from nextlevelbert.data.tables import open_rows
from nextlevelbert.tasks.classification import load_classification
from nextlevelbert.tasks.multiple_choice import load_multiple_choice

from ..finetuning_toys import write


@pytest.fixture
def read(tmp_path):
    """Reads rows with classes, through a file."""

    def read(rows, columns=USUAL, **options):
        table = open_rows(write(tmp_path / "rows.jsonl", rows))
        return load_classes(table, columns, **options)

    return read


def table(*labels):
    return [{"text": f"document {number}", "label": label} for number, label in enumerate(labels)]


def labels_of(data):
    return data["label"][:]


def ids_of(data):
    return data["id"][:]


def test_a_real_table(shared):
    source = shared / "data" / "bbc_news" / "validation.jsonl.gz"
    rows = [row for _, row in open_rows(source).rows]
    table = datasets.Dataset.from_list(rows)
    encoder = LabelEncoder()
    data = load_classes(open_rows(source))
    assert labels_of(data) == encoder.fit_transform(table["label"]).tolist()
    assert names_of(data) == tuple(encoder.classes_)
    assert ids_of(data) == list(table["id"])
    assert distinct_texts(data) == list(dict.fromkeys(table["text"]))


def test_other_names_of_columns(read):
    rows = [
        {"key": 7, "body": "naïve", "about": "why?", "is": "b"},
        {"key": 8, "body": "x", "about": "?", "is": "a"},
    ]
    columns = Columns(text="body", question="about", label="is", id="key")
    data = read(rows, columns)
    assert list(data) == [
        {"id": "7", "text": "naïve", "question": "why?", "label": 1},
        {"id": "8", "text": "x", "question": "?", "label": 0},
    ]
    assert (names_of(data), source_of(data)) == (("a", "b"), "rows.jsonl")


def test_a_dataset_with_named_classes(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the
    Hub."""
    names = datasets.ClassLabel(names=["pos", "neg"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    (tmp_path / "news" / "data").mkdir(parents=True)
    for split, labels in (("train", (1, 0)), ("test", (-1, -1))):
        path = tmp_path / "news" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(table(*labels), features=features).to_parquet(path)
    data = load_classes(open_rows(tmp_path / "news"))
    assert (names_of(data), labels_of(data)) == (("pos", "neg"), [1, 0])
    assert source_of(data) == "news (train)"
    # The names decide.
    data = load_classes(open_rows(tmp_path / "news"), class_names=["neg", "pos"])
    assert (names_of(data), labels_of(data)) == (("neg", "pos"), [0, 1])
    with pytest.raises(ValueError, match=r"'neg' \(str\) is not one of the 2 classes: a, b"):
        load_classes(open_rows(tmp_path / "news"), class_names=["a", "b"])
    unlabelled = load_classes(open_rows(tmp_path / "news", "test"))
    assert "label" not in unlabelled.features


def test_numbers_of_named_classes_need_their_list(read):
    train = read(table("a", "b"))
    with pytest.raises(ValueError, match="--label_names_file"):
        read(table(0, 1), like=train)


@pytest.mark.parametrize(
    ("labels", "class_names", "expected", "names"),
    [
        ((1, 0, 1), None, [1, 0, 1], ("0", "1")),
        ((True, False), None, [1, 0], ("False", "True")),
        (("b", "a", "b"), None, [1, 0, 1], ("a", "b")),
        ((2, 0), ["x", "y", "z"], [2, 0], ("x", "y", "z")),
        (([0, 2], [1], []), None, [[0, 2], [1], []], ("0", "1", "2")),
        ((3, 1), ["1", "3"], [1, 0], ("1", "3")),  # digits are names and not places
    ],
)
def test_labels(read, labels, class_names, expected, names):
    data = read(table(*labels), class_names=class_names)
    assert (labels_of(data), names_of(data)) == (expected, names)
    assert isinstance(data.features["label"], List) == isinstance(labels[0], list)


def test_a_set_has_the_kind_of_labels_of_the_training_set(read):
    train = read(table(["b"], ["a", "c"]))
    data = read(table(["c"], ["c", "b"]), like=train)
    assert (labels_of(data), names_of(data)) == ([[2], [1, 2]], ("a", "b", "c"))
    with pytest.raises(ValueError, match="a list in each row"):
        read(table("a", "b"), like=train)


def test_several_labels_as_scikit_learn_has_them(read):
    rows = [["b", "a"], ["d"], [], ["c", "d", "a"]]
    data = read(table(*rows))
    binarizer = MultiLabelBinarizer()
    indices = binarizer.fit_transform(rows)
    assert labels_of(data) == [row.nonzero()[0].tolist() for row in indices]
    assert names_of(data) == tuple(binarizer.classes_)


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        ([{"body": "x"}], "--text_column"),
        (table("['a', 'b']"), "lists need JSON"),
        ([*table(0), {"text": 7, "label": 1}], "row|line 2.*7"),
        ([{"text": "x", "id": 1}, {"text": "y", "id": "1"}], "'1' is taken"),
        (table("a", None), "no label"),
        (table(0, 2), "0, 2"),
        (table(0.5, 0.5), "float"),
        (table(["a"], [0]), "0 .int."),
        (table(["a"], "b"), "'b' .str."),
        (table([0, 1, 1]), "twice"),
    ],
)
def test_rows_that_are_refused(read, rows, culprit):
    with pytest.raises(ValueError, match=culprit):
        read(rows)


@pytest.mark.parametrize(
    ("column", "wrong"), [("choices", ["Ann"]), ("choices", ["Ann", "Bob", "Cy"]), ("label", 2)]
)
def test_choices_that_are_refused(tmp_path, column, wrong):
    good = {"text": "A story.", "question": "Who?", "choices": ["Ann", "Bob"], "label": 0}
    with pytest.raises(ValueError, match=column):
        load_multiple_choice(write(tmp_path / "rows.jsonl", [good, {**good, column: wrong}]))


# Published data sets; the files are made here, but for QuALITY's real article


def test_quality_as_it_is_published(shared):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    with gzip.open(source, "rt") as lines:
        [record] = map(json.loads, lines)
    data = load_multiple_choice(source)
    assert distinct_texts(data) == [record["article"]]
    assert ids_of(data) == list(map("52845_YLZPNNYD_{}".format, range(1, 6)))
    assert labels_of(data) == [1, 2, 3, 0, 3]  # gold labels 2, 3, 4, 1, 4
    sabrina = data[data["question"].index("Sabrina York is")]
    assert sabrina["choices"][sabrina["label"]] == "a criminal that Blake is hunting"


def article(name="A story.", **changes):
    """A line of QuALITY's official files."""
    question = {
        "question": "Who?",
        "options": ["Ann", "Bob", "Cy", "Di"],
        "gold_label": 4,
        **changes,
    }
    return {
        "article": name,
        "questions": [{**question, "question_unique_id": f"{name}{number}"} for number in (0, 1)],
    }


def test_quality_in_sets_flattened_or_without_labels(tmp_path):
    rows = [article("first"), article("second")]
    data = load_multiple_choice(write(tmp_path / "QuALITY.v1.0.1.htmlstripped.train", rows))
    assert (distinct_texts(data), labels_of(data)) == (["first", "second"], [3, 3, 3, 3])
    flat = [
        {"article": row["article"], **question} for row in rows for question in row["questions"]
    ]
    assert list(load_multiple_choice(write(tmp_path / "flat.jsonl", flat))) == list(data)
    for question in flat:
        del question["gold_label"]
    test = load_multiple_choice(write(tmp_path / "test.jsonl", flat))
    assert "label" not in test.features
    with pytest.raises(ValueError, match="questions"):
        load_multiple_choice(
            write(tmp_path / "wrong.jsonl", [{"article": "x", "questions": "Who?"}])
        )


def test_race(tmp_path):
    race = {
        "example_id": "high1.txt",
        "article": "A story.",
        "question": "Who is _ ?",
        "options": ["Ann", "Bob"],
    }
    data = load_multiple_choice(
        write(tmp_path / "race.jsonl", [{**race, "answer": "B"}, {**race, "answer": "A"}])
    )
    assert labels_of(data) == [1, 0]
    assert (data[0]["question"], data[0]["choices"]) == ("Who is _ ?", ["Ann", "Bob"])


def test_muld_character_archetypes(tmp_path):
    rows = [
        {"input": "Ellen Ripley\nALIEN\nINT. SHIP", "output": ["Hero"], "metadata": "1979"},
        {
            "input": "Is Ash good?\nALIEN\nINT. SHIP",
            "output": ["Villain/Antagonist"],
            "metadata": "1979",
        },
    ]
    question = "Is the character Ellen Ripley behaving like a hero or a villain?"
    for order in (rows, rows[::-1]):  # the order of classes is not that of the rows
        data = load_classification(write(tmp_path / "muld.jsonl", order))
        assert (distinct_texts(data), names_of(data)) == (
            ["ALIEN\nINT. SHIP"],
            ("Villain/Antagonist", "Hero"),
        )
        assert dict(zip(data["question"], data["label"], strict=True)) == {
            question: 1,
            "Is Ash good?": 0,
        }
    with pytest.raises(ValueError, match="first line"):
        load_classification(
            write(tmp_path / "mixed.jsonl", [*rows, {"input": "INT. SHIP", "output": ["Hero"]}])
        )
    plain = write(
        tmp_path / "plain.jsonl", [{"input": "x" * 201 + "\nINT. SHIP", "output": "b"}]
    )  # of another set
    columns = Columns(text="input", label="output")
    assert names_of(load_classification(plain, columns=columns)) == ("b",)
    for line in (
        "The one who was never really there",
        "x" * 199 + "?",
    ):  # no name, so the question itself
        data = load_classification(
            write(tmp_path / "line.jsonl", [{"input": f"{line}\nINT.", "output": ["Hero"]}])
        )
        assert (data[0]["question"], distinct_texts(data)) == (line, ["INT."])


@pytest.fixture
def laws(tmp_path):
    """Files of EURLEX-57K."""
    folder = tmp_path / "dataset" / "train"
    folder.mkdir(parents=True)
    for number, concepts in enumerate((["192", "2356"], ["192"], ["77"])):
        law = {
            "celex_id": f"32010R{number:04d}",
            "type": "Regulation",
            "concepts": concepts,
            "title": "Regulation",
            "header": f"COMMISSION REGULATION No {number}",
            "recitals": ", Having regard to the Treaty,",
            "main_body": ["Article one.", "Article two."],
            "attachments": "Done at Brussels.",
        }
        (folder / f"{law['celex_id']}.json").write_text(json.dumps(law, indent=1))
    return folder / "*.json"


def test_laws_straight_and_inverted(laws):
    straight = load_classification(laws)
    assert isinstance(straight.features["label"], List)
    assert names_of(straight) == ("192", "2356", "77")
    assert ids_of(straight) == ["32010R0000", "32010R0001", "32010R0002"]
    assert labels_of(straight) == [[0, 1], [0], [2]]
    header = "COMMISSION REGULATION No 1"
    recitals = ", Having regard to the Treaty,"
    body = "Article one. Article two."
    assert straight[1]["text"] == f"{header} {recitals} {body}"
    inverted = load_classification(laws, arrangement="inverted")
    assert inverted[1]["text"] == f"{body} {recitals} {header}"
    assert labels_of(inverted) == labels_of(straight)
    named = load_classification(laws, class_names=["77", "192", "2356", "unseen"])
    assert labels_of(named)[2] == [0]


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
    assert ids_of(data) == [name for name in names if split_of(name) == split]
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


# Splits


def data_of(owners):
    """A row for each owner, the number of its document."""
    rows = [{"id": f"e{n}", "text": f"document {owner}"} for n, owner in enumerate(owners)]
    return Dataset.from_list(rows)


OWNERS = st.lists(st.integers(0, 12), min_size=2, max_size=40).filter(
    lambda owners: len(set(owners)) > 1
)


def assert_split(data, parts):
    """Nothing is on both sides or lost, and the rows stay in their order."""
    one, other = parts
    assert sorted(ids_of(one) + ids_of(other)) == sorted(ids_of(data))
    assert not set(distinct_texts(one)) & set(distinct_texts(other))
    for part in parts:
        assert len(part) > 0
        kept = set(ids_of(part))
        assert ids_of(part) == [name for name in ids_of(data) if name in kept]


@settings(max_examples=30, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_documents_are_held_out(owners, share, seed):
    data = data_of(owners)
    parts = hold_out_documents(data, share, seed)
    assert_split(data, parts)
    assert abs(len(distinct_texts(parts[1])) - share * len(distinct_texts(data))) <= 1


def hashes_of(data):
    return [hashlib.sha256(text.encode()).digest() for text in distinct_texts(data)]


@settings(max_examples=30, deadline=None)
@given(OWNERS, st.randoms(use_true_random=False))
def test_documents_are_halved(owners, shuffled):
    data = data_of(owners)
    first, second = halve_by_document(data)
    assert_split(data, (first, second))
    assert len(distinct_texts(first)) - len(distinct_texts(second)) in (0, 1)
    assert max(hashes_of(first)) < min(hashes_of(second))
    # The halves are the same in any order of rows.
    mixed = data.select(shuffled.sample(range(len(data)), len(data)))
    again = halve_by_document(mixed)
    assert set(distinct_texts(again[0])) == set(distinct_texts(first))
    assert set(distinct_texts(again[1])) == set(distinct_texts(second))


def test_what_cannot_be_split():
    with pytest.raises(ValueError, match="one document"):
        halve_by_document(data_of([1, 1]))
