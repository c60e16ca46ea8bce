"""What makes a model over chunk vectors better than their mean? One change at a time, one judge (docs/study.md).

    python benchmarks/next_level_study.py --data DATA --corpus novels_vectors --cache_dir vectors --output_dir study

Every row is a run of run_pretraining.py on the same novels for the same number of steps of about 2,000 chunk vectors,
judged on novels that nobody has seen: does a chapter, or an excerpt, find the others of its book among all (MAP), and
does a chapter find the two beside it (recall among the first ten)? Names are deleted, so that word counts do not
settle it. ``--curve`` trains two rows for longer, judges them on the way and draws ``curve.png``.

``--corpus`` is a folder of chunk vectors of the training novels, made by

    python run_pretraining.py --train_file DATA/novels/train.jsonl.gz --encoder_dtype bfloat16 \\
        --corpus_dir novels_vectors --output_dir unused

What is there already is not made again, so a run that was stopped goes on. Writes ``study.json`` and ``table.md``.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import document_retrieval as retrieval
import measuring
import numpy as np
import torch
from torch.nn import functional as F

from nextlevelbert import (
    NextLevelBertConfig,
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
    VectorCorpus,
    load_chunk_encoder,
)
from nextlevelbert.evaluation import RetrievalTask, rank_by_scores, rank_documents, retrieval_scores, tfidf_scores
from nextlevelbert.starting_weights import config_values
from nextlevelbert.whitening import fit_whitening

SCRIPT = Path(__file__).parents[1] / "run_pretraining.py"
JUDGED = "chapters, names masked"

MASKED = ["--sequence_length", "128", "--per_device_train_batch_size", "16", "--learning_rate", "1e-4"]
CROSS = [*MASKED, "--loss", "cross_entropy"]
PAIRS = ["--objective", "contrastive", "--pooling", "residual", "--learning_rate", "3e-4"]
ANYWHERE = [*PAIRS, "--per_device_train_batch_size", "64"]
SIXTEEN = ["--min_segment", "16", "--max_segment", "16"]
BEST = [*ANYWHERE, "--whiten_chunks"]
# "{random}", "{positions}" and "{no layers}" stand for starting checkpoints, see `starts`.
ROWS: dict[str, list[str]] = {
    "paper: masked, smooth L1": MASKED,
    "masked 30 %": [*MASKED, "--masking_probability", "0.3"],
    "masked 40 %": [*MASKED, "--masking_probability", "0.4"],
    "all masked become [MASK]": [*MASKED, "--mask_share", "1", "--random_share", "0"],
    "random layers": [*MASKED, "--model", "{random}"],
    "positions from N(0, 1)": [*MASKED, "--model", "{positions}"],
    "sequences of 512": [*MASKED, "--sequence_length", "512", "--per_device_train_batch_size", "4"],
    "masked, whitened": [*MASKED, "--whiten_chunks"],
    "masked, cross-entropy": CROSS,
    "masked, cross-entropy, whitened": [*CROSS, "--whiten_chunks"],
    "neighbours of 16, sum": [*PAIRS, "--residual_start", "1", *SIXTEEN, "--positives", "neighbours",
                              "--pairs_per_document", "4", "--per_device_train_batch_size", "16"],
    "anywhere, 16, sum": [*ANYWHERE, "--residual_start", "1", *SIXTEEN],
    "anywhere, 4-48, sum": [*ANYWHERE, "--residual_start", "1"],
    "anywhere, 4-48, gate": ANYWHERE,
    "whitened, gate": BEST,
    "whitened, mean of contextual only": [*BEST, "--pooling", "mean"],
    "whitened, gate, and masked": [*BEST, "--objective", "both", "--loss", "cross_entropy"],
    "whitened, gate, no layers": [*ANYWHERE, "--model", "{no layers}"],
    "whitened, gate, half of the books": [*BEST, "--validation_share", "0.5"],
    "no layers, half of the books": [*ANYWHERE, "--model", "{no layers}", "--validation_share", "0.5"],
    "whitened, gate, an eighth": [*BEST, "--validation_share", "0.875"],
    "no layers, an eighth": [*ANYWHERE, "--model", "{no layers}", "--validation_share", "0.875"],
}  # fmt: skip
CURVES = ("paper: masked, smooth L1", "whitened, gate", "whitened, gate, no layers")


class Judge:
    """The retrieval tasks over stored chunk vectors of their texts."""

    def __init__(self, args: Namespace) -> None:
        self.tasks = [task for task in retrieval.load_tasks(args.data) if not args.tasks or task.name in args.tasks]
        self.base = NextLevelBertModel.from_chunk_encoder(
            load_chunk_encoder(args.encoder, args.encoder_name), chunk_size=args.chunk_size, chunking=args.chunking
        )
        self.texts = list(dict.fromkeys(t for task in self.tasks for t in (*task.queries.values(),
                                                                          *task.documents.values())))  # fmt: skip
        self.chunks = retrieval.chunk_vectors(self.base, self.texts, args.cache_dir)
        authors = {row["id"]: row["author"] for row in retrieval.rows_of(args.data / "novels/validation.jsonl.gz")}
        seen = {row["author"] for row in retrieval.rows_of(args.data / "novels/train.jsonl.gz")}
        self.new_books = {book for book, author in authors.items() if author not in seen}

    def vectors(self, encode: Callable, only: set[str] | None = None) -> dict[str, torch.Tensor]:
        places = [number for number, text in enumerate(self.texts) if only is None or text in only]
        found = encode([self.chunks[number] for number in places])
        return dict(zip((self.texts[number] for number in places), found, strict=True))

    def scores(self, encode: Callable) -> dict[str, Any]:
        documents = self.vectors(encode)
        return self.collect(retrieval.rankings(self.tasks, documents, centre=False))

    def collect(self, source: Iterable[tuple[RetrievalTask, Callable]]) -> dict[str, Any]:
        """The scores of every task, and the average precision of every book of the judged one."""
        found: dict[str, Any] = {}
        for task, rank in source:
            for label, metric, grades in retrieval.COLUMNS[task.name.removesuffix(retrieval.MASKED)]:
                found[f"{task.name}: {label}"] = retrieval_scores(rank(task, grades))[metric]
            if task.name == JUDGED:
                found |= self.by_book(rank(task, None))
        return found

    def by_book(self, ranks: dict[str, np.ndarray]) -> dict[str, Any]:
        books: dict[str, list[str]] = {}
        for query in ranks:
            books.setdefault(query.split("#")[0], []).append(query)

        def over(queries: Iterable[str]) -> float:
            return retrieval_scores({query: ranks[query] for query in queries})["map"]

        return {
            "by book": {book: [over(queries), len(queries)] for book, queries in books.items()},
            "MAP, new authors": over(q for book, queries in books.items() if book in self.new_books for q in queries),
        }

    def masked_map(self, model: Any) -> float:
        [task] = [task for task in self.tasks if task.name == JUDGED]
        documents = self.vectors(retrieval.contextual(model, "judging"), set(task.documents.values()))
        pool = torch.stack([documents[text] for text in task.documents.values()])
        return retrieval_scores(rank_documents(task, pool, pool))["map"]


def vectors_of(corpus: VectorCorpus) -> Iterator[torch.Tensor]:
    return (document.vectors for document in corpus)


def closed_forms(judge: Judge, corpus: VectorCorpus) -> dict[str, dict[str, Any]]:
    """Rows without training: means of chunk vectors, plain, centred and whitened, the untrained model, word counts."""
    vectors = torch.cat(list(vectors_of(corpus))).float()
    centre = vectors.mean(dim=0)
    values, axes = torch.linalg.eigh(torch.cov(vectors.T))
    total = axes @ torch.diag((values + 0.1 * values.mean()).rsqrt()) @ axes.T
    mean, within = fit_whitening(vectors_of(corpus))

    def whitened(mean: torch.Tensor, weight: torch.Tensor) -> Callable:
        return lambda chunks: retrieval.mean_of_chunks([F.normalize((v - mean) @ weight.T, dim=-1) for v in chunks])

    torch.manual_seed(0)
    rows: dict[str, Callable] = {
        "first chunk (truncated SBERT)": retrieval.first_chunk,
        "mean of chunk vectors (Avg. SBERT)": retrieval.mean_of_chunks,
        "mean, centred": lambda chunks: retrieval.mean_of_chunks(chunks) - centre,
        "mean, whitened, all chunks": whitened(centre, total),
        "mean, whitened within documents": whitened(mean, within),
        **{
            f"the same, fitted to the first {books} novels": whitened(
                *fit_whitening(islice(vectors_of(corpus), books))
            )
            for books in (15, 60)
        },
        "next level, untrained": retrieval.contextual(judge.base, "untrained"),
    }
    found = {name: judge.scores(encode) for name, encode in rows.items()}
    scores = {task.name: tfidf_scores(list(task.queries.values()), list(task.documents.values()))
              for task in judge.tasks}  # fmt: skip
    lexical = [(t, lambda task, grades, s=scores[t.name]: rank_by_scores(task, s, grades)) for t in judge.tasks]
    return found | {"TF-IDF": judge.collect(lexical)}


def starts(kind: str, folder: Path, corpus: VectorCorpus, documents: np.ndarray, args: Namespace, seed: int) -> Path:
    """A starting checkpoint: random layers, a table of positions, or whitening and pooling without layers."""
    source = load_chunk_encoder(args.encoder, args.encoder_name)
    torch.manual_seed(seed)
    options: dict[str, Any] = {
        "chunk_size": args.chunk_size, "chunking": args.chunking, "include_chunk_encoder": False
    }  # fmt: skip
    values = config_values(source, args.chunk_size, args.chunking)
    if kind == "random":
        model: Any = NextLevelBertForMaskedVectorModeling(NextLevelBertConfig(**values, include_chunk_encoder=False))
    elif kind == "positions":
        model = NextLevelBertForMaskedVectorModeling.from_chunk_encoder(source, **options)
        torch.nn.init.normal_(model.base_model.encoder.embeddings.position_embeddings.weight)
    else:
        options |= {"encoder_config": {**values["encoder_config"], "num_hidden_layers": 0}}
        model = NextLevelBertForContrastiveLearning.from_chunk_encoder(
            source, pooling="residual", whiten_chunks=True, **options
        )
        model.base_model.fit_whitening(corpus[int(number)].vectors for number in documents)
    model.save_pretrained(folder)
    return folder


def train(name: str, seed: int, folder: Path, corpus: VectorCorpus, args: Namespace, *more: str) -> None:
    """One row: run_pretraining.py with its options, where that has not been done."""
    options = list(ROWS[name])
    for place, option in enumerate(options):
        if option.startswith("{"):
            share = (
                float(options[options.index("--validation_share") + 1]) if "--validation_share" in options else 0.05
            )
            documents = runpy.run_path(str(SCRIPT))["split"](corpus, share, seed)[0]
            start = folder.with_name(folder.name + "-start")
            options[place] = str(starts(option.strip("{}"), start, corpus, documents, args, seed))
    command = [
        sys.executable, str(SCRIPT), "--do_train", "--corpus_dir", str(corpus.path), "--output_dir", str(folder),
        "--chunk_encoder", args.encoder, "--chunk_size", str(args.chunk_size), "--chunking", args.chunking,
        "--no_include_chunk_encoder", "--bf16", "--disable_tqdm", "true", "--seed", str(seed), "--save_strategy", "no",
        "--eval_strategy", "no", "--eval_on_start", "false", "--max_steps", str(args.steps),
        *(["--chunk_encoder_name", args.encoder_name] if args.encoder_name else []),
    ]  # fmt: skip
    subprocess.run([*command, *options, *more], check=True, stdout=sys.stderr)


def judged(name: str, seed: int, corpus: VectorCorpus, judge: Judge, args: Namespace) -> dict[str, Any]:
    folder = args.output_dir / f"{''.join(c if c.isalnum() else '_' for c in name)}-{seed}"
    kept = folder.with_suffix(".json")
    if not kept.exists():
        train(name, seed, folder, corpus, args)
        scores = judge.scores(retrieval.contextual(NextLevelBertModel.from_pretrained(folder).eval(), name))
        learned = json.loads((folder / "eval_results.json").read_text())
        kept.write_text(json.dumps({"learned": learned, **scores}))
        for path in (folder, folder.with_name(folder.name + "-start")):  # figures are kept, weights are not
            shutil.rmtree(path, ignore_errors=True)
    return json.loads(kept.read_text())


def curve(name: str, corpus: VectorCorpus, judge: Judge, args: Namespace) -> list[list[float]]:
    """Steps and MAP on the way of a longer run."""
    folder = args.output_dir / f"curve-{''.join(c if c.isalnum() else '_' for c in name)}"
    kept = folder.with_suffix(".json")
    if not kept.exists():
        every = max(args.curve // 8, 1)
        train(name, 0, folder, corpus, args, "--max_steps", str(args.curve), "--save_strategy", "steps",
              "--save_steps", str(every), "--save_total_limit", "100")  # fmt: skip
        paths = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        points = [[int(path.name.rpartition("-")[2]),
                   judge.masked_map(NextLevelBertModel.from_pretrained(path).eval())] for path in paths]  # fmt: skip
        kept.write_text(json.dumps(points))
        shutil.rmtree(folder)
    return json.loads(kept.read_text())


def plot(curves: dict[str, list[list[float]]], marks: dict[str, float], path: Path) -> None:
    """MAP over steps, and lines where the rows without training lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=3)
    for (name, value), style in zip(marks.items(), ("--", "-.", ":"), strict=False):
        axes.axhline(value, linestyle=style, color="tab:gray", label=name)
    axes.set(xlabel="optimiser step", ylabel="MAP", title=f"{JUDGED}: finding the book", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def interval(row: dict[str, Any], other: dict[str, Any]) -> list[float]:
    """95 % of the difference of MAP to another row, by drawing books anew (10,000 times)."""
    books = sorted(row["by book"])
    (ours, counts), (theirs, _) = (np.array([r["by book"][book] for book in books]).T for r in (row, other))
    draws = np.random.default_rng(0).integers(len(books), size=(10_000, len(books)))
    difference = ((ours - theirs) * counts)[draws].sum(axis=1) / counts[draws].sum(axis=1)
    return np.percentile(difference, [2.5, 97.5]).round(4).tolist()


def average(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over seeds, of every book, too."""
    found = {key: float(np.mean([row[key] for row in rows])) for key, value in rows[0].items()
             if isinstance(value, float)}  # fmt: skip
    books = {book: np.mean([row["by book"][book] for row in rows], axis=0).tolist() for book in rows[0]["by book"]}
    return found | {"by book": books}


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with novels/, retrieval/ and squality/")
    parser.add_argument("--corpus", type=Path, required=True, help="chunk vectors of the training novels")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--encoder_name", help="its name on the Hub, where --encoder is a folder")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--chunk_size", type=int, default=retrieval.CHUNK_SIZE)
    parser.add_argument("--chunking", default="fixed")
    parser.add_argument("--tasks", nargs="+", help="names of the tasks to judge by, the first of them chapters; all")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--curve", type=int, default=0, help="steps of the longer runs; 0 for none")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    corpus, judge = VectorCorpus(args.corpus), Judge(args)
    corpus.check_model(judge.base.config)
    kept = args.output_dir / "closed_forms.json"
    if not kept.exists():
        kept.write_text(json.dumps(closed_forms(judge, corpus)))
    rows = {name: [scores] for name, scores in json.loads(kept.read_text()).items()}
    base = rows["mean of chunk vectors (Avg. SBERT)"][0]
    for seed in args.seeds:
        for name in args.rows:
            rows.setdefault(name, []).append(judged(name, seed, corpus, judge, args))
            write(args, corpus, rows, base, {})
    curves = {name: curve(name, corpus, judge, args) for name in CURVES} if args.curve else {}
    print(write(args, corpus, rows, base, curves))


def write(args: Namespace, corpus: VectorCorpus, rows: dict, base: dict, curves: dict) -> str:
    """Table, figures and plot of the rows that are there."""
    columns = {
        "chapters MAP": f"{JUDGED}: MAP", "new authors": "MAP, new authors",
        "adjacent": f"{JUDGED}: adjacent recall@10", "excerpts MAP": "excerpts, names masked: MAP",
        "with names: chapters": "chapters: MAP", "excerpts": "excerpts: MAP",
        "SQuALITY MRR": "squality, names masked: MRR",
    }  # fmt: skip
    columns = {label: key for label, key in columns.items() if key in base}
    lines = [f"| | seeds | {' | '.join(columns)} | above Avg. SBERT |", f"| --- |{' ---: |' * (len(columns) + 2)}"]
    record: dict[str, Any] = {}
    for name, found in rows.items():
        mean = average(found)
        low, high = interval(mean, base)
        record[name] = {"seeds": len(found), "mean": {key: mean[key] for key in columns.values()},
                        "difference": [low, high], "runs": found}  # fmt: skip
        cells = " | ".join(f"{mean[key]:.3f}" for key in columns.values())
        lines.append(f"| {name} | {len(found)} | {cells} | {low:+.3f} to {high:+.3f} |")
    (args.output_dir / "table.md").write_text(table := "\n".join(lines) + "\n")
    if curves:
        known = [name for name in ("TF-IDF", "mean of chunk vectors (Avg. SBERT)") if name in rows]
        marks = {name: rows[name][0][f"{JUDGED}: MAP"] for name in known}
        plot(curves, marks, args.output_dir / "curve.png")
    facts = {"machine": measuring.processor(), "steps": args.steps, "corpus": corpus.manifest}
    (args.output_dir / "study.json").write_text(json.dumps({**facts, "rows": record, "curves": curves}, indent=1))
    return table


if __name__ == "__main__":
    main()
