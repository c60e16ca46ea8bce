"""Trains MiniLM's layers on its own chunk vectors by six objectives, beside untrained controls.

    python -m benchmarks.studies.hold_out --data DATA --output_dir novels
    python -m benchmarks.studies.masked_objectives encode --data DATA --novels novels \
        --folder STUDY --encoder MINILM --bf16
    python -m benchmarks.studies.minilm_objectives --folder STUDY

The runs are rows a to f of `masked_objectives`, which start at MiniLM's six layers and read
300,000 positions in sequences of 128: 2,048 positions in a step, AdamW at 1e-4 with a warm-up and a
cosine to zero, in bfloat16. Scores are those of `masked_trial`. Runs that are finished are not
trained again.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from benchmarks.common.measuring import add_json_option
from benchmarks.studies.masked_trial import read_options, report

SETTINGS = (
    "--positions 300000 --evaluate_every 300000 --sequence_length 128 --batch_size 16"
    " --learning_rate 1e-4 --bf16"
)
# Options of each run.
RUNS = {
    "a": "--row a",
    "b": "--row b",
    "c": "--row c",
    "d": "--row d",
    "d, second seed": "--row d --seed 1",
    "e": "--row e",
    "f": "--row f",
}


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="of `masked_objectives encode`")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[*RUNS], help="default: all")
    add_json_option(parser)
    args = parser.parse_args()
    runs = {name: read_options(args.folder, f"{SETTINGS} {RUNS[name]}") for name in args.runs}
    report(runs, args.json)


if __name__ == "__main__":
    main()
