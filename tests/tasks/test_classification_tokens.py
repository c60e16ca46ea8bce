"""Classifiers that the script trains from text: ChunkBERT, BERT-AL, and baselines over windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sklearn.metrics import accuracy_score, f1_score
from sklearn.utils.class_weight import compute_class_weight
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertModel

from nextlevelbert import BertAlForSequenceClassification, ChunkBertForSequenceClassification
from nextlevelbert.finetuning.arguments import FinetuningArguments
from nextlevelbert.finetuning.task import Sets
from nextlevelbert.models.chunk_encoder import weights_fingerprint
from nextlevelbert.tasks.classification.data import Example, TaskData, read_classification
from nextlevelbert.tasks.classification.task import Classification
from nextlevelbert.tasks.classification.tokens import TaskTokenDataset, TokenisedTask, tokenise_task
from nextlevelbert.tasks.classification.train import Prepared
from nextlevelbert.tasks.classification.window_classifier import WindowClassifier
from nextlevelbert.tasks.classification.windows import first_window, random_window, textrank_window

from ..conftest import toy_config
from ..finetuning_toys import BREAD, SCRIPT, SEA, predictions, published, run_the_card, start, write

WINDOW = 64


FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


CHUNKBERT = ("--model_type", "chunkbert", "--chunk_size", "32")


def rows(count: int, seed: int) -> list[dict]:
    """Documents about the sea or about bread, half of them longer than a window."""
    draw = np.random.default_rng(seed)
    made = []
    for number in range(count):
        label = ("bread", "sea")[number % 2]
        words = draw.choice({"bread": BREAD, "sea": SEA}[label], (8, 30)[number % 4 // 2])
        text = " ".join(f"The {first} of the {second}." for first, second in zip(words[::2], words[1::2], strict=True))
        made.append({"id": f"{seed}-{number}", "text": f"{text} {number}", "label": label})
    return made


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawing takes longer than training here; pictures are those of `classifier`, which is made before this."""
    monkeypatch.setattr("nextlevelbert.finetuning.task.plot_curves", lambda *arguments: None)
    monkeypatch.setattr("nextlevelbert.tasks.classification.task.plot_confusion", lambda *arguments: None)


@pytest.fixture(scope="module")
def encoder(minilm, tmp_path_factory) -> str:
    """Four tiny random layers without dropout, so that runs can be compared number by number."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    size = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertModel(BertConfig(**size, max_position_embeddings=WINDOW, hidden_dropout_prob=0.0))
    model.save_pretrained(folder)
    minilm.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def checkpoint(encoder, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("checkpoint") / "begun"
    values = {"chunk_size": 32, "max_training_tokens": 40, "num_labels": 3}
    ChunkBertForSequenceClassification.from_encoder(encoder, **values).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("task")
    counts = {"train": 24, "validation": 6, "test": 9}
    made = {f"--{name}_file": rows(count, seed) for seed, (name, count) in enumerate(counts.items())}
    made["--test_file"][2]["label"] = "sea"  # so that there is an error among the long ones
    return {option: write(folder / f"{option[2:]}.jsonl", content) for option, content in made.items()}


@pytest.fixture(scope="module")
def classifier(files, encoder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "model"
    start(folder, encoder, *CHUNKBERT, *FAST, "--chunk_batch_size", "5", "--seeds", "0", "1", **files)
    return folder


def texts(path: str) -> list[str]:
    return [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]


def test_chunkbert_learns_and_leaves_a_whole_checkpoint(classifier, files, encoder):
    results = json.loads((classifier / "results.json").read_text())
    assert results["settings"]["learning_rate"] == 3e-3
    assert min(results["seeds"][seed]["accuracy"] for seed in ("0", "1")) > 5 / 9 + 0.1
    model = AutoModelForSequenceClassification.from_pretrained(classifier)
    assert isinstance(model, ChunkBertForSequenceClassification)
    assert (model.config.id2label, model.config.chunk_size) == ({0: "bread", 1: "sea"}, 32)
    batch = AutoTokenizer.from_pretrained(classifier)(texts(files["--test_file"]), padding=True, return_tensors="pt")
    found = predictions(classifier / "test_predictions.jsonl")
    torch.testing.assert_close(
        model(**batch).logits.softmax(-1), torch.tensor([row["scores"] for row in found]), atol=1e-5, rtol=0
    )
    # Trained from end to end: the encoder's words are not what they were.
    words = BertModel.from_pretrained(encoder).embeddings.word_embeddings.weight
    assert (model.get_input_embeddings().weight - words).abs().max() > 1e-3


def test_scores_on_long_documents_by_hand(classifier, files):
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    long = [len(tokenizer(text)["input_ids"]) > WINDOW for text in texts(files["--test_file"])]
    assert 0 < sum(long) < 9
    results, expected = json.loads((classifier / "results.json").read_text()), {}
    for seed in (0, 1):
        found = [row for row, kept in zip(predictions(classifier / f"seed-{seed}" / "test_predictions.jsonl"), long,
                                          strict=True) if kept]  # fmt: skip
        pair = [row["label"] for row in found], [row["prediction"] for row in found]
        scores = {"accuracy": accuracy_score(*pair), "f1": f1_score(*pair, pos_label="sea", zero_division=0.0)}
        expected[seed] = scores | {f"{kind}_f1": f1_score(*pair, average=kind) for kind in ("macro", "micro")}
        stored = json.loads((classifier / f"seed-{seed}" / "result.json").read_text())["long"]
        assert stored["test"] == pytest.approx(expected[seed])
        assert stored["test"]["accuracy"] < results["seeds"][str(seed)]["accuracy"]
        assert stored.keys() == {"validation", "test"}
    summary = results["long"]
    assert (summary["documents"], summary["of"], summary["over_tokens"]) == (sum(long), 9, WINDOW)
    mean, deviation = summary["mean_and_deviation"]["accuracy"]
    values = [expected[seed]["accuracy"] for seed in (0, 1)]
    assert (mean, deviation) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    [line] = [line for line in (classifier / "README.md").read_text().splitlines() if ", long (" in line]
    assert line.startswith(f"| tiny (chunkbert), 2 seeds, test, long ({sum(long)} of 9 documents over 64 tokens) |")
    assert f"{mean:.4f} ± {deviation:.4f}" in line


def test_the_card_of_a_chunkbert(classifier, encoder):
    card = (classifier / "README.md").read_text()
    assert "A [ChunkBERT](https://arxiv.org/abs/2310.20558) fine-tuned on train_file.jsonl." in card
    assert "the first 4,096 tokens" in card
    assert "| chunk_size | 32 |\n| max_training_tokens | 4096 |" in card
    assert "chunk encoder" not in card
    assert run_the_card(classifier, card).shape == (1, 2)
    for path in (classifier.parent, Path(encoder).parent):
        assert str(path) not in published(classifier)
    for picture in ("learning_curve.png", "confusion_matrix.png"):
        assert (classifier / picture).read_bytes().startswith(b"\x89PNG")


def test_finished_seeds_are_kept_and_belong_to_their_chunk_size(classifier, files, encoder):
    weights = classifier / "seed-0" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    options = (*CHUNKBERT, *FAST, "--seeds", "0", "1")
    start(classifier, encoder, *options, **files)  # with another --chunk_batch_size, which changes no result
    assert weights.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"other settings \(chunk_size: 32 there, 16 now\)"):
        start(classifier, encoder, *options, "--chunk_size", "16", **files)


def test_several_labels(encoder, tmp_path):
    made = [{"text": row["text"], "label": ["all", row["label"]]} for row in rows(16, 4)]
    options = {"--train_file": write(tmp_path / "a.jsonl", made), "--test_file": write(tmp_path / "b.jsonl", made[:6])}
    start(tmp_path / "model", encoder, *CHUNKBERT, *FAST, **options)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.problem_type == "multi_label_classification"
    assert model.config.id2label == {0: "all", 1: "bread", 2: "sea"}
    found = predictions(tmp_path / "model" / "test_predictions.jsonl")
    assert all("all" in row["prediction"] for row in found)
    batch = AutoTokenizer.from_pretrained(tmp_path / "model")(
        [row["text"] for row in made[:6]], padding=True, return_tensors="pt"
    )
    torch.testing.assert_close(
        model(**batch).logits.sigmoid(), torch.tensor([row["scores"] for row in found]), atol=1e-5, rtol=0
    )
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    correct = np.mean([sorted(row["prediction"]) == row["label"] for row in found])
    assert results["seeds"]["0"]["accuracy"] == correct


def test_an_adapter_on_a_chunkbert_whose_training_documents_are_cut(files, checkpoint, tmp_path, caplog, recwarn):
    start(tmp_path / "adapter", checkpoint, "--model_type", "chunkbert", "--lora", *FAST, **files)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "adapter")
    lost = [max(len(tokenizer(text)["input_ids"]) - 40, 0) for text in texts(files["--train_file"])]
    assert 0 < sum(map(bool, lost)) < 24
    [warning] = [record.getMessage() for record in caplog.records if "max_training_tokens" in record.getMessage()]
    assert f"the first 40 tokens of a document (max_training_tokens); {sum(map(bool, lost))} of 24 " in warning
    assert f"documents lose {sum(lost)} tokens" in warning
    assert not [warned for warned in recwarn if "max_training_tokens" in str(warned.message)]  # none left to the model
    # The base has another number of classes; the adapter brings the whole classifier. Long documents are read whole.
    base = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2, ignore_mismatched_sizes=True)
    model = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    batch = tokenizer(texts(files["--test_file"]), padding=True, return_tensors="pt")
    found = torch.tensor([row["scores"] for row in predictions(tmp_path / "adapter" / "test_predictions.jsonl")])
    torch.testing.assert_close(model(**batch).logits.softmax(-1), found, atol=1e-5, rtol=0)
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "the first 40 tokens" in card
    assert "chunk_size=32" in card  # it may be another than the base's
    assert run_the_card(tmp_path / "adapter", card, checkpoint).shape == (1, 2)
    assert str(Path(checkpoint).parent) not in published(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()


def test_bert_al_classifies_too(files, encoder, tmp_path):
    arguments = ("--model_type", "bert-al", "--segment_length", "16", "--recurrence", "replace", *FAST)
    folder, adapter = tmp_path / "classifier", tmp_path / "adapter"
    start(folder, encoder, *arguments, **files)
    settings = json.loads((folder / "results.json").read_text())["settings"]
    assert (settings["segment_length"], settings["recurrence"], settings["model_type"]) == (16, "replace", "bert-al")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(model) is BertAlForSequenceClassification
    stored = predictions(folder / "test_predictions.jsonl")
    for record, text in zip(stored, texts(files["--test_file"]), strict=True):
        with torch.no_grad():
            scores = model(**model.tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        assert record["scores"] == pytest.approx(scores.tolist(), abs=1e-4)
    assert "Information flows forward only" in (folder / "README.md").read_text()
    start(adapter, str(folder), "--model_type", "bert-al", "--lora", *FAST, **files)
    names = {part for name in load_file(adapter / "adapter_model.safetensors") for part in name.split(".")}
    assert {"lora_A", "lstm", "classifier"} <= names
    with pytest.raises(ValueError, match="is a bert-al, whose recurrence is part of it; leave out --recurrence"):
        start(tmp_path / "no", str(folder), *arguments, **files)


@pytest.mark.long
def test_a_killed_chunkbert_goes_on_to_the_same_weights(files, checkpoint, tmp_path):
    from nextlevelbert.finetuning import task as finetuning

    class Stopped(Exception):
        pass

    class EarlyStoppingCallback(finetuning.EarlyStoppingCallback):  # stored by its name
        def on_save(self, args, state, control, **kwargs):
            if state.epoch >= 2:
                raise Stopped

    model = ChunkBertForSequenceClassification.from_pretrained(checkpoint)
    model.config.encoder_config.hidden_dropout_prob = model.config.classifier_dropout = 0.3
    model.save_pretrained(tmp_path / "with_dropout")
    arguments = (str(tmp_path / "with_dropout"), "--model_type", "chunkbert", *FAST, "--num_train_epochs", "3")
    start(tmp_path / "straight", *arguments, **files)
    genuine, finetuning.EarlyStoppingCallback = finetuning.EarlyStoppingCallback, EarlyStoppingCallback
    try:
        with pytest.raises(Stopped):
            start(tmp_path / "killed", *arguments, **files)
    finally:
        finetuning.EarlyStoppingCallback = genuine
    assert list(tmp_path.glob("killed/seed-0/checkpoint-*"))
    start(tmp_path / "killed", *arguments, **files)
    ours, theirs = (load_file(tmp_path / name / "seed-0" / "model.safetensors") for name in ("killed", "straight"))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-5)


@pytest.mark.long
def test_two_processes_learn_what_one_does_with_class_weights(encoder, tmp_path):
    made = [row for row in rows(32, 6) if row["label"] == "sea" or int(row["id"][2:]) % 4]  # 16 and 8
    few = write(tmp_path / "validation.jsonl", made[:7])
    options = {"--train_file": write(tmp_path / "train.jsonl", made), "--validation_file": few, "--max_steps": "4"}
    options |= {"--learning_rate": "3e-3", "--logging_strategy": "steps", "--logging_steps": "1"}
    start(tmp_path / "one", encoder, *CHUNKBERT, "--class_weights", **options)
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT),
         "--task", "classification", "--model", encoder, *CHUNKBERT, "--class_weights", "--disable_tqdm", "true",
         *(word for option in options.items() for word in option), "--per_device_train_batch_size", "4",
         "--output_dir", str(tmp_path / "two")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    results = [json.loads((tmp_path / name / "seed-0" / "result.json").read_text()) for name in ("one", "two")]
    one, two = (torch.tensor([entry["loss"] for entry in result["curve"] if "loss" in entry]) for result in results)
    assert len(one) == 4
    assert one[-1] < one[0] - 0.02  # there was something to follow
    torch.testing.assert_close(two, one, atol=2e-4, rtol=0)
    logits = [torch.tensor(result["logits"]["validation"], dtype=torch.float64) for result in results]
    assert logits[0].shape == (7, 2)
    torch.testing.assert_close(logits[1], logits[0], atol=5e-3, rtol=0)
    assert (tmp_path / "two" / "README.md").exists()
    labels = np.array([("bread", "sea").index(row["label"]) for row in made])
    weights = torch.tensor(compute_class_weight("balanced", classes=np.arange(2), y=labels))[labels[:7]]
    losses = nn.functional.cross_entropy(logits[0], torch.tensor(labels[:7]), reduction="none")
    assert results[0]["validation"]["loss"] == pytest.approx((weights * losses).mean().item(), abs=1e-5)
    assert abs((weights * losses).mean() - losses.mean()) > 1e-3


def prepared(model: str, kind: str, files: dict[str, str], folder: Path, **options) -> Prepared:
    [option_class] = {cls for cls in Classification.option_classes if kind in str(get_type_hints(cls)["model_type"])}
    args = FinetuningArguments(output_dir=str(folder), report_to=[], seed=7)
    given = option_class(model=model, model_type=kind, train_file=files["--train_file"], **options)
    task = Classification(given, args)
    train = read_classification(files["--train_file"])
    task.sets = Sets(train, read_classification(files["--test_file"], label_names=train.label_names))
    task.prepare()
    return task.prepared


def test_what_a_run_is_told_by(files, encoder, checkpoint, tmp_path):
    eager = {"attn_implementation": "eager"}
    new = prepared(encoder, "chunkbert", files, tmp_path, chunk_size=32, **eager)
    plain = BertModel.from_pretrained(encoder, add_pooling_layer=False)
    assert new.settings["weights"] == weights_fingerprint(plain)
    assert new.settings.items() >= {"chunk_size": 32, "max_training_tokens": 4096}.items()
    assert new.new_model().model.encoder.config._attn_implementation == "eager"
    saved = prepared(checkpoint, "chunkbert", files, tmp_path)
    assert (saved.settings["chunk_size"], saved.settings["max_training_tokens"]) == (32, 40)
    assert saved.settings["weights"] == weights_fingerprint(
        ChunkBertForSequenceClassification.from_pretrained(checkpoint)
    )
    other = ChunkBertForSequenceClassification.from_encoder(encoder, num_averaged_layers=1, chunk_size=32)
    other.save_pretrained(tmp_path / "other")
    shape = prepared(str(tmp_path / "other"), "chunkbert", files, tmp_path, max_training_tokens=40).settings
    assert {key for key in shape if shape[key] != saved.settings[key]} == {"num_averaged_layers", "weights"}
    other.model.save_pretrained(tmp_path / "headless")
    headless = prepared(str(tmp_path / "headless"), "chunkbert", files, tmp_path)
    assert headless.settings["weights"] == weights_fingerprint(other.model)  # not of a head that is drawn at random
    windows = prepared(encoder, "random", files, tmp_path, **eager)
    assert windows.settings["weights"] == new.settings["weights"]
    assert windows.settings["window_seed"] == 7
    assert windows.new_model().encoder.config._attn_implementation == "eager"


def test_scores_belong_to_their_rows_when_batches_are_sorted_by_length(encoder, files, tmp_path):
    folder = tmp_path / "sorted"
    options = ("--train_sampling_strategy", "group_by_length", "--max_steps", "2", "--per_device_eval_batch_size", "2")
    start(folder, encoder, *CHUNKBERT, *FAST, *options, "--activation_checkpointing", "true", **files)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in predictions(folder / "test_predictions.jsonl"):
        [text] = [
            each["text"] for each in map(json.loads, Path(files["--test_file"]).open()) if each["id"] == row["id"]
        ]
        scores = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        torch.testing.assert_close(scores, torch.tensor(row["scores"]), atol=1e-5, rtol=0)


def test_a_checkpoint_in_half_precision_is_trained_in_float32(files, checkpoint, tmp_path):
    half = ChunkBertForSequenceClassification.from_pretrained(checkpoint, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    model = prepared(str(tmp_path / "half"), "chunkbert", files, tmp_path).new_model()
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    with pytest.raises(ValueError, match="chunk_size must be 1 to 64, the positions of the encoder, got 65"):
        prepared(checkpoint, "chunkbert", files, tmp_path, chunk_size=65)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("chunkbert", {"--model": "untrained"}, r"untrained, .* belong to --model_type nextlevelbert"),
        (
            "truncated",
            {"--model": "tfidf"},
            "'tfidf' is neither a folder with an encoder.*belong to --model_type next",
        ),
        ("bert-al", {"--model": "{checkpoint}"}, "is a chunkbert, and --model_type bert-al takes a plain encoder"),
        ("chunkbert", {"--lora": "true"}, r"Save a chunkbert first, with its from_encoder"),
        ("chunkbert", {"--model": "nowhere"}, "'nowhere' is neither a folder with an encoder nor on the Hub"),
        ("truncated", {"--model": "{checkpoint}"}, "is a chunkbert, and --model_type truncated takes a plain encoder"),
        ("textrank", {"--model": "{vectors}"}, "is a NextLevelBERT; leave out --model_type textrank"),
        ("nextlevelbert", {"--model": "{checkpoint}"}, "is a chunkbert; add --model_type chunkbert"),
        ("chunkbert", {"--chunk_size": "65"}, "chunk_size must be 1 to 64"),
        ("chunkbert", {"--model": "{checkpoint}", "--chunk_size": "65"}, "chunk_size must be 1 to 64"),
        ("chunkbert", {"--train_file": "{asked}"}, "asked.jsonl has a question for each document"),
    ],
)
def test_models_and_sets_that_are_refused(files, encoder, checkpoint, tmp_path, kind, arguments, message):
    characters = [
        {"input": f"Ahab\nThe captain sailed. {n}", "output": ["Hero", "Villain/Antagonist"][n]} for n in (0, 1)
    ]
    places = {"checkpoint": checkpoint, "asked": write(tmp_path / "asked.jsonl", characters)}
    toy_config().save_pretrained(tmp_path / "vectors")
    places["vectors"] = str(tmp_path / "vectors")
    files = files if "--train_file" not in arguments else {}
    options = {**files, **{option: value.format(**places) for option, value in arguments.items()}}
    model = options.pop("--model", encoder)
    with pytest.raises(ValueError, match=message):
        start(tmp_path / "model", model, "--model_type", kind, **options)


def task_data(documents: list[str], labels: list, problem: str = "single_label_classification") -> TaskData:
    examples = [Example(f"x{n}", n % len(documents), label=label) for n, label in enumerate(labels)]
    return TaskData(problem, documents, examples, None if problem == "regression" else ("a", "b", "c"), "here")


def test_a_batch_by_hand(minilm):
    tokens = TokenisedTask(
        [torch.tensor([101, 7, 102]), torch.tensor([101, 8, 9, 102])], [torch.tensor([1]), torch.tensor([2, 3])]
    )
    dataset = TaskTokenDataset(task_data(["one", "two"], [(0, 2), (), (1,)], "multi_label_classification"), tokens, 5)
    batch = dataset.collate([dataset[number] for number in range(3)])
    assert batch["labels"].tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert batch["input_ids"].tolist() == [[101, 7, 102, 5], [101, 8, 9, 102], [101, 7, 102, 5]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["second_input_ids"].tolist() == [[1, 5], [2, 3], [1, 5]]
    assert batch["second_attention_mask"].tolist() == [[1, 0], [1, 1], [1, 0]]
    assert batch["labels"].dtype == torch.float32
    for problem, labels, dtype in (("single_label_classification", [2, 0], torch.long),
                                   ("regression", [0.5, 1.0], torch.float32)):  # fmt: skip
        dataset = TaskTokenDataset(task_data(["one", "two"], labels, problem), tokens, 0)
        assert dataset.collate([dataset[0], dataset[1]])["labels"].tolist() == labels
        assert dataset[0]["labels"].dtype == dtype
    unlabelled = TaskTokenDataset(task_data(["one", "two"], [None, None]), tokens, 0)
    assert unlabelled[0].keys() == {"input_ids", "second_input_ids"}


def test_documents_are_tokenised_whole_and_cut_where_it_is_said(minilm):
    documents = ["The ship. " * 900, "Bread"]
    tokens = tokenise_task(minilm.tokenizer, task_data(documents, [0, 1]))
    assert tokens.lengths.tolist() == [2702, 3]
    assert tokens.documents[1].tolist() == minilm.tokenizer("Bread")["input_ids"]
    cut, shorter, lost = tokens.cut(1000)
    assert (shorter, lost) == (1, 1702)
    torch.testing.assert_close(cut.documents[0], tokens.documents[0][:1000])
    torch.testing.assert_close(cut.documents[1], tokens.documents[1])
    whole, shorter, lost = tokens.cut(None)
    assert (whole.lengths.tolist(), shorter, lost) == ([2702, 3], 0, 0)
    with pytest.raises(ValueError, match=r"here: documents of \['x1'\] contain no token"):
        tokenise_task(minilm.tokenizer, task_data(["The ship.", "\u200b"], [0, 1]))


def test_the_window_baselines(encoder, tmp_path, caplog):
    """Documents that begin alike for more than a window, so that the first window tells nothing."""
    caplog.set_level("INFO")
    alike = "In the year that all of this happened to us nothing else was of interest to anyone. " * 4
    made = [{**row, "text": alike + row["text"]} for row in rows(8, 5)]
    options = {f"--{name}_file": write(tmp_path / f"{name}.jsonl", made) for name in ("train", "validation")}
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    ids = [tokenizer(row["text"])["input_ids"] for row in made]
    draw = np.random.default_rng(7)  # the training set is drawn first
    drawn = [[random_window(document, tokenizer, WINDOW, draw) for document in ids] for _ in range(2)][1]
    ranked = [textrank_window(row["text"], tokenizer, WINDOW) for row in made]
    for kind, second in (("truncated", None), ("random", drawn), ("textrank", ranked)):
        folder = tmp_path / kind
        start(folder, encoder, "--model_type", kind, "--seed", "7", "--max_steps", "2", **options)
        unseen, total = sum(len(document) - WINDOW for document in ids), sum(map(len, ids))
        told = (
            f"16 of 16 documents are longer than the window of 64 tokens; the first window leaves out {2 * unseen:,}"
        )
        assert f"{told} of {2 * total:,} tokens." in caplog.text
        scores = torch.tensor([row["scores"] for row in predictions(folder / "validation_predictions.jsonl")])
        assert torch.allclose(scores, scores[:1], atol=1e-6) == (kind == "truncated")
        model = WindowClassifier.from_encoder(encoder, "single_label_classification", 2, 1 if second is None else 2)
        model.load_state_dict(load_file(folder / "model.safetensors"))
        batch = tokenizer.pad({"input_ids": [first_window(document, tokenizer, WINDOW) for document in ids]},
                              return_tensors="pt")  # fmt: skip
        if second is not None:
            padded = tokenizer.pad({"input_ids": second}, return_tensors="pt")
            batch.update({f"second_{name}": values for name, values in padded.items()})
        torch.testing.assert_close(model.eval()(**batch).logits.softmax(-1), scores, atol=1e-5, rtol=0)
        assert not (folder / "README.md").exists()
        assert "long" not in json.loads((folder / "results.json").read_text())  # all of them are


def test_a_window_baseline_with_checkpointed_activations(encoder, files, tmp_path):
    options = ("--model_type", "truncated", "--activation_checkpointing", "true", "--max_steps", "2")
    start(tmp_path / "model", encoder, *options, **files)
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    assert results["settings"]["learning_rate"] == 3e-5  # of the paper, section 4.3


def test_long_examples_share_documents_and_values_have_one_score(encoder, tmp_path, monkeypatch):
    texts = ["The sea. " * 40, "Bread."]
    rows = [{"text": texts[number % 3 // 2], "label": float(number)} for number in range(6)]
    files = {f"--{name}_file": write(tmp_path / f"{name}.jsonl", rows) for name in ("train", "test")}
    made = prepared(encoder, "truncated", files, tmp_path)
    assert made.long["validation"].tolist() == [True, True, False, True, True, False]
    assert made.window == WINDOW
    assert made.new_model().classifier.out_features == 1
    monkeypatch.setattr(WindowClassifier, "positions", None)
    with pytest.raises(
        ValueError, match="has no maximum input length, so --model_type truncated has no window to cut"
    ):
        prepared(encoder, "truncated", files, tmp_path)


def test_questions_first_and_one_output(encoder, tmp_path):
    """ChunkBERT reads the question as the first words of the document, and has one output for two classes."""
    made = [
        {"id": f"{row['id']} {word}", "text": row["text"], "asked": f"About {word}?", "label": word == row["label"]}
        for row in rows(4, 5)
        for word in ("bread", "sea")
    ]
    data = {f"--{name}_file": write(tmp_path / f"{name}.jsonl", made) for name in ("train", "validation")}
    start(tmp_path / "model", encoder, *CHUNKBERT, "--num_train_epochs", "1", "--question_column", "asked",
          "--question_first", "--sigmoid", **data)  # fmt: skip
    model = ChunkBertForSequenceClassification.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    for row, found in zip(made, predictions(tmp_path / "model" / "validation_predictions.jsonl"), strict=True):
        logits = model(**tokenizer(f"{row['asked']}\n{row['text']}", return_tensors="pt")).logits
        assert found["scores"][1] == pytest.approx(logits.sigmoid().item(), abs=1e-5)
