"""One table for a classification task: pretrained model, the same untrained, and three baselines, over seeds.

Runs `run_finetune.py` for every row, with one cache of chunk vectors; rows that were finished before are read again.

    python benchmarks/document_classification.py --train_file train.jsonl --test_file test.jsonl \\
        --model cross_entropy=my-model --output_dir table
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from nextlevelbert.finetuning_card import results_table

SCRIPT = Path(__file__).parents[1] / "run_finetune.py"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH", help="a checkpoint; repeatable")
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2", "3", "4"])
    parser.add_argument("--output_dir", required=True)
    args, others = parser.parse_known_args()  # the rest goes to run_finetune.py
    if unnamed := [model for model in args.model if "=" not in model]:
        parser.error(f"--model takes NAME=PATH, got {unnamed[0]!r}")
    models = dict(model.split("=", 1) for model in args.model)
    models |= {name: name for name in ("untrained", "avg_sbert", "sbert", "tfidf")}
    rows: dict[str, dict[str, tuple[float, float] | float]] = {}
    without: dict[str, dict[str, tuple[float, float] | float]] = {}
    for name, model in models.items():
        folder = Path(args.output_dir) / name
        command = [sys.executable, str(SCRIPT), "--task", "classification", "--model", model, "--chunk_encoder"]
        command += [args.encoder, "--train_file", args.train_file, "--test_file", args.test_file, "--output_dir"]
        command += [str(folder), "--cache_dir", str(Path(args.output_dir) / "vectors"), "--seeds", *args.seeds]
        subprocess.run([*command, "--disable_tqdm", "true", *others], check=True, stdout=sys.stderr)
        results = json.loads((folder / "results.json").read_text())
        scores = {
            metric: tuple(value) if isinstance(value, list) else value
            for metric, value in results["mean_and_deviation"].items()
            if metric != "loss"
        }
        rate = f", rate {results['settings']['learning_rate']:g}" if model != "tfidf" else ""
        rows[f"{name} ({len(results['seeds'])} runs{rate})"] = scores
        without = results["trivial_baseline"]
    rows.update(without)
    table = results_table(rows)
    (Path(args.output_dir) / "table.md").write_text(table + "\n")
    print(f"\n{table}")


if __name__ == "__main__":
    main()
