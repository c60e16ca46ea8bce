"""`run_pretraining.py` on chunk vectors: what its options lead to, what it refuses, two stages, two
processes.

That it learns, publishes and goes on when killed is in tests/training/test_training_runs.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForPreTraining

from nextlevelbert import (
    ChunkingRule,
    DataCollatorForVectorMasking,
    PackedVectorDataset,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.command.pretrain import run as run_command
from nextlevelbert.models.files import read_json
from nextlevelbert.pretraining.documents import ChosenDocuments, share_out
from nextlevelbert.pretraining.options import NewModelArguments, NextLevelBertArguments
from nextlevelbert.pretraining.pretrain import draw_vectors, fit_to_documents, new_model
from nextlevelbert.pretraining.scores import MaskedVectorMetrics, context_mean_baseline
from nextlevelbert.whitening import fit_whitening

from ..toys.corpora import in_halves, interrupted_after_the_first_part
from ..toys.finetuning import write
from ..toys.vectors import close, corpus_of, whitened

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"
SETTINGS = (
    "--do_train --sequence_length 16 --per_device_train_batch_size 4"
    " --num_train_epochs 3 --learning_rate 3e-3 --logging_steps 1"
    " --disable_tqdm true --validation_share 0.25"
).split()


SUBJECTS = ["the whale swims", "a train departs", "bread is baked", "stars shine far"]
BOOKS = [
    {"id": f"book-{n}", "text": " ".join(f"{SUBJECTS[n % 4]} {day} times." for day in range(60))}
    for n in range(12)
]


@pytest.fixture(scope="module")
def books(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("books") / "books.jsonl"
    write(path, BOOKS)
    return path


@pytest.fixture(scope="module")
def source(toy_encoder_path):
    return load_chunk_encoder(toy_encoder_path)


@pytest.fixture(scope="module")
def corpus(source, tmp_path_factory) -> VectorCorpus:
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=512)
    return encode_corpus(BOOKS, source, rule, tmp_path_factory.mktemp("corpus"), progress=False)


@pytest.fixture(scope="module")
def run(toy_encoder_path):
    """A run in this process, errors as they are."""

    def start(output: Path, *argv: str) -> Path:
        line = ["--chunk_encoder", toy_encoder_path, "--output_dir", str(output)]
        run_command([*line, *SETTINGS, *argv])
        return output

    return start


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_from_text_and_from_a_corpus_the_same_model_comes_out(run, books, source, tmp_path, capsys):
    """The corpus lies beside the output folder, even if that is written with a slash at the end.

    Encoding in half precision leaves the encoder that is saved as it was.
    """
    half = "--encoder_dtype bfloat16 --max_steps 4 --chunk_size 12".split()

    run(f"{tmp_path}/text/", "--train_file", str(books), *half, "--do_train", "false")

    last = capsys.readouterr().out.splitlines()[-1]
    assert "12 documents" in last
    assert "--do_train" in last
    assert not (tmp_path / "text").exists()
    assert VectorCorpus(f"{tmp_path}/text-corpus").recipe["encoder"]["dtype"] == "bfloat16"

    run(tmp_path / "text", "--train_file", str(books), *half)

    assert str(tmp_path / "text") in capsys.readouterr().out.splitlines()[-1]
    assert "encoded in bfloat16" in (tmp_path / "text" / "README.md").read_text()

    run(tmp_path / "vectors", "--corpus_dir", f"{tmp_path}/text-corpus", *half)

    same(weights(tmp_path / "text"), weights(tmp_path / "vectors"))
    saved = AutoModel.from_pretrained(tmp_path / "text").chunk_encoder
    same(source.encoder.state_dict(), saved.state_dict())


def test_an_evaluation_without_masked_vectors_is_no_score(run, corpus, tmp_path, capsys, caplog):
    """One short sequence is held out; almost no vector is masked with this probability."""
    few = "--chunk_size 12 --validation_share 0.01 --masking_probability 1e-6 --max_steps 1"

    run(tmp_path / "model", "--corpus_dir", str(corpus.path), *few.split())

    assert "Masked vectors in the evaluation set: 0. Below 100" in caplog.text
    assert "masked vectors found" not in capsys.readouterr().out
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert "Nothing was measured: no vector of held-out documents was masked" in card.text
    assert card.data.eval_results is None


def test_a_default_run_chooses_whitened_vectors_and_says_so(run, corpus, tmp_path, capsys, caplog):
    """The printed share is that of the last evaluation; the baseline has the model's targets."""
    folder = tmp_path / "model"

    run(folder, "--corpus_dir", str(corpus.path), *"--chunk_size 12 --num_train_epochs 1".split())

    model = AutoModelForPreTraining.from_pretrained(folder)
    assert model.config.num_candidates == 8_192
    results = read_json(folder / "results.json")
    first, *_, last = [entry for entry in results["log"] if "eval_masked_accuracy" in entry]
    assert last["eval_loss"] < first["eval_loss"]
    count = last["eval_count"]
    learned = f"{last['eval_masked_accuracy'] * count:.0f} of {count} masked vectors found"
    assert learned in capsys.readouterr().out
    assert f"Masked vectors in the evaluation set: {count}. Below 100" in caplog.text
    card = (folder / "README.md").read_text()
    assert f"Held-out documents: {learned} (chance: 1)." in card
    [row] = re.findall(r"\| last evaluation \|(.*)\|", card)
    assert row.split("|")[2:4] == [f" {last['eval_masked_cosine']:.4f} ", f" {count} "]
    assert "| stored chunk vectors to choose among | `8192` |" in card
    _, held_out = share_out(corpus, 0.25, 42, 1)
    baseline = context_mean_baseline(
        PackedVectorDataset(corpus, documents=held_out, sequence_length=16),
        DataCollatorForVectorMasking(),
        batch_size=8,
        prepare=partial(whitened, model.target_whitening),
        metrics=MaskedVectorMetrics("cross_entropy"),
    )
    assert results["baseline"] == pytest.approx(baseline, abs=1e-5)


def same(one, other):
    torch.testing.assert_close(dict(one), dict(other), atol=0, rtol=0)


def test_stored_vectors_and_whitening_are_of_the_documents_to_train_on(source, corpus):
    learned = ChosenDocuments(corpus, np.array([1, 4, 7]))
    documents = [corpus[index].plain for index in (1, 4, 7)]
    model = new_model(NewModelArguments(), NextLevelBertArguments(), source, sequence_length=16)
    assert model.config.loss == "cross_entropy"
    model.config.num_candidates = 20

    fit_to_documents(model, learned, whiten_chunks=False, seed=0)

    mean, weight = fit_whitening(documents)
    close(model.target_whitening.mean, mean)
    close(model.target_whitening.weight, weight)
    stored = model.target_whitening(torch.cat(documents))
    cosines = model.candidates @ stored.T
    close(cosines.max(dim=1).values, torch.ones(20))
    assert len(set(cosines.argmax(dim=1).tolist())) > 10  # toy texts repeat themselves
    first = model.candidates

    fit_to_documents(model, learned, whiten_chunks=False, seed=1)

    assert not torch.equal(model.candidates, first)


def test_no_vector_is_drawn_twice(tmp_path):
    documents = ChosenDocuments(corpus_of([20, 7, 30], tmp_path), np.array([0, 2]))

    drawn = draw_vectors(documents, 49, seed=0)

    assert drawn.unique(dim=0).shape == (49, 8)


def test_a_checkpoint_keeps_its_loss(source, tmp_path):
    first = new_model(NewModelArguments(), NextLevelBertArguments(loss="smooth_l1"), source, 16)
    first.save_pretrained(tmp_path)

    second = new_model(NewModelArguments(), NextLevelBertArguments(model=str(tmp_path)), source, 16)

    assert second.config.loss == "smooth_l1"
    assert second.target_whitening is None


def test_contrastive_after_masked_continues_from_the_checkpoint(run, corpus, tmp_path):
    argv = ["--corpus_dir", str(corpus.path), "--pooling", "residual"]
    run(tmp_path / "masked", *argv, "--whiten_chunks", "--max_steps", "2", "--chunk_size", "12")
    segments = "--objective contrastive --min_segment 2 --max_segment 8 --max_steps 3".split()

    run(tmp_path / "both", *argv, *segments, "--model", str(tmp_path / "masked"))
    first = weights(tmp_path / "masked")
    second = weights(tmp_path / "both")

    whitening = first["model.whitening.weight"]
    assert torch.equal(second["model.whitening.weight"], whitening)
    positions = "model.encoder.embeddings.position_embeddings.weight"
    assert not torch.equal(first[positions], second[positions])
    training, held_out = share_out(corpus, 0.25, 42, 1)
    _, fitted = fit_whitening([corpus[int(number)].plain for number in training])
    assert torch.equal(whitening, fitted)  # to none that is held out
    assert sorted([*training, *held_out]) == list(range(12))
    assert len(held_out) == 3
    results = read_json(tmp_path / "both" / "results.json")
    assert 0 < results["log"][-1]["eval_chance_accuracy"] < 1
    card = ModelCard.load(tmp_path / "both" / "README.md")
    assert "| objective | `contrastive` |" in card.text
    assert card.data.eval_results[0].task_type == "sentence-similarity"
    with pytest.raises(ValueError, match=r"holds another run.*weights"):
        run(tmp_path / "both", *argv, *segments, "--model", str(tmp_path / "both"))


def test_the_card_says_what_the_model_is_made_of(run, books, source, tmp_path):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 32, "sentences", max_chunk_size=512)
    halves = encode_corpus(
        BOOKS, source, rule, tmp_path / "halves", splitter=in_halves, progress=False
    )
    argv = [
        "--corpus_dir",
        str(halves.path),
        "--model_type",
        "hate",
        "--hidden_size",
        "16",
        "--chunk_size",
        "32",
    ]
    run(
        tmp_path / "hate",
        *argv,
        "--num_hidden_layers",
        "1",
        "--max_steps",
        "1",
        "--validation_share",
        "0",
    )

    card = ModelCard.load(tmp_path / "hate" / "README.md")

    assert {
        "| chunking | sentences, at most 32 tokens per chunk |",
        "| encoder over chunks | 1 layers of 16, 15 chunks in a window |",
        f"| sentences | found by `{in_halves.__module__}.in_halves` |",
        "Nothing was measured: no vector of held-out documents was masked or compared.",
    } <= set(card.text.splitlines())
    assert card.data.base_model is None  # a folder, not a name on the Hub
    with pytest.raises(ValueError, match="splitter"):
        run(tmp_path / "wrong", *argv, "--train_file", str(books))


@pytest.mark.parametrize(
    ("words", "culprit"),
    [
        ([], "--train_file"),
        ("--corpus_dir {corpus} --chunk_size 16".split(), "chunk_size"),
        (
            "--corpus_dir {corpus} --chunk_size 12 --validation_share 1.0".split(),
            "--validation_share",
        ),
        ("--corpus_dir {corpus} --sequence_length 600".split(), "--sequence_length"),
        (
            "--corpus_dir {corpus} --objective contrastive --max_segment 600".split(),
            "--max_segment",
        ),
        (["--train_file", "nothing.jsonl"], "nothing.jsonl"),
        ("--train_file {books} --metric_for_best_model acc".split(), "masked_accuracy"),
        ("--train_file {books} --model {encoder} --whiten_chunks".split(), "--whiten_chunks"),
        ("--train_file {books} --num_hidden_layers -1".split(), "num_hidden_layers"),
        (["--train_file", "{books}", "--no_include_chunk_encoder"], "--chunk_encoder_name"),
        (["--model_type", "longformer"], "longformer"),
    ],
)
def test_what_it_refuses(run, books, corpus, toy_encoder_path, tmp_path, words, culprit, capsys):
    """Without a trace in the output folder."""
    values = {"books": books, "corpus": corpus.path, "encoder": toy_encoder_path}
    with pytest.raises((ValueError, FileNotFoundError, SystemExit)) as error:
        run(tmp_path / "model", *[word.format(**values) for word in words])

    assert culprit in str(error.value) + capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_the_card_has_the_scores_of_the_best_checkpoint(run, books, tmp_path, capsys):
    argv = ["--train_file", str(books), "--load_best_model_at_end", "--save_total_limit", "9"]
    argv += ["--learning_rate", "0.05", "--lr_scheduler_type", "constant", "--loss", "smooth_l1"]

    run(tmp_path, *argv, "--num_train_epochs", "5")

    log = read_json(tmp_path / "results.json")["log"]
    evaluations = [entry for entry in log if "eval_loss" in entry and entry["step"] > 0]
    best = min(evaluations, key=lambda entry: entry["eval_loss"])
    assert best["step"] < evaluations[-1]["step"]  # or the test shows nothing
    kept = weights(tmp_path / f"checkpoint-{best['step']}")
    saved = weights(tmp_path)
    for name, values in kept.items():
        assert torch.equal(saved[name], values)
    card = ModelCard.load(tmp_path / "README.md")
    for result in card.data.eval_results:
        expected = best[f"eval_{result.metric_type}"]
        assert result.metric_value == pytest.approx(expected, abs=1e-3)
    assert "best evaluation" in card.text
    assert f"R² against the mean {best['eval_r2']:.3f}" in capsys.readouterr().out


def test_a_validation_set_is_evaluated_in_place_of_a_share(run, books, tmp_path):
    others = tmp_path / "others.jsonl"
    write(others, BOOKS[:5])
    argv = ["--train_file", str(books), "--chunk_size", "12", "--max_steps", "1"]
    argv += ["--loss", "smooth_l1"]

    run(tmp_path / "model", *argv, "--validation_file", str(others))

    assert len(VectorCorpus(f"{tmp_path}/model-corpus")) == 12
    assert len(VectorCorpus(f"{tmp_path}/model-corpus-validation")) == 5
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert "| documents held out | `5` |" in card.text
    assert "| training corpus | 12 documents" in card.text
    assert "stored chunk vectors" not in card.text
    metrics = [result.metric_type for result in card.data.eval_results]
    assert metrics == ["masked_accuracy", "chance_accuracy", "r2", "masked_cosine", "count"]
    with pytest.raises(ValueError, match="validation_documents"):
        run(tmp_path / "model", *argv)
    argv += "--objective contrastive --min_segment 2 --max_segment 8".split()
    others.write_text(json.dumps(BOOKS[0]))
    with pytest.raises(ValueError, match="--validation_file has 1 document"):
        run(tmp_path / "pairs", *argv, "--validation_file", str(others))


def test_a_corpus_at_an_address_trains_the_model_of_a_folder(
    run, books, tmp_path, monkeypatch, capsys
):
    """Encoding is interrupted between two parts; only the model and the cache are written here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", tmp_path / "cache")
    argv = ["--train_file", str(books), "--validation_file", str(books), "--max_steps", "2"]
    argv += ["--chunk_size", "12", "--characters_per_part", "3000"]
    run("straight", *argv)
    argv += ["--corpus_dir", "memory://pretraining/books"]

    with interrupted_after_the_first_part():
        run("model", *argv)
    run("model", *argv)
    run("model", *argv)

    assert "model is finished already" in capsys.readouterr().out
    straight = {"straight", "straight-corpus", "straight-corpus-validation"}
    assert {*os.listdir()} == {"cache", "model"} | straight
    same(weights(Path("straight")), weights(Path("model")))
    store = fsspec.filesystem("memory")
    for name in ("corpus", "corpus-validation"):
        address = f"/pretraining/{name.replace('corpus', 'books')}"
        expected = parts(Path(f"straight-{name}"))
        assert len(expected) == 6
        stored = store.glob(f"{address}/*.parquet")
        assert {path.rsplit("/", 1)[-1]: store.cat_file(path) for path in stored} == expected
    store.rm("/pretraining", recursive=True)


def test_layers_start_as_copies(source, toy_encoder_path):
    options = NewModelArguments(chunk_encoder=toy_encoder_path, chunk_size=12)

    model = new_model(options, NextLevelBertArguments(), source, 16)

    new = model.base_model.encoder.encoder.layer[0].attention.self.query.weight
    copied = source.encoder.model.encoder.layer[0].attention.self.query.weight
    assert torch.allclose(new, copied, atol=1e-3)


@pytest.mark.long
def test_two_processes_encode_and_learn_what_one_does(run, books, toy_encoder_path, tmp_path):
    """Dropout draws from each process's random state; without it, runs can be compared number by
    number."""
    encoder = shutil.copytree(toy_encoder_path, tmp_path / "encoder")
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.0}))
    # Before the end of an epoch, of whole batches.
    argv = "--chunk_size 12 --max_steps 6 --per_device_train_batch_size 2".split()
    argv += ["--train_file", str(books), "--characters_per_part", "3000"]
    argv += ["--chunk_encoder", str(encoder)]
    run(tmp_path / "one", *argv, "--gradient_accumulation_steps", "2")
    launcher = "-m torch.distributed.run --standalone --nproc_per_node 2".split()
    command = [sys.executable, *launcher, str(SCRIPT), *SETTINGS, *argv]
    command += ["--output_dir", str(tmp_path / "two")]
    subprocess.run(command, check=True, timeout=300)

    one = parts(tmp_path / "one-corpus")
    assert len(one) > 3  # some for both
    assert one == parts(tmp_path / "two-corpus")
    losses = losses_of(tmp_path / "one")
    close(losses_of(tmp_path / "two"), losses, atol=2e-4)
    assert losses.max() - losses.min() > 0.02 * losses[0]  # there was something to follow


def parts(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.parquet")}


def losses_of(folder: Path) -> torch.Tensor:
    log = read_json(folder / "results.json")["log"]
    return torch.tensor([entry["loss"] for entry in log if "loss" in entry])
