"""What the studies share: their options, and runs of the package's two scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def study_parser(description: str | None) -> ArgumentParser:
    """An argument parser that asks for the data folder, the chunk encoder and the output folder."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    shared = os.environ.get("NEXTLEVELBERT_SHARED")
    parser.add_argument(
        "--data",
        type=data_folder,
        default=str(Path(shared) / "data") if shared else None,
        required=shared is None,
        help="folder with novels/, retrieval/ and squality/; default: data/ in the folder NEXTLEVELBERT_SHARED",
    )
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2", help="a Hub name or a folder")
    parser.add_argument("--encoder_name", help="its name on the Hub, where --encoder is a folder")
    parser.add_argument("--output_dir", type=Path, required=True)
    return parser


def add_letters_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--letters_only",
        action="store_true",
        help="also every task with names masked and all but letters dropped: punctuation gives editions away",
    )


def data_folder(path: str) -> Path:
    """A folder with the three data sets.

    Raises:
        ValueError: which a parser reports, if one of them is missing.
    """
    for name in ("novels", "retrieval", "squality"):
        if not (Path(path) / name).is_dir():
            raise ValueError(f"{path} holds no folder {name}/.")
    return Path(path)


def run_script(name: str, *options: object) -> None:
    """Runs ``run_pretraining.py`` or ``run_finetune.py``; what it prints goes to stderr.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    subprocess.run([sys.executable, str(ROOT / name), *map(str, options)], check=True, stdout=sys.stderr)


def pretrain(corpus: Path, folder: Path, args: Namespace, *options: object) -> None:
    """Runs ``run_pretraining.py`` on chunk vectors, without checkpoints and without evaluations on the way.

    Args:
        corpus: folder of the chunk vectors.
        folder: takes the model.
        args: of `study_parser`.
        options: further options; they override those given here.
    """
    name = ["--chunk_encoder_name", args.encoder_name] if args.encoder_name else []
    run_script(
        "run_pretraining.py", "--do_train", "--corpus_dir", corpus, "--output_dir", folder,
        "--chunk_encoder", args.encoder, *name, "--no_include_chunk_encoder", "--bf16", "--disable_tqdm", "true",
        "--save_strategy", "no", "--eval_strategy", "no", "--eval_on_start", "false", *options,
    )  # fmt: skip
