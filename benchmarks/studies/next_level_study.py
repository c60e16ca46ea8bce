"""What makes a model over chunk vectors better than their mean? One change at a time, one judge (docs/study.md).

    python -m benchmarks.studies.next_level_study --data DATA --corpus novels_vectors --cache_dir vectors \\
        --output_dir study

Every row is a run of run_pretraining.py on the same novels for the same number of steps of about 2,000 chunk vectors,
judged on novels that nobody has seen: does a chapter, or an excerpt, find the others of its book among all (MAP), and
does a chapter find the two beside it (recall among the first ten)? Names are deleted, so that word counts do not
settle it. ``--curve`` trains two rows for longer, judges them on the way and draws ``curve.png``.

``--corpus`` is a folder of chunk vectors of the training novels, made by

    python run_pretraining.py --train_file DATA/novels/train.jsonl.gz --encoder_dtype bfloat16 \\
        --corpus_dir novels_vectors --output_dir unused

Finished parts are kept, so a run that was stopped goes on. Writes ``study.json`` and ``table.md``.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.judge import JUDGED, Judge, average, closed_forms, interval, plot
from benchmarks.common.studies import add_letters_option, pretrain, study_parser
from nextlevelbert import (
    NextLevelBertConfig,
    NextLevelBertForContrastiveLearning,
    NextLevelBertForMaskedVectorModeling,
    NextLevelBertModel,
    VectorCorpus,
    load_chunk_encoder,
)
from nextlevelbert.models.modeling_vector_document import config_values
from nextlevelbert.pretraining.vectors import split

MASKED = ["--sequence_length", "128", "--per_device_train_batch_size", "16", "--learning_rate", "1e-4"]
CROSS = [*MASKED, "--loss", "cross_entropy"]
PAIRS = ["--objective", "contrastive", "--pooling", "residual", "--learning_rate", "3e-4"]
ANYWHERE = [*PAIRS, "--per_device_train_batch_size", "64"]
SIXTEEN = ["--min_segment", "16", "--max_segment", "16"]
BEST = [*ANYWHERE, "--whiten_chunks"]
BOTH = [*BEST, "--objective", "both", "--loss", "cross_entropy"]
# "{random}" and others like it stand for starting checkpoints, see `starts`.
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
    "whitened, gate, and masked": BOTH,
    "whitened, gate, after masked": [*ANYWHERE, "--model", "{masked, cross-entropy, whitened}"],
    "whitened, gate, 256 pairs": [*BEST, "--per_device_train_batch_size", "256"],
    "whitened, gate, no layers": [*ANYWHERE, "--model", "{no layers}"],
    "no layers, 256 pairs": [*ANYWHERE, "--model", "{no layers}", "--per_device_train_batch_size", "256"],
    "whitened, gate, half of the books": [*BEST, "--validation_share", "0.5"],
    "no layers, half of the books": [*ANYWHERE, "--model", "{no layers}", "--validation_share", "0.5"],
    "whitened, gate, an eighth": [*BEST, "--validation_share", "0.875"],
    "no layers, an eighth": [*ANYWHERE, "--model", "{no layers}", "--validation_share", "0.875"],
    "the checkpoint's recipe": [*BOTH, "--max_steps", "200"],
}  # fmt: skip
CURVES = ("paper: masked, smooth L1", "whitened, gate", "whitened, gate, no layers")


def starts(kind: str, folder: Path, corpus: VectorCorpus, documents: np.ndarray, args: Namespace, seed: int) -> Path:
    """A starting checkpoint: random layers, a table of positions, whitening and pooling without layers; or a row."""
    if kind in ROWS:
        train(kind, seed, folder, corpus, args)
        return folder
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
    """Trains one row: run_pretraining.py with the row's options."""
    options = list(ROWS[name])
    for place, option in enumerate(options):
        if option.startswith("{"):
            share = (
                float(options[options.index("--validation_share") + 1]) if "--validation_share" in options else 0.05
            )
            documents = split(corpus, share, seed)[0]
            start = folder.with_name(folder.name + "-start")
            options[place] = str(starts(option.strip("{}"), start, corpus, documents, args, seed))
    own = ["--chunk_size", args.chunk_size, "--chunking", args.chunking, "--seed", seed, "--max_steps", args.steps]
    pretrain(corpus.path, folder, args, *own, *options, *more)


def folder_of(name: str, args: Namespace) -> Path:
    return args.output_dir / "".join(c if c.isalnum() else "_" for c in name)


def run(name: str, seed: int, corpus: VectorCorpus, judge: Judge, args: Namespace) -> None:
    """Trains and judges a row, unless that has been done."""
    folder = folder_of(f"{name}-{seed}", args)
    kept = folder.with_suffix(".json")
    if not kept.exists():
        train(name, seed, folder, corpus, args)
        scores = judge.scores(retrieval.contextual(NextLevelBertModel.from_pretrained(folder).eval(), name))
        learned = json.loads((folder / "eval_results.json").read_text())
        kept.write_text(json.dumps({"learned": learned, **scores}))
        for path in (folder, folder.with_name(folder.name + "-start")):  # figures are kept, weights are not
            shutil.rmtree(path, ignore_errors=True)


def finished(args: Namespace) -> dict[str, list[dict[str, Any]]]:
    """The results that exist: rows without training, and the runs of each trained row, by seed."""
    rows = {name: [scores] for name, scores in json.loads((args.output_dir / "closed_forms.json").read_text()).items()}
    for name in ROWS:
        if paths := sorted(args.output_dir.glob(f"{folder_of(name, args).name}_[0-9]*.json")):
            rows[name] = [json.loads(path.read_text()) for path in paths]
    for path in sorted(args.output_dir.glob("checkpoint *.json")):
        rows[path.stem] = [json.loads(path.read_text())]
    return rows


def curve(name: str, corpus: VectorCorpus, judge: Judge, args: Namespace) -> list[list[float]]:
    """Steps and MAP in the course of a longer run."""
    folder = folder_of(f"curve {name}", args)
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


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    add_letters_option(parser)
    parser.add_argument("--corpus", type=Path, required=True, help="chunk vectors of the training novels")
    parser.add_argument("--cache_dir", help="folder with a cache of chunk vectors; made if it is missing")
    parser.add_argument("--chunk_size", type=int, default=retrieval.CHUNK_SIZE)
    parser.add_argument("--chunking", default="fixed")
    parser.add_argument("--tasks", nargs="+", help="names of the tasks to judge by; default: all")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--checkpoint", type=Path, nargs="+", default=[], help="folders of finished models to judge")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
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
    for path in args.checkpoint:
        scores = judge.scores(retrieval.contextual(retrieval.trained(str(path), judge.base), path.name))
        (args.output_dir / f"checkpoint {path.name}.json").write_text(json.dumps(scores))
    for seed in args.seeds:
        for name in args.rows:
            run(name, seed, corpus, judge, args)
            write(args, corpus, {})
    print(write(args, corpus, {name: curve(name, corpus, judge, args) for name in CURVES} if args.curve else {}))


def write(args: Namespace, corpus: VectorCorpus, curves: dict) -> str:
    """Writes table, figures and plot of the finished rows; returns the table."""
    rows = finished(args)
    base = rows["mean of chunk vectors (Avg. SBERT)"][0]
    columns = {
        "chapters MAP": f"{JUDGED}: MAP", "new authors": "MAP, new authors",
        "adjacent": f"{JUDGED}: adjacent recall@10", "excerpts MAP": "excerpts, names masked: MAP",
        "with names: chapters": "chapters: MAP", "excerpts": "excerpts: MAP",
        "SQuALITY MRR": "squality, names masked: MRR",
        "letters only: chapters": "chapters, names masked, letters only: MAP",
        "excerpts, letters only": "excerpts, names masked, letters only: MAP",
        "SQuALITY, letters only": "squality, names masked, letters only: MRR",
    }  # fmt: skip
    columns = {label: key for label, key in columns.items() if all(key in found[0] for found in rows.values())}
    lines = [f"| | seeds | {' | '.join(columns)} | above Avg. SBERT | masked vector found |",
             f"| --- |{' ---: |' * (len(columns) + 3)}"]  # fmt: skip
    record: dict[str, Any] = {}
    for name, found in rows.items():
        mean = average(found)
        low, high = interval(mean, base)
        record[name] = {"difference to Avg. SBERT, 95 %": [low, high], "runs": rounded(found)}
        cells = " | ".join(f"{mean[key]:.3f}" for key in columns.values())
        accuracy = [scores["learned"]["eval_masked_accuracy"] for scores in found
                    if "eval_masked_accuracy" in scores.get("learned", {})]  # fmt: skip
        learned = f"{np.mean(accuracy):.3f}" if accuracy else ""
        lines.append(f"| {name} | {len(found)} | {cells} | {low:+.3f} to {high:+.3f} | {learned} |")
    (args.output_dir / "table.md").write_text(table := "\n".join(lines) + "\n")
    if curves:
        known = [name for name in ("TF-IDF", "mean of chunk vectors (Avg. SBERT)") if name in rows]
        marks: dict[str, float] = {name: rows[name][0][f"{JUDGED}: MAP"] for name in known}
        plot(curves, marks, args.output_dir / "curve.png")
    facts = {"machine": measuring.processor(), "steps": args.steps,
             "corpus": {key: corpus.manifest[key] for key in ("documents", "tokens", "chunks")}}  # fmt: skip
    (args.output_dir / "study.json").write_text(json.dumps({**facts, "rows": record, "curves": curves}) + "\n")
    return table


def rounded(value: Any) -> Any:
    """The same with four decimals, which is more than another machine would agree on."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
