"""The example scripts, on small documents: those of `examples/papers` are one paper each, from
texts to a score."""

import json
import runpy
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from nextlevelbert import NextLevelBertModel, VectorCorpus, encode_corpus, static_checkpoint

from ..toys.finetuning import run_here, write

EXAMPLES = Path(__file__).parents[2] / "examples"
PAPERS = EXAMPLES / "papers"


def test_nearest_documents_of_the_demo(minilm, tmp_path, capsys):
    """The nearest document to each is the other one about the same subject."""
    model = NextLevelBertModel.from_chunk_encoder(minilm, chunk_size=32, num_hidden_layers=0)
    model.save_pretrained(tmp_path / "model")
    texts = {
        "whale": "The whale rose beside the ship. " * 9,
        "sailors": "The sailors saw a whale from their ship. " * 9,
        "bread": "She kneaded the dough for the bread. " * 9,
        "cake": "She baked a cake, and then the bread, in her oven. " * 9,
    }
    rule = model.config.chunking_rule()
    documents = list(texts.items())
    encode_corpus(documents, minilm, rule, tmp_path / "corpus", progress=False)
    corpus = VectorCorpus(tmp_path / "corpus")

    demo = runpy.run_path(str(EXAMPLES / "demo.py"))
    nearest_ids = demo["nearest_ids"]
    for vectors in (
        demo["document_vectors"](tmp_path / "model", corpus),
        demo["mean_vectors"](corpus),
    ):
        assert nearest_ids("whale", vectors, corpus.document_ids).startswith("sailors")
        assert nearest_ids("cake", vectors, corpus.document_ids).startswith("bread")


@pytest.mark.long
def test_the_demo_trains_and_prints_its_controls(tmp_path, capsys):
    run_here("--output_dir", str(tmp_path), script=EXAMPLES / "demo.py")

    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "model" / "results.json").read_text(encoding="utf-8"))
    first, *_, last = [row for row in results["log"] if "eval_masked_accuracy" in row]
    assert last["eval_loss"] < first["eval_loss"]
    assert (
        f"mean of the visible vectors     {results['baseline']['masked_accuracy']:.3f}" in printed
    )
    assert f"after training       {last['eval_masked_accuracy']:.3f}" in printed

    assert "module/smtplib.txt" in printed
    assert "--chunk_encoder nextlevelbert-static" in printed  # which needs no Hub
    for name in ("model/learning_curve.png", "model/README.md"):
        assert str(tmp_path / name) in printed
        assert (tmp_path / name).exists()


def run(name, output, **options):
    argv = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return runpy.run_path(str(PAPERS / f"{name}.py"))["main"]([*argv, "--output_dir", str(output)])


@pytest.mark.parametrize("path", sorted(PAPERS.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_enough_to_copy(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 130


def test_chunkbert(encoder, tmp_path):
    sizes = {"encoder": encoder, "chunk_size": 32, "learning_rate": 3e-3, "num_train_epochs": 2}
    scores = run("chunkbert", tmp_path, **sizes)

    assert scores["accuracy"] > 0.8
    assert scores["accuracy on more than 512 tokens"] > 0.8
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path).config.num_labels == 2


@pytest.mark.long
def test_bert_al(encoder, tmp_path):
    sizes = {
        "encoder": encoder,
        "segment_length": 32,
        "learning_rate": 1e-2,
        "num_train_epochs": 10,
    }
    sizes |= {"recurrence": "residual"}
    scores = run("bert_al", tmp_path / "made", **sizes)

    assert scores["BERT-AL"]["rouge2"] > scores["lead-3"]["rouge2"] + 0.1

    rows = [{"text": "Rain fell. Tea was served. The match was off.", "summary": "Rain fell."}] * 2
    file = write(tmp_path / "rows.jsonl", rows)
    options = {"train_file": file, "test_file": file, "num_train_epochs": 1}

    assert run("bert_al", tmp_path / "read", **{**sizes, **options})["lead-3"]["rouge1"] > 0.1


def run_with(encoder, name, output):
    return runpy.run_path(str(PAPERS / f"{name}.py"))["main"](encoder, str(output))


@pytest.mark.long
def test_nextlevelbert(minilm_path, tmp_path):
    """Classifier and chooser have the defaults of TrainingArguments."""
    scores = run_with(minilm_path, "next_level_bert", tmp_path)
    before, after = scores["pretrained"]

    assert after > 2 * before
    assert scores["classifier"][1] > 0.8
    assert scores["chooser"][0] < 0.5 < 0.8 < scores["chooser"][1]


@pytest.mark.long
def test_hate(tmp_path):
    scores = run_with(static_checkpoint(), "hate", tmp_path)
    before, after = scores["pretrained"]

    assert after > 1.5 * before
    assert scores["classifier"][1] > 0.8


@pytest.mark.long
def test_cdlm(encoder, tmp_path):
    rows = [{"documents": [f"{name} was at sea."] * 3} for name in ("Ahab", "Emma", "Nemo")]
    file = write(tmp_path / "sets.jsonl", rows)
    options = {"encoder": encoder, "epochs": 1, "pretraining_epochs": 1, "pairs": 8}
    for name, files in (("made", {}), ("read", {"train_file": file, "test_file": file})):
        assert 0 <= run("cdlm", tmp_path / name, **options, **files)["accuracy"] <= 1
        assert (
            AutoModelForSequenceClassification.from_pretrained(tmp_path / name).config.num_labels
            == 2
        )
