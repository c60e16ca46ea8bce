"""The command line of `run_finetune.py`: its tasks, and what it refuses."""

import pytest

from nextlevelbert.finetuning.tasks import main


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--task", "clasification"], "clasification"),
        (["--model", "x"], "--task"),
    ],
)
def test_a_task_that_is_not_there(words, culprit, capsys):
    with pytest.raises(SystemExit):
        main(words)

    assert culprit in capsys.readouterr().err
