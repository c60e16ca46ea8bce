"""Can layers over chunk vectors tell what a bag of chunks cannot: which chunks are missing, and in what order?

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.hidden_chunks --data DATA --train_file novels/train.jsonl \\
        --encoder nextlevelbert-static --output_dir hidden --seeds 0 1 2

Two questions about segments of 128 chunks. *Spans*: one to four chunks are hidden in many places; which of the hidden
spans belongs here? *Order*: two chunks that follow each other are hidden; which came first? What is hidden shows
nothing of itself: a row makes a vector of every place from the visible chunks, and it is compared, by cosine, with
hidden chunks under a linear map. A bag of the visible chunks is the same for every place, so it can only guess.

Chunk vectors are static and whitened. Rows are trained side by side on the same batches, with new borders, new places
and dropped tokens in every step, and judged by unseen novels. Intervals of 95 % are over novels, of the mean over
seeds, and of the differences to ``linear map of neighbours``. Finished seeds are kept. Writes ``study.json`` and
``table.md``. (docs/study.md)
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from transformers import get_cosine_schedule_with_warmup

from benchmarks.common import measuring
from benchmarks.common.studies import study_parser
from benchmarks.studies.passages import RATE, SEGMENT, SIZE, layers_over, weight_groups
from nextlevelbert import NextLevelBertForContrastiveLearning, NextLevelBertModel, load_chunk_encoder, read_documents
from nextlevelbert.corpus.token_corpus import TokenCorpus
from nextlevelbert.models.encoder_loading import LoadedChunkEncoder
from nextlevelbert.models.pooling import ResidualProjection
from nextlevelbert.pretraining.passages import PassageDataset, PassageLearner
from nextlevelbert.pretraining.trained_tokens import NO_TOKEN, vectors_of

REACH = 8
UNTRAINED, CONTROL, PAIR = "neighbours, without training", "linear map of neighbours", "the two chunks alone"
CONVOLUTION, BOTH, ALONE = "convolution over 17 chunks", "convolution over 17 chunks and attention", "attention"
ROWS = (CONTROL, CONVOLUTION, BOTH, ALONE, PAIR)
TASKS = ("spans", "order")


@dataclass
class Hidden:
    """Runs of hidden chunks in segments: `segments`, `starts` and `lengths`, ``[M]`` each."""

    segments: torch.Tensor
    starts: torch.Tensor
    lengths: torch.Tensor

    def places(self) -> torch.Tensor:
        """``[M, most]`` places of the chunks of each run, -1 behind its end."""
        offsets = torch.arange(int(self.lengths.max()))
        return torch.where(offsets < self.lengths[:, None], self.starts[:, None] + offsets, -1)

    def visible(self, shape: Sequence[int]) -> torch.Tensor:
        """``[N, L]``: what is not hidden."""
        seen, places = torch.ones(*shape, dtype=torch.bool), self.places()
        seen[self.segments[:, None].expand_as(places)[places >= 0], places[places >= 0]] = False
        return seen


def hide(lengths: list[int], order: bool, draw: np.random.Generator) -> Hidden:
    """Runs of one to four chunks, or of two for the `order`, with four to eight visible ones between them.

    Args:
        lengths: chunks of each segment.
    """
    found: list[tuple[int, int, int]] = []
    for segment, length in enumerate(lengths):
        place = int(draw.integers(4, 9))
        while place + (run := 2 if order else int(draw.integers(1, 5))) + 4 <= length:
            found.append((segment, place, run))
            place += run + int(draw.integers(4, 9))
    return Hidden(*torch.tensor(found, dtype=torch.long).reshape(-1, 3).T)


class Reader(nn.Module):
    """A row: vectors of places from what is visible around them, and a linear map of what is hidden."""

    def __init__(self, name: str, source: LoadedChunkEncoder) -> None:
        super().__init__()
        model: Any = NextLevelBertForContrastiveLearning.from_chunk_encoder(
            source, SIZE, neighbours=REACH, pooling="mean", include_chunk_encoder=False
        )
        size = model.config.hidden_size
        self.name, self.around, self.logit_scale = name, model.model.neighbours, model.logit_scale
        self.answer = ResidualProjection(size, 1.0)
        nn.init.eye_(self.answer.weight)
        if name in (UNTRAINED, CONTROL):
            nn.init.zeros_(self.around.mean.weight)  # neighbours alone, with the weights that training starts from
            self.around.convolution.requires_grad_(False)
            self.around.mean.requires_grad_(False)
        self.layers = layers_over(size, "full_attention") if name in (BOTH, ALONE) else None
        self.share = nn.Parameter(torch.tensor(0.1))
        self.mask = nn.Parameter(torch.randn(size) / size**0.5)
        self.pair = nn.Linear(size, size, bias=False)
        nn.init.normal_(self.pair.weight, std=0.1 / size)

    def forward(self, vectors: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Vectors ``[N, L, D]`` of all places, of length 1, from the visible ones among ``[N, L, D]``."""
        seen = vectors.masked_fill(~visible.unsqueeze(-1), 0.0)
        if self.name == ALONE:
            assert self.layers is not None
            entered = torch.where(visible.unsqueeze(-1), vectors, self.mask)
            return F.normalize(self.layers(inputs_embeds=entered * vectors.shape[-1] ** 0.5).last_hidden_state, dim=-1)
        near = self.around(seen, torch.ones_like(visible))
        if self.layers is None:
            return near
        hidden = self.layers(inputs_embeds=near * near.shape[-1] ** 0.5).last_hidden_state
        return F.normalize(near + self.share * hidden / near.shape[-1] ** 0.5, dim=-1)

    def scores_of_spans(self, vectors: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        """Scaled cosine ``[M, M]`` of every gap with every hidden span, -inf between segments."""
        context = self(vectors, hidden.visible(vectors.shape[:2]))
        places = hidden.places()
        real = (places >= 0).unsqueeze(-1)  # [M, most, 1]
        rows = hidden.segments[:, None], places.clamp(min=0)
        gaps = F.normalize((context[rows] * real).sum(dim=1), dim=-1)  # [M, D]
        spans = F.normalize((F.normalize(self.answer(vectors[rows]), dim=-1) * real).sum(dim=1), dim=-1)
        return (gaps @ spans.T * self.logit_scale.exp()).masked_fill(
            hidden.segments[:, None] != hidden.segments, -torch.inf
        )

    def scores_of_order(self, vectors: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        """``[M]``: above zero where the first of two hidden chunks is thought to come first."""
        one, two = (vectors[hidden.segments, hidden.starts + number] for number in (0, 1))  # [M, D]
        if self.name == PAIR:
            return ((self.pair(two) - two @ self.pair.weight) * one).sum(dim=-1)
        context = self(vectors, hidden.visible(vectors.shape[:2]))
        places = context[hidden.segments, hidden.starts] - context[hidden.segments, hidden.starts + 1]
        return (places * (F.normalize(self.answer(one), dim=-1) - F.normalize(self.answer(two), dim=-1))).sum(dim=-1)

    def loss(self, task: str, vectors: torch.Tensor, hidden: Hidden) -> torch.Tensor:
        if task == "order":
            return F.softplus(-self.scores_of_order(vectors, hidden) * self.logit_scale.exp()).mean()
        return F.cross_entropy(self.scores_of_spans(vectors, hidden), torch.arange(len(hidden.starts)))

    @torch.no_grad()
    def right(self, task: str, vectors: torch.Tensor, hidden: Hidden) -> list[float]:
        """1 for each question that is answered, 0 for each that is not; equal scores answer none."""
        if task == "order":
            return (self.scores_of_order(vectors, hidden) > 0).float().tolist()
        scores = self.scores_of_spans(vectors, hidden)
        return ((scores >= scores.diagonal()[:, None]).sum(dim=1) == 1).float().tolist()


@dataclass
class Judged:
    """Whitened chunk vectors of segments of unseen novels ``[L, D]``, each with the number of its novel."""

    segments: list[tuple[int, torch.Tensor]]

    def questions(self, task: str) -> list[tuple[int, torch.Tensor, Hidden]]:
        """The same ones each time."""
        draw = np.random.default_rng(0)
        found = [(book, rows[None], hide([len(rows)], task == "order", draw)) for book, rows in self.segments]
        return [question for question in found if len(question[2].starts)]


def train(names: list[str], seed: int, task: str, corpus: TokenCorpus, white: Any, source: LoadedChunkEncoder,
          args: Namespace) -> dict[str, Reader]:  # fmt: skip
    """Rows trained side by side, on the same batches."""
    readers = {}
    for name in names:
        torch.manual_seed(seed)
        readers[name] = Reader(name, source)
    tools = {}
    for name, reader in readers.items():
        optimizer = torch.optim.AdamW(weight_groups(reader), RATE, weight_decay=0.01)
        tools[name] = (optimizer, get_cosine_schedule_with_warmup(optimizer, args.steps // 20, args.steps))
    dataset, draw = PassageDataset(corpus, SIZE, 16, SEGMENT, seed=seed), np.random.default_rng(seed)
    base = NextLevelBertForContrastiveLearning.from_chunk_encoder(source, SIZE, neighbours=0, pooling="mean")
    table = PassageLearner(base, source, 0.15).train()
    torch.manual_seed(seed)
    for step in range(args.steps):
        dataset.epoch = step
        items = [dataset[int(index)] for index in draw.choice(len(dataset), args.batch_size, replace=False)]
        length = min(len(item["input_ids"]) for item in items) // SIZE
        ids = torch.from_numpy(np.stack([item["input_ids"][: length * SIZE].astype(np.int64) for item in items]))
        with torch.no_grad():
            vectors = white(table.chunk_vectors(ids.reshape(-1, SIZE))).unflatten(0, (len(items), length))
        hidden = hide([length] * len(items), task == "order", draw)
        for name, reader in readers.items():
            optimizer, schedule = tools[name]
            reader.loss(task, vectors, hidden).backward()
            nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return {name: reader.eval() for name, reader in readers.items()}


def judged_novels(file: str, source: LoadedChunkEncoder, white: Any) -> tuple[Judged, list[str]]:
    corpus = TokenCorpus(read_documents(file), source.tokenizer)
    base = NextLevelBertForContrastiveLearning.from_chunk_encoder(source, SIZE, neighbours=0, pooling="mean")
    table, segments = PassageLearner(base, source, 0.0).eval(), []
    for number in range(len(corpus)):
        ids = corpus[number].long()
        rows = F.pad(ids, (0, -len(ids) % SIZE), value=NO_TOKEN).reshape(-1, SIZE)
        with torch.no_grad():
            segments += [(number, part) for part in white(table.chunk_vectors(rows)).split(SEGMENT)]
    return Judged(segments), corpus.document_ids


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch_size", type=int, default=4)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    source = load_chunk_encoder(args.encoder, args.encoder_name)
    corpus = TokenCorpus(read_documents(str(args.train_file)), source.tokenizer)
    model = NextLevelBertModel.from_chunk_encoder(source, SIZE, neighbours=0, pooling="mean", whiten_chunks=True)
    model.fit_whitening(vectors_of(corpus, range(len(corpus)), source, model.config.chunking_rule()))
    judged, names = judged_novels(str(args.data / "novels/validation.jsonl.gz"), source, model.whitening)
    record: dict[str, Any] = {}
    for task in args.tasks:
        questions = judged.questions(task)
        books = np.concatenate([[names[book]] * len(hidden.starts) for book, _, hidden in questions])
        chance = 0.5 if task == "order" else np.mean([1 / len(h.starts) for _, _, h in questions for _ in h.starts])

        def answered(reader: Reader, task: str = task, questions: Any = questions) -> list[float]:
            return [right for _, vectors, hidden in questions for right in reader.right(task, vectors, hidden)]

        found = {UNTRAINED: [answered(Reader(UNTRAINED, source))]}
        for seed in args.seeds:
            kept = args.output_dir / f"{task}, seed {seed}.json"
            rows = json.loads(kept.read_text()) if kept.exists() else {}
            wanted = [name for name in args.rows if name not in rows and (name != PAIR or task == "order")]
            if wanted:
                readers = train(wanted, seed, task, corpus, model.whitening, source, args)
                rows |= {name: answered(reader) for name, reader in readers.items()}
                kept.write_text(json.dumps(rows))
            for name, row in rows.items():
                found.setdefault(name, []).append(row)
            record[task] = {"questions": len(books), "chance": float(chance), "rows": summed(found, books)}
            print(write(args, record), flush=True)


def write(args: Namespace, record: dict[str, Any]) -> str:
    """Writes tables and figures of what is finished; returns the tables."""
    text = StringIO()
    with redirect_stdout(text):
        for task, found in record.items():
            print(f"\n{task}: {found['questions']} questions, chance {found['chance']:.3f}\n")
            measuring.print_table(
                ["", "seeds", "right", f"minus {CONTROL}"],
                [[name, len(row["seeds"]), f"{row['right'][0]:.3f}",
                  "{:+.3f} to {:+.3f}".format(*row["above"][1:]) if row["above"] else ""]
                 for name, row in found["rows"].items()],
            )  # fmt: skip
    (args.output_dir / "table.md").write_text(text.getvalue())
    facts = {"machine": measuring.processor(), "steps": args.steps, "tasks": record}
    (args.output_dir / "study.json").write_text(json.dumps(facts, indent=1) + "\n")
    return text.getvalue()


def summed(found: dict[str, list[list[float]]], books: np.ndarray) -> dict[str, Any]:
    """By row: how many are right, and more than in the control, both with an interval over books; and by seed."""
    means = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    return {
        name: {
            "right": measuring.with_interval(means[name], books, 0),
            "above": measuring.with_interval(means[name] - means[CONTROL], books, 0) if CONTROL in means else None,
            "seeds": [float(np.mean(row)) for row in rows],
        }
        for name, rows in found.items()
    }


if __name__ == "__main__":
    main()
