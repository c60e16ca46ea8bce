"""``--task classification`` and ``--task multiple_choice`` by their command lines, and the
baselines by hand.

That a run goes on when it is killed, that its card runs and that its folder is its own:
tests/training/test_training_runs.py.
"""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from sklearn.metrics import accuracy_score, f1_score
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
)

from nextlevelbert import NextLevelBertModel
from nextlevelbert.finetuning.vector_reader import freeze
from nextlevelbert.models.files import read_json

from ..toys.finetuning import predictions, run_task, sea_rows, write
from ..toys.vectors import TINY, close

SINGLE = "single_label_classification"
WINDOW = 64


def texts(path):
    return [row["text"] for row in predictions(Path(path))]


def ids_of(path):
    return [row["id"] for row in predictions(path)]


def scores_of(folder):
    """Returns the stored scores of the test set."""
    rows = predictions(folder / "test_predictions.jsonl")
    return torch.tensor([row["scores"] for row in rows])


FAST = ("--num_train_epochs", "4", "--learning_rate", "3e-3")


def test_only_the_head_on_the_vectors_of_encode(sea_files, toy_encoder_path, tmp_path):
    """The toy has dropout; the stored predictions are the head's over the vectors of its
    `encode`."""
    torch.manual_seed(0)
    model = NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)
    model.save_pretrained(tmp_path / "before")
    argv = ["--model", str(tmp_path / "before"), "--freeze_encoder", "--num_train_epochs", "2"]
    run_task(tmp_path / "head", *argv, **sea_files)

    head = AutoModelForSequenceClassification.from_pretrained(tmp_path / "head").eval()

    assert head.config.encoder_config.hidden_dropout_prob > 0
    after = head.base_model.state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, after[name]), name
    books = model.encode(texts(sea_files["--test_file"]))
    logits = head.classifier(torch.stack([book.document for book in books]))
    close(logits.softmax(-1), scores_of(tmp_path / "head"), atol=1e-3)
    vectors = torch.randn(2, 5, 32)
    freeze(head.base_model)
    close(head.train()(inputs_embeds=vectors).logits, head.eval()(inputs_embeds=vectors).logits)


@pytest.fixture
def yes_or_no_files(tmp_path):
    """Documents that are about the sea, or have no class."""
    files = {}
    for seed, (name, count) in enumerate({"train": 32, "validation": 8, "test": 11}.items()):
        rows = sea_rows(count, seed)
        for row in rows:
            row["label"] = [label for label in [row["label"]] if label == "sea"]
        files[f"--{name}_file"] = write(tmp_path / f"{name}.jsonl", rows)
    return files


def test_a_single_class_is_one_sigmoid(yes_or_no_files, toy_checkpoint, tmp_path):
    """Section 3.2 of the NextLevelBERT paper, on MuLD: the class where the sigmoid is above 0.5,
    and its F1."""
    folder = tmp_path / "model"

    results = run_task(folder, "--model", toy_checkpoint, *FAST, **yes_or_no_files)

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "sea"}
    assert model.config.problem_type == "multi_label_classification"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(texts(yes_or_no_files["--test_file"]), padding=True, return_tensors="pt")
    scores = scores_of(folder)[:, 0]
    close(scores, model(**batch).logits.sigmoid()[:, 0].detach(), atol=2e-3)
    labels = torch.zeros(11)
    predicted = torch.zeros(11)
    for index, row in enumerate(predictions(folder / "test_predictions.jsonl")):
        labels[index] = row["label"] == ["sea"]
        predicted[index] = row["prediction"] == ["sea"]
    assert torch.equal(predicted, (scores > 0.5).float())
    loss = nn.functional.binary_cross_entropy(scores, labels)
    assert results["seeds"]["0"]["loss"] == pytest.approx(loss.item(), abs=1e-4)
    assert results["seeds"]["0"]["f1"] == f1_score(labels, predicted)


def test_word_counts_tell_a_single_class(yes_or_no_files, tmp_path):
    results = run_task(tmp_path, "--model", "tfidf", **yes_or_no_files)

    assert results["rows"]["tfidf, test"] == {"accuracy": 1.0, "f1": 1.0}


def test_word_counts_are_a_row_beside_every_model(sea_files, toy_checkpoint, tmp_path):
    alone = run_task(tmp_path / "alone", "--model", "tfidf", **sea_files)

    results = run_task(tmp_path / "model", "--model", toy_checkpoint, *FAST, **sea_files)

    assert [*results["rows"]][1:] == ["TF-IDF", "most frequent label"]
    assert results["rows"]["TF-IDF"] == alone["rows"]["tfidf, test"]
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert "| TF-IDF | 1.0000 | 1.0000 | 1.0000 | 1.0000 |" in card.text
    assert "the scores are those of the 11 examples of the test set" in card.text.lower()
    assert card.data.eval_results[0].dataset_name == "test set, 11 examples"


def test_questions_about_documents(toy_checkpoint, tmp_path):
    """Every document has two questions, and only the question tells the answer."""
    rows = []
    for row in sea_rows(16, 6):
        for word in ("bread", "sea"):
            question = f"Is it about {word}?"
            rows.append({"story": row["text"], "asked": question, "answer": word == row["label"]})
    folder = tmp_path / "model"
    argv = "--text_column story --question_column asked --label_column answer".split()
    argv += ["--num_train_epochs", "1", "--model", toy_checkpoint]
    argv += ["--train_file", write(tmp_path / "rows.jsonl", rows)]

    results = run_task(folder, *argv)

    assert results["reported"] == "validation"
    assert len([*(folder / "vectors").iterdir()]) == 2  # documents, and questions apart
    # Both questions about a document are held out together.
    validated = ids_of(folder / "validation_predictions.jsonl")
    first = [int(name.removeprefix("row-")) for name in validated[::2]]
    assert len(validated) == 4
    assert first[0] % 2 == first[1] % 2 == 0
    assert validated[1::2] == [f"row-{first[0] + 1:06d}", f"row-{first[1] + 1:06d}"]
    assert AutoModelForSequenceClassification.from_pretrained(folder).config.text_pair
    settings = read_json(folder / "settings.json")
    assert settings["learning_rate"] == 5e-5  # the usual one
    assert len(settings["weights"]) == 64  # of what it starts from


@pytest.fixture(scope="module")
def deep_encoder(small_tokenizer, tmp_path_factory):
    """Five tiny random layers without dropout."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("encoder") / "tiny"
    size = {**TINY, "num_hidden_layers": 5, "max_position_embeddings": WINDOW}
    BertModel(BertConfig(**size, hidden_dropout_prob=0.0)).save_pretrained(folder)
    small_tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def long_files(tmp_path_factory):
    """Documents of which half are longer than the encoder reads, and one of these has another
    label."""
    folder = tmp_path_factory.mktemp("task")
    files = {}
    for seed, (name, count) in enumerate({"train": 24, "validation": 6, "test": 9}.items()):
        rows = sea_rows(count, seed)
        for row in rows[::2]:
            row["text"] = " ".join(row["text"].split()[:20])
        if name == "test":
            rows[1]["label"] = "bread"
        files[f"--{name}_file"] = write(folder / f"{name}.jsonl", rows)
    return files


KINDS = {
    "chunkbert": "--chunk_size 32 --max_training_tokens 40".split(),
    "truncated": [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_text_models_learn_and_long_documents_are_scored_apart(
    kind, long_files, deep_encoder, tmp_path
):
    argv = ["--model_type", kind, "--model", deep_encoder, *FAST, *KINDS[kind]]

    rows = run_task(tmp_path / "model", *argv, **long_files)["rows"]

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    options = {}
    dropout = 0.0
    if kind == "truncated":
        assert isinstance(model, BertForSequenceClassification)
        options = {"truncation": True, "max_length": WINDOW}
        dropout = 0.1
    layers = getattr(model.config, "encoder_config", model.config)
    assert layers.attention_probs_dropout_prob == dropout
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    documents = texts(long_files["--test_file"])
    logits = model(**tokenizer(documents, padding=True, return_tensors="pt", **options)).logits
    close(logits.softmax(-1).detach(), scores_of(tmp_path / "model"))
    embeddings = BertModel.from_pretrained(deep_encoder).embeddings.word_embeddings.weight
    assert (model.get_input_embeddings().weight - embeddings).abs().max() > 1e-3  # trained whole
    labels = []
    found = []
    stored = predictions(tmp_path / "model" / "test_predictions.jsonl")
    for row, text in zip(stored, documents, strict=True):
        if len(tokenizer(text)["input_ids"]) > WINDOW:
            labels.append(row["label"])
            found.append(row["prediction"])
    assert 0 < len(found) < 9
    part = f"long ({len(found)} of 9 documents over {WINDOW} tok"
    [scores] = [scores for title, scores in rows.items() if part in title]
    assert scores["accuracy"] == pytest.approx(accuracy_score(labels, found))
    assert scores["macro_f1"] == pytest.approx(f1_score(labels, found, average="macro"))


def test_documents_over_512_tokens_are_long_for_every_encoder(small_tokenizer, tmp_path):
    """Also for an encoder that reads more at once, as Longformer in ChunkBERT's table 3."""
    config = BertConfig(**TINY, max_position_embeddings=1024)
    BertModel(config).save_pretrained(tmp_path / "encoder")
    small_tokenizer.save_pretrained(tmp_path / "encoder")
    rows = sea_rows(4, 0)
    rows[0]["text"] = "sea " * 510  # with [CLS] and [SEP], just the limit
    rows[1]["text"] = "bread " * 511
    file = write(tmp_path / "rows.jsonl", rows)
    argv = ["--model", str(tmp_path / "encoder"), "--train_file", file, "--validation_file", file]

    results = run_task(tmp_path / "model", *argv, *"--model_type truncated --max_steps 1".split())

    [title] = [title for title in results["rows"] if "long" in title]
    assert "1 of 4 documents over 512 tokens" in title


def test_a_baseline_of_word_counts(sea_files, tmp_path, capsys):
    argv = [part for option in sea_files.items() for part in option]

    results = run_task(tmp_path / "words", "--model", "tfidf", *argv)

    assert results["seeds"]["0"]["accuracy"] == 1.0
    assert not (tmp_path / "words" / "README.md").exists()
    assert (tmp_path / "words" / "test_predictions.jsonl").exists()


def test_an_encoder_as_model_is_one_around_it(sea_files, toy_encoder_path, tmp_path, caplog):
    argv = [part for option in sea_files.items() for part in option]
    argv += ["--max_steps", "2", "--chunk_size", "16"]

    by_name = run_task(tmp_path / "name", "--model", toy_encoder_path, *argv)

    untrained = ["--model", "untrained", "--chunk_encoder", toy_encoder_path]
    assert run_task(tmp_path / "untrained", *untrained, *argv) == by_name
    assert "a new nextlevelbert is trained over its vectors" in caplog.text


def test_word_counts_with_several_labels_and_a_test_set_without(tmp_path):
    subjects = {
        "the ship at sea": ["sea"],
        "the stock market": ["money"],
        "a ship on the market": ["money", "sea"],
    }
    rows = [{"text": text, "labels": labels} for text, labels in subjects.items()]
    argv = ["--model", "tfidf", "--label_column", "labels"]
    for name, part in {"train": rows * 6, "validation": rows, "test": [{"text": "a sea"}]}.items():
        argv += [f"--{name}_file", write(tmp_path / f"{name}.jsonl", part)]

    assert run_task(tmp_path / "model", *argv)["reported"] == "validation"
    stored = predictions(tmp_path / "model" / "validation_predictions.jsonl")
    for row, expected in zip(stored, rows, strict=True):
        assert row["prediction"] == expected["labels"]
    [unlabelled] = predictions(tmp_path / "model" / "test_predictions.jsonl")
    assert unlabelled["prediction"] == ["sea"]


@pytest.mark.parametrize(
    ("argv", "culprit"),
    [
        (["--label_column", "y"], "no labels"),
        (["--chunk_size", "9"], "--chunk_size"),
        (["--model_type", "hate"], "--model_type"),
        (["--learning_rate", "1e30"], "--learning_rate"),
        (["--model_type", "chunkbert"], "nextlevelbert"),
        (["--metric_for_best_model", "acc"], "give one of loss, accuracy, f1, macro_f1, micro_f1."),
    ],
)
def test_what_is_refused(argv, culprit, sea_files, toy_checkpoint, tmp_path, capsys):
    argv = ["--model", toy_checkpoint, "--num_train_epochs", "1", *argv]

    with pytest.raises(SystemExit):
        run_task(tmp_path / "model", "--train_file", sea_files["--train_file"], *argv)
    assert culprit in capsys.readouterr().err


def test_the_best_seed_has_the_best_named_score(sea_files, toy_encoder_path, tmp_path):
    argv = [part for option in sea_files.items() for part in option]
    argv += ["--model", "untrained", "--chunk_encoder", toy_encoder_path, "--chunk_size", "16"]
    argv += ["--metric_for_best_model", "macro_f1", "--seeds", "0", "1", "2", "--max_steps", "2"]

    best = run_task(tmp_path, *argv, "--train_sampling_strategy", "group_by_length")["best_seed"]

    scores = []
    for seed in range(3):
        result = read_json(tmp_path / f"seed-{seed}" / "result.json")
        scores.append(result["scores"]["validation"]["macro_f1"])
    assert scores[best] == max(scores)
    assert "the seed with the highest macro_f1" in " ".join(
        (tmp_path / "README.md").read_text().split()
    )
