"""QuALITY, RACE and MuLD as JSON lines, which `nextlevelbert finetune` reads."""

import gzip
import json

import pytest
from datasets import Dataset

from nextlevelbert.data import open_rows
from nextlevelbert.data.labelled import load_choices, load_classes
from nextlevelbert.data.sets import distinct_texts, names_of

from ...toys.finetuning import write
from ..scripts import load_script

quality_race = load_script("next_level_bert/prepare_quality_race.py")
muld = load_script("next_level_bert/prepare_muld.py")


def prepared(script, rows, folder):
    """The file that a script makes of rows."""
    source = write(folder / "source.jsonl", rows)
    script.main([source, str(folder / "prepared.jsonl")])
    return folder / "prepared.jsonl"


# --- QuALITY and RACE


def test_quality_as_it_is_published(shared, tmp_path):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    with gzip.open(source, "rt") as lines:
        [record] = map(json.loads, lines)

    quality_race.main([str(source), str(tmp_path / "quality.jsonl")])

    data = load_choices(open_rows(tmp_path / "quality.jsonl"))
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


def test_quality_in_sets_or_flattened(tmp_path):
    rows = [article("first"), article("second")]
    flat = []
    for row in rows:
        flat += [{"article": row["article"], **question} for question in row["questions"]]

    data = load_choices(open_rows(prepared(quality_race, rows, tmp_path)))
    flat_data = load_choices(open_rows(prepared(quality_race, flat, tmp_path)))

    assert distinct_texts(data) == ["first", "second"]
    assert data["label"][:] == [3, 3, 3, 3]
    assert list(flat_data) == list(data)


@pytest.mark.parametrize("names", [["first", "second", "third"], ["third", "first", "second"]])
def test_quality_is_halved_by_article(names, tmp_path):
    """The order of the SHA-256 is second (16…), first (a7…), third (b1…) in any file."""
    source = write(tmp_path / "source.jsonl", [article(name) for name in names])
    halves = [tmp_path / "validation.jsonl", tmp_path / "test.jsonl"]

    quality_race.main([source, str(halves[0]), "--halve", str(halves[1])])

    validation = load_choices(open_rows(halves[0]))
    test = load_choices(open_rows(halves[1]))
    assert set(distinct_texts(validation)) == {"second", "first"}
    assert distinct_texts(test) == ["third"]
    assert (len(validation), len(test)) == (4, 2)


def test_one_article_is_not_halved(tmp_path):
    source = write(tmp_path / "source.jsonl", [article()])

    with pytest.raises(ValueError, match="at least two articles"):
        quality_race.main([source, str(tmp_path / "a.jsonl"), "--halve", str(tmp_path / "b.jsonl")])


def test_quality_without_labels(tmp_path):
    data = load_choices(open_rows(prepared(quality_race, [article(gold_label=None)], tmp_path)))

    assert "label" not in data.features


def race(answer):
    row = {"example_id": "high1.txt", "article": "A story.", "question": "Who is _ ?"}
    return row | {"options": ["Ann", "Bob"], "answer": answer}


def test_race_on_the_hub(tmp_path, monkeypatch):
    calls = []

    def load_dataset(name, config, split):
        calls.append((name, config, split))
        return Dataset.from_list([race("B"), race("A")])

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    file = str(tmp_path / "race.jsonl")

    quality_race.main(["ehovy/race", file, "--config", "high", "--split", "validation"])

    first, second = load_choices(open_rows(file))
    assert calls == [("ehovy/race", "high", "validation")]
    assert (first["label"], second["label"]) == (1, 0)
    assert (first["question"], first["choices"]) == ("Who is _ ?", ["Ann", "Bob"])


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"question": "Who?", "options": ["Ann", "Bob"]}, "article"),
        ({"article": "A story.", "questions": "Who?"}, "questions"),
        (article(options="Ann"), "options"),
        (article(options=["Ann", ""]), "options"),
        (article(question=None), "question"),
        (article(gold_label=5), "gold_label or answer"),
        (race("C"), "gold_label or answer"),
        (race("none"), "gold_label or answer"),
    ],
)
def test_a_malformed_article_is_named_and_nothing_is_written(row, column, tmp_path):
    with pytest.raises(ValueError, match=rf"source\.jsonl, line 2, column '{column}'"):
        prepared(quality_race, [article(), row], tmp_path)

    assert not (tmp_path / "prepared.jsonl").exists()


# --- MuLD

SCRIPT = "\nALIEN\nINT. SHIP"
HERO = {"input": f"Ellen Ripley{SCRIPT}", "output": ["Hero"], "metadata": "1979"}
VILLAIN = {"input": f"Is Ash good?{SCRIPT}", "output": ["Villain/Antagonist"], "metadata": "1979"}


@pytest.mark.parametrize("rows", [[HERO, VILLAIN], [VILLAIN, HERO]])
def test_muld_character_archetypes(rows, tmp_path):
    """A character is a hero or has no class, whichever row comes first."""
    data = load_classes(open_rows(prepared(muld, rows, tmp_path)))

    question = "Is the character Ellen Ripley behaving like a hero or a villain?"
    labels = dict(zip(data["question"], data["label"], strict=True))
    assert distinct_texts(data) == ["ALIEN\nINT. SHIP"]
    assert labels == {question: [0], "Is Ash good?": []}
    assert names_of(data) == ("Hero",)


@pytest.mark.parametrize("line", ["The one who was never really there", "x" * 199 + "?"])
def test_a_first_line_of_muld_that_is_no_name_is_the_question(line, tmp_path):
    rows = [{**HERO, "input": f"{line}\nINT."}, VILLAIN]

    row, _ = load_classes(open_rows(prepared(muld, rows, tmp_path)))

    assert (row["question"], row["text"]) == (line, "INT.")


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"output": ["Hero"]}, "input"),
        ({"input": "INT. SHIP", "output": ["Hero"]}, "input"),
        ({"input": "x" * 201 + "\nINT.", "output": ["Hero"]}, "input"),
        ({"input": f"Ellen Ripley{SCRIPT}", "output": ["Hero", "Villain/Antagonist"]}, "output"),
        ({"input": f"Ellen Ripley{SCRIPT}"}, "output"),
    ],
)
def test_a_malformed_character_is_named(row, column, tmp_path):
    with pytest.raises(ValueError, match=rf"source\.jsonl, line 2, column '{column}'"):
        prepared(muld, [HERO, row], tmp_path)

    assert not (tmp_path / "prepared.jsonl").exists()
