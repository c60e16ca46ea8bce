"""Folders of a run: whose they are, and files that are whole."""

import json
import os

import pytest

from nextlevelbert.training.arguments import BaseTrainingArguments
from nextlevelbert.training.runs import bind_folder, read_json, write_whole


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


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    write_whole(path, '{"ä": 1}')
    assert path.read_bytes() == '{"ä": 1}\n'.encode()
    os.utime(path, ns=(0, 0))
    write_whole(path, '{"ä": 1}')
    assert path.stat().st_mtime_ns == 0  # it was left alone
    assert read_json(path) == {"ä": 1}
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        write_whole(path, "{}")
    assert read_json(path) == {"ä": 1}
    path.write_text('{"cut')
    assert read_json(path) is None
    assert read_json(tmp_path / "missing.json") is None
