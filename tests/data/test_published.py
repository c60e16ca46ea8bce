"""Published data sets: their files are made here, but for QuALITY's real article."""

import gzip
import json
from pathlib import Path

import pytest

from nextlevelbert.data.labelled import Columns, distinct_texts, names_of
from nextlevelbert.data.published import (
    booksum,
    ecbplus,
    hotpotqa,
    msmarco,
    muld,
    quality_race,
    zhou_pairs,
)
from nextlevelbert.tasks.classification import load_classification
from nextlevelbert.tasks.multiple_choice import load_multiple_choice

from ..finetuning_toys import write


def test_quality_as_it_is_published(shared):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    with gzip.open(source, "rt") as lines:
        [record] = map(json.loads, lines)
    data = load_multiple_choice(source)
    assert distinct_texts(data) == [record["article"]]
    assert data["id"][:] == list(map("52845_YLZPNNYD_{}".format, range(1, 6)))
    assert data["label"][:] == [1, 2, 3, 0, 3]  # gold labels 2, 3, 4, 1, 4
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
    assert (distinct_texts(data), data["label"][:]) == (["first", "second"], [3, 3, 3, 3])
    flat = [
        {"article": row["article"], **question} for row in rows for question in row["questions"]
    ]
    assert list(load_multiple_choice(write(tmp_path / "flat.jsonl", flat))) == list(data)
    for question in flat:
        del question["gold_label"]
    test = load_multiple_choice(write(tmp_path / "test.jsonl", flat))
    assert "label" not in test.features


def test_race(tmp_path):
    race = {"example_id": "high1.txt", "article": "A story.", "question": "Who is _ ?"}
    race["options"] = ["Ann", "Bob"]
    path = write(tmp_path / "race.jsonl", [race | {"answer": "B"}, race | {"answer": "A"}])
    first, second = load_multiple_choice(path)
    assert (first["label"], second["label"]) == (1, 0)
    assert (first["question"], first["choices"]) == ("Who is _ ?", ["Ann", "Bob"])


def test_muld_character_archetypes(tmp_path):
    script = "\nALIEN\nINT. SHIP"
    rows = [
        {"input": f"Ellen Ripley{script}", "output": ["Hero"], "metadata": "1979"},
        {"input": f"Is Ash good?{script}", "output": ["Villain/Antagonist"], "metadata": "1979"},
    ]
    hero = "Is the character Ellen Ripley behaving like a hero or a villain?"
    for order in (rows, rows[::-1]):  # the order of classes is not that of the rows
        data = load_classification(write(tmp_path / "muld.jsonl", order))
        assert distinct_texts(data) == ["ALIEN\nINT. SHIP"]
        assert names_of(data) == ("Villain/Antagonist", "Hero")
        labels = dict(zip(data["question"], data["label"], strict=True))
        assert labels == {hero: 1, "Is Ash good?": 0}


@pytest.mark.parametrize("line", ["The one who was never really there", "x" * 199 + "?"])
def test_a_first_line_of_muld_that_is_no_name_is_the_question(tmp_path, line):
    rows = [{"input": f"{line}\nINT.", "output": ["Hero"]}]
    [row] = load_classification(write(tmp_path / "line.jsonl", rows))
    assert (row["question"], row["text"]) == (line, "INT.")


def test_a_long_first_line_is_of_another_set_than_muld(tmp_path):
    path = write(tmp_path / "plain.jsonl", [{"input": "x" * 201 + "\nINT.", "output": "b"}])
    data = load_classification(path, columns=Columns(text="input", label="output"))
    assert names_of(data) == ("b",)


# For each set a good row, and then malformed ones.
ROWS = json.loads(Path(__file__).with_name("malformed_rows.json").read_text())


@pytest.mark.parametrize("published", [booksum, ecbplus, hotpotqa, muld, quality_race])
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


def test_a_malformed_grade_of_ms_marco_is_named(tmp_path):
    (tmp_path / "msmarco-docdev-qrels.tsv").write_text("q1 0 d1 1\nq1 0 d2 high\n")
    with pytest.raises(ValueError, match=r"qrels\.tsv, line 2, column 'grade'.*'high'"):
        msmarco.load(tmp_path, "docdev")
