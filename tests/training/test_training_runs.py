"""Every kind of run by its command line: it learns, leaves what it says, goes on when killed, and
knows its folder.

A row of `RUNS` is a run: add one for another task or model type. All tests are over all rows.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert import ChunkBertForSequenceClassification
from nextlevelbert.training.trainer import CardTrainer

from ..faults.harness import tree
from ..toys.finetuning import SCRIPT, predictions, run_here, sea_rows, write
from ..toys.vectors import close

QUIET = "--use_cpu --disable_tqdm true --logging_strategy steps --logging_steps 1".split()


@dataclass
class Run:
    """A kind of run."""

    name: str
    words: list[str]  # of its command line, at most a few dozen steps; ``{...}`` stands for a toy
    learned: Callable[
        [dict[str, Any]], bool
    ]  # whether the content of ``results.json`` tells that it learned
    other: list[str]  # an option with another value, by which the folder is refused, naming it
    check: Callable[[Path, str], None] = lambda folder, checkpoint: (
        None
    )  # opens it, compares with predictions
    kill_at: int | None = (
        None  # a step after more than one checkpoint; None where another row has the same code
    )
    card: str = "scores"  # name of a variable that the code of the card leaves
    marks: tuple[pytest.MarkDecorator, ...] = ()  # of the test that kills it


# --- Pretraining


def books(mixed):
    """Twelve books on four subjects: one a book, so that the context tells what is missing; or all,
    in any order."""
    subjects = ["the whale swims", "a train departs", "bread is baked", "stars shine far"]
    chosen = np.arange(12).repeat(110).reshape(12, -1) % 4
    if mixed:
        chosen = np.random.default_rng(0).integers(4, size=(12, 110))
    rows = []
    for index, book in enumerate(chosen.tolist()):
        text = " ".join(f"{subjects[k]} {day} times." for day, k in enumerate(book))
        rows.append({"id": f"book-{index}", "text": text})
    return rows


def pretraining(books, corpus, *more):
    argv = f"run_pretraining.py --do_train --train_file {books} --corpus_dir {{folder}}/{corpus}"
    argv += " --chunk_encoder {sentence_encoder} --chunk_size 12 --sequence_length 16"
    argv += " --validation_share 0.25 --eval_strategy steps --eval_steps 1000"
    return [*argv.split(), "--save_strategy", "steps", "--save_steps", "8", *more]


def loss_fell(results):
    """In training, from the first five steps to the last five; and on held-out documents."""
    losses = [entry["loss"] for entry in results["log"] if "loss" in entry]
    held_out = [entry["eval_loss"] for entry in results["log"] if "eval_loss" in entry]
    return sum(losses[-5:]) < 0.9 * sum(losses[:5]) and held_out[-1] < held_out[0]


def opens_in_three_ways(folder, checkpoint):
    """As our class, without the package, and in sentence-transformers, to the same vectors of
    documents."""
    text = " ".join(f"bread is baked {day} times." for day in range(30))
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    vector = model.encode(text).document
    elsewhere = AutoModel.from_pretrained(folder, trust_remote_code=True).encode(text).document
    sentence = SentenceTransformer(str(folder), device="cpu").encode(text, convert_to_tensor=True)
    close(elsewhere, vector)
    close(sentence, vector)
    for checkpoint in folder.glob("checkpoint-*/model.safetensors"):
        assert not any("chunk_encoder" in name for name in load_file(checkpoint))


SEGMENTS = "--objective contrastive --min_segment 2 --max_segment 8 --pooling residual".split()
SEGMENTS += "--whiten_chunks --learning_rate 1e-2 --num_train_epochs 6".split()
MASKS = "--loss cross_entropy --masking_probability 0.3".split()
MASKS += "--learning_rate 1e-2 --num_train_epochs 8".split()
HATE = "--model_type hate --hidden_size 16 --num_hidden_layers 1 --chunk_size 32".split() + MASKS
RUNS = [
    Run(
        "masked vectors",
        pretraining("{books}", "cross_entropy", *MASKS),
        loss_fell,
        ["--masking_probability", "0.4"],
        opens_in_three_ways,
        kill_at=9,
        card="vectors",
    ),
    Run(
        "contrastive",
        pretraining("{mixed_books}", "contrastive", *SEGMENTS),
        loss_fell,
        ["--max_segment", "6"],
        opens_in_three_ways,
        kill_at=9,
        marks=(pytest.mark.long,),
        card="vectors",
    ),
    Run(
        "hate",
        pretraining("{books}", "hate", *HATE),
        loss_fell,
        ["--masking_probability", "0.4"],
        opens_in_three_ways,
        card="vectors",
    ),
]


# --- Classification and multiple choice


def fine_tuning(task, *more):
    data = [f"--{name}_file={{{task}_{name}}}" for name in SIZES]
    rate = "--learning_rate 3e-3 --num_train_epochs 4 --weight_decay 0".split()
    return ["run_finetune.py", "--task", task, *data, *rate, *more]


def questions(count, seed):
    """What a document is about."""
    return [
        {
            "id": row["id"],
            "text": row["text"],
            "question": "About what?",
            "choices": ["bread", "sea"],
            "label": int(row["label"] == "sea"),
        }
        for row in sea_rows(count, seed)
    ]


SIZES = {"train": (32, 1), "validation": (8, 2), "test": (11, 3)}
ROWS = {"classification": sea_rows, "multiple_choice": questions}


def better_than_chance(results):
    [chance] = [row for name, row in results["rows"].items() if name == "most frequent label"]
    return (
        max(scores["accuracy"] for scores in results["seeds"].values()) > chance["accuracy"] + 0.1
    )


def says_what_it_predicted(folder, checkpoint):
    """Opened by its auto class from text; stored vectors are in half
    precision."""
    rows = predictions(folder / "test_predictions.jsonl")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert {row["prediction"] for row in rows} <= model.config.label2id.keys()
    texts = [row["text"] for row in sea_rows(*SIZES["test"])]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    scores = model(**batch).logits.softmax(-1)
    close(scores, torch.tensor([row["scores"] for row in rows]), atol=2e-3)


RUNS += [
    Run(
        "classification",
        fine_tuning("classification", "--model", "{checkpoint}", "--seeds", "0", "1"),
        better_than_chance,
        ["--learning_rate", "1e-2"],
        says_what_it_predicted,
        kill_at=6,
    ),
    Run(
        "head",
        fine_tuning("classification", "--model", "{checkpoint}", "--freeze_encoder"),
        better_than_chance,
        ["--learning_rate", "1e-2"],
        says_what_it_predicted,
        kill_at=6,
        marks=(pytest.mark.long,),
    ),
    Run(
        "multiple choice",
        fine_tuning("multiple_choice", "--model", "{checkpoint}"),
        lambda results: "accuracy" in results["seeds"]["0"],
        ["--weight_decay", "0.1"],
    ),
    Run(
        "chunkbert",
        fine_tuning("classification", "--model_type", "chunkbert", "--model", "{chunkbert}"),
        better_than_chance,
        ["--chunk_size", "16"],
        says_what_it_predicted,
    ),
]


# --- The tests


@pytest.fixture(scope="module")
def toys(toy_encoder_path, toy_checkpoint, encoder, tmp_path_factory):
    """What words stand for: a folder for data, saved toy models (see conftest), and files of
    rows."""
    folder = tmp_path_factory.mktemp("data")
    torch.manual_seed(0)
    model = ChunkBertForSequenceClassification.from_encoder(
        encoder, num_averaged_layers=2, chunk_size=32
    )
    model.save_pretrained(folder / "chunkbert")
    rows = {
        "books": books(mixed=False),
        "mixed_books": books(mixed=True),
    }
    rows |= {f"{task}_{name}": make(*SIZES[name]) for task, make in ROWS.items() for name in SIZES}
    models = {
        "sentence_encoder": toy_encoder_path,
        "checkpoint": toy_checkpoint,
        "encoder": encoder,
    }
    files = {name: write(folder / f"{name}.jsonl", made) for name, made in rows.items()}
    return {**files, **models, "folder": str(folder), "chunkbert": str(folder / "chunkbert")}


def start(run, toys, output, *more):
    """The script in this process; errors end it as they end a process."""
    script, *words = [word.format(**toys) for word in run.words]
    run_here(*words, *QUIET, *more, "--output_dir", str(output), script=SCRIPT.parent / script)


STRAIGHT: dict[str, Path] = {}


@pytest.fixture(params=RUNS, ids=lambda run: run.name)
def run(request):
    return request.param


@pytest.fixture
def straight(run, toys, tmp_path_factory):
    """The folder of a run that nothing stops, made once."""
    if run.name not in STRAIGHT:
        STRAIGHT[run.name] = tmp_path_factory.mktemp("straight") / "model"
        start(run, toys, STRAIGHT[run.name])
    return STRAIGHT[run.name]


def files(folder):
    """What a run leaves, but for checkpoints and copies of vectors to map into memory."""
    left = tree(folder).items()
    return {
        name: data for name, data in left if "checkpoint-" not in name and "/.vectors/" not in name
    }


def test_it_learns_and_its_card_runs_and_names_no_path(run, toys, straight, monkeypatch):
    assert run.learned(json.loads((straight / "results.json").read_text()))

    for name, content in files(straight).items():
        assert str(straight.parent).encode() not in content, name
        assert toys["folder"].encode() not in content, name
    run.check(straight, toys["checkpoint"])
    [code] = re.findall(r"```python\n(.*?)```", (straight / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(straight.parent)  # the name of the model is that of its folder
    names: dict[str, Any] = {}
    exec(code.replace("the base checkpoint", toys["checkpoint"]), names)

    assert len(names[run.card])


class Killed(BaseException):
    """Like a signal, it is caught nowhere."""


KILLED_RUNS = [pytest.param(run, marks=run.marks, id=run.name) for run in RUNS if run.kill_at]


@pytest.mark.parametrize("run", KILLED_RUNS, indirect=True)
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(
    run, toys, straight, tmp_path, monkeypatch
):
    genuine, steps = CardTrainer.training_step, []

    def step(self, *args, **kwargs):
        if self.state.global_step == run.kill_at and "killed" not in steps:
            steps.append("killed")
            raise Killed
        steps.append(self.state.global_step)
        return genuine(self, *args, **kwargs)

    monkeypatch.setattr(CardTrainer, "training_step", step)
    with pytest.raises(Killed):
        start(run, toys, tmp_path / "model")
    assert not (tmp_path / "model" / "results.json").exists()
    start(run, toys, tmp_path / "model")
    assert 0 < steps[steps.index("killed") + 1] < run.kill_at  # it went on from a checkpoint
    left = files(tmp_path / "model")
    expected = files(straight)
    assert left.keys() == expected.keys()
    for name, content in left.items():
        assert content == expected[name] or name.endswith("result.json"), name  # times


def test_a_second_start_does_nothing_and_another_recipe_is_refused(
    run, toys, straight, monkeypatch, capsys
):
    def stamps():
        return {path: path.stat().st_mtime_ns for path in straight.rglob("*") if path.is_file()}

    before = stamps()
    monkeypatch.setattr(CardTrainer, "training_step", None)
    start(run, toys, straight)
    with pytest.raises(SystemExit) as end:
        start(run, toys, straight, *run.other)
    assert end.value.code == 1
    assert run.other[0].removeprefix("--") in capsys.readouterr().err
    assert stamps() == before
