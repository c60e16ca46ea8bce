"""``--task classification`` and ``--task multiple_choice`` by their command lines, and the
baselines by hand.

That a run goes on when it is killed, that its card runs and that its folder is its own:
tests/test_runs.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import accuracy_score, f1_score
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
)

from nextlevelbert import HateForSequenceClassification, HateModel, NextLevelBertModel
from nextlevelbert.finetuning.vector_reader import MeanClassifier, freeze
from nextlevelbert.tasks import main

from ..finetuning_toys import predictions, sea_rows, write
from ..vector_toys import close

SINGLE = "single_label_classification"
WINDOW = 64


def run(output, *words, task="classification", **options):
    """Runs the task; the content of its ``results.json``."""
    more = [word for option in options.items() for word in option]
    main(
        [
            "--task",
            task,
            "--output_dir",
            str(output),
            "--disable_tqdm",
            "true",
            "--use_cpu",
            *more,
            *words,
        ]
    )
    return json.loads((output / "results.json").read_text())


def texts(path):
    return [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]


FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


def test_only_the_head_on_the_vectors_of_encode(sea_files, toy_encoder_path, tmp_path):
    """The toy has dropout; the stored predictions are the head's over the vectors of its
    `encode`."""
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).save_pretrained(
        tmp_path / "before"
    )
    words = ["--model", str(tmp_path / "before"), "--freeze_encoder", "--num_train_epochs", "2"]
    run(tmp_path / "head", *words, **sea_files)
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("before", "head")
    )
    for name, weight in before.items():
        assert torch.equal(weight, after[f"model.{name}"]), name
    head = AutoModelForSequenceClassification.from_pretrained(tmp_path / "head").eval()
    assert head.config.encoder_config.hidden_dropout_prob > 0
    books = NextLevelBertModel.from_pretrained(tmp_path / "before").encode(
        texts(sea_files["--test_file"])
    )
    logits = head.classifier(torch.stack([book.document for book in books]))
    expected = torch.tensor(
        [row["scores"] for row in predictions(tmp_path / "head" / "test_predictions.jsonl")]
    )
    close(logits.softmax(-1), expected, atol=1e-3)
    vectors = torch.randn(2, 5, 32)
    freeze(head.base_model)
    close(head.train()(inputs_embeds=vectors).logits, head.eval()(inputs_embeds=vectors).logits)


def test_two_classes_by_one_sigmoid(sea_files, toy_checkpoint, tmp_path):
    """Section 3.2 of the NextLevelBERT paper, on MuLD: the second class where the sigmoid is above
    0.5."""
    results = run(tmp_path / "model", "--model", toy_checkpoint, *FAST, "--sigmoid", **sea_files)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert (model.config.id2label, model.config.problem_type) == (
        {0: "sea"},
        "multi_label_classification",
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    batch = tokenizer(texts(sea_files["--test_file"]), padding=True, return_tensors="pt")
    share = model(**batch).logits.sigmoid()[:, 0]
    rows = predictions(tmp_path / "model" / "test_predictions.jsonl")
    close(torch.tensor([row["scores"][1] for row in rows]), share.detach(), atol=2e-3)
    for row in rows:
        assert row["prediction"] == {True: "sea", False: "bread"}[row["scores"][1] > 0.5]
    labels = torch.tensor([float(row["label"] == "sea") for row in rows])
    loss = nn.functional.binary_cross_entropy(
        torch.tensor([row["scores"][1] for row in rows]), labels
    )
    assert results["seeds"]["0"]["loss"] == pytest.approx(loss.item(), abs=1e-4)


def test_questions_and_halves(toy_checkpoint, tmp_path):
    """Every document has two questions, and only the question tells the answer; halves of a
    validation set."""
    rows = [
        {"story": row["text"], "asked": f"Is it about {word}?", "answer": word == row["label"]}
        for row in sea_rows(16, 6)
        for word in ("bread", "sea")
    ]
    options = {"--train_file": write(tmp_path / "rows.jsonl", rows), "--text_column": "story"}
    options |= {
        "--validation_file": write(tmp_path / "more.jsonl", rows[:12]),
        "--num_train_epochs": "1",
    }
    options |= {"--question_column": "asked", "--label_column": "answer", "--model": toy_checkpoint}
    results = run(tmp_path / "model", "--halve_validation", **options)
    assert results["reported"] == "test"
    assert len([*(tmp_path / "model" / "vectors").iterdir()]) == 2  # documents, and questions apart
    parts = [
        predictions(tmp_path / "model" / f"{name}_predictions.jsonl")
        for name in ("validation", "test")
    ]
    assert [len(part) for part in parts] == [6, 6]
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").config.text_pair
    settings = json.loads((tmp_path / "model" / "settings.json").read_text())
    assert (settings["learning_rate"], len(settings["weights"])) == (
        5e-5,
        64,
    )  # the usual one; of what it starts from


def test_hate_learns_and_has_no_choices(sea_files, toy_encoder_path, tmp_path, capsys):
    torch.manual_seed(0)
    hate = HateModel.from_chunk_encoder(
        toy_encoder_path, hidden_size=16, num_hidden_layers=1, chunk_size=16
    )
    hate.save_pretrained(tmp_path / "hate")
    results = run(tmp_path / "model", "--model", str(tmp_path / "hate"), *FAST, **sea_files)
    assert results["seeds"]["0"]["accuracy"] > 6 / 11 + 0.1
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert isinstance(model, HateForSequenceClassification)
    choice = {"text": "A whale.", "question": "Who?", "choices": ["a whale", "a dog"], "label": 0}
    data = dict.fromkeys(
        ("--train_file", "--validation_file"), write(tmp_path / "rows.jsonl", [choice])
    )
    with pytest.raises(SystemExit):
        run(tmp_path / "chooser", "--model", str(tmp_path / "hate"), task="multiple_choice", **data)
    assert "HATE does not support multiple choice" in capsys.readouterr().err


# What is trained from text


@pytest.fixture(scope="module")
def deep_encoder(minilm, tmp_path_factory):
    """Five tiny random layers without dropout."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    BertModel(
        BertConfig(**size, max_position_embeddings=WINDOW, hidden_dropout_prob=0.0)
    ).save_pretrained(folder)
    minilm.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def long_files(tmp_path_factory):
    """Documents of which half are longer than the encoder reads, and one of these has another
    label."""
    folder = tmp_path_factory.mktemp("task")
    counts = {"train": 24, "validation": 6, "test": 9}
    made = {name: sea_rows(count, seed) for seed, (name, count) in enumerate(counts.items())}
    for row in [row for rows in made.values() for row in rows[::2]]:
        row["text"] = " ".join(row["text"].split()[:20])
    made["test"][1]["label"] = "bread"
    return {f"--{name}_file": write(folder / f"{name}.jsonl", rows) for name, rows in made.items()}


KINDS = {
    "chunkbert": "--chunk_size 32 --max_training_tokens 40".split(),
    "bert-al": ["--segment_length", "16"],
    "truncated": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_models_learn_and_long_documents_are_scored_apart(
    kind, long_files, deep_encoder, tmp_path
):
    words = ["--model_type", kind, "--model", deep_encoder, *FAST, *KINDS[kind]]
    results = run(tmp_path / "model", *words, **long_files)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert isinstance(model, BertForSequenceClassification) == (kind == "truncated")
    layers = getattr(model.config, "encoder_config", model.config)
    assert layers.attention_probs_dropout_prob == {"truncated": 0.1}.get(kind, 0.0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    documents = texts(long_files["--test_file"])
    cut = {"truncated": {"truncation": True, "max_length": WINDOW}}.get(kind, {})
    logits = model(**tokenizer(documents, padding=True, return_tensors="pt", **cut)).logits
    rows = predictions(tmp_path / "model" / "test_predictions.jsonl")
    scores = torch.tensor([row["scores"] for row in rows])
    close(logits.softmax(-1).detach(), scores)
    words = BertModel.from_pretrained(deep_encoder).embeddings.word_embeddings.weight
    assert (model.get_input_embeddings().weight - words).abs().max() > 1e-3  # trained whole
    long = [
        row
        for row, text in zip(rows, documents, strict=True)
        if len(tokenizer(text)["input_ids"]) > WINDOW
    ]
    assert 0 < len(long) < 9
    [title] = [
        title
        for title in results["rows"]
        if f"long ({len(long)} of 9 documents over {WINDOW} tok" in title
    ]
    label, prediction = ([row[name] for row in long] for name in ("label", "prediction"))
    assert results["rows"][title]["accuracy"] == pytest.approx(accuracy_score(label, prediction))
    assert results["rows"][title]["macro_f1"] == pytest.approx(
        f1_score(label, prediction, average="macro")
    )


def test_documents_over_512_tokens_are_long_for_every_encoder(minilm, tmp_path):
    """Also for an encoder that reads more at once, as Longformer in ChunkBERT's table 3."""
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=1024,
    )
    BertModel(config).save_pretrained(tmp_path / "encoder")
    minilm.tokenizer.save_pretrained(tmp_path / "encoder")
    rows = sea_rows(4, 0)
    rows[0]["text"] = "sea " * 510  # with [CLS] and [SEP], just the limit
    rows[1]["text"] = "bread " * 511
    file = write(tmp_path / "rows.jsonl", rows)
    results = run(
        tmp_path / "model",
        "--model_type",
        "truncated",
        "--model",
        str(tmp_path / "encoder"),
        "--max_steps",
        "1",
        "--train_file",
        file,
        "--validation_file",
        file,
    )
    titles = [title for title in results["rows"] if "long" in title]
    assert len(titles) == 1
    assert "1 of 4 documents over 512 tokens" in titles[0]


# Baselines and refusals


def test_the_plain_mean_by_hand():
    torch.manual_seed(0)
    model = MeanClassifier(4, 1, pair=True, choice=True, problem_type=SINGLE)
    documents = torch.randn(2, 3, 4)
    pairs = torch.randn(3, 2, 4)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    index = torch.tensor([0, 1, 1])
    labels = torch.tensor([1, 0, 1])
    output = model(documents, mask, pairs, index, labels)
    means = torch.stack([documents[0, :2].mean(0), documents[1].mean(0)])[index]  # not of length 1
    features = torch.cat([means[:, None].expand(3, 2, 4), pairs], dim=-1)
    logits = model.classifier[2](model.classifier[0](features).clamp(min=0)).squeeze(-1)
    close(output.logits, logits)
    close(output.loss, nn.functional.nll_loss(logits.log_softmax(-1), labels))


def test_the_baselines_of_the_tables(toy_encoder_path, deep_encoder, tmp_path, capsys, caplog):
    """Word counts, the mean of the chunks, the first chunk, and the first tokens of any encoder."""
    alike = "In the year that all of this happened to us nothing else was of interest. "
    options = {"--num_train_epochs": "12"}
    for option, count, seed in (
        ("--train_file", 32, 1),
        ("--validation_file", 8, 2),
        ("--test_file", 11, 3),
    ):
        rows = [{**row, "text": alike + row["text"]} for row in sea_rows(count, seed)]
        options[option] = write(tmp_path / f"{seed}.jsonl", rows)
    accuracy = {}
    for model in ("avg_sbert", "sbert", "tfidf", deep_encoder):
        output, cache = tmp_path / Path(model).name, str(tmp_path / "cache")
        of_chunks = (
            ()
            if model == deep_encoder
            else ("--chunk_size", "16", "--chunk_encoder", toy_encoder_path)
        )
        results = run(output, "--model", model, "--cache_dir", cache, *of_chunks, **options)
        accuracy[model] = results["seeds"]["0"]["accuracy"]
        assert not (output / "README.md").exists()
        assert (output / "test_predictions.jsonl").exists()
    assert accuracy["tfidf"] == 1.0
    assert accuracy["avg_sbert"] > 0.8
    assert accuracy["sbert"] <= 6 / 11  # the first 14 tokens are the same in all documents
    assert caplog.text.count("first chunk of a text is read; 51 of 51 are longer") == 1
    assert (
        len(list((tmp_path / "cache").iterdir())) == 2
    )  # the mean and the first chunk read the same vectors
    with pytest.raises(SystemExit):
        run(tmp_path / "sbert", "--model", "tfidf", **options)  # would write over its results
    assert "holds another run" in capsys.readouterr().err


def test_word_counts_with_several_labels_and_a_test_set_without(tmp_path):
    subjects = {
        "the ship at sea": ["sea"],
        "the stock market": ["money"],
        "a ship on the market": ["money", "sea"],
    }
    rows = [
        {"text": f"{text} {n}", "labels": labels}
        for n in range(6)
        for text, labels in subjects.items()
    ]
    sets = {"train": rows, "validation": rows[:3], "test": [{"text": "a sea"}]}
    options = {
        f"--{name}_file": write(tmp_path / f"{name}.jsonl", part) for name, part in sets.items()
    }
    results = run(tmp_path / "model", "--model", "tfidf", "--label_column", "labels", **options)
    rows = {
        name: predictions(tmp_path / "model" / f"{name}_predictions.jsonl")
        for name in ("validation", "test")
    }
    assert [row["prediction"] for row in rows["validation"]] == [
        row["labels"] for row in sets["validation"]
    ]
    assert (results["reported"], rows["test"][0]["prediction"]) == ("validation", ["sea"])


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        (["--label_column", "y"], "no labels"),
        (["--halve_validation", "--test_file", "x.jsonl"], "--halve_validation"),
        (["--lora", "--freeze_encoder"], "--lora"),
        (["--chunk_size", "9"], "--chunk_size"),
        (["--model_type", "hate"], "--model_type"),
        (["--learning_rate", "1e30"], "--learning_rate"),
        (["--model_type", "chunkbert"], "nextlevelbert"),
        (["--metric_for_best_model", "acc"], "give one of loss, accuracy, f1, macro_f1, micro_f1."),
    ],
)
def test_what_is_refused(words, culprit, sea_files, toy_checkpoint, tmp_path, capsys):
    options = {
        "--model": toy_checkpoint,
        "--num_train_epochs": "1",
        "--train_file": sea_files["--train_file"],
    }
    with pytest.raises(SystemExit):
        run(tmp_path / "model", *words, **options)
    assert culprit in capsys.readouterr().err
