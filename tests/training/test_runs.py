"""Folders of a run: whose they are."""

import json
import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from nextlevelbert.models.files import read_json
from nextlevelbert.training.arguments import BaseTrainingArguments
from nextlevelbert.training.runs import HELD_FOLDERS, bind_folder

ROOT = Path(__file__).parents[2]


def test_a_folder_belongs_to_its_settings(tmp_path):
    folder = tmp_path / "run"
    settings = {"seeds": (0, 1), "learning_rate": 1e-4, "model": "a"}
    for _ in range(2):
        bind_folder(folder, settings)

    assert read_json(folder / "settings.json") == {
        "seeds": [0, 1],
        "learning_rate": 1e-4,
        "model": "a",
    }

    with pytest.raises(ValueError, match=r"learning_rate: 0.0001 there, 0.001 now\)"):
        bind_folder(folder, {**settings, "learning_rate": 1e-3})
    with pytest.raises(ValueError, match="loss: None there, l1 now"):
        bind_folder(folder, {**settings, "loss": "l1"})
    (folder / "checkpoint-1").mkdir()
    (folder / "settings.json").unlink()
    with pytest.raises(ValueError, match="learning_rate: None there"):
        bind_folder(folder, settings)


def test_the_signature_tells_what_decides_the_result(tmp_path):
    def signature(**options):
        args = BaseTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        return json.loads(json.dumps(args.result_settings()))

    plain = signature()
    for name, value in {
        "learning_rate": 1.0,
        "seed": 7,
        "max_steps": 3,
        "gradient_accumulation_steps": 2,
    }.items():
        assert signature(**{name: value}) != plain, name
    assert (
        signature(save_total_limit=1, logging_steps=3, save_steps=7, dataloader_num_workers=1)
        == plain
    )
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"}
    assert signature(**best, eval_steps=2, save_steps=2) != signature(
        **best, eval_steps=4, save_steps=4
    )


HOLD = """
import sys
from nextlevelbert.training.runs import bind_folder
bind_folder(sys.argv[1], {"seed": 1})
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_run(tmp_path):
    """Another process that holds a folder, and can be killed."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with Popen(command, stdin=PIPE, stdout=PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_run_into_a_folder_names_the_process_of_the_first(other_run, tmp_path):
    folder = tmp_path / "run"
    (folder / ".tmp-of-the-other").mkdir()

    with pytest.raises(
        ValueError, match=rf"writes into {folder} \(process {other_run.pid}\)\. Wait"
    ):
        bind_folder(folder, {"seed": 1})

    assert (folder / ".tmp-of-the-other").exists()


def test_a_killed_run_holds_nothing(other_run, tmp_path):
    folder = tmp_path / "run"
    other_run.kill()
    other_run.wait()

    with HELD_FOLDERS:
        bind_folder(folder, {"seed": 1})
        assert (folder / ".holder-0").read_text() == str(os.getpid())

    assert [path.name for path in folder.iterdir()] == ["settings.json"]
