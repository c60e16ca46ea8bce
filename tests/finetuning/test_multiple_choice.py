"""``--task multiple_choice``: what it refuses."""

import pytest

from nextlevelbert import HateModel

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
