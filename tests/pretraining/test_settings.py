"""An output folder of pretraining belongs to its settings: another run in it is refused, the same is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nextlevelbert.pretraining.run import PRETRAINING
from nextlevelbert.training.command_line import OptionParser
from nextlevelbert.training.resuming import read_whole
from tests.faults.harness import tree
from tests.finetuning_toys import write
from tests.golden.inputs import DOCUMENTS, FOLDER

SHORT = ["--max_steps", "2", "--save_strategy", "steps", "--save_steps", "1", "--logging_steps", "1", "--use_cpu",
         "--per_device_train_batch_size", "2", "--disable_tqdm", "true", "--report_to", "none"]  # fmt: skip
ENCODER = ["--chunk_encoder", str(FOLDER / "encoder" / "sentences"), "--chunk_size", "12", "--sequence_length", "12"]
OF_VECTORS = [*SHORT, *ENCODER, "--do_train", "--eval_strategy", "no"]
OF_CDLM = [*SHORT, "--model", str(FOLDER / "cdlm-masked"), "--max_length", "60", "--warmup_steps", "1"]
OF_CDLM += ["--gradient_accumulation_steps", "1"]


def start(kind: str, output: Path, *words: str) -> None:
    ours = PRETRAINING[kind]
    ours.run(*OptionParser(ours.options, "test").read(["--output_dir", str(output), *words]))


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Documents; and the same but for a letter."""
    folder = tmp_path_factory.mktemp("documents")
    rows = [{"id": document.id, "text": document.text} for document in DOCUMENTS]
    changed = [*rows[:-1], {**rows[-1], "text": rows[-1]["text"][:-1] + "?"}]
    return [write(folder / f"{name}.jsonl", each) for name, each in (("same", rows), ("changed", changed))]


@pytest.fixture(scope="module")
def finished(documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "model"
    start("nextlevelbert", folder, *OF_VECTORS, "--train_file", documents[0])
    return folder


OTHERS = {
    "learning_rate": "0.5", "seed": "7", "masking_probability": "0.4", "loss": "l1", "mask_share": "0.5",
    "random_share": "0.05", "max_steps": "3", "weight_decay": "0.3", "per_device_train_batch_size": "1",
    "validation_share": "0.4", "save_dtype": "float16", "pooling": "cls",
    "lr_scheduler_type": "linear", "adam_beta2": "0.9", "bf16": "true", "include_chunk_encoder": "false",
    "sequence_length": "10", "temperature": "0.2", "whiten_chunks": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_refused_by_the_name_of_what_differs(finished, documents, name, monkeypatch):
    # On a processor without bfloat16, --bf16 would be put aside and the run be the same.
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    before = tree(finished)
    with pytest.raises(
        ValueError, match=rf"holds a run with other settings \(.*{name}: .* there, .* now.*--output_dir"
    ):
        start("nextlevelbert", finished, *OF_VECTORS, "--train_file", documents[0], f"--{name}", OTHERS[name])
    assert tree(finished) == before


def test_other_documents_and_objectives_are_refused(finished, documents, tmp_path):
    before = tree(finished)
    with pytest.raises(ValueError, match=r"other settings \(documents: \w{12}… there, \w{12}… now, validation_doc"):
        start("nextlevelbert", finished, *OF_VECTORS, "--train_file", documents[1], "--corpus_dir", str(tmp_path))
    hate = ["--model_type", "hate", "--corpus_dir", f"{tmp_path}-hate"]
    with pytest.raises(ValueError, match=r"\(model_type: nextlevelbert there, hate now"):
        start("hate", finished, *OF_VECTORS, *hate, "--train_file", documents[0])
    pairs = ["--objective", "both", "--max_segment", "20", "--gradient_accumulation_steps", "2"]
    with pytest.raises(ValueError, match=r"objective: masked there, both now.* batch_size: 2 there, 4 now"):
        start("nextlevelbert", finished, *OF_VECTORS, *pairs, "--train_file", documents[0])
    assert tree(finished) == before


def test_the_same_run_is_left_alone_also_with_options_of_no_influence(finished, documents, caplog):
    caplog.set_level("INFO")
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    for words in ([], ["--logging_steps", "5", "--save_steps", "2", "--dataloader_num_workers", "1"]):
        caplog.clear()
        start("nextlevelbert", finished, *OF_VECTORS, "--train_file", documents[0], *words)
        assert "Finished already; nothing to do." in caplog.text
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before
    assert read_whole(finished / "train_results.json")["train_loss"] > 0
    assert str(finished.parent) not in (finished / "settings.json").read_text()


def test_cdlm(tmp_path, caplog):
    caplog.set_level("INFO")
    texts = [document.text for document in DOCUMENTS]
    sets = [{"document": texts[number : number + 3]} for number in range(len(texts) - 3)]
    words = [*OF_CDLM, "--train_file", write(tmp_path / "sets.jsonl", sets)]
    start("cdlm", tmp_path / "cdlm", *words)
    before = tree(tmp_path / "cdlm")
    others = {"mlm_probability": "0.4", "global_attention": "none", "learning_rate": "0.1", "attention_window": "4",
              "max_length": "40", "seed": "5"}  # fmt: skip
    for name, value in others.items():
        with pytest.raises(ValueError, match=rf"other settings \(.*{name}: .* there, .* now"):
            start("cdlm", tmp_path / "cdlm", *words, f"--{name}", value)
    with pytest.raises(ValueError, match=r"other settings \(documents: "):
        start("cdlm", tmp_path / "cdlm", *OF_CDLM, "--train_file", write(tmp_path / "less.jsonl", sets[1:]))
    start("cdlm", tmp_path / "cdlm", *words, "--eval_steps", "1")
    assert "Finished already; nothing to do." in caplog.text
    assert tree(tmp_path / "cdlm") == before
