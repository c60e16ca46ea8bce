"""``--task multiple_choice``: what it refuses, and the choice that word counts make."""

import pytest
from datasets import Dataset

from nextlevelbert import HateModel
from nextlevelbert.finetuning.multiple_choice import choice_cosines

from ..toys.finetuning import run_task, write


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


def test_word_counts_choose_the_answer_with_the_document_s_words():
    whale = {"text": "A whale swims in the sea.", "question": "What?"}
    dog = {"text": "A dog sleeps in the house.", "question": "What?"}
    rows = [
        {**whale, "choices": ["a dog", "a whale"]},
        {**dog, "choices": ["a dog", "a whale"]},
        {**whale, "choices": ["the sea", "the house"]},
    ]
    dataset = Dataset.from_list(rows)

    cosines = choice_cosines(dataset)

    assert cosines.shape == (3, 2)
    assert cosines.argmax(axis=1).tolist() == [1, 0, 0]
    assert cosines[0, 0] == 0
