"""``--task multiple_choice``: what it refuses, and its baseline by hand."""

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sklearn.feature_extraction.text import TfidfVectorizer

from nextlevelbert import HateModel
from nextlevelbert.data import open_rows
from nextlevelbert.data.labelled import load_choices
from nextlevelbert.finetuning.labels import LabelSet
from nextlevelbert.finetuning.multiple_choice import fit_tfidf

from ..toys.finetuning import run_task, write

STORIES = {
    "train": ["The whale met the captain of the ship.", "The baker met the miller at the mill."],
    "test": ["Ada met the queen. Ada left the ship.", "The king met the baker in the mill."],
}
CHOICES = {
    STORIES["train"][0]: ["the captain", "the miller"],
    STORIES["train"][1]: ["the captain", "the miller"],
    STORIES["test"][0]: ["the king", "Ada"],
    STORIES["test"][1]: ["the queen of the ship", "the baker"],
}


def choice_rows(name):
    """Two questions about each story of a set; the last choice is right for all but one."""
    rows = []
    for story in STORIES[name]:
        for question in ("Who met whom?", "Who left?"):
            row = {"text": story, "question": question, "choices": CHOICES[story]}
            rows.append({**row, "label": int(story != STORIES["train"][0])})
    return rows


def test_choices_are_compared_with_their_document_by_word_counts(tmp_path):
    sets = {}
    for name in STORIES:
        table = open_rows(write(tmp_path / f"{name}.jsonl", choice_rows(name)))
        sets[name] = load_choices(table)
    words = TfidfVectorizer(sublinear_tf=True).fit(STORIES["train"] + STORIES["test"])

    scores = fit_tfidf(sets["train"], LabelSet.of(sets["train"]))(sets["test"])

    assert scores.shape == (4, 2)
    for row, row_scores in zip(choice_rows("test"), scores, strict=True):
        document = words.transform([row["text"]]).toarray()[0]
        for choice, score in zip(row["choices"], row_scores, strict=True):
            pair = words.transform([f"{row['question']} {choice}"]).toarray()[0]
            cosine = pair @ document / np.linalg.norm(pair) / np.linalg.norm(document)
            assert score == pytest.approx(cosine, abs=1e-6)


def test_word_counts_are_a_row_of_the_table_and_the_card(toy_checkpoint, tmp_path):
    argv = ["--model", toy_checkpoint, "--num_train_epochs", "1"]
    for option, name in (("train", "train"), ("validation", "test"), ("test", "test")):
        argv += [f"--{option}_file", write(tmp_path / f"{option}.jsonl", choice_rows(name))]

    results = run_task(tmp_path / "model", *argv, task="multiple_choice")

    assert [*results["rows"]][1:] == ["TF-IDF", "most frequent label"]
    assert results["rows"]["TF-IDF"] == {"accuracy": 1.0}
    assert "| TF-IDF | 1.0000 |" in ModelCard.load(tmp_path / "model" / "README.md").text


def test_hate_has_no_choices(toy_encoder_path, tmp_path, capsys):
    HateModel.from_chunk_encoder(toy_encoder_path, num_hidden_layers=1).save_pretrained(
        tmp_path / "hate"
    )
    choice = {"text": "A whale.", "question": "Who?", "choices": ["a whale", "a dog"], "label": 0}
    file = write(tmp_path / "rows.jsonl", [choice, choice | {"text": "A dog."}])
    argv = ["--model", str(tmp_path / "hate"), "--train_file", file]

    with pytest.raises(SystemExit):
        run_task(tmp_path / "chooser", *argv, task="multiple_choice")
    assert "HATE does not support multiple choice" in capsys.readouterr().err
