"""Is a static chunk encoder worth training with the model over its vectors? (docs/study.md)

    python -m benchmarks.studies.trained_tokens --data DATA --train_file novels.jsonl --encoder STATIC \\
        --output_dir tokens --seeds 0 1 2

Every row is a run of run_pretraining.py without layers, on the same novels for the same number of steps of 64 pairs;
frozen tables read stored chunk vectors, trained ones read text. Judged like every row of next_level_study.py, by chunk
vectors of the row's own table, and also with all but letters dropped, since punctuation gives editions away. Finished
parts are kept. Prints a Markdown table and writes ``study.json``.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks.common import measuring
from benchmarks.common import retrieval_tasks as retrieval
from benchmarks.common.judge import Judge, average, interval
from benchmarks.common.studies import run_script, study_parser
from benchmarks.studies.next_level_study import BEST, rounded

FROZEN = "frozen table"
TRAINED = ["--train_chunk_encoder", "--token_dropout", "0.15"]
ROWS = {
    FROZEN: [],
    "frozen table, rate 1e-3": ["--learning_rate", "1e-3"],
    "trained, rate 3e-4": TRAINED,
    "trained, rate 1e-3": [*TRAINED, "--learning_rate", "1e-3"],
    "trained, rate 1e-3, no token dropped": [*TRAINED, "--learning_rate", "1e-3", "--token_dropout", "0"],
    "trained, rate 3e-3": [*TRAINED, "--learning_rate", "3e-3"],
}
COLUMNS = {
    "chapters MAP": "chapters, names masked: MAP", "adjacent": "chapters, names masked: adjacent recall@10",
    "excerpts MAP": "excerpts, names masked: MAP", "with names": "chapters: MAP", "new authors": "MAP, new authors",
    "SQuALITY MRR": "squality, names masked: MRR", "letters only: chapters MAP":
    "chapters, names masked, letters only: MAP",
}  # fmt: skip


def scores(name: str, seed: int, args: Namespace) -> dict[str, Any]:
    """Trains and judges a row, unless that has been done."""
    folder = args.output_dir / f"{''.join(c if c.isalnum() else '_' for c in name)}-{seed}"
    kept = folder.with_suffix(".json")
    if not kept.exists():
        own = ["--corpus_dir", args.output_dir / "corpus"] if name.startswith(FROZEN) else []
        run_script(
            "run_pretraining.py", "--do_train", "--train_file", args.train_file, "--chunk_encoder", args.encoder,
            "--num_hidden_layers", 0, "--max_steps", args.steps, "--seed", seed, "--output_dir", folder,
            "--save_strategy", "no", "--eval_strategy", "no", "--eval_on_start", "false", "--disable_tqdm", "true",
            *BEST, *own, *ROWS[name],
        )  # fmt: skip
        judge = Judge(Namespace(**{**vars(args), "encoder": str(folder)}))
        found = judge.scores(retrieval.contextual(retrieval.trained(str(folder), judge.base), name))
        kept.write_text(json.dumps(found))
        shutil.rmtree(folder)  # figures are kept, weights are not
    return json.loads(kept.read_text())


def parse_arguments() -> Namespace:
    parser = study_parser(__doc__)
    parser.add_argument("--train_file", type=Path, required=True, help="the training novels")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.set_defaults(
        chunk_size=retrieval.CHUNK_SIZE, chunking="fixed", tasks=None, cache_dir=None, letters_only=True
    )
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    rows = {name: [scores(name, seed, args) for seed in args.seeds] for name in dict.fromkeys([FROZEN, *args.rows])}
    base = average(rows[FROZEN])
    facts = {"machine": measuring.processor(), "steps": args.steps, "seeds": args.seeds, "rows": rounded(rows)}
    (args.output_dir / "study.json").write_text(json.dumps(facts) + "\n")
    measuring.print_table(
        ["", *COLUMNS, "chapters above the frozen table, 95 %"],
        [
            [name, *(f"{average(found)[key]:.3f}" for key in COLUMNS.values()),
             "" if name == FROZEN else "{:+.3f} to {:+.3f}".format(*interval(average(found), base))]
            for name, found in rows.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
