"""HATE beside NextLevelBERT: the same sentences, the same steps, one judge (docs/study.md).

    python -m benchmarks.studies.sentence_models --data DATA --output_dir study

Every model learns from the sentences of the same novels, through run_pretraining.py, with the same batches, steps and
rate: HATE with its paper's loss and with cross-entropy, at several sizes of the document vector, and NextLevelBERT
with its paper's loss and with cross-entropy. Judged on chapters of novels that nobody has seen, names deleted: does a
chapter find the others of its book (MAP), and the two beside it (recall among the first ten)? And does a model find a
masked sentence among those of its batch better than chance, and than the mean of the sequence? Word counts (TF-IDF)
stand beside them. ``--checkpoint`` judges finished models over the same sentence vectors, with windows as they have.
Intervals are of 95 %, over the books: of MAP, and of its difference to the mean of the sentence vectors.

Finished parts are kept, so a run that was stopped goes on. Prints a Markdown table and writes it
to ``table.md``, and every figure to ``study.json``.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from tqdm import tqdm
from transformers import AutoModel

from benchmarks.common import measuring
from benchmarks.common.corpora import kept_corpus
from benchmarks.common.retrieval_tasks import Rank, load_tasks, ranking_by
from benchmarks.common.studies import pretrain, study_parser
from nextlevelbert import (
    DataCollatorForVectorMasking,
    Document,
    DocumentVectorDataset,
    HateModel,
    NextLevelBertModel,
    PackedVectorDataset,
    VectorCorpus,
    load_chunk_encoder,
    read_documents,
)
from nextlevelbert.evaluation import RetrievalTask, context_mean_baseline, rank_documents, retrieval_scores
from nextlevelbert.models.pooling import fit_whitening
from nextlevelbert.pretraining.vectors import split
from nextlevelbert.tasks.retrieval import tfidf_scores

TASK = "chapters, names masked"
DOCUMENTS_PER_PASS = 32
MEAN = "mean of the sentence vectors"
EACH = "average precisions"  # one for each chapter, left out of the table


def rows_to_train(sizes: list[int]) -> dict[str, list[str]]:
    """Options of `run_pretraining.py` by the name of the row."""
    rows = {f"HATE {loss}": ["--model_type", "hate", "--loss", loss] for loss in ("p_norm", "cross_entropy")}
    rows |= {
        f"HATE {loss} {size}": ["--model_type", "hate", "--loss", loss, "--hidden_size", str(size)]
        for loss in ("p_norm", "cross_entropy")
        for size in sizes
    }
    return rows | {f"NextLevelBERT {loss}": ["--loss", loss] for loss in ("smooth_l1", "cross_entropy")}


def train(options: list[str], corpus: VectorCorpus, folder: Path, seed: int, args: Namespace) -> dict[str, float]:
    """The scores of the last evaluation; trains only where that has not been done."""
    if not (folder / "eval_results.json").exists():
        pretrain(
            corpus.path, folder, args, "--chunking", "sentences", "--sequence_length", args.sequence_length,
            "--max_steps", args.steps, "--learning_rate", args.learning_rate, "--seed", seed, "--eval_strategy",
            "steps", "--eval_steps", max(args.steps // 4, 1), "--eval_on_start", "true", *options,
        )  # fmt: skip
    sequences = DocumentVectorDataset if "hate" in options else PackedVectorDataset
    held_out = sequences(corpus, args.sequence_length, split(corpus, 0.05, seed)[1], seed=seed)
    baseline = context_mean_baseline(
        (held_out[number] for number in range(len(held_out))), DataCollatorForVectorMasking(), batch_size=8
    )
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    evaluations = [entry for entry in history if "eval_masked_accuracy" in entry]
    return {
        "first_loss": evaluations[0]["eval_loss"],
        "last_loss": evaluations[-1]["eval_loss"],
        "masked_accuracy": evaluations[-1]["eval_masked_accuracy"],
        "context_mean_accuracy": baseline["masked_accuracy"],
        "chance_accuracy": evaluations[-1]["eval_chance_accuracy"],
    }


@torch.inference_mode()
def judge(model: Any, corpus: VectorCorpus, task: RetrievalTask) -> dict[str, dict[str, Any]]:
    """Retrieval scores by [CLS] and by the mean, from one pass over all chapters; and the seconds of that pass.

    The sum of the contextual vectors has the direction of their mean, so its cosines are the same.
    """
    model.config.pooling = "cls"
    found: dict[str, list[torch.Tensor]] = {"cls": [], "mean or sum": []}
    documents = [document.vectors for document in corpus]
    begin = time.process_time()
    for start in tqdm(range(0, len(documents), DOCUMENTS_PER_PASS), unit=f" x {DOCUMENTS_PER_PASS} chapters"):
        contextual, first = model.contextualize(documents[start : start + DOCUMENTS_PER_PASS])
        found["cls"].append(first.float())
        found["mean or sum"].append(torch.stack([rows.float().mean(dim=0) for rows in contextual]))
    seconds = time.process_time() - begin
    return {name: {**scores(task, torch.cat(rows)), "cpu_seconds": seconds} for name, rows in found.items()}


def scores(task: RetrievalTask, vectors: torch.Tensor) -> dict[str, Any]:
    """MAP over all chapters of the same book, and recall@10 over the two beside it."""
    return ranked(task, lambda task, grades: rank_documents(task, vectors, vectors, grades=grades))


def ranked(task: RetrievalTask, rank: Rank) -> dict[str, Any]:
    """As `scores`, of what ranks by a grade; with the average precision of every chapter for the intervals."""
    whole, beside = rank(task, None), retrieval_scores(rank(task, {2}))
    each = [retrieval_scores({query: found})["map"] for query, found in whole.items()]
    return {"map": float(np.mean(each)), "adjacent recall@10": beside["recall@10"], EACH: each}


def opened(folder: Path, args: Namespace) -> Any:
    """A trained model whose windows are as long as the sequences that it learned on."""
    model = AutoModel.from_pretrained(folder).eval()
    model.config.max_chunks = args.sequence_length - model.config.special_positions
    return model


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    parser.add_argument("--books", type=int, default=15, help="training novels, the first ones")
    parser.add_argument("--steps", type=int, default=200, help="optimiser steps of 8 sequences")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--sequence_length", type=int, default=128)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 32, 16], help="of the document vector, below D")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", nargs="*", help="only these of the rows to train; none: --rows without a name")
    parser.add_argument("--checkpoint", type=Path, nargs="+", default=[], help="folders of finished models to judge")
    parser.add_argument("--train_file", type=Path, help="novels; default novels/train.jsonl.gz of the data")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    [task] = [task for task in load_tasks(args.data) if task.name == TASK]
    novels = islice(read_documents(args.train_file or args.data / "novels/train.jsonl.gz"), args.books)
    chapters = (Document(name, text) for name, text in task.documents.items())
    source = load_chunk_encoder(args.encoder, args.encoder_name)
    corpus = kept_corpus(novels, source, 256, "sentences", args.output_dir / "novels")
    judged = kept_corpus(chapters, source, 256, "sentences", args.output_dir / "chapters")

    means = torch.stack([document.vectors.float().mean(dim=0) for document in judged])
    results: dict[str, Any] = {MEAN: {"size": means.shape[1], **scores(task, means)}}
    centre, weight = fit_whitening(document.vectors for document in corpus)
    whitened = torch.stack([F.normalize((document.vectors - centre) @ weight.T, dim=-1).mean(dim=0)
                            for document in judged])  # fmt: skip
    results["mean of the whitened sentence vectors"] = {"size": means.shape[1], **scores(task, whitened)}
    texts = list(task.documents.values())
    results["TF-IDF"] = ranked(task, ranking_by(tfidf_scores(texts, texts)))
    for folder in args.checkpoint:
        model = AutoModel.from_pretrained(folder).eval()
        if model.config.chunk_encoder_fingerprint != source.encoder.fingerprint():
            raise ValueError(f"{folder} reads the vectors of another sentence encoder than {args.encoder}.")
        for pooling, figures in judge(model, judged, task).items():
            results[f"{folder.name}, {pooling}"] = {"size": model.config.hidden_size, **figures}
    write(args, corpus, judged, task, results)
    for cls in (HateModel, NextLevelBertModel) if args.rows is None or args.rows else ():
        kept = args.output_dir / f"untrained-{cls.config_class.model_type}.json"
        if not kept.exists():
            torch.manual_seed(0)
            model = cls.from_chunk_encoder(args.encoder, chunking="sentences", include_chunk_encoder=False)
            model.config.max_chunks = args.sequence_length - model.config.special_positions
            kept.write_text(json.dumps(judge(model, judged, task)))
        for pooling, figures in json.loads(kept.read_text()).items():
            name = cls.__name__.removesuffix("Model").replace("Hate", "HATE").replace("Bert", "BERT")
            results[f"{name}, untrained, {pooling}"] = {"size": means.shape[1], **figures}
    for name, options in rows_to_train(args.sizes).items():
        for seed in args.seeds if args.rows is None or name in args.rows else ():
            folder = args.output_dir / f"{name.replace(' ', '-')}-seed-{seed}"
            if not (folder / "judged.json").exists():
                learned = train(options, corpus, folder, seed, args)
                model = opened(folder, args)
                parameters = sum(weights.numel() for weights in model.encoder.parameters())
                row = {"size": model.config.hidden_size, "parameters": parameters, **learned}
                found = {pooling: {**row, **figures} for pooling, figures in judge(model, judged, task).items()}
                (folder / "judged.json").write_text(json.dumps(found))
            for pooling, figures in json.loads((folder / "judged.json").read_text()).items():
                results[f"{name}, {pooling}, seed {seed}"] = figures
            write(args, corpus, judged, task, results)
    print((args.output_dir / "table.md").read_text())


def with_intervals(row: dict[str, Any], mean: dict[str, Any], books: np.ndarray) -> dict[str, Any]:
    """A row with the intervals of its MAP, and of the difference to that of the mean."""
    each, base = np.array(row[EACH]), np.array(mean[EACH])
    _, *own = measuring.with_interval(each, books, 0)
    gap, *bounds = measuring.with_interval(each - base, books, 0)
    shown = {"map, 95 %": "{:.3f} to {:.3f}".format(*own)}
    if row is not mean:
        shown["above the mean"] = "{:+.3f} ({:+.3f} to {:+.3f})".format(gap, *bounds)
    return {key: value for key, value in row.items() if key != EACH} | shown


def write(
    args: Namespace, corpus: VectorCorpus, judged: VectorCorpus, task: RetrievalTask, results: dict[str, Any]
) -> None:
    """The table and every figure, after each row."""
    books = np.array([query.split("#")[0] for query in task.queries])
    results = {name: with_intervals(row, results[MEAN], books) for name, row in results.items()}
    columns = dict.fromkeys(key for row in results.values() for key in row)
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    for name, row in results.items():
        cells = ("" if key not in row else row[key] if isinstance(row[key], str)
                 else f"{row[key]:,}" if key in ("size", "parameters") else f"{row[key]:.4g}"
                 for key in columns)  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    (args.output_dir / "table.md").write_text("\n".join(lines) + "\n")
    facts = {
        "task": TASK,
        "machine": measuring.processor(),
        "novels": {key: corpus.manifest[key] for key in ("documents", "tokens", "chunks")},
        "chapters": {key: judged.manifest[key] for key in ("documents", "tokens", "chunks")},
        **{key: getattr(args, key) for key in ("books", "steps", "learning_rate", "sequence_length")},
    }
    (args.output_dir / "study.json").write_text(json.dumps({**facts, "rows": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
