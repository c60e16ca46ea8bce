"""`run_pretraining.py` as a user starts it: from text, from a corpus, killed and resumed, on two processes."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from nextlevelbert import ChunkingRule, Document, VectorCorpus, encode_corpus, load_chunk_encoder
from nextlevelbert.pretraining.arguments import HateArguments, NextLevelBertArguments
from nextlevelbert.pretraining.corpus_arguments import CorpusArguments
from nextlevelbert.pretraining.objective_arguments import (
    MaskingArguments,
    ObjectiveArguments,
    warn_of_untrained_pooling,
)
from nextlevelbert.pretraining.vectors import new_model, share_out

SCRIPT = Path(__file__).parents[2] / "run_pretraining.py"
SETTINGS = [
    "--do_train", "--sequence_length", "16", "--per_device_train_batch_size", "4", "--num_train_epochs", "8",
    "--learning_rate", "3e-3", "--logging_steps", "1", "--loss", "cross_entropy", "--chunk_size", "12",
    "--disable_tqdm", "true", "--masking_probability", "0.3", "--validation_share", "0.25",
]  # fmt: skip

SAVING = ["--save_strategy", "steps", "--save_steps", "9"]


@pytest.fixture(scope="module")
def books(tmp_path_factory) -> Path:
    """Twelve short books: in each, one of four subjects over and over, so that the context tells what is missing."""
    subjects = ["the whale swims", "a train departs", "bread is baked", "stars shine far"]
    path = tmp_path_factory.mktemp("books") / "books.jsonl"
    rows = [
        {"id": f"book-{n}", "text": " ".join(f"{subjects[n % 4]} {day} times." for day in range(120))}
        for n in range(12)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture(scope="module")
def corpus(books, toy_encoder_path, tmp_path_factory) -> VectorCorpus:
    source = load_chunk_encoder(toy_encoder_path)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=512)
    rows = [json.loads(line) for line in books.read_text().splitlines()]
    documents = [Document(**row) for row in rows]
    return encode_corpus(documents, source, rule, tmp_path_factory.mktemp("corpus"), progress=False)


def start(encoder: str, output: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen:
    command = [sys.executable, *launcher, str(SCRIPT), "--chunk_encoder", encoder, "--output_dir", str(output)]
    return subprocess.Popen(
        [*command, *SETTINGS, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def losses(folder: Path) -> list[float]:
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def loss_of_guessing(evaluation: dict[str, float]) -> float:
    """Cross-entropy of giving every masked vector of the batch the same probability."""
    return math.log(1 / evaluation["eval_chance_accuracy"])


@pytest.fixture
def run(run_script, toy_encoder_path):
    """A run in this process."""

    def pretrain(output: Path, *arguments: str) -> str:
        ours = ["--chunk_encoder", toy_encoder_path, "--output_dir", str(output)]
        return run_script(SCRIPT, *ours, *SETTINGS, *arguments)

    return pretrain


@pytest.fixture(scope="module")
def straight(corpus, toy_encoder_path, tmp_path_factory) -> Path:
    """A run from an encoded corpus that nothing interrupts."""
    folder = tmp_path_factory.mktemp("straight")
    finish(start(toy_encoder_path, folder, "--corpus_dir", str(corpus.path), *SAVING))
    return folder


def test_it_learns_and_leaves_a_whole_checkpoint(straight, corpus):
    history = json.loads((straight / "trainer_state.json").read_text())["log_history"]
    evaluations = [entry for entry in history if "eval_masked_accuracy" in entry]
    assert sum(losses(straight)[-5:]) < 0.85 * sum(losses(straight)[:5])
    assert evaluations[-1]["eval_loss"] < loss_of_guessing(evaluations[-1]) - 0.2
    model, info = AutoModel.from_pretrained(straight, output_loading_info=True)
    assert not info["missing_keys"]
    assert model.config.include_chunk_encoder
    text = " ".join(f"the whale swims {day} times." for day in range(120))
    torch.testing.assert_close(model.encode(text).plain, corpus["book-0"].vectors.float(), atol=1e-3, rtol=0)
    card = (straight / "README.md").read_text()
    assert "model-index" in card
    assert re.search(r"\| masked_accuracy \| 0\.\d+ \| 0\.\d+ \| 0\.\d+ \|", card)
    assert str(straight) not in card
    assert (straight / "loss_curve.png").read_bytes().startswith(b"\x89PNG")
    [saved, *_] = straight.glob("checkpoint-*/model.safetensors")
    assert not any("chunk_encoder" in name for name in load_file(saved))


def test_masked_vectors_leave_residual_pooling_untrained(run, corpus, tmp_path, caplog):
    """It is what a model over a static encoder has by default."""
    said = "trains no weight of pooling 'residual', so the document vector stays the mean of the chunk vectors. Give"
    few = ["--corpus_dir", str(corpus.path), "--max_steps", "2", "--eval_strategy", "no"]
    run(tmp_path / "model", *few, "--pooling", "residual")
    assert caplog.text.count(said) == 1
    book = AutoModel.from_pretrained(tmp_path / "model").encode(
        " ".join(f"bread is baked {n} times." for n in range(9))
    )
    plain = torch.nn.functional.normalize(book.plain.mean(dim=0), dim=0)
    torch.testing.assert_close(book.document, plain, atol=1e-5, rtol=0)
    assert not torch.allclose(book.chunks, book.plain, atol=1e-2)


@pytest.mark.parametrize(
    ("objective", "fields", "said"),
    [
        ("masked", {"pooling": "residual", "residual_start": 1.0}, "the document vector keeps its two projections"),
        ("masked", {"pooling": "mean"}, ""),
        ("both", {"pooling": "residual"}, ""),
    ],
)
def test_other_poolings_and_objectives_bring_no_warning(toy_encoder_path, caplog, objective, fields, said):
    source = load_chunk_encoder(toy_encoder_path)
    options = NextLevelBertArguments(chunk_encoder=toy_encoder_path, chunk_size=12, **fields)
    warn_of_untrained_pooling(new_model(options, source, ObjectiveArguments(objective=objective)))
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


def test_from_text_the_same_model_comes_out(run, straight, books, tmp_path):
    run(tmp_path, "--train_file", str(books))
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(straight / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert len(VectorCorpus(f"{tmp_path}-corpus")) == 12


@pytest.mark.long
def test_kill_9_and_resume_gives_the_same_weights(run, straight, corpus, toy_encoder_path, tmp_path):
    arguments = ["--corpus_dir", str(corpus.path), *SAVING]
    process = start(toy_encoder_path, tmp_path, *arguments)
    while not (tmp_path / "checkpoint-9" / "trainer_state.json").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "model.safetensors").exists()
    run(tmp_path, *arguments)
    ours, theirs = load_file(tmp_path / "model.safetensors"), load_file(straight / "model.safetensors")
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert losses(tmp_path) == losses(straight)


@pytest.fixture(scope="module")
def encoder_without_dropout(toy_encoder_path, tmp_path_factory) -> str:
    """Dropout draws from each process's own random state; without it, runs can be compared number by number."""
    folder = shutil.copytree(toy_encoder_path, tmp_path_factory.mktemp("encoder") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.0}))
    return str(folder)


@pytest.mark.long
def test_two_processes_encode_and_learn_what_one_does(run, books, encoder_without_dropout, tmp_path):
    arguments = ["--train_file", str(books), "--characters_per_shard", "9000", "--per_device_train_batch_size", "2"]
    one, two = tmp_path / "one", tmp_path / "two"
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    run(one, *arguments, "--gradient_accumulation_steps", "2", "--chunk_encoder", encoder_without_dropout)
    finish(start(encoder_without_dropout, two, *arguments, launcher=launcher))
    corpora = [{file.name: file.read_bytes() for file in Path(f"{folder}-corpus").iterdir()} for folder in (one, two)]
    assert len(corpora[0]) > 4  # shards for both
    assert corpora[0] == corpora[1]
    torch.testing.assert_close(torch.tensor(losses(two)), torch.tensor(losses(one)), atol=2e-4, rtol=0)
    assert min(losses(one)) < losses(one)[0] - 0.3  # there was something to follow


def test_the_example_that_searches(run_script, straight, corpus):
    script = SCRIPT.parent / "examples" / "nearest_documents.py"
    output = run_script(script, "--model", str(straight), "--corpus_dir", str(corpus.path), "book-0")
    [line] = [line for line in output.splitlines() if line.strip().startswith("book-0")]
    assert len(re.findall(r"book-\d+ -?[01]\.\d\d", line)) == 4
    assert "Training loss: first" in output


def test_only_encoding(run, books, tmp_path):
    """The corpus lies beside the output folder, even if that is written with a slash at the end."""
    arguments = ["--train_file", str(books), "--do_train", "false", "--output_dir", f"{tmp_path}/"]
    run(tmp_path, *arguments)
    assert len(VectorCorpus(f"{tmp_path}-corpus")) == 12
    assert not (tmp_path / "model.safetensors").exists()
    shard = Path(f"{tmp_path}-corpus") / "shard-00000.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    run(tmp_path, *arguments, "--repair_corpus")
    assert shard.read_bytes() == content


def test_encoding_in_int8_goes_on_with_the_encoder_that_it_calibrated(run, books, tmp_path, monkeypatch):
    monkeypatch.setattr("nextlevelbert.training.precision.lacks_instructions", lambda precision: False)
    arguments = ["--train_file", str(books), "--do_train", "false", "--encoder_dtype", "int8"]
    run(tmp_path / "model", *arguments)
    corpus = VectorCorpus(tmp_path / "model-corpus")
    assert corpus.manifest["encoder"]["dtype"].startswith("int8 ")
    before = corpus.vectors(0, corpus.num_chunks)
    calibrated = {file: file.stat().st_mtime_ns for file in (corpus.path / "int8_encoder").iterdir()}
    (corpus.path / "shard-00000.safetensors").unlink()
    (corpus.path / "manifest.json").unlink()
    run(tmp_path / "model", *arguments)
    assert torch.equal(VectorCorpus(corpus.path).vectors(0, corpus.num_chunks), before)
    assert {file: file.stat().st_mtime_ns for file in (corpus.path / "int8_encoder").iterdir()} == calibrated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give the documents with --train_file or --dataset_name, or a finished --corpus_dir"),
        (["--corpus_dir", "{corpus}", "--chunk_size", "16"], "chunking.chunk_size: 12, 16"),
        (["--corpus_dir", "{corpus}", "--validation_share", "1.0"], "too small to hold out"),
        (["--train_file", "{books}", "--masking_probability", "1.5"], "must be above 0 and at most 1, got 1.5"),
        (["--train_file", "nothing.jsonl"], "No file or folder 'nothing.jsonl'"),
        (["--chunk_size", "2"], "leaves no room for text"),
        (["--corpus_dir", "{corpus}", "--sequence_length", "600"], "--sequence_length 600 is above the 512 positions"),
        (["--chunk_size", "513"], "limit of 512 tokens"),
    ],
)
def test_what_it_refuses(run, books, corpus, tmp_path, arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message)):
        run(tmp_path / "model", *[argument.format(books=books, corpus=corpus.path) for argument in arguments])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model_type", ["nextlevelbert", "hate", "cdlm"])
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.jsonl", "No file or folder '{folder}/nothing.jsonl'."),
        ("wide.jsonl", "{folder}/wide.jsonl is UTF-16 (byte order mark FF FE), but UTF-8 text is needed"),
        ("empty.jsonl", "{folder}/empty.jsonl"),
        ("pipe", "{folder}/pipe is a named pipe (FIFO), which cannot be read twice."),
        ("other.jsonl", "has no column '"),
    ],
)
def test_documents_are_looked_at_before_anything_is_loaded_or_made(run_script, tmp_path, model_type, source, message):
    """There is no such model, which would be told first if it were looked for first."""
    (tmp_path / "wide.jsonl").write_bytes('{"text": "x"}'.encode("utf-16"))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "other.jsonl").write_text('{"body": "x"}')
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    model = ["--model" if model_type == "cdlm" else "--chunk_encoder", str(tmp_path / "no-model")]
    given = ["--model_type", model_type, "--train_file", str(tmp_path / source), "--output_dir", str(tmp_path / "out")]
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(message.format(folder=tmp_path))):
        run_script(SCRIPT, *given, *model, *([] if model_type == "cdlm" else ["--do_train"]))
    assert sorted(tmp_path.iterdir()) == before


# --- HATE

HATE = ["--model_type", "hate", "--hidden_size", "16", "--num_hidden_layers", "1", "--chunk_size", "32"]


def test_hate_learns_from_sentences_and_leaves_a_checkpoint_that_opens(run, books, tmp_path):
    run(tmp_path, "--train_file", str(books), *HATE, "--pooling", "sum", "--num_train_epochs", "25")
    history = json.loads((tmp_path / "trainer_state.json").read_text())["log_history"]
    evaluations = [entry for entry in history if "eval_masked_accuracy" in entry]
    assert evaluations[-1]["eval_loss"] < evaluations[0]["eval_loss"]
    assert sum(losses(tmp_path)[-5:]) < 0.9 * sum(losses(tmp_path)[:5])
    model, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["unexpected_keys"]
    config = model.config
    assert (config.model_type, config.hidden_size, config.pooling, config.max_chunks) == ("hate", 16, "sum", 15)
    assert config.chunking == "sentences"
    book = model.encode("the whale swims 1 times. the whale swims 2 times. the whale swims 3 times.")
    assert book.spans.tolist() == [[0, 24], [25, 49], [50, 74]]
    assert book.document.shape == (16,)
    card = (tmp_path / "README.md").read_text()
    assert "A HATE (Hierarchical" in card
    assert "| bottleneck | 32 → 32 → 24 → 16 |" in card


@pytest.mark.long
def in_halves(text):
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def test_hate_learns_from_a_corpus_by_a_splitter(run, books, toy_encoder_path, tmp_path, caplog):
    source = load_chunk_encoder(toy_encoder_path)
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 32, "sentences", max_chunk_size=512)
    documents = [Document(**json.loads(line)) for line in books.read_text().splitlines()]
    halves = encode_corpus(documents, source, rule, tmp_path / "halves", progress=False, splitter=in_halves)
    options = ["--corpus_dir", str(halves.path), *HATE, "--max_steps", "1"]
    run(tmp_path / "hate", *options)
    name = f"{__name__}.in_halves"
    assert f"Its sentences were found by {name}: encode texts with that splitter." in caplog.messages
    assert f"| sentences | found by `{name}` |" in (tmp_path / "hate" / "README.md").read_text()
    assert json.loads((tmp_path / "hate" / "settings.json").read_text())["splitter"] == name
    by_rule = encode_corpus(documents, source, rule, tmp_path / "rule", progress=False)
    for wrong in (["--validation_corpus_dir", str(by_rule.path)], ["--train_file", str(books)]):
        with pytest.raises(ValueError, match=f"chunking.splitter: .*{name}"):
            run(tmp_path / "wrong", *options, *wrong)


def test_hate_on_two_processes(books, toy_encoder_path, tmp_path):
    """Each process finds its masked sentences among its own; together they take half as many steps."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    epochs = ["--num_train_epochs", "3", "--validation_share", "0"]
    finish(start(toy_encoder_path, tmp_path, "--train_file", str(books), *HATE, *epochs, launcher=launcher))
    corpus = VectorCorpus(f"{tmp_path}-corpus")
    sequences = sum(-(-len(document.vectors) // 15) for document in corpus)
    assert len(losses(tmp_path)) == 3 * math.ceil(sequences / 8)
    assert min(losses(tmp_path)[-3:]) < losses(tmp_path)[0]
    assert not AutoModel.from_pretrained(tmp_path, output_loading_info=True)[1]["missing_keys"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model_type", "hate", "--hidden_size", "64"], "undercomplete, so give an encoder_config"),
        (["--model_type", "hate", "--sequence_length", "1"], "max_chunks is 0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_before_anything_is_encoded(run, books, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "model", "--train_file", str(books), *arguments)
    assert list(tmp_path.iterdir()) == []


def test_another_corpus_takes_the_place_of_held_out_documents(run, corpus, tmp_path):
    training, (evaluation, held_out) = share_out(
        corpus, CorpusArguments(validation_corpus_dir=str(corpus.path)), at_least=1, seed=42
    )
    assert training.tolist() == held_out.tolist() == list(range(12))
    assert evaluation is not corpus
    training, (evaluation, held_out) = share_out(corpus, CorpusArguments(validation_share=0.25), at_least=1, seed=42)
    assert len(held_out) == 3
    assert sorted([*training, *held_out]) == list(range(12))
    assert evaluation is corpus
    rows = [{"id": f"{n}", "text": "A few words of another language model. " * 40} for n in range(3)]
    (tmp_path / "other.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run(tmp_path / "other", "--train_file", str(tmp_path / "other.jsonl"), "--chunk_size", "14", "--do_train", "false")
    with pytest.raises(ValueError, match=r"chunking\.chunk_size: 14, 12"):
        run(
            tmp_path / "model", "--corpus_dir", str(corpus.path), "--validation_corpus_dir", f"{tmp_path}/other-corpus"
        )


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_that_is_asked_for(toy_encoder_path, implementation):
    source = load_chunk_encoder(toy_encoder_path)
    chosen = {"attn_implementation": implementation, "chunk_size": 12}
    model = new_model(NextLevelBertArguments(**chosen), source, ObjectiveArguments())
    assert model.base_model.encoder.config._attn_implementation == implementation
    model = new_model(HateArguments(**chosen), source, MaskingArguments(sequence_length=16))
    assert model.base_model.encoder.layers.config._attn_implementation == implementation


def test_options_of_the_papers_reach_the_model(toy_encoder_path):
    """Random layers (NextLevelBERT, table 4) and the p of HATE's loss."""
    source = load_chunk_encoder(toy_encoder_path)
    kept, random = (
        new_model(NextLevelBertArguments(chunk_size=12, random_layers=each), source, ObjectiveArguments())
        for each in (False, True)
    )
    theirs = source.encoder.model.encoder.layer[0].attention.self.query.weight
    mine = [model.base_model.encoder.encoder.layer[0].attention.self.query.weight for model in (kept, random)]
    assert torch.equal(mine[0], theirs)
    assert not torch.allclose(mine[1], theirs, atol=1e-3)
    hate = new_model(HateArguments(norm_order=1.5, chunk_size=12), source, MaskingArguments(sequence_length=16))
    assert (hate.config.loss, hate.config.norm_order) == ("p_norm", 1.5)
