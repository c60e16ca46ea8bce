"""Supervised tasks from files and datasets: what is recognised, what is refused, and splits by document."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from dataclasses import replace

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer

from nextlevelbert.tasks.classification.data import (
    Columns,
    Example,
    TaskData,
    read_classification,
    read_multiple_choice,
)
from nextlevelbert.tasks.classification.splits import (
    halve_by_document,
    hold_out_documents,
    questions_first,
    with_one_output,
)

CHOICE = Columns(question="question", candidates="options")


@pytest.fixture
def written(tmp_path):
    """Writes rows to a file and gives its path; the kind of file is that of the name."""

    def write(rows, name="rows.jsonl", features=None):
        path = tmp_path / name
        if ".parquet" in name:
            datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "plain.parquet")
            content = (tmp_path / "plain.parquet").read_bytes()
        elif ".json" in name and ".jsonl" not in name:
            content = json.dumps(rows, indent=1).encode()
        else:
            content = "\n".join(json.dumps(row) for row in rows).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def table(*labels):
    return [{"text": f"document {number}", "label": label} for number, label in enumerate(labels)]


def labels_of(data):
    return [example.label for example in data.examples]


def article(name="A story.", questions=2, **changes):
    """A line of QuALITY's official files."""
    question = {"question": "Who?", "options": ["Ann", "Bob", "Cy", "Di"], "gold_label": 4, **changes}
    numbered = [{**question, "question_unique_id": f"{name}{number}"} for number in range(questions)]
    return {"article_id": "1", "set_unique_id": f"1_{name}", "article": name, "questions": numbered}


# What is read


def test_quality_as_it_is_published(shared):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    [line] = gzip.open(source, "rt").read().splitlines()
    record = json.loads(line)
    data = read_multiple_choice(source)
    assert data.documents == [record["article"]]
    assert (data.problem_type, data.label_names, data.source) == ("multiple_choice", None, "examples.jsonl.gz")
    assert [example.id for example in data.examples] == [f"52845_YLZPNNYD_{number}" for number in range(1, 6)]
    assert labels_of(data) == [1, 2, 3, 0, 3]  # gold labels 2, 3, 4, 1, 4
    for example, question in zip(data.examples, record["questions"], strict=True):
        assert (example.question, list(example.candidates)) == (question["question"], question["options"])
    [sabrina] = [example for example in data.examples if example.question == "Sabrina York is"]
    assert sabrina.candidates[sabrina.label] == "a criminal that Blake is hunting"


def test_question_sets_of_one_article_share_its_document(written):
    rows = [article("first"), article("second"), {**article("third"), "article": "first"}]
    data = read_multiple_choice(written(rows, "QuALITY.v1.0.1.htmlstripped.train"))
    assert data.documents == ["first", "second"]
    assert [example.document for example in data.examples] == [0, 0, 1, 1, 0, 0]
    assert data.source == "QuALITY.v1.0.1.htmlstripped.train"


def test_quality_without_labels_or_flattened(written, caplog):
    rows = [article()]
    for question in rows[0]["questions"]:
        del question["gold_label"]
    data = read_multiple_choice(written(rows))
    assert labels_of(data) == [None, None]
    assert "no row has a label in column 'gold_label'" in caplog.text
    flat = [{"article": line["article"], **q} for line in [article("a"), article("b")] for q in line["questions"]]
    data = read_multiple_choice(written(flat, "rows.parquet"))
    assert (data.documents, labels_of(data)) == (["a", "b"], [3, 3, 3, 3])
    assert [example.id for example in data.examples] == ["a0", "a1", "b0", "b1"]


def test_choices_of_named_columns_count_from_zero(written):
    rows = [{"text": "A story.", "question": "Who?", "options": ["Ann", "Bob"], "label": 1}]
    [example] = read_multiple_choice(written(rows), CHOICE).examples
    assert example == Example("row-000000", 0, "Who?", ("Ann", "Bob"), 1)
    with pytest.raises(ValueError, match=r"row 0 .* has no column 'answers'; it has .*--candidates_column"):
        read_multiple_choice(written(rows), Columns(question="question", candidates="answers"))
    rows[0]["label"] = 2
    with pytest.raises(ValueError, match=r"row 0 .*column 'label': must be an integer from 0 to 1.*got 2"):
        read_multiple_choice(written(rows), CHOICE)
    # A table with QuALITY's article and options, but labels of another name, must not come out unlabelled.
    rows = [{"article": "A story.", "question": "Who?", "options": ["Ann", "Bob"], "answer": 1}]
    with pytest.raises(
        ValueError, match="--question_column and --candidates_column; the columns are article, question, o"
    ):
        read_multiple_choice(written(rows))


def test_muld_character_archetypes(written):
    question = "Is the character Ellen Ripley behaving like a hero or a villain?"
    rows = [
        {"input": "Ellen Ripley\nALIEN\nINT. SHIP", "output": ["Hero"], "metadata": "1979"},
        {"input": "Is Ash good?\nALIEN\nINT. SHIP", "output": ["Villain/Antagonist"], "metadata": "1979"},
    ]
    for order in (rows, rows[::-1]):  # the order of classes is not that of the rows
        data = read_classification(written(order))
        assert (data.documents, data.label_names) == (["ALIEN\nINT. SHIP"], ("Villain/Antagonist", "Hero"))
        assert {example.question: example.label for example in data.examples} == {question: 1, "Is Ash good?": 0}
    without = [{"input": "x" * 201 + "\nINT. SHIP", "output": ["Hero"]}, {"input": "INT. SHIP", "output": ["Hero"]}]
    data = read_classification(written(without))
    assert data.documents == [row["input"] for row in without]
    assert [example.question for example in data.examples] == [None, None]
    with pytest.raises(ValueError, match=r"row 2 \(counted from 0\), line 3, column 'input': has no short first line"):
        read_classification(written([*rows, without[1]]))
    with pytest.raises(ValueError, match=r"row 1 .*column 'input': has a short first line"):
        read_classification(written([without[0], rows[0]]))
    with pytest.raises(ValueError, match=r"column 'output': must hold one label, got \['Hero', 'Villain'\]"):
        read_classification(written([{"input": "Ash\nINT.", "output": ["Hero", "Villain"]}]))
    seven = "The one who was never really there"  # too long for a name, so it is the question itself
    for line in (seven, "x" * 199 + "?"):
        data = read_classification(written([{"input": f"{line}\nINT.", "output": ["Hero"]}]))
        assert (data.examples[0].question, data.documents) == (line, ["INT."])
    rows = [{"text": "a\nb", "label": 0, "input": "Ash\nALIEN", "output": ["Hero"]}]  # another table with such columns
    assert read_classification(written(rows)).documents == ["a\nb"]


def test_real_tables(shared):
    """Counts as the READMEs beside the data tell them; class order as scikit-learn's."""
    data = read_classification(shared / "data" / "hyperpartisan" / "train.jsonl.gz")
    assert (len(data.examples), sum(labels_of(data)), data.label_names) == (514, 187, ("0", "1"))
    validation = shared / "data" / "hyperpartisan" / "validation.jsonl.gz"
    data = read_classification(validation, label_names=data.label_names)
    assert (len(data.documents), sum(labels_of(data))) == (64, 24)
    news = shared / "data" / "bbc_news" / "validation.jsonl.gz"
    rows = [json.loads(line) for line in gzip.open(news, "rt")]
    encoder = LabelEncoder()
    indices = encoder.fit_transform([row["label"] for row in rows])
    data = read_classification(news)
    assert data.label_names == tuple(encoder.classes_) == ("business", "entertainment", "politics", "sport", "tech")
    assert labels_of(data) == indices.tolist()
    assert [data.documents[example.document] for example in data.examples] == [row["text"] for row in rows]
    assert [example.id for example in data.examples] == [row["id"] for row in rows]


@pytest.mark.parametrize(
    "name", ["r.jsonl", "r.jsonl.gz", "r.json", "r.json.gz", "r.parquet", "r.parquet.gz", "r.dev"]
)
def test_every_kind_of_file_gives_the_same(written, name):
    rows = [{"key": 7, "body": "naïve", "about": "why?", "is": "b"}, {"key": 8, "body": "x", "about": "?", "is": "a"}]
    data = read_classification(written(rows, name), Columns("body", "about", "is", id="key"))
    examples = [Example("7", 0, "why?", None, 1), Example("8", 1, "?", None, 0)]
    assert data == TaskData("single_label_classification", ["naïve", "x"], examples, ("a", "b"), name)


LABELS = datasets.ClassLabel(names=["pos", "neg"])


def test_a_dataset_with_named_classes(written, tmp_path):
    """A folder laid out like a dataset repository, which `datasets` opens as it opens one on the Hub."""
    features = datasets.Features({"text": datasets.Value("string"), "label": LABELS})
    several = datasets.Features({"text": datasets.Value("string"), "label": datasets.List(LABELS)})
    (tmp_path / "news" / "data").mkdir(parents=True)
    written(table(1, 0), "news/data/train-00000-of-00001.parquet", features)
    written(table(-1, -1), "news/data/test-00000-of-00001.parquet", features)
    data = read_classification(tmp_path / "news")
    assert (data.label_names, labels_of(data), data.source) == (("pos", "neg"), [1, 0], "news (train)")
    data = read_classification(str(tmp_path / "news"), label_names=["neg", "pos"])  # the names decide
    assert (data.label_names, labels_of(data)) == (("neg", "pos"), [0, 1])
    assert labels_of(read_classification(tmp_path / "news", split="test")) == [None, None]
    data = read_classification(written(table([1, 0], []), "several.parquet", several))
    assert (data.problem_type, data.label_names, labels_of(data)) == (
        "multi_label_classification",
        ("pos", "neg"),
        [(0, 1), ()],
    )


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        ((1, 0, 1), {}, ("single_label_classification", [1, 0, 1], ("0", "1"))),
        ((True, False), {}, ("single_label_classification", [1, 0], ("False", "True"))),
        ((True,), {"label_names": ["no", "yes"]}, ("single_label_classification", [1], ("no", "yes"))),
        (("b", "a", "b"), {}, ("single_label_classification", [1, 0, 1], ("a", "b"))),
        (("b",), {"label_names": ["b", "a"]}, ("single_label_classification", [0], ("b", "a"))),
        ((2, 0), {"label_names": ["x", "y", "z"]}, ("single_label_classification", [2, 0], ("x", "y", "z"))),
        (([0, 2], [1], []), {}, ("multi_label_classification", [(0, 2), (1,), ()], ("0", "1", "2"))),
        ((0.5, 2), {}, ("regression", [0.5, 2.0], None)),
        ((3, 9), {"problem_type": "regression"}, ("regression", [3.0, 9.0], None)),
        ((None, None), {}, ("single_label_classification", [None, None], None)),
        ((None,), {"problem_type": "regression"}, ("regression", [None], None)),
        ((None,), {"label_names": ["a"]}, ("single_label_classification", [None], ("a",))),
    ],
)
def test_labels(written, labels, options, expected):
    data = read_classification(written(table(*labels)), **options)
    assert (data.problem_type, labels_of(data), data.label_names) == expected
    assert [type(label) for label in labels_of(data)] == [type(label) for label in expected[1]]


def test_multi_label_as_scikit_learn_has_it(written):
    rows = [["b", "a"], ["d"], [], ["c", "d", "a"]]
    binarizer = MultiLabelBinarizer()
    matrix = binarizer.fit_transform(rows)
    data = read_classification(written(table(*rows)))
    assert data.label_names == tuple(binarizer.classes_)
    assert labels_of(data) == [tuple(row.nonzero()[0].tolist()) for row in matrix]


def test_a_table_without_a_label_column(written, caplog):
    data = read_classification(written([{"text": "x", "lable": 1}]))
    assert labels_of(data) == [None]
    assert "rows.jsonl: no row has a label in column 'label' (columns: text, lable)" in caplog.text


# What is refused


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"rows.jsonl is empty: it has no rows"),
        (
            [{"body": "x"}],
            r"rows\.jsonl, row 0 \(counted from 0\), line 1 has no column 'text'; it has body\. .*--text_column",
        ),
        ([*table(1), {"label": 1, "id": 2}], r"row 1 .* has no column 'text'; it has label, id\."),
        ([*table(0), {"text": 7, "label": 1}], r"row 1 .*column 'text': must be text, got 7 \(int\)"),
        ([{"text": " \n", "label": 1}], r"row 0 .*column 'text': is blank"),
        ([{"text": "x", "id": 1}, {"text": "y", "id": "1"}], r"row 1 .*column 'id': the id '1' is taken by row 0"),
        (table("a", None), r"row 1 .*column 'label': has no label, but row 0 has one"),
        (table(0, 2), r"rows\.jsonl, column 'label': .*without gaps, but these are 0, 2\. Give label_names"),
        (table(1, 2), r"but these are 1, 2"),
        (table(-1, 0), r"but these are -1, 0"),
        (table(0.5, math.nan), r"row 1 .*column 'label': is nan"),
        (table("a", math.nan), r"row 1 .*column 'label': is nan"),
        (table(0.5, math.inf), r"row 1 .*column 'label': is inf"),
        (table("a", 1), r"row 1 .*1 \(int\) is no label for single_label_classification.*one type throughout"),
        (table(True, 1), r"row 1 .*1 \(int\) is no label"),
        (table("a", 0.5), r"row 0 .*'a' \(str\) is no label for regression: those are float or int"),
        (table("a", " "), r"row 1 .*holds ' ' \(str\)"),
        (table(["a"], [0]), r"row 1 .*holds 0 \(int\); classes are names \(not blank\), or integers"),
        (table([0, 1, 1]), r"row 0 .*\[0, 1, 1\] \(list\) names a class twice"),
        (table([], []), r"column 'label': no row has a class; give label_names"),
        (table({"a": 1}), r"row 0 .*\{'a': 1\} \(dict\) is no label"),
        (["x"], r"rows\.jsonl, line 1 is not a JSON object, but a string\."),
    ],
)
def test_rows_that_are_refused(written, rows, message):
    with pytest.raises(ValueError, match=message):
        read_classification(written(rows))


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (("a", "c"), {"label_names": ["a", "b"]}, r"row 1 .*'c' \(str\) is not one of the 2 classes: a, b\."),
        ((0, 2), {"label_names": ["a", "b"]}, r"row 1 .*column 'label': 2 \(int\) is not one of the 2 classes: 0, 1"),
        ((-1,), {"label_names": ["a", "b"]}, r"row 0 .*-1 \(int\) is not one"),
        (([0, 5],), {"label_names": ["a", "b"]}, r"row 0 .*5 \(int\) is not one"),
        ((0.5,), {"label_names": ["a", "b"]}, r"label_names were given, but the labels are values"),
        (("a", math.nan), {"label_names": ["a"]}, r"row 1 .*column 'label': is nan"),
        ((0,), {"label_names": ["a", "a"]}, r"label_names must be distinct"),
        ((0,), {"label_names": []}, r"label_names must be distinct"),
        ((0.5,), {"problem_type": "single_label_classification"}, r"0\.5 \(float\) is no label for single_label"),
        (("a",), {"problem_type": "multi_label_classification"}, r"'a' \(str\) is no label for multi_label.*are list"),
        (("a",), {"problem_type": "regression"}, r"'a' \(str\) is no label for regression"),
        ((True,), {"problem_type": "regression"}, r"True \(bool\) is no label for regression"),
        (([0],), {"problem_type": "single_label_classification"}, r"\[0\] \(list\) is no label for single_label"),
        (
            (0,),
            {"problem_type": "multiple_choice"},
            r"problem_type must be one of single_label_classification, .*read_m",
        ),
    ],
)
def test_labels_that_contradict_what_is_asked_for(written, labels, options, message):
    with pytest.raises(ValueError, match=message):
        read_classification(written(table(*labels)), **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns("body"), r"has no column 'body'; it has text, label\. .*--text_column"),
        (Columns(question="about"), r"has no column 'about'.*--question_column"),
        (Columns(id="key"), r"has no column 'key'.*--id_column"),
    ],
)
def test_columns_that_are_not_there(written, columns, message):
    with pytest.raises(ValueError, match=message):
        read_classification(written(table(0, 1)), columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold_label": 5}, r"row 1, question 0 .*column 'gold_label': must be an integer from 1 to 4.*got 5 \(int\)"),
        ({"gold_label": 0}, r"from 1 to 4, one of the candidates, got 0"),
        ({"gold_label": "2"}, r"from 1 to 4, one of the candidates, got '2' \(str\)"),
        ({"gold_label": math.nan}, r"row 1, question 0 .*column 'gold_label': is nan"),
        ({"gold_label": None}, r"row 1, question 0 .*has no label, but row 0, question 0 has one"),
        ({"options": ["a", "b", "c"]}, r"row 1, question 0 .*column 'options': has 3 candidates, but the first row 4"),
        ({"options": ["a"]}, r"must be a list of at least 2 texts, got \['a'\]"),
        ({"options": ["a", "b", "c", " "]}, r"row 1, question 0 .*column 'options': is blank"),
        ({"question": ""}, r"row 1, question 0 .*column 'question': is blank"),
        ({"question": None}, r"column 'question': must be text, got None"),
    ],
)
def test_questions_that_are_refused(written, change, message):
    with pytest.raises(ValueError, match=message):
        read_multiple_choice(written([article("a"), article("b", **change)]))


def test_articles_that_are_refused(written):
    with pytest.raises(ValueError, match=r"row 1 .*column 'questions': must be a list of questions, got \[\]"):
        read_multiple_choice(written([article("a"), article("b", questions=0)]))
    with pytest.raises(ValueError, match=r"row 1, question 0 .*the id 'a0' is taken by row 0, question 0"):
        read_multiple_choice(written([article("a"), article("a")]))


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path):
    (tmp_path / "rows").write_bytes(b'\xef\xbb\xbf\n{"text": "x", "label": 0}\n\n{"text": "y", "label": 1}\n\n')
    assert read_classification(tmp_path / "rows").documents == ["x", "y"]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_classification(tmp_path / "nothing.jsonl")
    (tmp_path / "notes.txt").write_text("Call me Ishmael.")
    with pytest.raises(ValueError, match=r"notes\.txt, line 1, column 1 is not JSON .*Supported: \.jsonl, \.json"):
        read_classification(tmp_path / "notes.txt")
    (tmp_path / "latin.jsonl").write_bytes('{"text": "naïve"}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.jsonl, line 1: byte EF is not UTF-8"):
        read_classification(tmp_path / "latin.jsonl")
    (tmp_path / "cut.jsonl").write_text('{"text": "x", "label": 0}\n\n{"text": "y", "la')
    with pytest.raises(ValueError, match=r"cut\.jsonl, line 3: the file is cut off in the middle of an object"):
        read_classification(tmp_path / "cut.jsonl")
    with pytest.raises(ConnectionError) as error:  # offline, as all tests are
        read_classification("nobody/nothing")
    assert error.value.__notes__ == ["'nobody/nothing' is no file here, so it was taken for a dataset on the Hub."]


# Parts


def data_of(owners):
    """A data set with one example for each number, about the document of that number."""
    order = list(dict.fromkeys(owners))
    examples = [Example(f"e{number}", order.index(owner), label=owner % 2) for number, owner in enumerate(owners)]
    return TaskData("single_label_classification", [f"text {owner}" for owner in order], examples, ("0", "1"), "here")


def facts(data):
    """What a part must keep of each example: its id, its document's text, its label."""
    return {(example.id, data.documents[example.document], example.label) for example in data.examples}


OWNERS = st.lists(st.integers(0, 12), min_size=2, max_size=40).filter(lambda owners: len(set(owners)) > 1)


@settings(max_examples=60, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_nothing_is_on_both_sides_or_lost(owners, share, seed):
    data = data_of(owners)
    for rest, part in (hold_out_documents(data, share, seed), halve_by_document(data)):
        assert facts(rest) | facts(part) == facts(data)
        assert len(rest.examples) + len(part.examples) == len(data.examples)
        assert sorted(rest.documents + part.documents) == sorted(data.documents)
        for side in (rest, part):
            assert {example.document for example in side.examples} == set(range(len(side.documents))) != set()
            ids = [int(example.id[1:]) for example in side.examples]
            assert ids == sorted(ids)
            assert (side.label_names, side.problem_type, side.source) == (("0", "1"), data.problem_type, "here")


@settings(max_examples=40, deadline=None)
@given(OWNERS, st.floats(0.01, 0.99), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_sizes_and_what_decides_them(owners, share, seed, shuffled):
    data = data_of(owners)
    rest, part = hold_out_documents(data, share, seed)
    assert hold_out_documents(data, share, seed) == (rest, part)
    assert abs(len(part.documents) - share * len(data.documents)) <= 1
    first, second = halve_by_document(data)
    assert len(first.documents) - len(second.documents) in (0, 1)
    highest = max(hashlib.sha256(text.encode()).hexdigest() for text in first.documents)
    assert all(hashlib.sha256(text.encode()).hexdigest() > highest for text in second.documents)
    order = list(range(len(data.documents)))
    shuffled.shuffle(order)
    examples = [replace(example, document=order.index(example.document)) for example in data.examples]
    shuffled.shuffle(examples)
    again = halve_by_document(replace(data, documents=[data.documents[number] for number in order], examples=examples))
    assert [facts(half) for half in again] == [facts(first), facts(second)]


def test_another_seed_holds_out_other_documents():
    data = data_of(range(30))
    assert len({tuple(hold_out_documents(data, 0.2, seed)[1].documents) for seed in range(5)}) == 5


def test_splits_that_are_refused():
    data = data_of([1, 2])
    for share in (0, 1, -0.5, math.nan):
        with pytest.raises(ValueError, match="above 0 and below 1"):
            hold_out_documents(data, share, 0)
    with pytest.raises(ValueError, match=r"need at least one each of the documents of here, and there is only 1"):
        hold_out_documents(data_of([1, 1]), 0.5, 0)
    with pytest.raises(ValueError, match=r"here has 1 document; a split by document needs at least two"):
        halve_by_document(data_of([1, 1]))


def test_questions_before_their_documents():
    examples = [Example("a", 0, "Who?", label=0), Example("b", 0, "Why?", label=1), Example("c", 1, "Who?", label=1)]
    data = TaskData("single_label_classification", ["one", "two"], examples, ("no", "yes"), "here")
    found = questions_first(data)
    assert [found.documents[example.document] for example in found.examples] == ["Who?\none", "Why?\none", "Who?\ntwo"]
    assert all(example.question is None for example in found.examples)
    assert found.labels().tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="here has no questions to put first"):
        questions_first(found)


def test_one_output_is_for_two_classes():
    examples = [Example("a", 0, label=0), Example("b", 0, label=1)]
    data = TaskData("single_label_classification", ["one"], examples, ("no", "yes"), "here")
    found = with_one_output(data)
    assert (data.outputs, found.outputs, found.head_type) == (2, 1, "multi_label_classification")
    with pytest.raises(ValueError, match=r"two classes apart, but here has 3 classes \(single label classification\)"):
        with_one_output(replace(data, label_names=("no", "yes", "both")))
    with pytest.raises(ValueError, match=r"but here has values \(regression\)"):
        with_one_output(replace(data, problem_type="regression", label_names=None))
