"""The driver of fine-tuning as a user starts it, with classification as its task."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert.finetuning.task import mean_and_deviation
from nextlevelbert.finetuning.vector_models import encode_in_parts

from ..finetuning_toys import SCRIPT, predictions, published, run_the_card, sea_rows, start, write

FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


@pytest.fixture(scope="module")
def classifier(sea_files, toy_checkpoint, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "model"
    start(folder, toy_checkpoint, *FAST, "--seeds", "0", "1", **sea_files)
    return folder


def test_it_learns_and_leaves_a_whole_checkpoint(classifier, sea_files):
    results = json.loads((classifier / "results.json").read_text())
    assert results["reported"] == "test"
    assert results["trivial_baseline"]["most frequent label"]["accuracy"] == pytest.approx(6 / 11)
    values = [results["seeds"][seed]["accuracy"] for seed in ("0", "1")]
    assert min(values) > 6 / 11 + 0.1
    assert results["mean_and_deviation"]["accuracy"] == pytest.approx([np.mean(values), np.std(values, ddof=1)])
    model = AutoModelForSequenceClassification.from_pretrained(classifier)
    assert model.config.include_chunk_encoder
    assert model.config.id2label == {0: "bread", 1: "sea"}
    found = predictions(classifier / "test_predictions.jsonl")
    texts = [row["text"] for row in sea_rows(11, 3)]
    # From text, by the stock tokenizer, the published model says what the run on stored vectors said.
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    scores = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    torch.testing.assert_close(scores, torch.tensor([row["scores"] for row in found]), atol=1e-5, rtol=0)
    assert [row["id"] for row in found] == [f"3-{number}" for number in range(11)]
    assert [row["prediction"] for row in found] == [model.config.id2label[int(row.argmax())] for row in scores]
    correct = np.mean([row["prediction"] == row["label"] for row in found])
    assert correct == results["seeds"][str(results["best_seed"])]["accuracy"]


def test_the_card_and_the_pictures(classifier, toy_checkpoint):
    card = (classifier / "README.md").read_text()
    results = json.loads((classifier / "results.json").read_text())
    mean, deviation = results["mean_and_deviation"]["accuracy"]
    assert f"| {mean:.4f} ± {deviation:.4f} |" in card
    [result, *_] = ModelCard(card).data.eval_results
    assert (result.dataset_name, result.metric_type) == ("test.jsonl", "accuracy")
    assert result.metric_value == round(results["seeds"][str(results["best_seed"])]["accuracy"], 4)
    assert run_the_card(classifier, card).shape == (1, 2)
    for path in (classifier.parent, Path(toy_checkpoint).parent):
        assert str(path) not in published(classifier)
    for picture in ("learning_curve.png", "confusion_matrix.png"):
        assert (classifier / picture).read_bytes().startswith(b"\x89PNG")
        assert f"({picture})" in card
    assert not list(classifier.rglob("checkpoint-*"))
    assert not list(classifier.rglob("*.bin"))


def test_finished_seeds_are_not_run_again_and_other_settings_are_refused(
    classifier, sea_files, toy_checkpoint, tmp_path
):
    before = {path: path.stat().st_mtime_ns for path in classifier.glob("seed-*/model.safetensors")}
    assert len(before) == 2
    start(classifier, toy_checkpoint, *FAST, "--seeds", "0", "1", **sea_files)
    assert {path: path.stat().st_mtime_ns for path in classifier.glob("seed-*/model.safetensors")} == before
    with pytest.raises(ValueError, match=r"other settings \(lr_scheduler_type: linear there, constant now\)"):
        start(classifier, toy_checkpoint, *FAST, "--lr_scheduler_type", "constant", **sea_files)
    other = {
        **sea_files,
        "--train_file": write(tmp_path / "train.jsonl", sea_rows(32, 9)),
    }  # as many rows, other texts
    with pytest.raises(ValueError, match=r"other settings \(train_sha256: "):
        start(classifier, toy_checkpoint, *FAST, **other)


def test_a_killed_seed_goes_on_to_the_same_weights(sea_files, toy_checkpoint, tmp_path):
    """Progress ends with the first epoch; the kill comes when half of the patience is spent."""
    from nextlevelbert.finetuning import task as finetuning

    class Stopped(Exception):
        pass

    class EarlyStoppingCallback(finetuning.EarlyStoppingCallback):  # stored by its name
        def on_save(self, args, state, control, **kwargs):
            if state.epoch >= 3:
                raise Stopped

    # A huge step makes the loss jump up, and a decay to nothing keeps it there.
    settings = ("--num_train_epochs", "30", "--learning_rate", "0.5", "--early_stopping_patience", "4")
    options = {**sea_files, "--cache_dir": str(tmp_path / "cache")}
    start(tmp_path / "straight", toy_checkpoint, *settings, **options)
    genuine, finetuning.EarlyStoppingCallback = finetuning.EarlyStoppingCallback, EarlyStoppingCallback
    try:
        with pytest.raises(Stopped):
            start(tmp_path / "killed", toy_checkpoint, *settings, **options)
    finally:
        finetuning.EarlyStoppingCallback = genuine
    assert list(tmp_path.glob("killed/seed-0/checkpoint-*"))
    with pytest.raises(ValueError, match=r"weight_decay: 0.01 there, 0.5 now"):
        start(tmp_path / "killed", toy_checkpoint, *settings, "--weight_decay", "0.5", **options)
    start(tmp_path / "killed", toy_checkpoint, *settings, **options)
    results = [json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("killed", "straight")]
    assert results[0]["steps"] == results[1]["steps"] < 30 * 4  # stopped early, at the same step
    ours, theirs = (load_file(tmp_path / name / "seed-0" / "model.safetensors") for name in ("killed", "straight"))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-5)


def test_an_adapter_on_the_base_checkpoint(sea_files, toy_checkpoint, tmp_path, caplog):
    caplog.set_level("INFO")
    start(tmp_path / "adapter", toy_checkpoint, *FAST, "--lora", "--lora_target_modules", "all-linear", **sea_files)
    [share] = re.findall(r"seed 0: [\d,]+ of [\d,]+ parameters are trainable \((\d+\.\d) %\)", caplog.text)
    assert 0 < float(share) < 100
    assert str(Path(toy_checkpoint).parent) not in published(tmp_path / "adapter")
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert run_the_card(tmp_path / "adapter", card, toy_checkpoint).shape == (1, 2)
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "README.md"} <= {
        file.name for file in (tmp_path / "adapter").iterdir()
    }
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    base = AutoModelForSequenceClassification.from_pretrained(toy_checkpoint, num_labels=2)
    model = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "adapter")
    batch = tokenizer([row["text"] for row in sea_rows(11, 3)], padding=True, return_tensors="pt")
    found = torch.tensor([row["scores"] for row in predictions(tmp_path / "adapter" / "test_predictions.jsonl")])
    torch.testing.assert_close(model(**batch).logits.softmax(-1), found, atol=1e-5, rtol=0)


def test_a_checkpoint_that_was_fine_tuned_gets_a_new_classifier_where_the_old_one_does_not_fit(classifier, tmp_path):
    made = [{"text": f"{word} {number} " * 9, "label": [word]} for number in range(6) for word in ("a", "b", "c")]
    options = {"--train_file": write(tmp_path / "rows.jsonl", made), "--max_steps": "1"}
    start(tmp_path / "model", str(classifier), **options)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.problem_type == "multi_label_classification"
    assert model.classifier[2].out_features == 3


def test_results_are_json_that_every_reader_knows(sea_files, toy_encoder_path, tmp_path):
    """A correlation that does not exist is null; with one text throughout, all predictions are the same."""
    made = [{"text": "The same words.", "label": number / 2} for number in range(6)]
    options = {"--train_file": write(tmp_path / "a.jsonl", made), "--chunk_encoder": toy_encoder_path}
    options |= {"--validation_file": write(tmp_path / "b.jsonl", made), "--max_steps": "2"}
    start(tmp_path / "model", "avg_sbert", **options)
    text = (tmp_path / "model" / "results.json").read_text()
    assert "NaN" not in text
    scores = json.loads(text)["seeds"]["0"]
    assert scores["pearson"] is None
    assert scores["mse"] > 0


@pytest.mark.long
def test_two_processes_learn_what_one_does(sea_files, toy_checkpoint, tmp_path):
    options = ["--max_steps", "6", "--learning_rate", "3e-3", "--logging_strategy", "steps", "--logging_steps", "1",
               "--class_weights", "--cache_dir", str(tmp_path / "cache")]  # fmt: skip
    options += [word for option in sea_files.items() for word in option]
    start(tmp_path / "one", toy_checkpoint, *options, "--per_device_train_batch_size", "8")
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT),
         "--task", "classification", "--model", toy_checkpoint, *options, "--per_device_train_batch_size", "4",
         "--disable_tqdm", "true", "--output_dir", str(tmp_path / "two")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    results = [json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("one", "two")]
    curves = [[entry["loss"] for entry in result["curve"] if "loss" in entry] for result in results]
    logits = [torch.tensor(result["logits"]["test"]) for result in results]
    assert len(curves[0]) == 6
    assert logits[0].shape == (11, 2)
    torch.testing.assert_close(logits[1], logits[0], atol=5e-3, rtol=0)
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), atol=2e-4, rtol=0)
    assert curves[0][-1] < curves[0][0] - 0.05  # there was something to follow


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("classification", {"--train_file": "{train}", "--text_column": "body"}, r"row 0 .* no column .body."),
        ("classification", {"--train_file": "{train}", "--label_column": "y"}, "The train set has no labels"),
        ("classification", {"--train_file": "{train}", "--test_file": "{odd}"}, r"row 1 .*sky.* bread, sea"),
        ("classification", {"--train_file": "{blank}"}, r"row 2 .*column 'text': is blank"),
        ("multiple_choice", {"--train_file": "{uneven}", "--question_column": "q", "--candidates_column": "c"},
         r"row 1 .*column 'c': has 3 candidates, but the first row 4"),
        ("classification", {"--train_file": "{train}", "--learning_rate": "1e30"}, "a lower learning rate"),
        ("classification", {"--train_file": "{one}"}, "one class only, 'sea', so there is nothing to tell apart"),
        ("classification", {"--train_file": "{train}", "--lora": "true", "--lora_target_modules": "key_value"},
         "--lora_target_modules key_value: this model has no such .* some of: .*, key, .*query, value"),
        ("classification", {"--train_file": "{train}", "--problem_type": "regression"}, "is no label for regression"),
        ("classification", {"--train_file": "{train}", "--model": "avg-sbert"}, "one of: untrained, avg_sbert, sbert"),
    ],
)  # fmt: skip
def test_what_it_refuses(sea_files, toy_checkpoint, tmp_path, task, arguments, message):
    odd = sea_rows(2, 4)
    odd[1]["label"] = "sky"
    blank = sea_rows(4, 5)
    blank[2]["text"] = " \n"
    uneven = [{"text": "A story.", "q": "Who?", "c": list("abcd")[:count], "label": 0} for count in (4, 3)]
    one = [{**row, "label": "sea"} for row in sea_rows(4, 6)]
    made = {"odd": odd, "blank": blank, "uneven": uneven, "one": one}
    paths = {name: write(tmp_path / f"{name}.jsonl", content) for name, content in made.items()}
    options = {key: value.format(train=sea_files["--train_file"], **paths) for key, value in arguments.items()}
    model = options.pop("--model", toy_checkpoint)
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "model", model, task=task, **options)


@pytest.mark.parametrize(
    ("task", "option"),
    [
        ("retrieval", "--test_file"),
        *itertools.product(
            ("classification", "ranking", "document_matching", "summarization"),
            ("--train_file", "--validation_file", "--test_file"),
        ),
    ],
)
def test_paths_are_looked_at_before_anything_is_loaded_or_made(sea_files, toy_encoder_path, tmp_path, task, option):
    """There is no such model, which would be told first if it were looked for first."""
    model = toy_encoder_path if task == "summarization" else str(tmp_path / "no-model")  # its options look for a model
    options = {} if task == "retrieval" else dict(sea_files)
    for name, message in (
        ("nothing.jsonl", "No file or folder '{path}'. Check the path."),
        ("pipe", "{path} is a named pipe (FIFO), which cannot be read twice."),
        ("wide.jsonl", "{path} is UTF-16 (byte order mark FF FE), but UTF-8 text is needed"),
    ):
        path = tmp_path / name
        if name == "pipe":
            os.mkfifo(path)
        elif name == "wide.jsonl":
            path.write_bytes('{"text": "x"}'.encode("utf-16"))
        before = sorted(tmp_path.iterdir())
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message.format(path=path))):
            start(tmp_path / "out", model, task=task, **{**options, option: str(path)})
        assert sorted(tmp_path.iterdir()) == before


def test_mean_and_deviation_over_seeds():
    table = [{"accuracy": 0.5}, {"accuracy": 0.7}]
    assert mean_and_deviation(table)["accuracy"] == pytest.approx((0.6, 0.1 * 2**0.5))


def test_a_text_without_tokens_is_told_by_its_number_among_all(toy_checkpoint):
    model = AutoModel.from_pretrained(toy_checkpoint)
    texts = ["The ship sails."] * 70  # more than one part
    texts[66] = "\u200b"
    with pytest.warns(UserWarning, match=r"Document\(s\) \d+ contain no token") as told:
        found = list(encode_in_parts(model, texts, "encoding"))
    assert [str(each.message).split()[1] for each in told] == ["66"]
    assert [number for number, each in enumerate(found) if len(each.plain) == 0] == [66]
