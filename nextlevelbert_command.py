"""The command `nextlevelbert`: options and help of its sub-commands, and the start of the one that was asked for.

This file stands beside the package, not in it: importing the package loads torch and transformers, which takes
seconds, and neither the help nor a wrong option needs them.
"""

from __future__ import annotations

import argparse
import glob
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Sub-commands with their own options: (module, function, what they do).
_DELEGATED = {
    "pretrain": ("nextlevelbert.pretraining", "main", "pretrain a model on documents"),
    "finetune": ("nextlevelbert.tasks", "main", "train or test a model on a task"),
    "convert": (
        "nextlevelbert.convert",
        "main",
        "turn a checkpoint of NextLevelBERT's authors into one of this package",
    ),
}

_READS = """\
SOURCE is a folder, a file, or a quoted pattern such as 'books/**/*.txt'. These files are read: text, Markdown, HTML,
EPUB, PDF and DOCX (the last two need pip install 'nextlevelbert[files]'), each one document; and JSON Lines, JSON, CSV
and Parquet, every row one document, with its text in the column "text". A file that cannot be read is named and left
out.
"""

_INDEX = """\
Documents are read and encoded once. Their text and vectors are kept in the cache; the next time, only files that were
added or changed are encoded, and what was removed is forgotten. Interrupted, the same command goes on where it ended.
"""

_SEARCH = """\
Finds the passages and documents of a folder that are nearest to a question.

A passage is a chunk of a document, about a page. It is ranked by its vector and by its words: the cosine of its chunk
vector and that of the question, and BM25. The score is the mean of both, each scaled so that the best passage of the
folder has 1 and the worst 0. It tells which passage is nearest, not whether it holds an answer. --json prints cosine
and BM25, too. The score of a document is the mean of its three best passages.

"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands; those of `_DELEGATED` are only listed."""
    parser = argparse.ArgumentParser(
        prog="nextlevelbert",
        description="Search, embed and map long documents, and train the models that do it.",
        epilog="Each command has its own help: nextlevelbert search --help",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    model = argparse.ArgumentParser(add_help=False)
    group = model.add_argument_group("model")
    group.add_argument(
        "--model",
        help="folder or Hub name of a checkpoint; default: the environment variable NEXTLEVELBERT_MODEL, "
        "else the checkpoint that is installed with the package",
    )
    group.add_argument("--chunk_encoder", help="folder or name of the chunk encoder, if the checkpoint holds none")
    cache = argparse.ArgumentParser(add_help=False)
    cache.add_argument("--cache_dir", type=Path, help=f"where to keep text and vectors; default: {default_cache()}")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON")

    def add(name: str, about: str, description: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            help=about,
            description=description + _READS,
            parents=parents,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.add_argument("source", metavar="SOURCE", help="folder, file or pattern")
        return added

    search = add("search", "find passages and documents for a question", _SEARCH + _INDEX, model, cache, as_json)
    search.add_argument("question", metavar="QUESTION", help="what to look for, in words")
    search.add_argument("--documents", type=_count, default=5, metavar="N", help="documents to show; default: 5")
    search.add_argument("--passages", type=_count, default=5, metavar="N", help="passages to show; default: 5")
    embed = add(
        "embed",
        "write the vectors of documents and chunks to a file",
        "Writes one row for each document and each of its chunks: id, document, level, chunk (its number), start and\n"
        "end (characters), text (of chunks), metadata (JSON) and vector.\n\n" + _INDEX,
        model, cache, as_json,
    )  # fmt: skip
    _add_output(embed, ".parquet", ".npz")
    embed.add_argument("--rows", choices=("both", "chunks", "documents"), default="both", help="default: both")
    shelf = add(
        "map",
        "draw a map of a shelf: similar documents are close together",
        "Draws every document as a point: the document vectors, scaled to length 1, on their first two principal\n"
        "components. The HTML page tells more of the document that the mouse is over.\n\n" + _INDEX,
        model, cache, as_json,
    )  # fmt: skip
    _add_output(shelf, ".html", ".png")
    add(
        "app",
        "look at a folder in the browser",
        "Opens a page for the browser: a map of the documents, search, the question along each document, and the\n"
        "parts of a document compared with each other. A click shows the text. Only this machine can reach the page,\n"
        "and nothing leaves it. It needs pip install 'nextlevelbert[app]'.\n\n" + _INDEX,
        model, cache,
    )  # fmt: skip
    fit = add(
        "fit",
        "fit vectors to a folder, without training",
        "Writes a model whose document vectors are fitted to these documents: token vectors, centred and whitened,\n"
        "beside TF-IDF. It takes seconds to a minute, and opens like any other:\n"
        "nextlevelbert map my_books --model my-model\n\n",
        as_json,
    )  # fmt: skip
    fit.add_argument(
        "-o", "--output", required=True, type=Path, metavar="FOLDER", help="folder to write the model to; new or empty"
    )
    fit.add_argument(
        "--chunk_encoder", help="folder or name of the encoder whose chunk vectors are fitted; default: the static "
        "one that is installed with the package",
    )  # fmt: skip
    add(
        "plan",
        "count tokens, chunks and windows without encoding",
        "Counts the tokens, chunks and windows of documents. No network is run.\n\n",
        model, as_json,
    )  # fmt: skip
    for name, (_, _, about) in _DELEGATED.items():
        commands.add_parser(name, help=f"{about} (own options: nextlevelbert {name} --help)", add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the sub-command of a command line (by default that of this process); returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and words[0] in _DELEGATED:
            module, function, _ = _DELEGATED[words[0]]
            sys.argv = [f"nextlevelbert {words[0]}", *words[1:]]
            getattr(importlib.import_module(module), function)()
            return 0
        parser = build_parser()
        arguments = parser.parse_args(words)
        _check(parser, arguments)
        importlib.import_module(f"nextlevelbert.commands.{arguments.command}").run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        print(f"\nStopped. {str(interrupt) or 'Start the same command again to go on.'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `nextlevelbert search … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def default_cache() -> Path:
    """The folder of this package where the platform keeps caches (XDG base directory specification)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nextlevelbert"


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Ends the program with an error for what can be seen before anything is loaded; fills in the defaults."""
    if not arguments.source.strip() or not (Path(arguments.source).exists() or glob.has_magic(arguments.source)):
        parser.error(f"there is no file or folder {arguments.source!r}. Give a folder, a file or a quoted pattern.")
    if not getattr(arguments, "question", "?").strip():
        parser.error(
            'the question is empty. Put it in quotation marks: nextlevelbert search books "Who hunts a whale?"'
        )
    output = getattr(arguments, "output", None)
    if output is not None and not output.parent.is_dir():
        parser.error(f"there is no folder {str(output.parent)!r} to write {output.name} to.")
    if "cache_dir" in arguments:
        arguments.cache_dir = arguments.cache_dir or default_cache()
    if "model" not in arguments:
        return
    arguments.model = arguments.model or os.environ.get("NEXTLEVELBERT_MODEL")


def _add_output(parser: argparse.ArgumentParser, *suffixes: str) -> None:
    def output(text: str) -> Path:
        if Path(text).suffix not in suffixes:
            raise argparse.ArgumentTypeError(f"{text!r} must end in {' or '.join(suffixes)}")
        return Path(text)

    parser.add_argument(
        "-o", "--output", required=True, type=output, metavar="FILE", help=f"file to write, {' or '.join(suffixes)}"
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of results: 0, 1, 2, …")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
