"""One table of extractive summaries: BERT-AL beside the paper's baselines, at several segment lengths.

Runs `run_finetune.py --task summarization` for every row; rows that were finished before are read again. What is not
named here goes to each of them:

    python benchmarks/extractive_summaries.py --train_file train.jsonl --test_file test.jsonl --output_dir table \\
        --segment_lengths 16 128 --max_steps 300

Baselines (paper of BERT-AL, section "Experiment setting"): "truncated" reads the first segment only; "extended" reads
on with positions that are random behind the first segment. Full attention needs memory, so that one always gets
--attn_implementation sdpa.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nextlevelbert.finetuning_card import results_table

SCRIPT = Path(__file__).parents[1] / "run_finetune.py"
ROWS = {
    "truncated": ["--model_type", "truncated"],
    "extended": ["--model_type", "extended"],
    "BERT-AL, replace": ["--model_type", "bert-al", "--recurrence", "replace"],
    "BERT-AL, residual": ["--model_type", "bert-al", "--recurrence", "residual"],
    "BERT-AL, none": ["--model_type", "bert-al", "--recurrence", "none"],
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--segment_lengths", type=int, nargs="+", default=[8, 16, 128, 256])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--output_dir", type=Path, required=True, help="a folder for all rows")
    args, others = parser.parse_known_args()
    table: dict[str, Any] = {}
    trivial: dict[str, Any] = {}
    for length in args.segment_lengths:
        for name in args.rows:
            folder = args.output_dir / f"{name.replace(', ', '-').lower()}-{length}"
            command = [sys.executable, str(SCRIPT), "--task", "summarization", "--model", args.encoder, *ROWS[name]]
            command += ["--segment_length", str(length), "--output_dir", str(folder), *others]
            command += ["--attn_implementation", "sdpa"] if name == "extended" else []
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            rows = json.loads((folder / "results.json").read_text())["rows"]
            own, *rest = rows
            table[f"{name}, segments of {length}"] = {
                score: tuple(value) if isinstance(value, list) else value for score, value in rows[own].items()
            }
            trivial |= {each: rows[each] for each in rest}
    print(results_table({**table, **trivial}))


if __name__ == "__main__":
    main()
