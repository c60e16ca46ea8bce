"""Labelled documents: what is recognised, what is refused, splits by document, rows of batches, predictions."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer

from nextlevelbert.data.rows import open_rows, table_rows
from nextlevelbert.tasks.classification import collate_tokens, collate_vectors, token_rows
from nextlevelbert.tasks.labelled_documents import (
    ColumnArguments,
    Example,
    LabelledDocuments,
    halve_by_document,
    hold_out_documents,
    read_choices,
    read_classes,
    write_predictions,
)

from ..finetuning_toys import predictions, write

SINGLE = "single_label_classification"


@pytest.fixture
def read(tmp_path):
    """Reads rows with classes, through a file."""

    def read(rows, columns=None, **options):
        return read_classes(open_rows(write(tmp_path / "rows.jsonl", rows)), columns or ColumnArguments(), **options)

    return read


def table(*labels):
    return [{"text": f"document {number}", "label": label} for number, label in enumerate(labels)]


def labels_of(data):
    return [example.label for example in data.examples]


def test_a_real_table(shared):
    source, encoder = shared / "data" / "bbc_news" / "validation.jsonl.gz", LabelEncoder()
    rows, data = list(table_rows(source)), read_classes(open_rows(source), ColumnArguments())
    assert labels_of(data) == encoder.fit_transform([row["label"] for row in rows]).tolist()
    assert data.label_names == tuple(encoder.classes_)
    assert [(row.id, row.text) for row in data.examples] == [(row["id"], row["text"]) for row in rows]


def test_other_names_of_columns(read, tmp_path):
    rows = [{"key": 7, "body": "naïve", "about": "why?", "is": "b"}, {"key": 8, "body": "x", "about": "?", "is": "a"}]
    columns = ColumnArguments(text_column="body", question_column="about", label_column="is", id_column="key")
    data = read(rows, columns)
    assert data == LabelledDocuments(
        SINGLE, [Example("7", "naïve", "why?", (), 1), Example("8", "x", "?", (), 0)], ("a", "b"), "rows.jsonl"
    )
    rows = [{"text": "A story.", "question": "Who?", "answers": ["Ann", "Bob"], "label": 1}]
    source = write(tmp_path / "choices.jsonl", rows)
    assert read_choices(open_rows(source), ColumnArguments(), "answers").examples[0].choices == ("Ann", "Bob")
    with pytest.raises(ValueError, match="candidates_column"):
        read_choices(open_rows(source), ColumnArguments())


def test_a_dataset_with_named_classes(tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the Hub."""
    names = datasets.ClassLabel(names=["pos", "neg"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    (tmp_path / "news" / "data").mkdir(parents=True)
    for split, labels in (("train", (1, 0)), ("test", (-1, -1))):
        path = tmp_path / "news" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_list(table(*labels), features=features).to_parquet(path)
    data = read_classes(open_rows(tmp_path / "news"), ColumnArguments())
    assert (data.label_names, labels_of(data), data.source) == (("pos", "neg"), [1, 0], "news (train)")
    data = read_classes(open_rows(tmp_path / "news"), ColumnArguments(), ["neg", "pos"])  # the names decide
    assert (data.label_names, labels_of(data)) == (("neg", "pos"), [0, 1])
    assert labels_of(read_classes(open_rows(tmp_path / "news", "test"), ColumnArguments())) == [None, None]


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        ((1, 0, 1), {}, (SINGLE, [1, 0, 1], ("0", "1"))),
        ((True, False), {}, (SINGLE, [1, 0], ("False", "True"))),
        (("b", "a", "b"), {}, (SINGLE, [1, 0, 1], ("a", "b"))),
        (("b",), {"label_names": ["b", "a"]}, (SINGLE, [0], ("b", "a"))),
        ((2, 0), {"label_names": ["x", "y", "z"]}, (SINGLE, [2, 0], ("x", "y", "z"))),
        (([0, 2], [1], []), {}, ("multi_label_classification", [(0, 2), (1,), ()], ("0", "1", "2"))),
        ((0.5, 2), {}, ("regression", [0.5, 2.0], None)),
        ((3, 9), {"problem_type": "regression"}, ("regression", [3.0, 9.0], None)),
        ((None, None), {}, (SINGLE, [None, None], None)),
    ],
)
def test_labels(read, labels, options, expected):
    data = read(table(*labels), **options)
    assert (data.problem_type, labels_of(data), data.label_names) == expected
    assert [type(label) for label in labels_of(data)] == [type(label) for label in expected[1]]


def test_several_labels_as_scikit_learn_has_them(read):
    rows = [["b", "a"], ["d"], [], ["c", "d", "a"]]
    data, binarizer = read(table(*rows)), MultiLabelBinarizer()
    assert (data.labels() == binarizer.fit_transform(rows)).all()
    assert data.label_names == tuple(binarizer.classes_)


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        ([{"body": "x"}], "--text_column"),
        ([*table(0), {"text": 7, "label": 1}], "row|line 2.*7"),
        ([{"text": " \n", "label": 1}], "text"),
        ([{"text": "x", "id": 1}, {"text": "y", "id": "1"}], "'1' is taken"),
        (table("a", None), "no label"),
        (table(0, 2), "0, 2"),
        (table(0.5, math.nan), "nan"),
        (table("a", 1), "1 .int."),
        (table(["a"], [0]), "0 .int."),
        (table([0, 1, 1]), "twice"),
        (table({"a": 1}), "dict"),
    ],
)
def test_rows_that_are_refused(read, rows, culprit):
    with pytest.raises(ValueError, match=culprit):
        read(rows)


@pytest.mark.parametrize("choices", [["Ann"], "Ann", ["Ann", 3], ["Ann", "Bob", "Cy"]])
def test_choices_that_are_refused(tmp_path, choices):
    good = {"text": "A story.", "question": "Who?", "choices": ["Ann", "Bob"], "label": 0}
    source = write(tmp_path / "rows.jsonl", [good, {**good, "choices": choices}])
    with pytest.raises(ValueError, match="choices"):
        read_choices(open_rows(source), ColumnArguments())
    for label in (2, -1, True, "A"):
        source = write(tmp_path / "rows.jsonl", [{**good, "label": label}])
        with pytest.raises(ValueError, match="label"):
            read_choices(open_rows(source), ColumnArguments())


# Splits


def data_of(owners):
    """An example for each owner, the number of its document."""
    rows = [Example(f"e{n}", f"document {owner}", label=n % 2) for n, owner in enumerate(owners)]
    return LabelledDocuments(SINGLE, rows, ("0", "1"), "here")


OWNERS = st.lists(st.integers(0, 12), min_size=2, max_size=40).filter(lambda owners: len(set(owners)) > 1)


@settings(max_examples=60, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_nothing_is_on_both_sides_or_lost(owners, share, seed, shuffled):
    data = data_of(owners)
    for parts in (hold_out_documents(data, share, seed), halve_by_document(data)):
        assert sorted(row.id for part in parts for row in part.examples) == sorted(row.id for row in data.examples)
        assert not set(parts[0].documents()) & set(parts[1].documents())
        assert all(part.documents() for part in parts)
        for part in parts:
            assert part.examples == [row for row in data.examples if row in part.examples]  # in their order
    assert abs(len(hold_out_documents(data, share, seed)[1].documents()) - share * len(data.documents())) <= 1
    first, second = halve_by_document(data)
    assert len(first.documents()) - len(second.documents()) in (0, 1)
    hashes = [[hashlib.sha256(text.encode()).digest() for text in part.documents()] for part in (first, second)]
    assert max(hashes[0]) < min(hashes[1])
    mixed = replace(data, examples=shuffled.sample(data.examples, len(data.examples)))
    again = halve_by_document(mixed)  # the same halves in any order of rows
    assert [set(part.documents()) for part in again] == [set(first.documents()), set(second.documents())]


def test_what_cannot_be_split():
    with pytest.raises(ValueError, match="share"):
        hold_out_documents(data_of(range(30)), 0, 0)
    with pytest.raises(ValueError, match="one document"):
        halve_by_document(data_of([1, 1]))


# Batches and predictions


def test_a_batch_holds_each_document_once():
    rows = [
        Example("a", "two", "q1", (), (0, 2)),
        Example("b", "one", "q2", (), ()),
        Example("c", "two", "q1", (), (1,)),
    ]
    data = LabelledDocuments("multi_label_classification", rows, ("x", "y", "z"), "here")
    vectors = {
        "one": torch.ones(1, 2),
        "two": torch.arange(6.0).reshape(3, 2),
        "q1": torch.eye(2),
        "q2": torch.ones(1, 2),
    }
    batch = collate_vectors(data, vectors, False, rows)
    assert next(iter(batch)) == "document_index"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert torch.equal(batch["inputs_embeds"][0], vectors["two"])
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert batch["pair_embeds"].tolist() == [[0.5, 0.5], [1, 1], [0.5, 0.5]]  # the mean of a long question
    data = LabelledDocuments(SINGLE, [Example("a", "one", label=1)], ("n", "y"), "here")
    assert collate_vectors(data, vectors, True, data.examples)["labels"].tolist() == [[1.0]]


def test_tokens_are_cut_and_padded_on_the_right(minilm):
    tokenizer = minilm.tokenizer
    examples = [Example("a", "two three four", "one"), Example("b", "five")]
    data = LabelledDocuments(SINGLE, examples, ("n", "y"), "here")
    ids = tokenizer(["one two three four", "five"])["input_ids"]  # a question before its document
    for kind, expected in (("chunkbert", ids[0][:4]), ("truncated", [*ids[0][:3], tokenizer.sep_token_id])):
        rows, lengths = token_rows(data, tokenizer, 4, kind)
        assert lengths.tolist() == [6, 3]
        batch = collate_tokens(data, tokenizer.pad_token_id, False, rows)
        assert batch["input_ids"].tolist() == [expected, [*ids[1], tokenizer.pad_token_id]]
        assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    with pytest.raises(ValueError, match="'b'"):
        token_rows(replace(data, examples=[data.examples[0], Example("b", "\u200b")]), tokenizer, None, "")


@pytest.mark.parametrize(
    ("problem", "names", "label", "logits", "expected"),
    [
        (SINGLE, ("n", "y"), 1, [[0.0, math.log(3)]], {"prediction": "y", "label": "y", "scores": [0.25, 0.75]}),
        ("multi_label_classification", ("n", "y"), (0,), [[-1.0, 0.0]],
         {"prediction": [], "label": ["n"], "scores": [0.268941, 0.5]}),
        ("regression", None, 2.5, [[1.5]], {"prediction": 1.5, "label": 2.5, "scores": [1.5]}),
        ("multiple_choice", None, None, [[0.0, math.log(3)]], {"prediction": 1, "scores": [0.25, 0.75]}),
    ],
)  # fmt: skip
def test_predictions_in_words(tmp_path, problem, names, label, logits, expected):
    data = LabelledDocuments(problem, [Example("ü", "text", label=label)], names, "here")
    write_predictions(tmp_path / "p.jsonl", data, np.array(logits))
    assert predictions(tmp_path / "p.jsonl") == [{"id": "ü", **expected}]
    assert "ü" in (tmp_path / "p.jsonl").read_text(encoding="utf-8")


def test_scores_worked_by_hand():
    def data(problem, *labels):
        return LabelledDocuments(problem, [Example("x", "y", label=label) for label in labels], ("n", "y"), "here")

    single = data(SINGLE, 0, 1, 0, 1)
    scores = single.scores(np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 2.0], [5.0, 1.0]]))  # says 0, 1, 1, 0
    # Class 1: one found of two, one of two findings right: precision = recall = 1/2; class 0 likewise.
    assert scores == {"accuracy": 0.5, "f1": 0.5, "macro_f1": 0.5, "micro_f1": 0.5}
    assert single.scores(np.eye(2)[[0, 1, 0, 0]], np.array([True, False, False, True]))["accuracy"] == 0.5
    several = data("multi_label_classification", (0,), (0,), (1,))
    scores = several.scores(np.array([[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]))  # says {0}, {0, 1}, {}
    # Class 0: 2 of 2; class 1: none found of one, one wrong. Micro: 2 right of 3 said and of 3 that are.
    assert scores == pytest.approx({"accuracy": 1 / 3, "macro_f1": 0.5, "micro_f1": 2 / 3})
    assert (several.trivial_logits() > 0).tolist() == [[True, False]]
    values = data("regression", 1.0, 2.0, 3.0)
    assert np.isnan(values.scores(values.trivial_logits().repeat(3, axis=0))["pearson"])
    scores = values.scores(np.array([[1.0], [2.0], [4.0]]))
    assert scores == pytest.approx({"mse": 1 / 3, "pearson": 0.98198, "spearman": 1.0}, abs=1e-5)
    assert data("multiple_choice", 0, 1, 0, 0).scores(np.eye(4)) == {"accuracy": 0.5}
    assert data(SINGLE, 1, 1, 0).trivial_logits().argmax() == 1
