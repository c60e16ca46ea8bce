"""Labelled documents: what is recognised, what is refused, published data sets, splits, batches,
predictions."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer

from nextlevelbert.data.tables import open_rows
from nextlevelbert.tasks import labelled_documents as labelled
from nextlevelbert.tasks.classification import collate_tokens, collate_vectors, token_rows
from nextlevelbert.tasks.labelled_documents import (
    SEVERAL,
    SINGLE,
    ColumnArguments,
    Example,
    LabelledDocuments,
)

from ..finetuning_toys import predictions, write

COLUMNS = ColumnArguments()


@pytest.fixture
def read(tmp_path):
    """Reads rows with classes, through a file."""

    def read(rows, columns=None, **options):
        return labelled.read_classes(
            open_rows(write(tmp_path / "rows.jsonl", rows)), columns or COLUMNS, **options
        )

    return read


def table(*labels):
    return [{"text": f"document {number}", "label": label} for number, label in enumerate(labels)]


def labels_of(data):
    return [example.label for example in data.examples]


def ids_of(data):
    return [example.id for example in data.examples]


def test_a_real_table(shared):
    source = shared / "data" / "bbc_news" / "validation.jsonl.gz"
    rows = [row for _, row in open_rows(source).rows]
    table = datasets.Dataset.from_list(rows)
    encoder = LabelEncoder()
    data = labelled.read_classes(open_rows(source), COLUMNS)
    assert labels_of(data) == encoder.fit_transform(table["label"]).tolist()
    assert data.label_names == tuple(encoder.classes_)
    assert ids_of(data) == list(table["id"])
    assert data.documents() == list(dict.fromkeys(table["text"]))


def test_other_names_of_columns(read):
    rows = [
        {"key": 7, "body": "naïve", "about": "why?", "is": "b"},
        {"key": 8, "body": "x", "about": "?", "is": "a"},
    ]
    columns = ColumnArguments(
        text_column="body", question_column="about", label_column="is", id_column="key"
    )
    data = read(rows, columns)
    examples = [Example("7", "naïve", "why?", (), 1), Example("8", "x", "?", (), 0)]
    assert data == LabelledDocuments(SINGLE, examples, ("a", "b"), "rows.jsonl")


def test_a_dataset_with_named_classes(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the
    Hub."""
    names = datasets.ClassLabel(names=["pos", "neg"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    (tmp_path / "news" / "data").mkdir(parents=True)
    for split, labels in (("train", (1, 0)), ("test", (-1, -1))):
        path = tmp_path / "news" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(table(*labels), features=features).to_parquet(path)
    data = labelled.read_classes(open_rows(tmp_path / "news"), COLUMNS)
    assert (data.label_names, labels_of(data), data.source) == (
        ("pos", "neg"),
        [1, 0],
        "news (train)",
    )
    data = labelled.read_classes(
        open_rows(tmp_path / "news"), COLUMNS, ["neg", "pos"]
    )  # the names decide
    assert (data.label_names, labels_of(data)) == (("neg", "pos"), [0, 1])
    with pytest.raises(ValueError, match=r"'neg' \(str\) is not one of the 2 classes: a, b"):
        labelled.read_classes(open_rows(tmp_path / "news"), COLUMNS, ["a", "b"])
    with pytest.raises(ValueError, match="--label_names_file"):  # numbers of which list?
        labelled.read_classes(
            open_rows(write(tmp_path / "rows.jsonl", table(0, 1))), COLUMNS, ["a", "b"]
        )
    assert labels_of(labelled.read_classes(open_rows(tmp_path / "news", "test"), COLUMNS)) == [
        None,
        None,
    ]
    assert labelled.class_name([0, -1, True, "pos", 7], ("pos", "neg")) == [
        "pos",
        None,
        True,
        "pos",
        7,
    ]


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        ((1, 0, 1), {}, (SINGLE, [1, 0, 1], ("0", "1"))),
        ((True, False), {}, (SINGLE, [1, 0], ("False", "True"))),
        (("b", "a", "b"), {}, (SINGLE, [1, 0, 1], ("a", "b"))),
        ((2, 0), {"names": ["x", "y", "z"], "by_number": True}, (SINGLE, [2, 0], ("x", "y", "z"))),
        (([0, 2], [1], []), {}, (SEVERAL, [(0, 2), (1,), ()], ("0", "1", "2"))),
        (
            (3, 1),
            {"names": ["1", "3"]},
            (SINGLE, [1, 0], ("1", "3")),
        ),  # digits are names and not places
        ((None, None), {"problem": SEVERAL}, (SEVERAL, [None, None], None)),
    ],
)
def test_labels(read, labels, options, expected):
    data = read(table(*labels), **options)
    assert (data.problem_type, labels_of(data), data.label_names) == expected
    assert list(map(type, labels_of(data))) == list(map(type, expected[1]))


def test_several_labels_as_scikit_learn_has_them(read):
    rows = [["b", "a"], ["d"], [], ["c", "d", "a"]]
    data = read(table(*rows))
    binarizer = MultiLabelBinarizer()
    assert (data.labels() == binarizer.fit_transform(rows)).all()
    assert data.label_names == tuple(binarizer.classes_)


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
        choices(write(tmp_path / "rows.jsonl", [good, {**good, column: wrong}]))


# Published data sets; the files are made here, but for QuALITY's real article


def choices(source):
    return labelled.read_choices(labelled.choice_table(source), COLUMNS)


def classes(source, split="train", arrangement=None, **options):
    return labelled.read_classes(
        labelled.classification_table(source, split, None, arrangement), COLUMNS, **options
    )


def test_quality_as_it_is_published(shared):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    with gzip.open(source, "rt") as lines:
        [record] = map(json.loads, lines)
    data = choices(source)
    assert data.documents() == [record["article"]]
    assert ids_of(data) == [f"52845_YLZPNNYD_{number}" for number in range(1, 6)]
    assert labels_of(data) == [1, 2, 3, 0, 3]  # gold labels 2, 3, 4, 1, 4
    sabrina = next(row for row in data.examples if row.question == "Sabrina York is")
    assert sabrina.choices[sabrina.label] == "a criminal that Blake is hunting"


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
    data = choices(write(tmp_path / "QuALITY.v1.0.1.htmlstripped.train", rows))
    assert (data.documents(), labels_of(data)) == (["first", "second"], [3, 3, 3, 3])
    flat = [
        {"article": row["article"], **question} for row in rows for question in row["questions"]
    ]
    assert choices(write(tmp_path / "flat.jsonl", flat)).examples == data.examples
    for question in flat:
        del question["gold_label"]
    assert labels_of(choices(write(tmp_path / "test.jsonl", flat))) == [None] * 4
    with pytest.raises(ValueError, match="questions"):
        choices(write(tmp_path / "wrong.jsonl", [{"article": "x", "questions": "Who?"}]))


def test_race(tmp_path):
    race = {
        "example_id": "high1.txt",
        "article": "A story.",
        "question": "Who is _ ?",
        "options": ["Ann", "Bob"],
    }
    data = choices(
        write(tmp_path / "race.jsonl", [{**race, "answer": "B"}, {**race, "answer": "A"}])
    )
    assert (labels_of(data), data.examples[0].asked) == (
        [1, 0],
        ["Who is _ ? Ann", "Who is _ ? Bob"],
    )


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
        data = classes(write(tmp_path / "muld.jsonl", order))
        assert (data.documents(), data.label_names) == (
            ["ALIEN\nINT. SHIP"],
            ("Villain/Antagonist", "Hero"),
        )
        assert {example.question: example.label for example in data.examples} == {
            question: 1,
            "Is Ash good?": 0,
        }
    with pytest.raises(ValueError, match="first line"):
        classes(
            write(tmp_path / "mixed.jsonl", [*rows, {"input": "INT. SHIP", "output": ["Hero"]}])
        )
    plain = write(
        tmp_path / "plain.jsonl", [{"input": "x" * 201 + "\nINT. SHIP", "output": "b"}]
    )  # of another set
    columns = ColumnArguments(text_column="input", label_column="output")
    assert labelled.read_classes(labelled.classification_table(plain), columns).label_names == (
        "b",
    )
    for line in (
        "The one who was never really there",
        "x" * 199 + "?",
    ):  # no name, so the question itself
        data = classes(
            write(tmp_path / "line.jsonl", [{"input": f"{line}\nINT.", "output": ["Hero"]}])
        )
        assert (data.examples[0].question, data.documents()) == (line, ["INT."])


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
    straight = classes(laws)
    assert straight.problem_type == "multi_label_classification"
    assert straight.label_names == ("192", "2356", "77")
    assert ids_of(straight) == ["32010R0000", "32010R0001", "32010R0002"]
    assert labels_of(straight) == [(0, 1), (0,), (2,)]
    header = "COMMISSION REGULATION No 1"
    recitals = ", Having regard to the Treaty,"
    body = "Article one. Article two."
    assert straight.examples[1].text == f"{header} {recitals} {body}"
    inverted = classes(laws, arrangement="inverted")
    assert inverted.examples[1].text == f"{body} {recitals} {header}"
    assert labels_of(inverted) == labels_of(straight)
    assert classes(laws, names=["77", "192", "2356", "unseen"]).labels().tolist()[2] == [1, 0, 0, 0]


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
    data = classes(folder, split)
    assert ids_of(data) == [name for name in names if split_of(name) == split]
    assert data.examples[0].text == f"Plot of {data.examples[0].id}."
    kinds = map("Kind {}".format, range(10))
    assert data.label_names == ("Fantasy", "Fiction", *kinds)


def test_a_book_without_a_genre_is_left_out(books, caplog):
    caplog.set_level("INFO")
    classes(books[0], split_of("1"))
    assert f"{split_of('1')}: 1 books without a genre" in caplog.text


def test_books_in_pairs(books, caplog):
    folder, _ = books
    single = classes(folder)
    paired = classes(folder, arrangement="paired")
    one, two = single.examples[:2]
    assert paired.examples[0].text == f"{one.text}\n{two.text}"
    assert paired.examples[0].id == f"{one.id}+{two.id}"
    assert paired.examples[0].label == tuple(sorted({*one.label, *two.label}))
    assert len(paired.examples) == len(single.examples) // 2
    assert ("no partner" in caplog.text) == (len(single.examples) % 2 == 1)


@pytest.mark.parametrize(
    ("options", "culprit"), [({"split": "dev"}, "dev"), ({"arrangement": "inverted"}, "inverted")]
)
def test_books_that_are_refused(books, options, culprit):
    with pytest.raises(ValueError, match=culprit):
        classes(books[0], **options)


# Splits


def data_of(owners):
    """An example for each owner, the number of its document."""
    rows = [Example(f"e{n}", f"document {owner}", label=n % 2) for n, owner in enumerate(owners)]
    return LabelledDocuments(SINGLE, rows, ("0", "1"), "here")


OWNERS = st.lists(st.integers(0, 12), min_size=2, max_size=40).filter(
    lambda owners: len(set(owners)) > 1
)


def assert_split(data, parts):
    """Nothing is on both sides or lost, and the rows stay in their order."""
    one, other = parts
    assert sorted(ids_of(one) + ids_of(other)) == sorted(ids_of(data))
    assert not set(one.documents()) & set(other.documents())
    for part in parts:
        assert part.documents()
        assert part.examples == [row for row in data.examples if row in part.examples]


@settings(max_examples=60, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_documents_are_held_out(owners, share, seed):
    data = data_of(owners)
    parts = labelled.hold_out_documents(data, share, seed)
    assert_split(data, parts)
    assert abs(len(parts[1].documents()) - share * len(data.documents())) <= 1


def hashes_of(data):
    return [hashlib.sha256(text.encode()).digest() for text in data.documents()]


@settings(max_examples=60, deadline=None)
@given(OWNERS, st.randoms(use_true_random=False))
def test_documents_are_halved(owners, shuffled):
    data = data_of(owners)
    first, second = labelled.halve_by_document(data)
    assert_split(data, (first, second))
    assert len(first.documents()) - len(second.documents()) in (0, 1)
    assert max(hashes_of(first)) < min(hashes_of(second))
    # The halves are the same in any order of rows.
    mixed = replace(data, examples=shuffled.sample(data.examples, len(data.examples)))
    again = labelled.halve_by_document(mixed)
    assert set(again[0].documents()) == set(first.documents())
    assert set(again[1].documents()) == set(second.documents())


def test_what_cannot_be_split():
    with pytest.raises(ValueError, match="one document"):
        labelled.halve_by_document(data_of([1, 1]))


# Batches and predictions


def test_a_batch_holds_each_document_once():
    triples = (("two", "q1", (0, 2)), ("one", "q2", ()), ("two", "q1", (1,)))
    rows = [
        Example(f"{n}", text, asked, (), label) for n, (text, asked, label) in enumerate(triples)
    ]
    data = LabelledDocuments(SEVERAL, rows, ("x", "y", "z"), "here")
    vectors = {"one": torch.ones(1, 2), "two": torch.arange(6.0).reshape(3, 2)}
    vectors |= {"q1": torch.eye(2), "q2": torch.ones(1, 2)}
    batch = collate_vectors(data, vectors, rows)
    assert next(iter(batch)) == "document_index"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert torch.equal(batch["inputs_embeds"][0], vectors["two"])
    assert batch["labels"].is_floating_point()
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert batch["pair_embeds"].tolist() == [
        [0.5, 0.5],
        [1, 1],
        [0.5, 0.5],
    ]  # the mean of a long question
    data = LabelledDocuments(
        SINGLE, [Example("a", "one", label=1)], ("n", "y"), "here", sigmoid=True
    )
    assert collate_vectors(data, vectors, data.examples)["labels"].tolist() == [[1.0]]


def test_tokens_are_cut_and_padded_on_the_right(minilm):
    tokenizer = minilm.tokenizer
    examples = [Example("a", "two three four", "one"), Example("b", "five")]
    data = LabelledDocuments(SINGLE, examples, ("n", "y"), "here")
    ids = tokenizer(["one two three four", "five"])["input_ids"]  # a question before its document
    for keep_end, expected in (
        (False, ids[0][:4]),
        (True, [*ids[0][:3], tokenizer.sep_token_id]),
    ):
        rows, lengths = token_rows(data, tokenizer, 4, keep_end=keep_end)
        assert lengths.tolist() == [6, 3]
        batch = collate_tokens(data, tokenizer, rows)
        assert batch["input_ids"].tolist() == [expected, [*ids[1], tokenizer.pad_token_id]]
        assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    empty = replace(data, examples=[data.examples[0], Example("b", "\u200b")])
    with pytest.raises(ValueError, match="'b'"):
        token_rows(empty, tokenizer, None, keep_end=False)


@pytest.mark.parametrize(
    ("problem", "names", "label", "logits", "expected"),
    [
        (
            SINGLE,
            ("n", "y"),
            1,
            [[0.0, math.log(3)]],
            {"prediction": "y", "label": "y", "scores": [0.25, 0.75]},
        ),
        (
            SEVERAL,
            ("n", "y"),
            (0,),
            [[-1.0, 0.0]],
            {"prediction": [], "label": ["n"], "scores": [0.268941, 0.5]},
        ),
        (
            "multiple_choice",
            None,
            None,
            [[0.0, math.log(3)]],
            {"prediction": 1, "scores": [0.25, 0.75]},
        ),
    ],
)
def test_predictions_in_words(tmp_path, problem, names, label, logits, expected):
    data = LabelledDocuments(problem, [Example("ü", "text", label=label)], names, "here")
    labelled.write_predictions(tmp_path / "p.jsonl", data, np.array(logits))
    assert predictions(tmp_path / "p.jsonl") == [{"id": "ü", **expected}]
    assert "ü" in (tmp_path / "p.jsonl").read_text(encoding="utf-8")


def test_scores_worked_by_hand():
    def data(problem, *labels):
        return LabelledDocuments(
            problem, [Example("x", "y", label=label) for label in labels], ("n", "y"), "here"
        )

    single = data(SINGLE, 0, 1, 0, 1)
    scores = single.scores(
        np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 2.0], [5.0, 1.0]])
    )  # says 0, 1, 1, 0
    # Class 1: one found of two, one of two findings right: precision = recall = 1/2; class 0
    # likewise.
    assert scores == {"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "micro_f1": 0.5}
    assert (
        single.scores(np.eye(2)[[0, 1, 0, 0]], np.array([True, False, False, True]))["accuracy"]
        == 0.5
    )
    several = data(SEVERAL, (0,), (0,), (1,))
    scores = several.scores(
        np.array([[1.0, -1.0], [1.0, 0.3], [-1.0, -1.0]])
    )  # says {0}, {0, 1}, {}
    # Class 0: 2 of 2; class 1: none found of one, one wrong. Micro: 2 right of 3 said and of 3 that
    # are.
    assert scores == pytest.approx({"accuracy": 1 / 3, "macro_f1": 0.5, "micro_f1": 2 / 3})
    assert (several.trivial_logits() > 0).tolist() == [[True, False]]
    assert data("multiple_choice", 0, 1, 0, 0).scores(np.eye(4)) == {"accuracy": 0.5}
    assert data(SINGLE, 1, 1, 0).trivial_logits().argmax() == 1
