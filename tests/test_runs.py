"""Every kind of run by its command line: it learns, leaves what it says, goes on when killed, and knows its folder.

A row of `RUNS` is a run: add one for another task or model type. All tests are over all rows.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from nextlevelbert import BertAlForExtractiveSummarization, ChunkBertForSequenceClassification
from nextlevelbert.training.trainer import CardTrainer

from .finetuning_toys import sea_rows, write

QUIET = ["--use_cpu", "--disable_tqdm", "true", "--logging_strategy", "steps", "--logging_steps", "1"]


@dataclass
class Toys:
    """What rows are made of: a folder for data, and saved toy models (see conftest)."""

    folder: Path
    sentence_encoder: str  # of sentence-transformers
    checkpoint: str  # a NextLevelBERT
    encoder: str  # a BERT, for what is trained from text

    def file(self, name: str, rows: list[dict]) -> str:
        """Rows as a file of JSON lines; its path."""
        return write(self.folder / name, rows)


@dataclass
class Run:
    """A kind of run.

    Attributes:
        name: of the row.
        script: ``"run_pretraining.py"`` or ``"run_finetune.py"``.
        words: the words of its command line but for the output folder, at most a few dozen steps.
        learned: whether the content of ``results.json`` tells that it learned.
        other: an option with another value, by which the folder is refused, naming it.
        check: of the published folder: opens it and compares with predictions, or whatever the task promises.
        kill_at: the step before which it is killed, after more than one checkpoint; None where another row has the
            same code for that.
        card: name of a variable that the code of the card leaves.
    """

    name: str
    script: str
    words: Callable[[Toys], list[str]]
    learned: Callable[[dict[str, Any]], bool]
    other: list[str]
    check: Callable[[Path, Toys], None] = lambda folder, toys: None
    kill_at: int | None = None
    card: str = "scores"


# --- Pretraining


def books(mixed: bool) -> list[dict]:
    """Twelve books on four subjects: one a book, so that the context tells what is missing; or all, in any order."""
    subjects = ["the whale swims", "a train departs", "bread is baked", "stars shine far"]
    mix, alike = np.random.default_rng(0).integers(4, size=(12, 110)), np.arange(12).repeat(110).reshape(12, -1) % 4
    order = mix if mixed else alike
    texts = [" ".join(f"{subjects[k]} {day} times." for day, k in enumerate(row)) for row in order.tolist()]
    return [{"id": f"book-{n}", "text": text} for n, text in enumerate(texts)]


def pretraining(*more: str) -> Callable[[Toys], list[str]]:
    def words(toys: Toys) -> list[str]:
        mixed = "contrastive" in more
        return [
            "--do_train", "--train_file", toys.file(f"{mixed}.jsonl", books(mixed)),
            "--chunk_encoder", toys.sentence_encoder, "--corpus_dir", str(toys.folder / more[1]),
            "--chunk_size", "12", "--sequence_length", "16",
            "--validation_share", "0.25", "--eval_strategy", "steps", "--eval_steps", "1000",
            "--save_strategy", "steps", "--save_steps", "8", *more,
        ]  # fmt: skip

    return words


def loss_fell(results: dict[str, Any]) -> bool:
    """In training, from the first five steps to the last five; and on held-out documents."""
    losses = [entry["loss"] for entry in results["log"] if "loss" in entry]
    held_out = [entry["eval_loss"] for entry in results["log"] if "eval_loss" in entry]
    return sum(losses[-5:]) < 0.9 * sum(losses[:5]) and held_out[-1] < held_out[0]


def opens_in_three_ways(folder: Path, toys: Toys) -> None:
    """As our class, without the package, and in sentence-transformers, to the same vectors of documents."""
    text = " ".join(f"bread is baked {day} times." for day in range(30))
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    vector = model.encode(text).document
    elsewhere = AutoModel.from_pretrained(folder, trust_remote_code=True).encode(text).document
    sentence = SentenceTransformer(str(folder), device="cpu").encode(text, convert_to_tensor=True)
    torch.testing.assert_close(elsewhere, vector, atol=1e-5, rtol=0)
    torch.testing.assert_close(sentence, vector, atol=1e-5, rtol=0)
    for checkpoint in folder.glob("checkpoint-*/model.safetensors"):
        assert not any("chunk_encoder" in name for name in load_file(checkpoint))


# --- Summaries


def stories(count: int, seed: int) -> list[dict]:
    """Documents of 4 to 8 sentences, of which the two that speak of a storm belong to the summary."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        labels = [1, 1] + [0] * (2 + number % 5)
        draw.shuffle(labels)
        text = [f"On day {draw.integers(10, 31)} we had {('bread', 'storm')[label]}." for label in labels]
        summary = " ".join(sentence for sentence, label in zip(text, labels, strict=True) if label)
        rows.append({"id": f"{seed}-{number}", "text": text, "summary": summary, "labels": labels})
    return rows


def summarizing(toys: Toys) -> list[str]:
    return [
        "--task", "summarization", "--model", toys.encoder, "--segment_length", "16", "--label_column", "labels",
        "--train_file", toys.file("stories.jsonl", stories(40, 0)), "--summary_sentences", "2",
        "--validation_file", toys.file("more.jsonl", stories(12, 1)),
        "--num_train_epochs", "9", "--early_stopping_patience", "9",
        "--learning_rate", "1e-2", "--lr_scheduler_type", "constant", "--warmup_steps", "0",
    ]  # fmt: skip


def summaries_got_better(results: dict[str, Any]) -> bool:
    return next(iter(results["rows"].values()))["precision"] > results["rows"]["first 2 sentences"]["precision"]


def summarizes_as_stored(folder: Path, toys: Toys) -> None:
    model = BertAlForExtractiveSummarization.from_pretrained(folder)
    stored = [json.loads(line) for line in (folder / "validation_predictions.jsonl").read_text().splitlines()]
    for record, row in zip(stored, stories(12, 1), strict=True):
        summary = model.summarize(row["text"], sentences=2)
        chosen = [record["id"], record["indices"], record["sentences"]]
        assert chosen == [row["id"], summary.indices, summary.sentences]
        assert record["scores"] == pytest.approx(summary.scores, abs=1e-4)


# --- CDLM


def pretraining_on_sets(toys: Toys) -> list[str]:
    subjects = ["rain", "bread", "stars", "trains", "whales", "music", "sugar", "glass"]
    news = [{"document": [f"{subject} and {subject} on day {n}" for n in range(5)]} for subject in subjects]
    return [
        "--model_type", "cdlm", "--model", toys.encoder, "--max_length", "60", "--attention_window", "8",
        "--do_train", "--train_file", toys.file("news.jsonl", news), "--validation_share", "0.25",
        "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "1", "--max_steps", "24",
        "--warmup_steps", "1", "--learning_rate", "1e-2", "--eval_steps", "8", "--save_steps", "3",
    ]  # fmt: skip


SEGMENTS = ["--objective", "contrastive", "--min_segment", "2", "--max_segment", "8", "--pooling", "residual"]
MASKS = ["--loss", "cross_entropy", "--masking_probability", "0.3"]
MASKS += ["--learning_rate", "1e-2", "--num_train_epochs", "8"]
HATE = ["--model_type", "hate", "--hidden_size", "16", "--num_hidden_layers", "1", "--chunk_size", "32", *MASKS]
RUNS = [
    Run(
        "masked vectors", "run_pretraining.py", pretraining(*MASKS), loss_fell, ["--masking_probability", "0.4"],
        opens_in_three_ways, kill_at=9, card="vectors",
    ),
    Run(
        "contrastive", "run_pretraining.py",
        pretraining(*SEGMENTS, "--whiten_chunks", "--num_train_epochs", "6", "--learning_rate", "1e-2"),
        loss_fell, ["--max_segment", "6"], opens_in_three_ways, kill_at=9, card="vectors",
    ),
    Run(
        "hate", "run_pretraining.py", pretraining(*HATE), loss_fell, ["--norm_order", "1"], opens_in_three_ways,
        card="vectors",
    ),
    Run(
        "summarization", "run_finetune.py", summarizing, summaries_got_better, ["--segment_length", "24"],
        summarizes_as_stored, kill_at=12, card="summary",
    ),
    Run("cdlm", "run_pretraining.py", pretraining_on_sets, loss_fell, ["--document_share", "0.5"], kill_at=5),
]  # fmt: skip


# --- Classification and multiple choice


def fine_tuning(task: str, *more: str) -> Callable[[Toys], list[str]]:
    """A fine-tuning; ``{...}`` in a word stands for a field of the toys."""

    def words(toys: Toys) -> list[str]:
        values = {**vars(toys), "chunkbert": str(toys.folder / "chunkbert")}
        if "{chunkbert}" in more and not (toys.folder / "chunkbert").exists():
            torch.manual_seed(0)
            model = ChunkBertForSequenceClassification.from_encoder(toys.encoder, num_averaged_layers=2, chunk_size=32)
            model.save_pretrained(values["chunkbert"])
        data = [
            f"--{name}_file={toys.file(f'{task}-{name}.jsonl', ROWS[task](*size))}" for name, size in SIZES.items()
        ]
        rate = ["--learning_rate", "3e-3", "--num_train_epochs", "4", "--weight_decay", "0"]
        return ["--task", task, *data, *rate, *(word.format(**values) for word in more)]

    return words


def questions(count: int, seed: int) -> list[dict]:
    """What a document is about."""
    return [
        {"id": row["id"], "text": row["text"], "question": "About what?", "choices": ["bread", "sea"],
         "label": int(row["label"] == "sea")}
        for row in sea_rows(count, seed)
    ]  # fmt: skip


SIZES = {"train": (32, 1), "validation": (8, 2), "test": (11, 3)}
ROWS = {"classification": sea_rows, "multiple_choice": questions}


def better_than_chance(results: dict[str, Any]) -> bool:
    [chance] = [row for name, row in results["rows"].items() if name == "most frequent label"]
    return max(scores["accuracy"] for scores in results["seeds"].values()) > chance["accuracy"] + 0.1


def says_what_it_predicted(folder: Path, toys: Toys) -> None:
    """Opened by its auto class, from text; stored vectors are in half precision."""
    rows = [json.loads(line) for line in (folder / "test_predictions.jsonl").read_text().splitlines()]
    if (folder / "adapter_config.json").exists():
        base = AutoModelForSequenceClassification.from_pretrained(toys.checkpoint, num_labels=2)
        model: Any = PeftModel.from_pretrained(base, folder).eval()
    else:
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    texts = [row["text"] for row in sea_rows(*SIZES["test"])]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    scores = model(**batch).logits.softmax(-1)
    torch.testing.assert_close(scores, torch.tensor([row["scores"] for row in rows]), atol=2e-3, rtol=0)


RUNS += [
    Run(
        "classification", "run_finetune.py",
        fine_tuning("classification", "--model", "{checkpoint}", "--seeds", "0", "1"),
        better_than_chance, ["--learning_rate", "1e-2"], says_what_it_predicted, kill_at=6,
    ),
    Run(
        "adapter", "run_finetune.py",
        fine_tuning("classification", "--model", "{checkpoint}", "--lora", "--learning_rate", "2e-2"),
        better_than_chance, ["--lora_r", "4"], says_what_it_predicted, kill_at=6,
    ),
    Run(
        "multiple choice", "run_finetune.py", fine_tuning("multiple_choice", "--model", "{checkpoint}"),
        lambda results: "accuracy" in results["seeds"]["0"], ["--weight_decay", "0.1"],
    ),
    Run(
        "chunkbert", "run_finetune.py",
        fine_tuning("classification", "--model_type", "chunkbert", "--model", "{chunkbert}", "--chunk_size", "32"),
        better_than_chance, ["--chunk_size", "16"], says_what_it_predicted,
    ),
]  # fmt: skip


# --- Ranking


def asked() -> list[dict]:
    """Three questions to each of twelve short documents."""
    things = "whale train bread star ship crown sail oven whale train bread star".split()
    subjects = [f"{thing} {n}" for n, thing in enumerate(things)]
    return [
        {"query": f"What of the {subject}, {name}?", "document": f"The {subject} was old and red again. " * 6}
        for subject in subjects
        for name in ("Ann", "Bo", "Cy")
    ]


def ranking(toys: Toys) -> list[str]:
    file = toys.file("asked.jsonl", asked())
    return [
        "--task", "ranking", "--model", toys.checkpoint, "--train_file", file, "--test_file", file,
        "--num_train_epochs", "5", "--learning_rate", "3e-3", "--per_device_train_batch_size", "4",
        "--cache_dir", str(toys.folder / "ranking"),
    ]  # fmt: skip


def ranks_better(results: dict[str, Any]) -> bool:
    after, before, _ = (row["mrr@10"] for row in results["rows"].values())
    return after > before


RUNS.append(Run("ranking", "run_finetune.py", ranking, ranks_better, ["--weight_decay", "0.5"], kill_at=17))


# --- The tests


@pytest.fixture(scope="module")
def toys(toy_encoder_path, toy_checkpoint, encoder, tmp_path_factory) -> Toys:
    return Toys(tmp_path_factory.mktemp("data"), toy_encoder_path, toy_checkpoint, encoder)


def start(run: Run, toys: Toys, output: Path, *more: str) -> None:
    """The script in this process; errors end it as they end a process."""
    script = Path(__file__).parents[1] / run.script
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [str(script), *run.words(toys), *QUIET, *more, "--output_dir", str(output)])
        runpy.run_path(str(script), run_name="__main__")


STRAIGHT: dict[str, Path] = {}


@pytest.fixture(params=RUNS, ids=lambda run: run.name)
def run(request) -> Run:
    return request.param


@pytest.fixture
def straight(run, toys, tmp_path_factory) -> Path:
    """The folder of a run that nothing stops, made once."""
    if run.name not in STRAIGHT:
        STRAIGHT[run.name] = tmp_path_factory.mktemp("straight") / "model"
        start(run, toys, STRAIGHT[run.name])
    return STRAIGHT[run.name]


def files(folder: Path) -> dict[str, bytes]:
    """What a run leaves, but for checkpoints and copies of vectors to map into memory."""
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    kept = {name: path for name, path in names.items() if "checkpoint-" not in name and "/.vectors/" not in name}
    return {name: path.read_bytes() for name, path in kept.items()}


def test_it_learns_and_its_card_runs_and_names_no_path(run, toys, straight, monkeypatch):
    assert run.learned(json.loads((straight / "results.json").read_text()))
    for name, content in files(straight).items():
        assert str(straight.parent).encode() not in content, name
        assert str(toys.folder).encode() not in content, name
    run.check(straight, toys)
    [code] = re.findall(r"```python\n(.*?)```", (straight / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(straight.parent)  # the name of the model is that of its folder
    names: dict[str, Any] = {}
    exec(code.replace("the base checkpoint", toys.checkpoint), names)
    assert len(names[run.card])


class Killed(BaseException):
    """Like a signal, it is caught nowhere."""


@pytest.mark.parametrize("run", [run for run in RUNS if run.kill_at], ids=lambda run: run.name, indirect=True)
def test_a_run_that_was_killed_goes_on_to_the_same_bytes(run, toys, straight, tmp_path, monkeypatch):
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
    left, expected = files(tmp_path / "model"), files(straight)
    assert left.keys() == expected.keys()
    assert [name for name in left if left[name] != expected[name] and not name.endswith("result.json")] == []  # times


def test_a_second_start_does_nothing_and_another_recipe_is_refused(run, toys, straight, monkeypatch, capsys):
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
