"""`run_finetune.py` as a user starts it, and its pieces against hand-worked numbers and scikit-learn."""

from __future__ import annotations

import json
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
from sklearn.utils.class_weight import compute_class_weight
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert import (
    HateForSequenceClassification,
    HateModel,
    NextLevelBertForMultipleChoice,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
)
from nextlevelbert.finetuning.adapters import with_lora
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.task import count_parameters
from nextlevelbert.tasks.classification.baselines import ChunkMeanClassifier, tfidf_logistic_regression
from nextlevelbert.tasks.classification.data import Example, TaskData, read_classification
from nextlevelbert.tasks.classification.task import Classification, VectorClassification
from nextlevelbert.tasks.classification.train import (
    Prepared,
    balanced_class_weights,
    train_classifier,
    write_predictions,
)
from nextlevelbert.tasks.classification.vectors import TaskVectorDataset, TaskVectors, encode_task, frozen

from ..conftest import toy_config
from ..finetuning_toys import (
    BREAD,
    SCRIPT,
    SEA,
    predictions,
    published,
    refusal,
    run_the_card,
    start,
    write,
)


def rows(count: int, seed: int) -> list[dict]:
    """Short documents about the sea or about bread, with a question about one of the two."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        label = ("bread", "sea")[number % 2]
        words = draw.choice({"bread": BREAD, "sea": SEA}[label], 24)
        text = " ".join(f"The {first} of the {second}." for first, second in zip(words[::2], words[1::2], strict=True))
        made.append({"id": f"{seed}-{number}", "text": f"{text} {number}", "label": label})
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("task")
    return {
        "--train_file": write(folder / "train.jsonl", rows(32, 1)),
        "--validation_file": write(folder / "validation.jsonl", rows(8, 2)),
        "--test_file": write(folder / "test.jsonl", rows(11, 3)),
    }


@pytest.fixture(scope="module")
def checkpoint(toy_encoder_path, tmp_path_factory) -> str:
    """A toy model without dropout, so that runs can be compared number by number."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint") / "toy"
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    model.config.encoder_config.hidden_dropout_prob = 0.0
    model.save_pretrained(folder)
    return str(folder)


FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


@pytest.fixture(scope="module")
def classifier(files, checkpoint, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "model"
    start(folder, checkpoint, *FAST, "--seeds", "0", "1", **files)
    return folder


def test_it_learns_and_leaves_a_whole_checkpoint(classifier, files):
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
    texts = [row["text"] for row in rows(11, 3)]
    # From text, by the stock tokenizer, the published model says what the run on stored vectors said.
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    scores = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    torch.testing.assert_close(scores, torch.tensor([row["scores"] for row in found]), atol=1e-5, rtol=0)
    assert [row["id"] for row in found] == [f"3-{number}" for number in range(11)]
    assert [row["prediction"] for row in found] == [model.config.id2label[int(row.argmax())] for row in scores]
    correct = np.mean([row["prediction"] == row["label"] for row in found])
    assert correct == results["seeds"][str(results["best_seed"])]["accuracy"]


def test_the_card_and_the_pictures(classifier, checkpoint):
    card = (classifier / "README.md").read_text()
    results = json.loads((classifier / "results.json").read_text())
    mean, deviation = results["mean_and_deviation"]["accuracy"]
    assert f"| {mean:.4f} ± {deviation:.4f} |" in card
    [result, *_] = ModelCard(card).data.eval_results
    assert (result.dataset_name, result.metric_type) == ("test.jsonl", "accuracy")
    assert result.metric_value == round(results["seeds"][str(results["best_seed"])]["accuracy"], 4)
    assert run_the_card(classifier, card).shape == (1, 2)
    for path in (classifier.parent, Path(checkpoint).parent):
        assert str(path) not in published(classifier)
    for picture in ("learning_curve.png", "confusion_matrix.png"):
        assert (classifier / picture).read_bytes().startswith(b"\x89PNG")
        assert f"({picture})" in card
    assert not list(classifier.rglob("checkpoint-*"))
    assert not list(classifier.rglob("*.bin"))


def test_finished_seeds_are_not_run_again_and_other_settings_are_refused(classifier, files, checkpoint, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in classifier.glob("seed-*/model.safetensors")}
    assert len(before) == 2
    start(classifier, checkpoint, *FAST, "--seeds", "0", "1", **files)
    assert {path: path.stat().st_mtime_ns for path in classifier.glob("seed-*/model.safetensors")} == before
    with pytest.raises(ValueError, match=r"other settings \(lr_scheduler_type: linear there, constant now\)"):
        start(classifier, checkpoint, *FAST, "--lr_scheduler_type", "constant", **files)
    other = {**files, "--train_file": write(tmp_path / "train.jsonl", rows(32, 9))}  # as many rows, other texts
    with pytest.raises(ValueError, match=r"other settings \(train_sha256: "):
        start(classifier, checkpoint, *FAST, **other)


def test_a_killed_seed_goes_on_to_the_same_weights(files, checkpoint, tmp_path):
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
    options = {**files, "--cache_dir": str(tmp_path / "cache")}
    start(tmp_path / "straight", checkpoint, *settings, **options)
    genuine, finetuning.EarlyStoppingCallback = finetuning.EarlyStoppingCallback, EarlyStoppingCallback
    try:
        with pytest.raises(Stopped):
            start(tmp_path / "killed", checkpoint, *settings, **options)
    finally:
        finetuning.EarlyStoppingCallback = genuine
    assert list(tmp_path.glob("killed/seed-0/checkpoint-*"))
    with pytest.raises(ValueError, match=r"weight_decay: 0.01 there, 0.5 now"):
        start(tmp_path / "killed", checkpoint, *settings, "--weight_decay", "0.5", **options)
    start(tmp_path / "killed", checkpoint, *settings, **options)
    results = [json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("killed", "straight")]
    assert results[0]["steps"] == results[1]["steps"] < 30 * 4  # stopped early, at the same step
    ours, theirs = (load_file(tmp_path / name / "seed-0" / "model.safetensors") for name in ("killed", "straight"))
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-5)


def test_an_adapter_on_the_base_checkpoint(files, checkpoint, tmp_path, caplog):
    caplog.set_level("INFO")
    start(tmp_path / "adapter", checkpoint, *FAST, "--lora", "--lora_target_modules", "all-linear", **files)
    [share] = re.findall(r"seed 0: [\d,]+ of [\d,]+ parameters are trainable \((\d+\.\d) %\)", caplog.text)
    assert 0 < float(share) < 100
    assert str(Path(checkpoint).parent) not in published(tmp_path / "adapter")
    assert run_the_card(tmp_path / "adapter", (tmp_path / "adapter" / "README.md").read_text(), checkpoint).shape == (
        1,
        2,
    )
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "README.md"} <= {
        file.name for file in (tmp_path / "adapter").iterdir()
    }
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    base = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)
    model = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "adapter")
    batch = tokenizer([row["text"] for row in rows(11, 3)], padding=True, return_tensors="pt")
    found = torch.tensor([row["scores"] for row in predictions(tmp_path / "adapter" / "test_predictions.jsonl")])
    torch.testing.assert_close(model(**batch).logits.softmax(-1), found, atol=1e-5, rtol=0)


def test_a_frozen_encoder_gives_its_own_document_vectors_to_the_head(files, toy_encoder_path, tmp_path, caplog):
    """The checkpoint has dropout, the stored predictions are the head's over the vectors of its `encode`."""
    caplog.set_level("INFO")
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).save_pretrained(tmp_path / "before")
    start(tmp_path / "head", str(tmp_path / "before"), "--freeze_encoder", "--num_train_epochs", "4", **files)
    settings = json.loads((tmp_path / "head" / "results.json").read_text())["settings"]
    assert (settings["learning_rate"], settings["freeze_encoder"]) == (1e-3, True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("before", "head"))
    for name, weight in before.items():
        assert torch.equal(weight, after[f"model.{name}"]), name
    head = AutoModelForSequenceClassification.from_pretrained(tmp_path / "head").eval()
    [share] = re.findall(r"seed 0: ([\d,]+) of [\d,]+ parameters are trainable", caplog.text)
    assert int(share.replace(",", "")) == count_parameters(head.classifier)[1]
    assert head.config.encoder_config.hidden_dropout_prob > 0
    vectors = NextLevelBertModel.from_pretrained(tmp_path / "before").encode([row["text"] for row in rows(11, 3)])
    logits = head.classifier(torch.stack([book.document for book in vectors]))
    found = torch.tensor([row["scores"] for row in predictions(tmp_path / "head" / "test_predictions.jsonl")])
    torch.testing.assert_close(logits.softmax(-1), found, atol=1e-5, rtol=0)


def test_a_frozen_encoder_learns_without_dropout(toy_encoder_path):
    model = NextLevelBertForSequenceClassification.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    vectors = torch.randn(2, 5, 32)
    predicting = model.eval()(inputs_embeds=vectors).logits
    assert not torch.allclose(model.train()(inputs_embeds=vectors).logits, predicting, atol=1e-6)
    torch.testing.assert_close(frozen(model).train()(inputs_embeds=vectors).logits, predicting)


@pytest.mark.parametrize("cls", [NextLevelBertForSequenceClassification, NextLevelBertForMultipleChoice])
@pytest.mark.parametrize("targets", [["query", "value"], ["all-linear"]])
def test_adapters_train_less_than_a_tenth(minilm, cls, targets):
    """Of the real size, the frozen chunk encoder not counted."""
    model = cls.from_chunk_encoder(minilm, include_chunk_encoder=False)
    trainable, total = count_parameters(
        with_lora(model, VectorClassification(model="-", train_file="-", lora=True, lora_target_modules=targets))
    )
    assert total > 10_000_000
    assert 0.03 < trainable / total < 0.10


def test_quality_s_real_article_end_to_end(shared, checkpoint, tmp_path):
    sample = str(shared / "data" / "quality" / "examples.jsonl.gz")
    options = {"--train_file": sample, "--validation_file": sample, "--num_train_epochs": "2"}
    start(tmp_path / "chooser", checkpoint, task="multiple_choice", **options)
    found = predictions(tmp_path / "chooser" / "validation_predictions.jsonl")
    assert len(found) == 5
    assert all(len(row["scores"]) == 4 and sum(row["scores"]) == pytest.approx(1, abs=1e-5) for row in found)
    card = (tmp_path / "chooser" / "README.md").read_text()
    assert "so they flatter the model" in card  # there is but one article
    assert run_the_card(tmp_path / "chooser", card).shape == (1, 2)


def test_questions_beside_documents(checkpoint, tmp_path):
    """Every document has two questions, and only the question tells the answer; halves of a validation set."""
    made = [
        {"story": row["text"], "asked": f"Is it about {word}?", "answer": word == row["label"]}
        for row in rows(16, 6)
        for word in ("bread", "sea")
    ]
    options = {"--train_file": write(tmp_path / "rows.jsonl", made), "--text_column": "story"}
    options |= {"--validation_file": write(tmp_path / "more.jsonl", made[:12]), "--num_train_epochs": "1"}
    options |= {"--question_column": "asked", "--label_column": "answer"}
    start(tmp_path / "model", checkpoint, "--halve_validation", "--class_weights", **options)
    found = [predictions(tmp_path / "model" / f"{name}_predictions.jsonl") for name in ("validation", "test")]
    assert [len(part) for part in found] == [6, 6]
    assert {row["prediction"] for part in found for row in part} <= {"True", "False"}
    card = (tmp_path / "model" / "README.md").read_text()
    assert "flatter" not in card
    assert run_the_card(tmp_path / "model", card).shape == (1, 2)


def test_a_checkpoint_that_was_fine_tuned_gets_a_new_classifier_where_the_old_one_does_not_fit(classifier, tmp_path):
    made = [{"text": f"{word} {number} " * 9, "label": [word]} for number in range(6) for word in ("a", "b", "c")]
    options = {"--train_file": write(tmp_path / "rows.jsonl", made), "--max_steps": "1"}
    start(tmp_path / "model", str(classifier), **options)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.problem_type == "multi_label_classification"
    assert model.classifier[2].out_features == 3


def test_the_baselines_in_the_same_script(toy_encoder_path, tmp_path):
    start_alike = "In the year that all of this happened to us nothing else was of interest. "
    options = {"--chunk_encoder": toy_encoder_path, "--chunk_size": "16", "--num_train_epochs": "12"}
    for option, count, seed in (("--train_file", 32, 1), ("--validation_file", 8, 2), ("--test_file", 11, 3)):
        made = [{**row, "text": start_alike + row["text"]} for row in rows(count, seed)]
        options[option] = write(tmp_path / f"{seed}.jsonl", made)
    cache = ("--cache_dir", str(tmp_path / "cache"))
    accuracy = {}
    for model in ("avg_sbert", "sbert", "tfidf"):
        start(tmp_path / model, model, *cache, **options)
        accuracy[model] = json.loads((tmp_path / model / "results.json").read_text())["seeds"]["0"]["accuracy"]
    assert accuracy["tfidf"] == 1.0
    assert accuracy["avg_sbert"] > 0.8
    # Truncated to the first chunk of 14 tokens, which all documents have in common, it can only guess.
    assert accuracy["sbert"] <= 6 / 11


def test_retrieval_by_the_script(checkpoint, tmp_path):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 9} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs)}
    for model in ("bm25", "tfidf", checkpoint):
        start(tmp_path / Path(model).name, model, task="retrieval", **options)
    scores = json.loads((tmp_path / "bm25" / "results.json").read_text())["scores"]
    assert scores["mrr"] == 1.0
    assert scores["queries"] == 10
    [line, *_] = predictions(tmp_path / "toy" / "predictions.jsonl")
    model = NextLevelBertModel.from_pretrained(checkpoint)
    query = model.encode(pairs[0]["query"]).document
    cosines = [torch.cosine_similarity(query, model.encode(pair["document"]).document, dim=0) for pair in pairs]
    assert line == {
        "query": "query-000000",
        "ranks_of_relevant_documents": [1 + sum(bool(other > cosines[0]) for other in cosines)],
    }
    assert (tmp_path / "toy" / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")


def test_two_processes_learn_what_one_does(files, checkpoint, tmp_path):
    arguments = ["--task", "classification", "--model", checkpoint, "--max_steps", "6", "--learning_rate", "3e-3",
                 "--logging_strategy", "steps", "--logging_steps", "1", "--disable_tqdm", "true",
                 "--class_weights", "--cache_dir", str(tmp_path / "cache")]  # fmt: skip
    arguments += [word for option in files.items() for word in option]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    curves, logits = [], []
    for name, launch, size in (("one", [], "8"), ("two", launcher, "4")):
        folder = tmp_path / name
        command = [sys.executable, *launch, str(SCRIPT), *arguments, "--output_dir", str(folder)]
        process = subprocess.run(
            [*command, "--per_device_train_batch_size", size], capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr
        result = json.loads((folder / "seed-0" / "result.json").read_text())
        curves.append([entry["loss"] for entry in result["curve"] if "loss" in entry])
        logits.append(torch.tensor(result["logits"]["test"]))
    assert len(curves[0]) == 6
    assert logits[0].shape == (11, 2)
    torch.testing.assert_close(logits[1], logits[0], atol=5e-3, rtol=0)
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), atol=2e-4, rtol=0)
    assert curves[0][-1] < curves[0][0] - 0.05  # there was something to follow


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("classification", {}, "Give the training set with --train_file or --dataset_name"),
        ("classification", {"--train_file": "x", "--halve_validation": "true"}, "half the validation set"),
        ("classification", {"--train_file": "x", "--dataset_name": "me/books"}, "Give either --dataset_name"),
        ("classification", {"--train_file": "x", "--dataset_config_name": "y"}, "belongs to --dataset_name, which is"),
        ("classification", {"--train_file": "x", "--test_split": "test"}, "--test_split is a split of --dataset_name"),
        ("classification", {"--train_file": "x", "--seeds": "3 3"}, r"names a seed twice: \[3, 3\]"),
        ("classification", {"--train_file": "x", "--lora_r": "64"}, "--lora_r: these describe adapters; add --lora"),
        ("classification", {"--train_file": "x", "--dataloader_drop_last": "true"}, "no option --dataloader_drop"),
        ("classification", {"--train_file": "x", "--resume_from_checkpoint": "y"}, "no option --resume_from_chec"),
        ("retrieval", {}, "Give the task with --test_file"),
        ("retrieval", {"--test_file": "x", "--push_to_hub": "true"}, "There is no option --push_to_hub here"),
        ("retrieval", {"--test_file": "x", "--validation_file": "x"}, "There is no option --validation_file here"),
        ("retrieval", {"--test_file": "x", "--freeze_encoder": "true"}, "There is no option --freeze_encoder here"),
        ("retrieval", {"--test_file": "x", "--k": "0"}, "--k must be 1 or more, got 0"),
        ("classification", {"--train_file": "x", "--model": "untrained", "--lora": "true"}, "Save that first"),
        ("classification", {"--train_file": "x", "--model": "sbert", "--push_to_hub": "true"}, "not published"),
        ("classification", {"--train_file": "x", "--model": "bm25"}, "no --model bm25. It takes a checkpoint or one"),
        ("classification", {"--train_file": "x", "--model": "sbert", "--freeze_encoder": "true"}, "frozen"),
        ("classification", {"--train_file": "x", "--model": "tfidf", "--class_weights": "true"}, "no effect on"),
        ("classification", {"--train_file": "x", "--lora": "true", "--freeze_encoder": "true"}, "train more"),
        ("multiple_choice", {"--train_file": "x", "--model": "tfidf"}, "This task has no --model tfidf"),
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
    ("task", "arguments", "message"),
    [
        ("classification", {"--train_file": "{train}", "--text_column": "body"}, r"row 0 .* no column .body."),
        ("classification", {"--train_file": "{train}", "--label_column": "y"}, "The train set has no labels"),
        ("classification", {"--train_file": "{train}", "--test_file": "{odd}"}, r"row 1 .*sky.* bread, sea"),
        ("classification", {"--train_file": "{blank}"}, r"row 2 .*column 'text': is blank"),
        ("multiple_choice", {"--train_file": "{uneven}", "--question_column": "q", "--candidates_column": "c"},
         r"row 1 .*column 'c': has 3 candidates, but the first row 4"),
        ("classification", {"--train_file": "{train}", "--learning_rate": "1e30"}, "a validation loss of nan"),
        ("classification", {"--train_file": "{train}", "--model": "avg-sbert"}, "one of: untrained, avg_sbert, sbert"),
        ("classification", {"--train_file": "{train}", "--model": "{plain}"}, "is a bert; give a NextLevelBERT"),
    ],
)  # fmt: skip
def test_what_it_refuses(files, checkpoint, toy_encoder_path, tmp_path, task, arguments, message):
    odd = rows(2, 4)
    odd[1]["label"] = "sky"
    blank = rows(4, 5)
    blank[2]["text"] = " \n"
    uneven = [{"text": "A story.", "q": "Who?", "c": list("abcd")[:count], "label": 0} for count in (4, 3)]
    made = {"odd": odd, "blank": blank, "uneven": uneven}
    paths = {name: write(tmp_path / f"{name}.jsonl", content) for name, content in made.items()}
    options = {
        key: value.format(train=files["--train_file"], plain=toy_encoder_path, **paths)
        for key, value in arguments.items()
    }
    model = options.pop("--model", checkpoint)
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "model", model, task=task, **options)


def data(labels, problem="single_label_classification", names=("a", "b", "c"), documents=None):
    examples = [Example(f"x{number}", number, label=label) for number, label in enumerate(labels)]
    return TaskData(problem, documents or [f"text {n}" for n in range(len(labels))], examples, names, "here")


def test_class_weights_are_scikit_learn_s_and_weigh_the_loss(tmp_path):
    task = data([0, 0, 0, 1, 2, 2])
    weights = balanced_class_weights(task)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=task.labels())
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="here has no training example of c"):
        balanced_class_weights(data([0, 1, 1]))
    with pytest.raises(ValueError, match="for single labels, not for regression"):
        balanced_class_weights(data([0.5, 1.0], "regression", None))


def test_a_run_with_class_weights(tmp_path):
    vectors = TaskVectors([torch.full((1, 32), float(n % 3)) for n in range(6)], None)
    dataset = TaskVectorDataset(data([0, 0, 0, 1, 2, 2]), vectors)
    weights = balanced_class_weights(dataset.data)
    args = FinetuningArguments(output_dir=str(tmp_path), max_steps=1, learning_rate=1e-9, report_to=[])
    task = Classification(VectorClassification(model="avg_sbert", train_file="-"), args)
    prepared = Prepared(
        {"train": dataset, "validation": dataset},
        lambda: ChunkMeanClassifier(32, "single_label_classification", 3, False),
    )
    found = train_classifier(task, 0, tmp_path / "seed-0", prepared, weights)
    logits = torch.tensor(found.logits["validation"])
    labels = torch.tensor(dataset.data.labels())
    # Not divided by the batch's own weights, so that it does not matter how examples are put into batches.
    by_hand = -(weights[labels] * logits.log_softmax(-1)[range(6), labels]).mean()
    assert found.scores["validation"]["loss"] == pytest.approx(by_hand.item(), abs=1e-5)


def test_a_batch_holds_each_document_once():
    task = TaskData(
        "multi_label_classification",
        ["one", "two"],
        [Example("a", 1, label=(0, 2)), Example("b", 0, label=()), Example("c", 1, label=(1,))],
        ("x", "y", "z"),
        "here",
    )
    documents = [torch.ones(1, 2), torch.arange(6.0).reshape(3, 2)]
    pairs = [torch.full((2,), float(n)) for n in range(3)]
    dataset = TaskVectorDataset(task, TaskVectors(documents, pairs))
    batch = dataset.collate([dataset[n] for n in range(3)])
    assert next(iter(batch)) == "document_index"  # Trainer takes its length for the batch size
    assert batch["document_index"].tolist() == [0, 1, 0]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    torch.testing.assert_close(batch["inputs_embeds"][0], documents[1])
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    torch.testing.assert_close(batch["pair_embeds"], torch.stack(pairs))
    model = NextLevelBertForSequenceClassification(toy_config(num_labels=3, text_pair=True))
    with pytest.raises(ValueError, match=r"\[N, 32\]"):
        model(**batch)


def test_long_questions_are_counted_and_empty_ones_named(checkpoint, caplog):
    model = NextLevelBertModel.from_pretrained(checkpoint)
    long = "Is the whale that the captain saw from the harbour larger than the ship? " * 2
    examples = [Example("a", 0, long, label=0), Example("b", 0, "Short?", label=1)]
    task = TaskData("single_label_classification", ["The ship."], examples, ("n", "y"), "here")
    vectors = encode_task(model, task)
    assert "here: 1 of 2 questions are longer than a chunk" in caplog.text
    torch.testing.assert_close(vectors.pairs[0], model.encode(long).plain.mean(0))
    blank = TaskData("regression", ["The ship.", "\u200b"], [Example("a", 0), Example("b", 1)], None, "here")
    with (
        pytest.raises(ValueError, match=r"documents of \['b'\] contain no token"),
        pytest.warns(UserWarning, match="contain no token"),
    ):
        encode_task(model, blank)


def test_word_counts_find_the_subject(files):
    train = read_classification(files["--train_file"])
    test = read_classification(files["--test_file"], label_names=train.label_names)
    [logits] = tfidf_logistic_regression(train, [test])
    assert (logits.argmax(-1) == test.labels()).all()
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1)
    with pytest.raises(ValueError, match="TF-IDF baseline classifies, got regression"):
        tfidf_logistic_regression(data([0.5], "regression", None), [])


def test_results_are_json_that_every_reader_knows(files, toy_encoder_path, tmp_path):
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


def test_predictions_in_words(tmp_path):
    task = data([(0,), (0, 2)], "multi_label_classification")
    write_predictions(tmp_path / "p.jsonl", task, np.array([[0.0, 1.0, -1.0], [3.0, -3.0, 3.0]]))
    first, second = predictions(tmp_path / "p.jsonl")
    assert (first["prediction"], first["label"], first["scores"][0]) == (["b"], ["a"], 0.5)
    assert second["prediction"] == second["label"] == ["a", "c"]
    write_predictions(tmp_path / "v.jsonl", data([1.5, None], "regression", None), np.array([[1.25], [0.0]]))
    assert predictions(tmp_path / "v.jsonl") == [
        {"id": "x0", "prediction": 1.25, "label": 1.5, "scores": [1.25]},
        {"id": "x1", "prediction": 0.0, "scores": [0.0]},
    ]


# --- HATE


@pytest.fixture(scope="module")
def hate(toy_encoder_path, tmp_path_factory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoint") / "hate"
    model = HateModel.from_chunk_encoder(toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16)
    model.save_pretrained(folder)
    return str(folder)


def test_a_hate_learns_and_leaves_a_whole_checkpoint(files, hate, tmp_path):
    start(tmp_path / "model", hate, *FAST, **files)
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["seeds"]["0"]["accuracy"] > 6 / 11 + 0.1
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert isinstance(model, HateForSequenceClassification)
    found = predictions(tmp_path / "model" / "test_predictions.jsonl")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    batch = tokenizer([row["text"] for row in rows(11, 3)], padding=True, return_tensors="pt")
    expected = torch.tensor([row["scores"] for row in found])
    torch.testing.assert_close(model(**batch).logits.softmax(-1), expected, atol=1e-5, rtol=0)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "HATE (Hierarchical" in card
    assert "NextLevelBERT" not in card


def test_untrained_is_of_the_family_that_was_asked_for(files, toy_encoder_path, tmp_path):
    start(tmp_path / "model", "untrained", "--model_type", "hate", "--chunk_encoder", toy_encoder_path,
          "--num_train_epochs", "1", **files)  # fmt: skip
    assert AutoConfig.from_pretrained(tmp_path / "model").model_type == "hate"


CHOICE = {"id": "1", "text": "A whale.", "question": "Who?", "candidates": ["a whale", "a dog"], "label": 0}


def test_what_a_hate_cannot_do(files, hate, checkpoint, tmp_path):
    choice = [
        "--train_file",
        write(tmp_path / "train.jsonl", [CHOICE]),
        "--validation_file",
        str(tmp_path / "train.jsonl"),
    ]
    columns = ["--question_column", "question", "--candidates_column", "candidates"]
    with pytest.raises(ValueError, match="A hate has no head for this task; give a NextLevelBERT"):
        start(tmp_path / "model", hate, *choice, *columns, task="multiple_choice")
    with pytest.raises(ValueError, match="is a nextlevelbert; give a HATE"):
        start(tmp_path / "model", checkpoint, "--model_type", "hate", **files)
