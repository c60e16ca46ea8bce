"""The command line of `run_finetune.py`: its tasks, and what it refuses."""

import pytest

from nextlevelbert.finetuning.tasks import main


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--task", "clasification"], "clasification"),
        (["--model", "x"], "--task"),
        ("--task classification --model x --seed_count 3".split(), "--seed_count"),
    ],
)
def test_a_task_or_an_option_that_is_not_there(words, culprit, capsys):
    with pytest.raises(SystemExit):
        main(words)
    assert culprit in capsys.readouterr().err
