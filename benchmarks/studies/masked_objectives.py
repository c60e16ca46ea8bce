"""Which objective makes masked chunk vectors learnable at a laptop's budget: seven rows, one curve.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.masked_objectives encode --data DATA --novels novels --folder STUDY
    python -m benchmarks.studies.masked_objectives train --folder STUDY --row a
    python -m benchmarks.studies.masked_objectives draw --folder STUDY
    python -m benchmarks.studies.masked_objectives last_look --folder STUDY --row d

Rows: (a) the paper's loss; (b) targets standardised by dimension, the loss summed over dimensions;
(c) whitened targets at their natural length; (d) c by choice among the batch and 8,192 stored
vectors; (e) codes of whitened vectors, 1,024 classes and as many of what is left; (f) d, or e with
`--best e`, where the model predicts what the mean of the neighbours leaves, and spans of 3 to 8
chunks are masked; (g) f with residual pooling; (h) d with whitened inputs, and all corpora of
`--offsets`; (i) h with plain inputs; (j) h with one offset; (k) h without dropout; (l) h, where the
model predicts what the weighed neighbours leave.

Five million positions (`--positions`) are an hour to two on two cores. Repeat the same command to
go on with a row that was stopped; it ends with the same weights. The best row goes on with
`--positions 20000000`, and `--positions 10000000 --seed 1`. `--sequence_length 128` and `--bf16`
(where the processor has its instructions) are for the rows that are worth it.

Every half million positions a line is appended to ``STUDY/results.jsonl``, on the validation
novels: R² against the mean; masked vectors found among all masked and among 8,192, with chance and
three controls: the mean of the two nearest visible chunks, all visible chunks weighed by .7 to the
power of their distance, and nine weights by least squares (for eight distances, and for the mean of
the window). With ``train_`` in front, the scores are those of the first 22 training novels. Then
the MAP of chapters (names masked) by the mean of their contextual vectors, by these plus plain
ones, and by the document vector; SQuALITY's MRR by the same. At the end of a row ``STUDY/queries``
gets the score of each query. `draw` prints a table with them, the difference to the plain mean with
an interval of 95 % over books, and draws the curves. `last_look` measures a finished row on the
twenty novels that were set aside.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file
from sklearn.cluster import MiniBatchKMeans
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, Dataset
from transformers import TrainerCallback, TrainingArguments, set_seed

from benchmarks.common.controls import (
    MaskedBatch,
    hits,
    least_squares,
    neighbour_means,
    neighbour_terms,
    weighed_neighbours,
)
from benchmarks.common.measuring import CHARACTERS_PER_TOKEN, print_table, with_interval
from benchmarks.common.objectives import (
    Choice,
    Codes,
    DataCollatorForSpanMasking,
    Regression,
    TargetSpace,
    device,
)
from benchmarks.studies.chunk_tasks import heading_end
from benchmarks.studies.document_vectors import (
    by_query,
    load_tasks,
    mostly_capitalised,
    without,
)
from nextlevelbert import (
    ChunkingRule,
    DataCollatorForVectorMasking,
    Document,
    NextLevelBertForMaskedVectorModeling,
    PackedVectorDataset,
    VectorCorpus,
    encode_corpus,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.data.tables import open_rows
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores
from nextlevelbert.models.configuration_nextlevelbert import NOT_SPECIAL
from nextlevelbert.models.losses import smooth_l1_loss
from nextlevelbert.training.plots import save_figure
from nextlevelbert.training.runs import last_whole_checkpoint
from nextlevelbert.training.trainer import CardTrainer

POOL = 8_192  # stored vectors: to choose among, and to find a masked one among
METRICS = {"chapters": "map", "squality": "mrr", "held_out_chapters": "map"}
MASKED_COLUMNS = ("r2", "found_in_all", "found_in_pool", "train_found_in_pool")
KINDS = ("contextual", "both")  # of document vectors that the layers take part in
VALIDATION = ("chapters", "squality")
MEASURED = 22  # training novels that are measured, too
CONTROLS = ("neighbours", "weighed", "least_squares")
SHORTEST = 200  # words of a chapter that is searched
HEADINGS = (
    "row-seed-positions-length",
    "R²",
    "found in all",
    "found in 8,192",
    "in 8,192, training novels",
    "chapters",
    "with plain",
    "SQuALITY",
    "with plain",
)
PANELS = {
    "r2": "R² against the mean",
    "found_in_pool": "masked found among 8,192, unseen novels",
    "train_found_in_pool": "masked found among 8,192, training novels",
    "chapters_contextual": "chapters, contextual: MAP",
    "chapters_both": "chapters, contextual + plain: MAP",
    "squality_both": "SQuALITY, contextual + plain: MRR",
}


@dataclass(frozen=True)
class Row:
    """An objective of the table."""

    space: str = "whitened"  # of the targets: as they are, standardised, whitened
    loss: str = "regression"  # or paper, choice, codes
    anchor: str = "none"  # predict what the nearest, or the weighed neighbours leave
    inputs: str = "as they are"  # or whitened
    offsets: bool = False  # train on all corpora of `--offsets`
    dropout: bool = True
    shortest: int = 1  # chunks in a masked span
    longest: int = 1
    pooling: str = "mean"


def row_of(name: str, best: str) -> Row:
    """Returns the row of a letter; f and g build on the row `best`."""
    losses = {"d": "choice", "e": "codes"}
    trial = Row(loss="choice", inputs="whitened", offsets=True)
    variants: dict[str, dict[str, Any]] = {
        "h": {},
        "i": {"inputs": "as they are"},
        "j": {"offsets": False},
        "k": {"dropout": False},
        "l": {"anchor": "weighed"},
    }
    if name in variants:
        return replace(trial, **variants[name])
    if name == "a":
        return Row(space="as they are", loss="paper")
    if name == "b":
        return Row(space="standardised")
    if name == "c":
        return Row()
    if name in losses:
        return Row(loss=losses[name])
    pooling = "mean"
    if name == "g":
        pooling = "residual"
    return Row(loss=losses[best], anchor="nearest", shortest=3, longest=8, pooling=pooling)


class PaperLoss(Regression):
    """Computes Smooth L1 as in the paper, a mean over dimensions."""

    def forward(
        self, outputs: torch.Tensor, targets: torch.Tensor, anchors: torch.Tensor, others: Any
    ) -> torch.Tensor:
        return smooth_l1_loss(anchors + outputs, targets)


class Learner(nn.Module):
    """A model, the space of its targets and its objective."""

    def __init__(self, model: Any, space: TargetSpace, objective: Regression, row: Row) -> None:
        super().__init__()
        self.model = model
        self.space = space
        self.objective = objective
        self.row = row

    def targets_and_neighbours(
        self, batch: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the masked vectors' targets and the mean of their neighbours, ``[M, D]`` each."""
        places = (batch["special_ids"], batch["mask_positions"])
        targets = self.space(batch["labels"][batch["mask_positions"]])
        if self.row.anchor == "weighed":
            return targets, weighed_neighbours(self.space(batch["labels"]), *places)
        return targets, self.space(neighbour_means(batch["labels"], *places))

    def anchors(self, neighbours: torch.Tensor) -> torch.Tensor:
        """Returns the vectors that predictions are added to."""
        if self.row.anchor == "none":
            return torch.zeros_like(neighbours)
        return neighbours

    def outputs(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the head's outputs at the masked positions, ``[M, D]``."""
        names = ("inputs_embeds", "special_ids", "mask_positions")
        return self.model(**{name: batch[name] for name in names}).predictions

    def predictions(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns predicted vectors in the target space, ``[M, D]``."""
        _, neighbours = self.targets_and_neighbours(batch)
        return self.anchors(neighbours) + self.objective.decode(self.outputs(batch))

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = self.outputs(batch).float()
        # Targets and their choice in float32, also where the layers compute in bfloat16.
        with torch.autocast(outputs.device.type, enabled=False):
            targets, neighbours = self.targets_and_neighbours(batch)
            visible = (batch["special_ids"] == NOT_SPECIAL) & ~batch["mask_positions"]
            loss = self.objective(
                outputs,
                targets,
                anchors=self.anchors(neighbours),
                others=self.space(batch["labels"][visible]),
            )
        return {"loss": loss}


# --- What is encoded once


def encode(args: Namespace) -> None:
    """Encodes the novels, and the chapters, answers and stories that are searched."""
    source = load_chunk_encoder(args.encoder)
    layers = source
    if args.layers:
        # A static encoder has no layers to start with.
        layers = load_chunk_encoder(args.layers)
    set_seed(args.seed)
    model = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(
        layers,
        chunk_size=args.chunk_size,
        num_hidden_layers=args.num_hidden_layers,
        include_chunk_encoder=False,
    )
    model.save_pretrained(args.folder / "start")
    rule = ChunkingRule.from_tokenizer(source.tokenizer, args.chunk_size)
    source.encoder.to(device())
    if args.bf16:
        source.encoder.to(torch.bfloat16)
    held_out = read_documents(args.novels / "held_out.jsonl")
    encode_corpus(held_out, source, rule, args.folder / "held_out")
    files = {"train": args.novels / "train.jsonl"}
    if args.texts:
        files["more"] = args.texts
    for name, file in files.items():
        encode_corpus(read_documents(file), source, rule, args.folder / name)
        for offset in range(1, args.offsets):
            characters = round(args.chunk_size * CHARACTERS_PER_TOKEN * offset / args.offsets)
            documents = read_documents(file)
            later = (Document(document.id, document.text[characters:]) for document in documents)
            encode_corpus(later, source, rule, args.folder / f"{name}-offset-{offset}")
    validation = read_documents(args.data / "novels/validation.jsonl.gz")
    encode_corpus(validation, source, rule, args.folder / "validation")

    tasks = {}
    for task in load_tasks(args.data):
        tasks[task.name.replace("books", "chapters")] = task
    tasks["held_out_chapters"] = held_out_chapters(args)
    for name in METRICS:
        task = tasks[name]
        relevant = {query: dict(grades) for query, grades in task.relevant.items()}
        (args.folder / f"{name}.json").write_text(json.dumps(relevant))
        sides = {"documents": task.documents}
        if name == "squality":
            sides["queries"] = task.queries
        for side, texts in sides.items():
            encode_corpus([*texts.items()], source, rule, args.folder / f"{name}-{side}")
    (args.folder / "whitened_means.json").write_text(json.dumps(whitened_means(args.folder)))


def whitened_means(folder: Path) -> dict[str, float]:
    """Scores the mean of whitened chunk vectors, by task."""
    corpus = VectorCorpus(folder / "train")
    space = TargetSpace(corpus.hidden_size)
    space.whiten(document.plain for document in corpus)

    def whiten(documents: list[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
        vectors = [F.normalize(space(document), dim=-1) for document in documents]
        return vectors, torch.stack([document.mean(dim=0) for document in vectors])

    scores = {}
    for task in METRICS:
        of_queries = search(folder, task, whiten)[f"{task}_document"]
        scores[task] = float(np.mean([*of_queries.values()]))
    return scores


def held_out_chapters(args: Namespace) -> RetrievalTask:
    """Makes a retrieval task of the held-out novels: chapters are queries for their own book."""
    held_out = {document.id for document in read_documents(args.novels / "held_out.jsonl")}
    chapters = {}
    for _, row in open_rows(args.data / "novels/train.jsonl.gz").rows:
        if row["id"] in held_out:
            for number, chapter in enumerate(row["chapters"], start=1):
                start = heading_end(row["text"], chapter["start"], chapter["heading"])
                chapters[f"{row['id']}#{number}"] = row["text"][start : chapter["end"]]
    long = {name: text for name, text in chapters.items() if len(text.split()) >= SHORTEST}
    relevant = {}
    for name in long:
        others = [other for other in long if other != name and book_of(other) == book_of(name)]
        if others:
            relevant[name] = dict.fromkeys(others, 1)
    queries = {name: long[name] for name in relevant}
    task = RetrievalTask("held_out_chapters", queries, queries, relevant)
    return without(task, mostly_capitalised(long.values()))


def book_of(chapter: str) -> str:
    """Returns the book in a chapter's id."""
    return chapter.rpartition("#")[0]


# --- Evaluation


class Evaluation:
    """Measures a model, always on the same masks and candidates.

    Args:
        args: options, which name the folder of the study and the length of sequences.
        corpus: name of the novels whose vectors are masked.
        tasks: names of the retrieval tasks.
    """

    def __init__(
        self, args: Namespace, corpus: str = "validation", tasks: Sequence[str] = VALIDATION
    ) -> None:
        self.folder = args.folder
        self.tasks = tasks
        train = VectorCorpus(args.folder / "train")
        self.batches = {
            "": masked_batches(VectorCorpus(args.folder / corpus), args),
            "train_": masked_batches(train, args, range(min(MEASURED, len(train)))),
        }
        self.pool = stored_vectors(train, POOL - 1, seed=1, skipped=MEASURED)
        self.space = TargetSpace(train.hidden_size)
        self.space.whiten(document.plain for document in train)
        self.space.to(device())
        fitted_to = masked_batches(train, args, range(len(train))[MEASURED : 2 * MEASURED])
        self.weights = least_squares(map(self.whitened, fitted_to)).to(device())
        self.untrained = {prefix: self.controls(prefix) for prefix in self.batches}

    @torch.inference_mode()
    def of(self, learner: Learner) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
        """Returns all scores by name, and the retrieval scores of each query."""
        training = learner.training
        learner.eval()
        scores = {}
        for prefix in self.batches:
            for name, score in self.masked(learner, prefix).items():
                scores[prefix + name] = score
        queries: dict[str, dict[str, float]] = {}
        for name in self.tasks:
            queries |= search(self.folder, name, learner.model.base_model.contextualize)
        learner.train(training)
        for name, of_queries in queries.items():
            scores[name] = float(np.mean([*of_queries.values()]))
        return scores, queries

    def masked(self, learner: Learner, prefix: str) -> dict[str, float]:
        """Returns R² and the shares of masked vectors that are found."""
        targets, predictions = self.predicted(learner, prefix)
        variation = (targets - targets.mean(dim=0)).square().sum()
        scores = {
            "r2": 1 - float((predictions - targets).square().sum() / variation),
            "cosine": float(F.cosine_similarity(predictions, targets).mean()),
            "masked": len(targets),
            "chance_in_all": 1 / len(targets),
            "chance_in_pool": 1 / (len(self.pool) + 1),
        }
        trained = self.found(learner, targets, predictions)
        for name, right in {**trained, **self.untrained[prefix]}.items():
            scores[name] = float(right.double().mean())
        return scores

    def predicted(self, learner: Learner, prefix: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns targets and predictions ``[M, D]`` in the space of the targets."""
        batches = self.batches[prefix]
        targets = torch.cat([learner.targets_and_neighbours(batch)[0] for batch in batches])
        return targets, torch.cat([learner.predictions(batch).float() for batch in batches])

    def found(
        self, learner: Learner, targets: torch.Tensor, predictions: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Says which masked vectors a model finds among all masked, and among stored ones."""
        return among(targets, learner.space(self.pool.to(device())), {"found": predictions})

    def controls(self, prefix: str) -> dict[str, torch.Tensor]:
        """Says which masked vectors are found without training, as in `masked_controls`."""
        batches = [self.whitened(batch) for batch in self.batches[prefix]]
        targets = torch.cat([vectors[masked] for vectors, _, masked in batches])
        terms = torch.cat([neighbour_terms(*batch) for batch in batches])
        predictions = {
            "neighbours": torch.cat([neighbour_means(*batch) for batch in batches]),
            "weighed": torch.cat([weighed_neighbours(*batch) for batch in batches]),
            "least_squares": torch.einsum("mtd,t->md", terms, self.weights),
        }
        return among(targets, self.space(self.pool.to(device())), predictions)

    def whitened(self, batch: Mapping[str, torch.Tensor]) -> MaskedBatch:
        """Returns a batch with true vectors that are whitened and of length 1."""
        vectors = F.normalize(self.space(batch["labels"]), dim=-1)
        return vectors, batch["special_ids"], batch["mask_positions"]


def among(
    targets: torch.Tensor, pool: torch.Tensor, predictions: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Says which targets are found among all targets, and in the pool, ``[M]`` each."""
    right = {}
    for name, rows in predictions.items():
        right[f"{name}_in_all"] = hits(rows, targets, targets)
        right[f"{name}_in_pool"] = hits(rows, targets, pool)
    return right


def masked_batches(
    corpus: VectorCorpus, args: Namespace, documents: Sequence[int] | None = None
) -> list[dict[str, torch.Tensor]]:
    """Makes masked batches of some documents of a corpus, or of all of them.

    All masked vectors become [MASK]: in training, a tenth of them stay visible.
    """
    rows = PackedVectorDataset(
        corpus, sequence_length=args.sequence_length, documents=documents or None
    )
    collator = DataCollatorForVectorMasking(mask_share=1, random_share=0)
    batches = []
    for start in range(0, len(rows), args.batch_size):
        stop = min(start + args.batch_size, len(rows))
        batch = collator([rows[index] for index in range(start, stop)])
        batches.append({name: values.to(device()) for name, values in batch.items()})
    return batches


Contextualize = Callable[[list[torch.Tensor]], tuple[Sequence[torch.Tensor], torch.Tensor]]


def search(folder: Path, name: str, contextualize: Contextualize) -> dict[str, dict[str, float]]:
    """Searches chapters or stories by different document vectors.

    Args:
        folder: folder of the study.
        name: name of the task.
        contextualize: function from chunk vectors to contextual and document vectors, such as
            `NextLevelBertModel.contextualize`.

    Returns:
        The score of each query, by task and kind of vectors.
    """
    relevant = json.loads((folder / f"{name}.json").read_text())
    documents = VectorCorpus(folder / f"{name}-documents")
    queries = documents
    if (folder / f"{name}-queries").exists():
        queries = VectorCorpus(folder / f"{name}-queries")
    task = RetrievalTask(
        name,
        dict.fromkeys(queries.document_ids, ""),
        dict.fromkeys(documents.document_ids, ""),
        relevant,
    )
    asked = document_vectors(contextualize, queries)
    searched = document_vectors(contextualize, documents)
    scores = {}
    for kind in asked:
        cosines = F.normalize(asked[kind], dim=-1) @ F.normalize(searched[kind], dim=-1).T
        rankings = rank_by_scores(task, cosines.double().numpy().round(6))
        scores[f"{name}_{kind}"] = by_query(rankings, METRICS[name])
    return scores


def document_vectors(contextualize: Contextualize, corpus: VectorCorpus) -> dict[str, torch.Tensor]:
    """Returns vectors ``[N, D]`` of all documents: contextual, plain, both, and the model's own."""
    plain = [document.plain.float() for document in corpus]
    contextual, pooled = contextualize(plain)
    plain_means = torch.stack([vectors.mean(dim=0) for vectors in plain])
    means = torch.stack([vectors.float().mean(dim=0) for vectors in contextual]).cpu()
    both = F.normalize(means, dim=-1) + F.normalize(plain_means, dim=-1)
    return {
        "contextual": means,
        "plain": plain_means,
        "both": both,
        "document": pooled.float().cpu(),
    }


def stored_vectors(corpus: VectorCorpus, count: int, seed: int, skipped: int = 0) -> torch.Tensor:
    """Draws chunk vectors of a corpus without repetition, ``[count, D]``.

    Args:
        corpus: the corpus.
        count: most vectors to draw.
        seed: seed of the choice.
        skipped: number of documents to leave out; one document is always left.
    """
    first = int(corpus.document_offsets[min(skipped, len(corpus) - 1)])
    places = np.arange(first, corpus.num_chunks)
    count = min(count, len(places))
    drawn = np.random.default_rng(seed).choice(places, size=count, replace=False)
    return corpus.vectors(0, corpus.num_chunks)[torch.from_numpy(np.sort(drawn))].float()


# --- Training


def new_learner(folder: Path, row: Row, classes: int) -> Learner:
    """Makes the model before training, with targets and objective fitted to the training novels."""
    model = NextLevelBertForMaskedVectorModeling.from_pretrained(
        folder / "start", pooling=row.pooling, whiten_chunks=row.inputs == "whitened"
    )
    if not row.dropout:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    corpus = VectorCorpus(folder / "train")
    space = TargetSpace(corpus.hidden_size)
    if row.space == "standardised":
        space.standardise(document.plain for document in corpus)
    elif row.space == "whitened":
        space.whiten(document.plain for document in corpus)
    if row.inputs == "whitened":
        model.base_model.whitening.load_state_dict(space.state_dict())

    objective = Regression()
    if row.loss == "paper":
        objective = PaperLoss()
    elif row.loss == "choice":
        objective = Choice(space(stored_vectors(corpus, POOL, seed=0)))
    elif row.loss == "codes":
        objective = Codes(codebooks(targets_of(corpus, space, row.anchor != "none"), classes))
    return Learner(model, space, objective, row)


def targets_of(corpus: VectorCorpus, space: TargetSpace, residual: bool) -> torch.Tensor:
    """Returns all targets of a corpus, ``[N, D]``."""
    targets = []
    for document in corpus:
        vectors = space(document.plain)
        if residual and len(vectors) > 2:
            vectors = vectors[1:-1] - (vectors[:-2] + vectors[2:]) / 2
        targets.append(vectors)
    return torch.cat(targets)


def codebooks(targets: torch.Tensor, classes: int) -> list[torch.Tensor]:
    """Finds centres of targets, and of the residuals, by k-means."""
    centres = []
    for seed in range(2):
        clusters = MiniBatchKMeans(classes, batch_size=4_096, n_init=1, random_state=seed)
        codes = torch.from_numpy(clusters.fit_predict(targets.numpy())).long()
        centres.append(torch.from_numpy(clusters.cluster_centers_).float())
        targets = targets - centres[-1][codes]
    return centres


class Measure(TrainerCallback):
    """Appends the scores of every half million positions to the results, and stops where asked."""

    def __init__(self, evaluation: Evaluation, facts: dict[str, Any], args: Namespace) -> None:
        self.evaluation = evaluation
        self.folder = args.folder
        self.results = args.folder / "results.jsonl"
        self.facts = facts
        self.every = steps_of(args.evaluate_every, args)
        self.last = steps_of(args.until or args.positions, args)
        self.positions = args.batch_size * args.sequence_length

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # A run that is measured only once has no curve, whose beginning would be measured here.
        if state.global_step == 0 and self.every < state.max_steps:
            self.measure(kwargs["model"], step=0)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self.measure(kwargs["model"], step=state.global_step)
            control.should_save = True
        if state.global_step >= self.last:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # After the checkpoint, which would otherwise say that the run was to stop there.
        if state.global_step >= self.last:
            control.should_training_stop = True

    def measure(self, learner: Learner, step: int) -> None:
        """Appends a line, unless a run that was killed has done so already."""
        line = {**self.facts, "step": step, "positions": step * self.positions}
        for known in read_lines(self.results):
            if line.items() <= known.items():
                return
        scores, queries = self.evaluation.of(learner)
        line |= scores
        if line["positions"] >= self.facts["of"] - self.positions:
            path = self.folder / "queries" / f"{run_name(self.facts)}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(queries))
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def steps_of(positions: int, args: Namespace) -> int:
    """Returns the number of optimiser steps that read this number of positions."""
    return max(1, round(positions / (args.batch_size * args.sequence_length)))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Reads the lines of a file of JSON lines, if there is one."""
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def facts_of(args: Namespace) -> dict[str, Any]:
    """Returns the options that identify a run."""
    name = args.row
    if args.row in ("f", "g"):
        name = f"{args.row}-{args.best}"
    return {
        "row": name,
        "seed": args.seed,
        "of": args.positions,
        "sequence_length": args.sequence_length,
        "novels": args.novels_used,
        "more": args.more,
    }


def run_name(facts: Mapping[str, Any]) -> str:
    """Returns the name of a run's folder, such as ``d-0-5000000-512``."""
    names = ["row", "seed", "of", "sequence_length"]
    if facts["novels"]:
        names.append("novels")
    name = "-".join(str(facts[name]) for name in names)
    if facts["more"]:
        return f"{name}-more"
    return name


def training_set(args: Namespace, row: Row) -> Dataset[Any]:
    """Returns the sequences to train on, of one corpus or of a corpus for each offset."""
    names = ["train"]
    if args.more:
        names.append("more")
    folders = []
    for name in names:
        folders.append(args.folder / name)
        if row.offsets:
            folders += sorted(args.folder.glob(f"{name}-offset-*"))
    novels = None
    if args.novels_used:
        novels = range(args.novels_used)
    sets = []
    for number, folder in enumerate(folders):
        rows = PackedVectorDataset(
            VectorCorpus(folder),
            sequence_length=args.sequence_length,
            documents=novels,
            # Masks are drawn by seed and position, and each offset has masks of its own.
            seed=args.seed + 1_000 * number,
        )
        sets.append(rows)
    return ConcatDataset(sets)


def new_trainer(args: Namespace, callbacks: Sequence[TrainerCallback] = ()) -> CardTrainer:
    """Makes the trainer of a run, which saves no checkpoint unless a callback asks for it."""
    set_seed(args.seed)
    row = row_of(args.row, args.best)
    arguments = TrainingArguments(
        str(args.folder / "runs" / run_name(facts_of(args))),
        max_steps=steps_of(args.positions, args),
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        weight_decay=0.01,
        seed=args.seed,
        bf16=args.bf16,
        use_cpu=not torch.accelerator.is_available(),
        dataloader_pin_memory=False,
        save_strategy="no",
        save_total_limit=2,
        logging_steps=50,
        remove_unused_columns=False,
        report_to="none",
    )
    return CardTrainer(
        model=new_learner(args.folder, row, args.classes),
        args=arguments,
        data_collator=DataCollatorForSpanMasking(shortest=row.shortest, longest=row.longest),
        train_dataset=training_set(args, row),
        callbacks=[*callbacks],
    )


def train(args: Namespace) -> None:
    """Trains a row from its last checkpoint, and measures it on the way."""
    trainer = new_trainer(args, [Measure(Evaluation(args), facts_of(args), args)])
    trainer.train(last_whole_checkpoint(Path(trainer.args.output_dir)))


def trained_learner(args: Namespace) -> Learner:
    """Loads the last checkpoint of a run."""
    learner = new_learner(args.folder, row_of(args.row, args.best), args.classes)
    output = args.folder / "runs" / run_name(facts_of(args))
    checkpoint = last_whole_checkpoint(output)
    if checkpoint is None:
        raise ValueError(f"{output} has no checkpoint; train the row first.")
    learner.load_state_dict(load_file(f"{checkpoint}/model.safetensors"), strict=False)
    return learner.to(device()).eval()


def last_look(args: Namespace) -> None:
    """Measures a finished run on the novels that were set aside, and prints the scores."""
    learner = trained_learner(args)
    evaluation = Evaluation(args, corpus="held_out", tasks=("held_out_chapters",))
    scores, queries = evaluation.of(learner)
    rows = [[name, f"{value:.4f}"] for name, value in scores.items()]
    above = [above_plain(queries, "held_out_chapters", kind) for kind in KINDS]
    rows += [[f"{kind} - plain", text] for kind, text in zip(KINDS, above, strict=True)]
    print_table([run_name(facts_of(args)), "the twenty novels set aside"], rows)


def above_plain(queries: Mapping[str, Mapping[str, float]], task: str, kind: str) -> str:
    """Returns how much better vectors of a kind are than the plain mean, with an interval."""
    of_kind = queries[f"{task}_{kind}"]
    plain = queries[f"{task}_plain"]
    differences = np.array([of_kind[query] - plain[query] for query in plain])
    books = np.array([book_of(query) for query in plain])
    mean, low, high = with_interval(differences, books, seed=0)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


# --- The curve


def draw(args: Namespace) -> None:
    """Draws the scores of all rows over the positions that were read."""
    lines = list(read_lines(args.folder / "results.jsonl"))
    if not lines:
        raise ValueError(f"{args.folder} has no results.jsonl; train a row first.")
    table = []
    for path in sorted((args.folder / "queries").glob("*.json")):
        last = [line for line in lines if run_name(line) == path.stem][-1]
        cells = [f"{last[column]:.4f}" for column in MASKED_COLUMNS]
        for task in VALIDATION:
            cells += [f"{last[f'{task}_{kind}']:.3f}" for kind in KINDS]
        queries = json.loads(path.read_text())
        above = [above_plain(queries, "chapters", kind) for kind in KINDS]
        table.append([path.stem, *cells, *above])
    print_table([*HEADINGS, "contextual - plain", "both - plain"], table)

    runs: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: line["positions"]):
        runs.setdefault(run_name(line), []).append(line)
    figure = Figure(figsize=(13, 7), layout="constrained")
    places = figure.subplots(2, 3).flat
    for axes, (column, title) in zip(places, PANELS.items(), strict=False):
        for name in sorted(runs):
            points = runs[name]
            line_style = "-"
            if points[0]["sequence_length"] == 128:
                line_style = ":"
            axes.plot(
                [point["positions"] / 1e6 for point in points],
                [point[column] for point in points],
                linestyle=line_style,
                color=f"C{'abcdefghijkl'.index(name[0]) % 10}",
                label=name,
            )
        for label, value in controls(args.folder, column, lines).items():
            axes.axhline(value, color="gray", linestyle="--")
            axes.annotate(
                label, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom"
            )
        axes.set(xlabel="million positions", title=title)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylim(bottom=max(-0.1, figure.axes[0].get_ylim()[0]))
    curves, labels = figure.axes[0].get_legend_handles_labels()
    figure.axes[-1].legend(curves, labels, loc="center", title="row-seed-positions-length")
    figure.axes[-1].set_axis_off()
    save_figure(figure, args.folder / "masked_objectives.png")


def controls(folder: Path, column: str, lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Reads the scores that need no training, by name: horizontal lines."""
    task = column.partition("_")[0]
    if column.endswith("found_in_pool"):
        prefix = column.removesuffix("found_in_pool")
        return {name: lines[0][f"{prefix}{name}_in_pool"] for name in CONTROLS}
    if task not in VALIDATION:
        return {}
    whitened = json.loads((folder / "whitened_means.json").read_text())
    return {"plain mean": lines[0][f"{task}_plain"], "whitened mean": whitened[task]}


def study_parser() -> ArgumentParser:
    """Makes the parser of the options, which `masked_trial` uses, too."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["encode", "train", "draw", "last_look"])
    parser.add_argument("--folder", type=Path, required=True, help="of the study")
    parser.add_argument("--data", type=Path, help="encode: novels/, retrieval/ and squality/")
    parser.add_argument("--novels", type=Path, help="encode: folder of hold_out's train.jsonl")
    parser.add_argument("--texts", type=Path, help="encode: further long documents, for --more")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument(
        "--layers", help="encode: whose layers to start with; default: the encoder's"
    )
    parser.add_argument(
        "--num_hidden_layers",
        type=int,
        help="encode: default: all of the encoder's, or two random layers over a static encoder",
    )
    parser.add_argument("--chunk_size", type=int, default=256)
    parser.add_argument("--offsets", type=int, default=1, help="encode: of chunks, for rows h to l")
    parser.add_argument("--row", choices=[*"abcdefghijkl"], default="a")
    parser.add_argument("--best", choices=["d", "e"], default="d", help="what f and g build on")
    parser.add_argument("--positions", type=int, default=5_000_000)
    parser.add_argument("--until", type=int, help="stop after so many positions, to go on later")
    parser.add_argument("--evaluate_every", type=int, default=500_000, help="positions")
    parser.add_argument("--sequence_length", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=4, help="sequences")
    parser.add_argument("--classes", type=int, default=1_024, help="of each codebook")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--novels_used", type=int, help="train on the first of the novels only")
    parser.add_argument("--more", action="store_true", help="train on the further texts, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    return parser


def main() -> None:
    args = study_parser().parse_args()
    if args.action == "encode":
        encode(args)
    elif args.action == "train":
        train(args)
    elif args.action == "last_look":
        last_look(args)
    else:
        draw(args)


if __name__ == "__main__":
    main()
