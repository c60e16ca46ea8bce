"""Tasks in which a chunk alone cannot answer: are layers over the chunks worth their training?

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.masked_objectives encode --data DATA --novels novels --folder STUDY
    python -m benchmarks.studies.chunk_tasks encode --data DATA --novels novels \\
        --study STUDY --folder TASKS
    python -m benchmarks.studies.chunk_tasks train --study STUDY --folder TASKS --seeds 3 \\
        --run STUDY/runs/d-0-1000000-512

Tasks, on the stored vectors of 64 chunks in a row of a novel: *chapters* (headings deleted), in
which chunks does a chapter begin (average precision); *intruder*, which of the chunks comes from
elsewhere in the book (accuracy); *order*, of two excerpts of 32 chunks, whether the first one comes
first (accuracy).

Models: the cosines of neighbouring chunks without training; a linear layer and an MLP over five
neighbouring vectors, whitened, and the cosines between them; layers over all 64 chunks, from a
random start, from the sentence encoder's own layers, and from each `--run` of masked pretraining.
All of them are trained for the same number of passes over the 198 training novels and measured on
the 22 validation novels. The table gives means over seeds, and the difference to the best model
that was not pretrained on vectors, with an interval of 95 % over books.
"""

from __future__ import annotations

import copy
import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn.metrics import average_precision_score
from torch import nn
from torch.nn import functional as F
from transformers import get_linear_schedule_with_warmup, set_seed

from benchmarks.common.measuring import (
    add_json_option,
    print_table,
    with_interval,
    write_figures,
)
from benchmarks.common.objectives import TargetSpace, device
from nextlevelbert import (
    Document,
    NextLevelBertForMaskedVectorModeling,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.data.tables import open_rows

LENGTH = 64  # chunks of a window
HALF = LENGTH // 2
REACH = 2  # neighbours on either side that a local model reads
TASKS = ("chapters", "intruder", "order")
MEASURES = {"chapters": "average precision", "intruder": "accuracy", "order": "accuracy"}
LOCAL = ("cosines", "linear, five neighbours", "MLP, five neighbours")
NOT_PRETRAINED = ("layers, random", "layers, of the encoder")


# --- Novels without headings


def heading_end(text: str, start: int, heading: str) -> int:
    """Returns the end of a heading that begins at `start`; white space and marks may differ."""
    end = start
    for character in filter(str.isalnum, heading):
        while not text[end].isalnum():
            end += 1
        if text[end] != character:
            raise ValueError(f"{text[start : end + 20]!r} is not the heading {heading!r}.")
        end += 1
    return text.find("\n", end) + 1


def without_headings(row: dict[str, Any]) -> tuple[str, list[int]]:
    """Removes the headings of a novel's chapters, and returns where the chapters begin."""
    text = row["text"]
    pieces = []
    beginnings = []
    length = 0
    position = 0
    for chapter in row["chapters"]:
        before = text[position : chapter["start"]]
        pieces.append(before)
        length += len(before)
        beginnings.append(length)
        position = heading_end(text, chapter["start"], chapter["heading"])
        while position < len(text) and text[position].isspace():
            position += 1
    pieces.append(text[position:])
    return "".join(pieces), beginnings


def encode(args: Namespace) -> None:
    """Encodes the novels without headings, and writes in which chunks chapters begin."""
    model = NextLevelBertForMaskedVectorModeling.from_pretrained(args.study / "start")
    source = load_chunk_encoder(args.encoder)
    source.encoder.to(device())
    rule = model.config.chunking_rule()
    held_out = {document.id for document in read_documents(args.novels / "held_out.jsonl")}
    for name in ("train", "validation"):
        texts = {}
        beginnings = {}
        for _, row in open_rows(args.data / f"novels/{name}.jsonl.gz").rows:
            if row["id"] not in held_out:
                texts[row["id"]], beginnings[row["id"]] = without_headings(row)
        documents = [Document(book, text) for book, text in texts.items()]
        corpus = encode_corpus(documents, source, rule, args.folder / name)
        chunks = {}
        for document in corpus:
            ends = document.spans[:, 1].numpy()
            # A chapter that begins at the very end of a chunk begins in the next one.
            numbers = np.searchsorted(ends, beginnings[document.id], side="right")
            chunks[document.id] = sorted({int(number) for number in numbers})
        (args.folder / f"{name}.json").write_text(json.dumps(chunks))


# --- Examples


@dataclass(frozen=True)
class Book:
    """A novel's chunk vectors ``[n, D]``, and whether a chapter begins in each chunk ``[n]``."""

    vectors: torch.Tensor
    begins: torch.Tensor


@cache
def read_books(folder: Path, name: str) -> list[Book]:
    """Reads the novels of a set that are long enough for every task."""
    books = []
    beginnings = json.loads((folder / f"{name}.json").read_text())
    for document in VectorCorpus(folder / name):
        begins = torch.zeros(len(document.plain))
        begins[beginnings[document.id]] = 1
        begins[0] = 0  # the book's first chunk says so itself
        if len(begins) >= 3 * LENGTH and begins.any():
            books.append(Book(document.plain.float(), begins))
    return books


def examples(
    books: list[Book], task: str, generator: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
    """Yields windows ``[64, D]`` with label and number of the book, in one pass over the books.

    Labels: *chapters* ``[64]``, *intruder* the position, *order* 1 if the first excerpt comes
    first.
    """
    for number, book in enumerate(books):
        count = len(book.vectors)
        offset = int(generator.integers(count % LENGTH + 1))
        for start in range(offset, count - LENGTH + 1, LENGTH):
            window = book.vectors[start : start + LENGTH]
            label = book.begins[start : start + LENGTH]
            if task == "intruder":
                elsewhere = np.r_[0 : max(start - LENGTH, 0), start + 2 * LENGTH : count]
                window = window.clone()
                label = torch.tensor(generator.integers(LENGTH))
                window[label] = book.vectors[generator.choice(elsewhere)]
            elif task == "order":
                first, second = np.sort(generator.integers(count - 3 * HALF + 1, size=2))
                # At least as many chunks as an excerpt has lie between the two.
                excerpts = [
                    book.vectors[first : first + HALF],
                    book.vectors[second + 2 * HALF : second + 3 * HALF],
                ]
                label = torch.tensor(float(generator.integers(2)))
                if not label:
                    excerpts.reverse()
                window = torch.cat(excerpts)
            yield window, label, number


def batches(
    books: list[Book], task: str, generator: np.random.Generator, size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields examples in a random order: windows ``[B, 64, D]`` and labels ``[B, …]``."""
    rows = list(examples(books, task, generator))
    generator.shuffle(rows)
    for start in range(0, len(rows), size):
        windows, labels, _ = zip(*rows[start : start + size], strict=True)
        yield torch.stack(windows), torch.stack(labels)


# --- Models


def neighbours(vectors: torch.Tensor) -> torch.Tensor:
    """Puts each vector of ``[B, L, D]`` between two before and two after it: ``[B, L, 5, D]``."""
    padded = F.pad(vectors, (0, 0, REACH, REACH))
    return padded.unfold(1, 2 * REACH + 1, 1).transpose(2, 3)


class LocalModel(nn.Module):
    """Five neighbouring vectors, whitened, and the cosines between them; with an MLP if asked."""

    def __init__(self, space: TargetSpace, hidden_size: int) -> None:
        super().__init__()
        self.space = copy.deepcopy(space).requires_grad_(requires_grad=False)
        around = 2 * REACH + 1
        features = around * len(space.mean) + around * around
        self.output_size = features
        self.layer: nn.Module = nn.Identity()
        if hidden_size:
            self.output_size = hidden_size
            self.layer = nn.Sequential(nn.Linear(features, hidden_size), nn.GELU())

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        vectors = neighbours(F.normalize(self.space(windows), dim=-1))  # [B, L, 5, D]
        cosines = vectors @ vectors.mT  # [B, L, 5, 5]
        scale = windows.shape[-1] ** 0.5  # dimensions of about variance 1
        return self.layer(torch.cat([vectors.flatten(2) * scale, cosines.flatten(2)], dim=-1))


class Layers(nn.Module):
    """A NextLevelBERT over the chunks of a window."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.output_size = model.config.hidden_size

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        return self.model(inputs_embeds=windows).last_hidden_state


class TaskModel(nn.Module):
    """A linear head over the outputs of a model for each chunk."""

    def __init__(self, task: str, body: Any) -> None:
        super().__init__()
        self.task = task
        self.body = body
        size = body.output_size
        if task == "order":
            size *= 2
        self.head = nn.Linear(size, 1)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Scores the chunks, ``[B, 64]``, or the order, ``[B]``."""
        states = self.body(windows)
        if self.task == "order":
            states = torch.cat([states[:, :HALF].mean(dim=1), states[:, HALF:].mean(dim=1)], dim=-1)
        return self.head(states).squeeze(-1)


def loss_of(task: str, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Computes cross-entropy over the chunks of the window, or over yes and no."""
    if task == "intruder":
        return F.cross_entropy(scores, labels)
    return F.binary_cross_entropy_with_logits(scores, labels)


def new_body(name: str, space: TargetSpace, study: Path, hidden_size: int) -> nn.Module:
    """Makes the model of a row, before training."""
    if name.startswith("linear"):
        return LocalModel(space, hidden_size=0)
    if name.startswith("MLP"):
        return LocalModel(space, hidden_size=hidden_size)
    weights = {}
    if name not in NOT_PRETRAINED:
        for key, value in load_file(Path(name) / "model.safetensors").items():
            if key.startswith("model."):
                weights[key.removeprefix("model.")] = value
    model = NextLevelBertForMaskedVectorModeling.from_pretrained(
        study / "start", whiten_chunks="model.whitening.mean" in weights
    )
    if name == "layers, random":
        model = NextLevelBertForMaskedVectorModeling(model.config)
    elif weights:
        model.load_state_dict(weights)
    return Layers(model.base_model)


def cosine_scores(task: str, windows: torch.Tensor, reach: int) -> torch.Tensor:
    """Scores the chunks of windows by cosines, without training; shapes as in `TaskModel`.

    *chapters*: dissimilarity of the means of `reach` chunks before and from each chunk; *intruder*:
    dissimilarity of a chunk and the mean of its neighbours.
    """
    total = F.pad(windows.cumsum(dim=1), (0, 0, 1, 0))  # [B, L + 1, D]
    position = torch.arange(LENGTH)
    first = (position - reach).clamp(min=0)
    if task == "chapters":
        before = total[:, position] - total[:, first]
        after = total[:, (position + reach).clamp(max=LENGTH)] - total[:, position]
        return -F.cosine_similarity(before, after, dim=-1)
    around = total[:, (position + reach + 1).clamp(max=LENGTH)] - total[:, first]
    return -F.cosine_similarity(windows, around - windows, dim=-1)


# --- Training and measuring


def right_by_book(
    task: str, rows: list[tuple[torch.Tensor, torch.Tensor, int]], scores: torch.Tensor
) -> list[float]:
    """Computes the measure of each book."""
    labels: dict[int, list[torch.Tensor]] = {}
    answers: dict[int, list[torch.Tensor]] = {}
    for (_, label, book), answer in zip(rows, scores, strict=True):
        labels.setdefault(book, []).append(label)
        answers.setdefault(book, []).append(answer)
    values = []
    for book, book_labels in labels.items():
        truth = torch.stack(book_labels)
        answer = torch.stack(answers[book])
        if task == "chapters":
            values.append(average_precision_score(truth.flatten(), answer.flatten()))
        elif task == "intruder":
            values.append(float((answer.argmax(dim=-1) == truth).float().mean()))
        else:
            values.append(float(((answer > 0) == truth.bool()).float().mean()))
    return values


def train_one(name: str, task: str, seed: int, space: TargetSpace, args: Namespace) -> list[float]:
    """Trains a model for a task.

    Returns:
        The measure of each validation novel.
    """
    set_seed(seed)
    validation = read_books(args.folder, "validation")
    rows = list(examples(validation, task, np.random.default_rng(1_000)))
    windows = torch.stack([window for window, _, _ in rows])
    if name == "cosines":
        if task == "order":
            raise ValueError("Cosines do not tell the order.")
        return right_by_book(task, rows, best_cosines(task, space, windows, args))

    model = TaskModel(task, new_body(name, space, args.study, args.hidden_size)).to(device())
    learning_rate = 1e-4
    if name in LOCAL:
        learning_rate = 1e-3
    train = read_books(args.folder, "train")
    generator = np.random.default_rng(seed)
    steps = args.epochs * sum(1 for _ in batches(train, task, generator, args.batch_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 20, steps)
    model.train()
    for _ in range(args.epochs):
        for inputs, labels in batches(train, task, generator, args.batch_size):
            scores = model(inputs.to(device()))
            loss_of(task, scores, labels.to(device())).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    model.eval()
    with torch.inference_mode():
        scores = torch.cat(
            [model(part.to(device())).cpu() for part in windows.split(args.batch_size)]
        )
    return right_by_book(task, rows, scores)


def best_cosines(
    task: str, space: TargetSpace, windows: torch.Tensor, args: Namespace
) -> torch.Tensor:
    """Scores ``[N, 64]`` by the kind of vectors and the reach that are best on training novels."""
    train = list(examples(read_books(args.folder, "train"), task, np.random.default_rng(0)))
    inputs = torch.stack([window for window, _, _ in train])
    best = -1.0
    for is_whitened in (False, True):
        for reach in (1, 2, 3, 4, 6, 8):
            both = [inputs, windows]
            if is_whitened:
                both = [F.normalize(space(vectors), dim=-1) for vectors in both]
            value = np.mean(right_by_book(task, train, cosine_scores(task, both[0], reach)))
            if value > best:
                best = float(value)
                scores = cosine_scores(task, both[1], reach)
    return scores


def train(args: Namespace) -> None:
    """Trains the models that `results.jsonl` does not have yet, and prints the table."""
    space = TargetSpace(VectorCorpus(args.folder / "train").hidden_size)
    space.whiten(document.plain for document in VectorCorpus(args.folder / "train"))
    results = args.folder / "results.jsonl"
    done = {}
    if results.exists():
        for line in map(json.loads, results.read_text().splitlines()):
            done[line["model"], line["task"], line["seed"]] = line["books"]
    names = [*LOCAL, *NOT_PRETRAINED, *args.run]
    for seed in range(args.seeds):
        for task in args.tasks:
            for name in names:
                key = (name, task, seed)
                if key in done or (name == "cosines" and task == "order"):
                    continue
                done[key] = train_one(name, task, seed, space, args)
                line = {"model": name, "task": task, "seed": seed, "books": done[key]}
                with results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(name, task, seed, round(float(np.mean(done[key])), 4), flush=True)
    figures: dict[str, dict[str, Any]] = {}
    for task in args.tasks:
        for title, cells in task_figures(task, names, done, args.seeds).items():
            figures.setdefault(title, {}).update(cells)
    write_figures(args.json, figures)
    for task in args.tasks:
        show(task, figures)


def task_figures(
    task: str, names: list[str], done: dict[Any, list[float]], seeds: int
) -> dict[str, dict[str, Any]]:
    """Returns the measure of each model, and its difference to the best control, by model."""
    means = {}  # over seeds, of each book
    for name in names:
        runs = [done[name, task, seed] for seed in range(seeds) if (name, task, seed) in done]
        if runs:
            means[name] = np.mean(runs, axis=0)
    controls = [name for name in (*LOCAL, *NOT_PRETRAINED) if name in means]
    best = max(controls, key=lambda name: means[name].mean())
    figures = {}
    for name, books in means.items():
        title = name
        if name not in (*LOCAL, *NOT_PRETRAINED):
            title = f"layers, {Path(name).parent.name}"
        figures[title] = {
            task: float(books.mean()),
            f"{task}, minus best": with_interval(
                books - means[best], np.arange(len(books)), seed=0
            ),
        }
    return figures


def show(task: str, figures: dict[str, dict[str, Any]]) -> None:
    """Prints the table of a task."""
    rows = []
    for title, cells in figures.items():
        if task in cells:
            mean, low, high = cells[f"{task}, minus best"]
            rows.append([title, f"{cells[task]:.3f}", f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"])
    print()
    print_table([task, MEASURES[task], "minus the best control"], rows)


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["encode", "train"])
    parser.add_argument("--study", type=Path, required=True, help="of masked_objectives")
    parser.add_argument("--folder", type=Path, required=True, help="of these tasks")
    parser.add_argument("--data", type=Path, help="encode: folder with novels/")
    parser.add_argument("--novels", type=Path, help="encode: folder of hold_out's held_out.jsonl")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--run", nargs="*", default=[], help="checkpoints of masked_objectives")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=16, help="windows")
    parser.add_argument("--hidden_size", type=int, default=256, help="of the MLP")
    add_json_option(parser)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.action == "encode":
        encode(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
