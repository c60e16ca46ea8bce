"""The options of each task and model on the command line."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from nextlevelbert.tasks import TASKS

from ..finetuning_toys import refusal, run_here, start


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("classification", {}, "Give the training set with --train_file or --dataset_name"),
        ("classification", {"--train_file": "x", "--halve_validation": "true"}, "half of the validation set"),
        ("classification", {"--train_file": "x", "--dataset_name": "me/books"}, "Give either --dataset_name"),
        ("classification", {"--train_file": "x", "--dataset_config_name": "y"}, "needs --dataset_name"),
        ("classification", {"--train_file": "x", "--test_split": "test"}, "--test_split is a split of --dataset_name"),
        ("classification", {"--train_file": "x", "--seeds": "3 3"}, r"names a seed twice: \[3, 3\]"),
        ("classification", {"--train_file": "x", "--seeds": "0 -1"}, "A seed must be from 0 to 4294967295, got -1"),
        ("classification", {"--train_file": "x", "--per_device_train_batch_size": "0"}, "must be 1 or more, got 0"),
        ("classification", {"--train_file": "x", "--output_dir": __file__}, r"test_arguments.py is a file; give a fo"),
        ("classification", {"--train_file": "x", "--lora_r": "64"}, "is for adapters; add --lora"),
        ("classification", {"--train_file": "x", "--dataloader_drop_last": "true"}, "no option --dataloader_drop"),
        ("classification", {"--train_file": "x", "--resume_from_checkpoint": "y"}, "no option --resume_from_chec"),
        ("retrieval", {}, "Give the task with --test_file"),
        ("retrieval", {"--test_file": "x", "--push_to_hub": "true"}, "There is no option --push_to_hub here"),
        ("retrieval", {"--test_file": "x", "--validation_file": "x"}, "There is no option --validation_file here"),
        ("retrieval", {"--test_file": "x", "--freeze_encoder": "true"}, "There is no option --freeze_encoder here"),
        ("retrieval", {"--test_file": "x", "--k": "0"}, "--k must be 1 or more, got 0"),
        ("classification", {"--train_file": "x", "--model": "untrained", "--lora": "true"}, "Save the model first"),
        ("classification", {"--train_file": "x", "--model": "sbert", "--push_to_hub": "true"}, "not published"),
        ("classification", {"--train_file": "x", "--model": "bm25"}, "not support --model bm25. It takes a"),
        ("classification", {"--train_file": "x", "--model": "sbert", "--freeze_encoder": "true"}, "frozen"),
        ("classification", {"--train_file": "x", "--model": "tfidf", "--class_weights": "true"}, "no effect on"),
        ("classification", {"--train_file": "x", "--lora": "true", "--freeze_encoder": "true"}, "train more"),
        ("multiple_choice", {"--train_file": "x", "--model": "tfidf"}, "does not support --model tfidf"),
        ("multiple_choice", {"--train_file": "x", "--class_weights": "true"}, "no option --class_weights here"),
        ("multiple_choice", {"--train_file": "x", "--model_type": "hate"}, "takes --model_type nextlevelbert, not"),
    ],
)  # fmt: skip
def test_options_that_are_refused(capsys, tmp_path, task, arguments, message):
    options = {key: value for key, value in arguments.items() if key not in ("--model", "--seeds")}
    seeds = ("--seeds", *arguments["--seeds"].split()) if "--seeds" in arguments else ()
    model = arguments.get("--model", "a-model")
    said = refusal(capsys, lambda: start(tmp_path / "model", model, *seeds, task=task, **options))
    assert re.search(message, said), said


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (
            "chunkbert",
            {"--task": "multiple_choice"},
            "--task multiple_choice takes --model_type nextlevelbert, not",
        ),
        ("random", {"--task": "retrieval"}, "--task retrieval takes --model_type nextlevelbert, hate, not random"),
        ("extended", {}, "--task classification takes --model_type .*, not extended"),
        ("chunkbert", {"--freeze_encoder": "true"}, "no --freeze_encoder here; it is an option of .*nextlevelbert"),
        ("chunkbert", {"--freeze_encoder": "true"}, "There is no --freeze_encoder here; it is an option of"),
        ("truncated", {"--cache_dir": "x", "--encoder_dtype": "bfloat16"}, "no --cache_dir here.* no --encoder_dtype"),
        ("chunkbert", {"--chunk_encoder_name": "x"}, "There is no --chunk_encoder_name here"),
        ("textrank", {"--chunk_size": "32"}, "no --chunk_size here; it is an option of .*--model_type chunkbert"),
        ("truncated", {"--dataloader_drop_last": "true"}, "There is no option --dataloader_drop_last"),
        ("random", {"--chunk_batch_size": "2"}, "--chunk_batch_size here; it is an option of --model_type chunkbert"),
        ("nextlevelbert", {"--chunk_batch_size": "2"}, "it is an option of --model_type chunkbert"),
        ("nextlevelbert", {"--attn_implementation": "eager"}, "it is an option of --model_type chunkbert, "),
        ("random", {"--push_to_hub": "true"}, "There is no option --push_to_hub here"),
        ("random", {"--lora": "true"}, "There is no --lora here; it is an option of"),
        ("random", {"--max_training_tokens": "9"}, "an option of --model_type chunkbert, --model_type bert-al"),
        ("chunkbert", {"--max_training_tokens": "0"}, "--max_training_tokens must be 1 or more, got 0"),
        ("chunkbert", {"--recurrence": "none"}, "no --recurrence here; it is an option of --model_type bert-al"),
        ("bert-al", {"--chunk_size": "32"}, "There is no --chunk_size here; it is an option of"),
    ],
)
def test_options_of_other_models_are_refused(capsys, tmp_path, kind, arguments, message):
    options = {"--train_file": "x", **arguments}
    task = options.pop("--task", "classification")
    words = ("a-model", "--model_type", kind)
    said = refusal(capsys, lambda: start(tmp_path / "model", *words, task=task, **options))
    assert re.search(message, said), said


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        run_here(*words, "--help")
    assert not stopped.value.code
    return capsys.readouterr().out


def options_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z0-9_]+", text))


def test_without_a_task_the_help_lists_the_tasks(capsys):
    run_here("--help")
    said = capsys.readouterr().out
    for task in TASKS:
        assert f"\n  {task} " in said
    assert len(said.splitlines()) < 30
    error = refusal(capsys, lambda: run_here("--model", "x"))
    assert all(task in error for task in ("--task is missing", *TASKS))
    assert "There is no --task clasification. Choose one of: classification, " in refusal(
        capsys, lambda: run_here("--task", "clasification")
    )


def test_the_help_shows_what_the_task_and_the_model_can_use(capsys):
    shown = {
        kind: options_in(helped(capsys, "--task", "classification", "--model_type", kind))
        for kind in ("nextlevelbert", "chunkbert", "bert-al", "truncated")
    }
    only = {
        "nextlevelbert": {"--freeze_encoder", "--late_chunking", "--encoder_dtype", "--cache_dir"},
        "chunkbert": {"--chunk_batch_size"},
        "bert-al": {"--segment_length", "--recurrence"},
        "truncated": set(),
    }
    for kind, options in only.items():
        assert options <= shown[kind]
        for other in shown.keys() - {kind}:
            assert not options & shown[other]
    assert {"--lora", "--push_to_hub"} <= shown["chunkbert"]
    assert not {"--lora", "--push_to_hub"} & shown["truncated"]
    for kind in shown:
        assert {"--class_weights", "--train_file", "--seeds", "--num_train_epochs", "--adam_beta1"} <= shown[kind]
    search = options_in(helped(capsys, "--task", "retrieval"))
    assert {"--k", "--query_column", "--test_file"} <= search
    assert not {"--seeds", "--num_train_epochs", "--lora", "--train_file", "--class_weights", "--adam_beta1"} & search
    choice = helped(capsys, "--task", "multiple_choice")
    assert "--candidates_column" in choice
    assert not {"--class_weights", "--problem_type", "--k"} & options_in(choice)


def test_options_are_grouped(capsys):
    said = helped(capsys, "--task", "classification")
    titles = ["model", "adapters", "data", "classes", "training"]
    assert re.findall(r"^(\w+):$", said, re.MULTILINE)[-len(titles) :] == titles


def test_a_file_of_options_gives_the_same_run(sea_files, toy_checkpoint, tmp_path):
    values = {name.removeprefix("--"): value for name, value in sea_files.items()}
    values |= {"task": "classification", "model": toy_checkpoint, "max_steps": 2, "learning_rate": 1e-3}
    values |= {"seeds": [3, 4], "lora": True, "lora_target_modules": ["query"], "disable_tqdm": True}
    (tmp_path / "options.yaml").write_text(yaml.safe_dump({**values, "output_dir": str(tmp_path / "file")}))
    run_here(str(tmp_path / "options.yaml"))
    listed = {"--seeds": ["3", "4"], "--lora_target_modules": ["query"]}
    words = [word for name, values in listed.items() for word in (name, *values)]
    start(tmp_path / "options", toy_checkpoint, *words, "--lora", "--max_steps", "2", "--learning_rate", "1e-3",
          **sea_files)  # fmt: skip
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("file", "options")]
    assert [each.pop("model") for each in results] == ["file", "options"]
    assert results[0] == results[1]
    assert results[0]["settings"]["lora_target_modules"] == ["query"]


def test_an_unknown_key_of_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "options.json").write_text(json.dumps({"task": "retrieval", "model": "bm25", "seed_count": 3}))
    said = refusal(capsys, lambda: run_here(str(tmp_path / "options.json")))
    assert "There is no option --seed_count here" in said
