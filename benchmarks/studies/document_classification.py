"""One table for a classification task: a long-document model beside its plain baselines, over seeds.

Runs `run_finetune.py` for every row; rows that were finished before are only read.

NextLevelBERT, pretrained and untrained, beside three baselines, with one cache of chunk vectors:

    python -m benchmarks.studies.document_classification --train_file train.jsonl --test_file test.jsonl \\
        --model cross_entropy=my-model --output_dir table

ChunkBERT beside the same encoder with truncation, with a random and with a TextRank second window, on all documents
and on those that do not fit in the encoder's window (arXiv 2310.20558, tables 3 and 4):

    python -m benchmarks.studies.document_classification --model_type chunkbert --train_file train.jsonl \\
        --test_file test.jsonl --output_dir table    # and --label_column levels: several labels, of newsgroups.py

TF-IDF has no figures on the long documents.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.common.studies import run_script
from nextlevelbert.tasks.classification.window_classifier import WINDOW_BASELINES
from nextlevelbert.training.plots import results_table


def rows_to_run(args: argparse.Namespace) -> dict[str, list[str]]:
    """What `run_finetune.py` is given for each row of the table, by the row's name."""
    tfidf = {"tfidf": ["--model", "tfidf"]}
    if args.model_type == "chunkbert":
        kinds = ("chunkbert", *WINDOW_BASELINES)
        return {kind: ["--model_type", kind, "--model", args.encoder] for kind in kinds} | tfidf
    vectors = ["--chunk_encoder", args.encoder, "--cache_dir", str(args.output_dir / "vectors")]
    models = dict(model.split("=", 1) for model in args.model)
    models |= {name: name for name in ("untrained", "avg_sbert", "sbert")}
    return {name: ["--model", model, *vectors] for name, model in models.items()} | tfidf


# Options of the data: for every row, TF-IDF too.
DATA_OPTIONS = (
    "text_column", "label_column", "id_column", "problem_type", "validation_file", "validation_share", "seed",
)  # fmt: skip
CHUNK_OPTIONS = ("chunk_size", "chunk_batch_size", "max_training_tokens")  # of ChunkBERT alone


def numbers(scores: dict[str, list[float] | float]) -> dict[str, tuple[float, float] | float]:
    """Scores as `results_table` wants them, without the loss, which says nothing across models."""
    pairs = {name: (value[0], value[1]) if isinstance(value, list) else value for name, value in scores.items()}
    return {name: value for name, value in pairs.items() if name != "loss"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--model_type", choices=["nextlevelbert", "chunkbert"], default="nextlevelbert")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH", help="a checkpoint; repeatable")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--rows", nargs="+", help="names of the rows to run; by default all")
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2", "3", "4"])
    parser.add_argument("--output_dir", type=Path, required=True)
    for name in (*DATA_OPTIONS, *CHUNK_OPTIONS):
        parser.add_argument(f"--{name}", help="as in run_finetune.py")
    args, others = parser.parse_known_args()  # the rest goes to run_finetune.py, but for the row of TF-IDF

    def given(names: tuple[str, ...]) -> list[str]:
        return [part for name in names if getattr(args, name) for part in (f"--{name}", getattr(args, name))]

    if unnamed := [model for model in args.model if "=" not in model]:
        parser.error(f"--model takes NAME=PATH, got {unnamed[0]!r}")
    if args.model and args.model_type == "chunkbert":
        parser.error("--model_type chunkbert trains --encoder; leave out --model")
    to_run = rows_to_run(args)
    if unknown := set(args.rows or ()) - to_run.keys():
        parser.error(f"--rows are among {', '.join(to_run)}, got {', '.join(sorted(unknown))}")
    rows: dict[str, dict[str, tuple[float, float] | float]] = {}
    long: dict[str, dict[str, tuple[float, float] | float]] = {}
    results: dict = {}
    read: dict = {}
    for name in args.rows or to_run:
        folder = args.output_dir / name
        options = [*to_run[name], *given(DATA_OPTIONS), *(others if name != "tfidf" else [])]
        if name != "tfidf" and (args.model_type == "nextlevelbert" or name == "chunkbert"):
            options += given(CHUNK_OPTIONS)
        run_script(
            "run_finetune.py", "--task", "classification", "--train_file", args.train_file, "--test_file",
            args.test_file, "--output_dir", folder, "--seeds", *args.seeds, *options, "--disable_tqdm", "true",
        )  # fmt: skip
        results = json.loads((folder / "results.json").read_text())
        data = {key: results["settings"].get(f"{key}_sha256") for key in ("train", "validation", "test")}
        if data != (read := read or data):
            raise SystemExit(f"The row {name} was made from other data than the rows before it; see {folder}.")
        rate = f", rate {results['settings']['learning_rate']:g}" if name != "tfidf" else ""
        row = f"{name} ({len(results['seeds'])} runs{rate})"
        rows[row] = numbers(results["mean_and_deviation"])
        if part := results.get("long"):
            title = f"{row}, {part['documents']} of {part['of']} with more than {part['over_tokens']} tokens"
            long[title] = numbers(part["mean_and_deviation"])
    table = results_table({**rows, **long, **results["trivial_baseline"]})
    (args.output_dir / "table.md").write_text(table + "\n")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
