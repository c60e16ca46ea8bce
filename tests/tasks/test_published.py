"""Published data sets as rows; the files are made here, but for QuALITY's real article."""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from nextlevelbert.tasks.labelled_documents import (
    ColumnArguments,
    choice_table,
    classification_table,
    read_choices,
    read_classes,
)

from ..finetuning_toys import write

COLUMNS = ColumnArguments()


def choices(source):
    return read_choices(choice_table(source), COLUMNS)


def classes(source, split="train", arrangement=None, **options):
    return read_classes(classification_table(source, split, None, arrangement), COLUMNS, **options)


def labels_of(data):
    return [example.label for example in data.examples]


def test_quality_as_it_is_published(shared):
    source = shared / "data" / "quality" / "examples.jsonl.gz"
    [record] = map(json.loads, gzip.open(source, "rt"))
    data = choices(source)
    assert data.documents() == [record["article"]]
    assert [example.id for example in data.examples] == [f"52845_YLZPNNYD_{number}" for number in range(1, 6)]
    assert labels_of(data) == [1, 2, 3, 0, 3]  # gold labels 2, 3, 4, 1, 4
    [sabrina] = [example for example in data.examples if example.question == "Sabrina York is"]
    assert sabrina.choices[sabrina.label] == "a criminal that Blake is hunting"


def article(name="A story.", **changes):
    """A line of QuALITY's official files."""
    question = {"question": "Who?", "options": ["Ann", "Bob", "Cy", "Di"], "gold_label": 4, **changes}
    return {"article": name, "questions": [{**question, "question_unique_id": f"{name}{number}"} for number in (0, 1)]}


def test_quality_in_sets_flattened_or_without_labels(tmp_path):
    rows = [article("first"), article("second")]
    data = choices(write(tmp_path / "QuALITY.v1.0.1.htmlstripped.train", rows))
    assert (data.documents(), labels_of(data)) == (["first", "second"], [3, 3, 3, 3])
    flat = [{"article": row["article"], **question} for row in rows for question in row["questions"]]
    assert choices(write(tmp_path / "flat.jsonl", flat)).examples == data.examples
    for question in flat:
        del question["gold_label"]
    assert labels_of(choices(write(tmp_path / "test.jsonl", flat))) == [None] * 4
    for wrong in (0, "4", 5):
        with pytest.raises(ValueError, match="label"):
            choices(write(tmp_path / "wrong.jsonl", [article(gold_label=wrong)]))
    with pytest.raises(ValueError, match="questions"):
        choices(write(tmp_path / "wrong.jsonl", [{"article": "x", "questions": "Who?"}]))


def test_race(tmp_path):
    race = {"example_id": "high1.txt", "article": "A story.", "question": "Who is _ ?", "options": ["Ann", "Bob"]}
    data = choices(write(tmp_path / "race.jsonl", [{**race, "answer": "B"}, {**race, "answer": "A"}]))
    assert (labels_of(data), data.examples[0].asked) == ([1, 0], ["Who is _ ? Ann", "Who is _ ? Bob"])


def test_muld_character_archetypes(tmp_path):
    rows = [
        {"input": "Ellen Ripley\nALIEN\nINT. SHIP", "output": ["Hero"], "metadata": "1979"},
        {"input": "Is Ash good?\nALIEN\nINT. SHIP", "output": ["Villain/Antagonist"], "metadata": "1979"},
    ]
    question = "Is the character Ellen Ripley behaving like a hero or a villain?"
    for order in (rows, rows[::-1]):  # the order of classes is not that of the rows
        data = classes(write(tmp_path / "muld.jsonl", order))
        assert (data.documents(), data.label_names) == (["ALIEN\nINT. SHIP"], ("Villain/Antagonist", "Hero"))
        assert {example.question: example.label for example in data.examples} == {question: 1, "Is Ash good?": 0}
    without = [{"input": "x" * 201 + "\nINT. SHIP", "output": ["Hero"]}, {"input": "INT. SHIP", "output": ["Hero"]}]
    data = classes(write(tmp_path / "plain.jsonl", without))
    assert [(example.text, example.question) for example in data.examples] == [(row["input"], None) for row in without]
    for mixed in ([*rows, without[1]], [without[0], rows[0]]):
        with pytest.raises(ValueError, match="first line"):
            classes(write(tmp_path / "mixed.jsonl", mixed))
    with pytest.raises(ValueError, match="one label"):
        classes(write(tmp_path / "two.jsonl", [{"input": "Ash\nINT.", "output": ["Hero", "Villain"]}]))
    for line in ("The one who was never really there", "x" * 199 + "?"):  # no name, so the question itself
        data = classes(write(tmp_path / "line.jsonl", [{"input": f"{line}\nINT.", "output": ["Hero"]}]))
        assert (data.examples[0].question, data.documents()) == (line, ["INT."])


@pytest.fixture
def laws(tmp_path):
    """Files of EURLEX-57K."""
    folder = tmp_path / "dataset" / "train"
    folder.mkdir(parents=True)
    for number, concepts in enumerate((["192", "2356"], ["192"], ["77"])):
        law = {
            "celex_id": f"32010R{number:04d}", "type": "Regulation", "concepts": concepts, "title": "Regulation",
            "header": f"COMMISSION REGULATION No {number}", "recitals": ", Having regard to the Treaty,",
            "main_body": ["Article one.", "Article two."], "attachments": "Done at Brussels.",
        }  # fmt: skip
        (folder / f"{law['celex_id']}.json").write_text(json.dumps(law, indent=1))
    return folder / "*.json"


def test_laws_straight_and_inverted(laws):
    straight, inverted = classes(laws), classes(laws, arrangement="inverted")
    assert (straight.problem_type, straight.label_names) == ("multi_label_classification", ("192", "2356", "77"))
    assert [(row.id, row.label) for row in straight.examples] == [
        ("32010R0000", (0, 1)), ("32010R0001", (0,)), ("32010R0002", (2,))
    ]  # fmt: skip
    body, head = "Article one. Article two.", ("COMMISSION REGULATION No 1", ", Having regard to the Treaty,")
    assert straight.examples[1].text == f"{head[0]} {head[1]} {body}"
    assert inverted.examples[1].text == f"{body} {head[1]} {head[0]}"
    assert labels_of(inverted) == labels_of(straight)
    assert classes(laws, label_names=["77", "192", "2356", "unseen"]).labels().tolist()[2] == [1, 0, 0, 0]
    (laws.parent / "last.json").write_text(json.dumps({"celex_id": "x", "concepts": []}))
    with pytest.raises(ValueError, match="header"):
        classes(laws)


def split_of(name: str) -> str:
    share = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10
    return "train" if share < 8 else "validation" if share == 8 else "test"


@pytest.fixture
def books(tmp_path):
    """The CMU Book Summary Corpus of 60 books, and one without a genre."""
    names = [str(number) for number in range(100, 160)]
    genres = {name: json.dumps({"/m/a": "Fiction", f"/m/{name[-1]}": f"Kind {name[-1]}"}) for name in names} | {
        "1": ""
    }
    lines = [f"{name}\t/m/{name}\tTitle\tAuthor\t1999\t{genres[name]}\t Plot of {name}. " for name in genres]
    (tmp_path / "booksummaries.txt").write_text("\n".join(lines) + "\n")
    return tmp_path, names


def test_books_in_three_parts_and_in_pairs(books, caplog):
    folder, names = books
    caplog.set_level("INFO")
    for split in ("train", "validation", "test"):
        data = classes(folder, split)
        assert [row.id for row in data.examples] == [name for name in names if split_of(name) == split] != []
        assert data.examples[0].text == f"Plot of {data.examples[0].id}."
    assert f"{split_of('1')}: 1 books without a genre" in caplog.text
    single, paired = classes(folder), classes(folder, arrangement="paired")
    one, two = single.examples[:2]
    assert paired.examples[0].text == f"{one.text}\n{two.text}"
    assert paired.examples[0].id == f"{one.id}+{two.id}"
    assert paired.examples[0].label == tuple(sorted({*one.label, *two.label}))
    assert len(paired.examples) == len(single.examples) // 2
    assert ("no partner" in caplog.text) == (len(single.examples) % 2 == 1)
    with pytest.raises(ValueError, match="dev"):
        classes(folder, "dev")
    (folder / "booksummaries.txt").write_text("1\t/m/1\tTitle\n")
    with pytest.raises(ValueError, match="7 fields"):
        classes(folder)


def test_arrangements_of_something_else(sea_files):
    with pytest.raises(ValueError, match="EURLEX"):
        classes(sea_files["--train_file"], arrangement="inverted")
    with pytest.raises(ValueError, match="joined"):
        classes(sea_files["--train_file"], arrangement="paired")
