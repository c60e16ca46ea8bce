"""The command `nextlevelbert`: options and help of its sub-commands, and the start of the one that
was asked for.

This file stands beside the package, not in it: importing the package loads torch and transformers,
which takes seconds, and neither the help nor a wrong option needs them.
"""

from __future__ import annotations

import argparse
import glob
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

# Sub-commands with options of their own: (module, what they do).
_DELEGATED = {
    "pretrain": ("nextlevelbert.pretraining.vectors", "Pretrains a model on documents"),
    "finetune": ("nextlevelbert.tasks", "Trains a model on a task, or tests one at search"),
    "convert": (
        "nextlevelbert.convert",
        "Turns a checkpoint of NextLevelBERT's authors into one of this package",
    ),
}
_READS = """\
SOURCE is a folder, a file, or a quoted pattern such as 'books/**/*.txt'. Text, Markdown, HTML, EPUB, PDF and DOCX (the
last two need pip install 'nextlevelbert[files]') are one document each; every row of JSON Lines, JSON, CSV and Parquet
is one, its text in the column "text" or --text_column. A file of these kinds that cannot be read is named and left
out.
"""
_KEEPS = """\
Passages and vectors are kept in the cache, as Parquet: the next time, only files that were added or changed are
encoded. If interrupted, the same command goes on where it stopped.
"""
_ABOUT = {
    "search": (
        """\
Finds the passages and documents of a folder that are nearest to a question.

A passage is a chunk of a document, about a page. It is ranked by its vector and by its words: the cosine of its chunk
vector and the question's, and its BM25 divided by the length of the question's IDF vector. The score is the
mean of both: scores are relative to the folder, and a high one is no sign that the passage holds an answer. The score
of a document is the mean of its three best passages.
"""
    ),
    "embed": "Writes the vectors of documents or chunks to a Parquet file.",
    "map": (
        "Draws a map of a folder: similar documents are close together (principal components of"
        " their vectors)."
    ),
    "app": (
        "Serves a page: search, a map, and the question's score along each document.\nOnly this"
        " machine can reach the page. It needs pip install 'nextlevelbert[app]'."
    ),
    "fit": (
        "Fits a model to a folder, without training: token vectors, whitened, beside TF-IDF.\nThe"
        " model opens like any other: nextlevelbert map my_books -o map.png --model my-model"
    ),
    "plan": "Counts tokens, chunks and windows of documents, without encoding.",
}


class _Parser(argparse.ArgumentParser):
    """A parser that says how to ask a question that looks like an option."""

    def error(self, message: str) -> NoReturn:
        if "QUESTION" in message:
            message += '. If the question begins with a hyphen, write -- before it: -- "--option"'
        super().error(message)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands; those of `_DELEGATED` are only listed."""
    parser = _Parser(
        prog="nextlevelbert",
        description="Search, embed and map long documents, and train the models that do it.",
        epilog="Each command has its own help: nextlevelbert search --help",
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nextlevelbert"
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name, about in _ABOUT.items():
        sub = commands.add_parser(
            name,
            help=about.split("\n")[0],
            description=f"{about.rstrip()}\n\n{_READS}{'' if name in ('fit', 'plan') else _KEEPS}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = sub.add_argument
        add("source", metavar="SOURCE", type=_source, help="folder, file or pattern")
        if name == "search":
            add("question", metavar="QUESTION", help="what to look for, in words")
            add(
                "--documents",
                type=_count,
                default=5,
                metavar="N",
                help="documents to show; default: 5",
            )
            add(
                "--passages",
                type=_count,
                default=5,
                metavar="N",
                help="passages to show; default: 5",
            )
        if name in ("search", "plan"):
            add("--json", action="store_true", help="print JSON")
        if name in ("embed", "map", "fit"):
            kind = {
                "embed": "FILE.parquet",
                "map": "FILE.png, .svg or .pdf",
                "fit": "folder, new or empty",
            }[name]
            check = {"embed": _parquet, "map": _picture, "fit": _output}[name]
            add(
                "-o",
                "--output",
                required=True,
                type=check,
                metavar="PATH",
                help=f"what to write: {kind}",
            )
        if name == "embed":
            add("--rows", choices=("documents", "chunks"), default="chunks", help="default: chunks")
        add(
            "--text_column",
            metavar="NAME",
            default="text",
            help="text column of tables; default: text",
        )
        add(
            "--chunk_encoder",
            metavar="MODEL",
            help="chunk encoder, by folder or name, where no checkpoint holds it",
        )
        if name != "fit":
            add(
                "--model",
                help=(
                    "checkpoint, by folder or name; default: $NEXTLEVELBERT_MODEL, else the"
                    " installed one"
                ),
            )
            add("--device", default="cpu", help="such as cuda or cuda:1; default: cpu")
            add(
                "--dtype",
                default="float32",
                choices=("float32", "bfloat16", "float16"),
                help="default: float32",
            )
        if name != "fit":
            add(
                "--splitter",
                metavar="NAME",
                help=(
                    "function that finds sentences, by module and name, such as"
                    " nltk.tokenize.sent_tokenize; for models with chunks of sentences; default:"
                    " the rule of the model"
                ),
            )
        if name not in ("fit", "plan"):
            add("--cache_dir", type=Path, default=cache, help="default: %(default)s")
    for name, (_, about) in _DELEGATED.items():
        commands.add_parser(
            name, help=f"{about} (own options: nextlevelbert {name} --help)", add_help=False
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sub-command of a command line (by default that of this process); returns the exit
    status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a pipe on Windows may know few characters
        sys.stdout.reconfigure(errors="replace")
    try:
        if words and words[0] in _DELEGATED:
            sys.argv = [f"nextlevelbert {words[0]}", *words[1:]]
            importlib.import_module(_DELEGATED[words[0]][0]).main()
            return 0
        arguments = build_parser().parse_args(words)
        module = f"nextlevelbert.commands.{arguments.command}"
        (plan if arguments.command == "plan" else importlib.import_module(module).run)(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nStopped. Start the same command again to go on.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `nextlevelbert search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def plan(arguments: argparse.Namespace) -> None:
    """What encoding documents would take."""
    from nextlevelbert.commands.shelf import open_model, open_splitter, read_files

    model = open_model(arguments)
    splitter = open_splitter(model, arguments.splitter)
    rows: dict[str, tuple[int, Any]] = {}
    for place, document in read_files(arguments.source, arguments.text_column, model.tokenizer):
        rows[place] = (len(document.text), model.plan(document.text, splitter))
    if not rows:
        raise ValueError(f"No file of {arguments.source!r} can be read.")
    if arguments.json:
        print(
            json.dumps(
                {
                    place: {"characters": size, **asdict(counts)}
                    for place, (size, counts) in rows.items()
                }
            )
        )
        return
    print("characters", "tokens", "chunks", "windows", "document", sep="\t")
    for place, (size, counts) in rows.items():
        print(size, counts.tokens, counts.chunks, counts.windows, place, sep="\t")


def _source(text: str) -> str:
    if not text.strip() or not (Path(text).exists() or glob.has_magic(text)):
        raise argparse.ArgumentTypeError(f"there is no file or folder {text!r}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text!r}")
    return int(text)


def _output(text: str, *endings: str) -> Path:
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"there is no folder {str(Path(text).parent)!r} to write to"
        )
    if endings and (Path(text).is_dir() or Path(text).suffix.lower() not in endings):
        raise argparse.ArgumentTypeError(
            f"must be a file ending in {' or '.join(endings)}, got {text!r}"
        )
    return Path(text)


def _parquet(text: str) -> Path:
    return _output(text, ".parquet")


def _picture(text: str) -> Path:
    return _output(text, ".png", ".svg", ".pdf")
