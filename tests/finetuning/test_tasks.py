"""The command line of `run_finetune.py`: its tasks, and what it refuses."""

import pytest

from nextlevelbert.finetuning.tasks import main


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--task", "clasification"], "clasification"),
        (["--model", "x"], "--task"),
        (["{folder}/options.yaml"], "--seed_count"),
    ],
)
def test_a_task_or_an_option_that_is_not_there(words, culprit, tmp_path, capsys):
    (tmp_path / "options.yaml").write_text("task: classification\nmodel: x\nseed_count: 3\n")

    with pytest.raises(SystemExit):
        main([word.format(folder=tmp_path) for word in words])
    assert culprit in capsys.readouterr().err
