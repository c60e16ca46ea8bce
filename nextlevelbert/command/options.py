"""Options that several commands have, and the types of their values."""

from __future__ import annotations

import argparse
import glob
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..bundled import BUNDLED

READS = """\
SOURCE is a folder, a file, or a quoted pattern such as 'books/**/*.txt'. A text, Markdown, HTML,
EPUB, PDF or DOCX file is one document (PDF and DOCX need the extra 'files'). In JSON Lines, JSON,
CSV, TSV and Parquet, each row is a document, with its text in the column "text" or --text_column.
If a file of these kinds cannot be read, it is named and left out. Two sources need no file:
example-books (the first pages of six novels) and python-manual (Python's manual).
"""
NO_MODEL = "none"
"""Value of ``--rerank`` for no second model."""
_RERANKED = 15  # as in `nextlevelbert.search.rerank`
_TRUTHS = {"true": True, "false": False}
KEEPS = """\
Passages and vectors are kept in the cache: the next time, only new and changed files are encoded.
If the command is interrupted, run it again to continue. See nextlevelbert cache --help.
"""


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Adds what every command has: the documents to read."""
    parser.add_argument(
        "source", metavar="SOURCE", type=source, help="folder, file or pattern of documents"
    )
    parser.add_argument(
        "--text_column",
        metavar="NAME",
        default="text",
        help="text column of tables (default: text)",
    )
    parser.add_argument(
        "--id_column",
        metavar="NAME",
        default="id",
        help="id column of tables (default: id)",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a model and how it runs; see `open_options`."""
    parser.add_argument(
        "--model",
        default=os.environ.get("NEXTLEVELBERT_MODEL") or None,
        help=(
            "folder or name of a checkpoint of this package or of any sentence-transformers model;"
            " minilm is short for all-MiniLM-L6-v2 (default: $NEXTLEVELBERT_MODEL if it is set,"
            " else the installed checkpoint)"
        ),
    )
    parser.add_argument(
        "--chunk_encoder",
        metavar="MODEL",
        help="folder or name of the chunk encoder, for a checkpoint that was saved without it",
    )
    add_device_option(parser)
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "int8", "bfloat16", "float16"),
        help=(
            "precision of the model (default: auto, which is bfloat16 on a GPU that computes in it,"
            " else int8 for --rerank and float32 for --model)"
        ),
    )
    parser.add_argument(
        "--splitter",
        metavar="NAME",
        help=(
            "module and name of a function that finds sentences, such as"
            " nltk.tokenize.sent_tokenize, for models with chunks of sentences (default: the"
            " model's own rule)"
        ),
    )


def add_device_option(parser: argparse.ArgumentParser) -> None:
    """Adds the device that the model runs on."""
    parser.add_argument(
        "--device",
        default="auto",
        help=(
            "where the model runs, such as cuda:1 (default: auto, the GPU if there is one; a static"
            " model runs on the CPU)"
        ),
    )


def add_rerank_option(parser: argparse.ArgumentParser) -> None:
    """Adds the model that ranks the first passages again."""
    parser.add_argument(
        "--rerank",
        metavar="MODEL",
        help=(
            "read the first passages with another model, and rank them again; their vectors are"
            " kept (default: minilm with the installed checkpoint and the extra 'minilm', else"
            f" {NO_MODEL})"
        ),
    )
    parser.add_argument(
        "--rerank_depth",
        type=positive_number,
        default=_RERANKED,
        metavar="N",
        help=f"passages to rank again (default: {_RERANKED})",
    )


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    """Adds the folder in which passages and vectors are kept."""
    parser.add_argument(
        "--cache_dir",
        type=Path,
        metavar="FOLDER",
        help="folder of the cache (default: nextlevelbert in $XDG_CACHE_HOME, else in ~/.cache)",
    )


def add_output_option(
    parser: argparse.ArgumentParser, what: str, path_type: Callable[[str], Path]
) -> None:
    """Adds the file or folder that the command writes.

    Args:
        parser: the parser of the command.
        what: what is written.
        path_type: checks the path; see `output_path`.
    """
    parser.add_argument("-o", "--output", required=True, type=path_type, metavar="PATH", help=what)


def open_options(options: dict[str, Any]) -> None:
    """Replaces the options of models and of reading by a `SearchModel` and so on."""
    if "rerank" in options:
        options["rerank"] = _reranker(options)
    choice = importlib.import_module("nextlevelbert.search.encoders.choice")
    reading = importlib.import_module("nextlevelbert.search.reading")
    cache_dir = options.pop("cache_dir")
    model = choice.SearchModel(
        options.pop("model") or choice.STATIC,
        chunk_encoder=options.pop("chunk_encoder"),
        device=options.pop("device"),
        dtype=options.pop("dtype"),
        cache_dir=cache_dir,
    )
    splitter = options.pop("splitter")
    if splitter is not None:
        splitter = _splitter(splitter, model.model.config.chunking)  # loads torch
    reading_options = {
        "text_column": options.pop("text_column"),
        "id_column": options.pop("id_column"),
        "splitter": splitter,
    }
    if cache_dir is not None:
        reading_options["cache_dir"] = cache_dir
    options["model"] = model
    options["reading"] = reading.ReadingOptions(**reading_options)


def check_models(options: Mapping[str, Any], no_models: Sequence[str] = ()) -> None:
    """Refuses a model that is not on this machine if asking the Hub fails.

    Args:
        options: the values of a command by name.
        no_models: values of ``--model`` that are no model.

    Raises:
        FileNotFoundError: with the option, the name of the model, and what the option may be.
    """
    for option in ("chunk_encoder", "rerank", "model"):
        name = options.get(option)
        if name in (None, "minilm", NO_MODEL, *no_models):  # which are no folders
            continue
        try:
            importlib.import_module("nextlevelbert.models.model_names").model_path(name)
        except FileNotFoundError as error:
            message = f"--{option}: {error}"
            if no_models and option == "model":
                message += f" It may also be {', '.join(no_models)}."
            raise FileNotFoundError(message) from error


def _reranker(options: dict[str, Any]) -> object:
    """Returns the `Reranker` of ``--rerank``; None for none."""
    rerank = importlib.import_module("nextlevelbert.search.rerank")
    depth = options.pop("rerank_depth")
    name = options["rerank"]
    if name == NO_MODEL:
        return None
    if name is not None:
        shared = {option: options[option] for option in ("device", "dtype", "cache_dir")}
        return rerank.named_reranker(name, depth, **shared)
    if options["model"]:
        return None  # the installed MiniLM reads English only
    return rerank.installed_reranker(depth)


def _splitter(name: str, chunking: str) -> Callable[..., Any]:
    """Imports the function of ``--splitter``.

    Args:
        name: the module and the function, such as ``nltk.tokenize.sent_tokenize``.
            ``text_sentences`` is this package's own.
        chunking: how the model splits a text; see `ChunkingRule.mode`.

    Raises:
        ValueError: if there is no such function, or the chunks of the model are not of sentences.
    """
    if chunking == "fixed":
        raise ValueError(
            f"--splitter {name}: the chunks of this model are runs of tokens, not sentences. Leave"
            " the option out, or use a model whose chunking is sentences or packed_sentences."
        )
    if name == "text_sentences":
        name = "nextlevelbert.models.text_sentences.text_sentences"
    try:
        splitter = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"There is no sentence splitter {name!r} ({error}). Give a module and a function, such"
            " as nltk.tokenize.sent_tokenize, or text_sentences."
        ) from error
    if not callable(splitter):
        raise ValueError(f"The sentence splitter {name!r} must be a function, got {splitter!r}.")
    return splitter


def count(text: str) -> int:
    """Reads a number of results."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, 0 or more, got {text!r}")
    return int(text)


def reader_of(convert: Callable[[str], Any], what: str) -> Callable[[str], Any]:
    """Makes a type of values, whose error says what a value must be."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, KeyError) as error:
            raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}") from error

    return read


whole_number = reader_of(int, "a whole number")
number = reader_of(float, "a number")
truth = reader_of(lambda text: _TRUTHS[text.lower()], "true or false")


def positive_number(text: str) -> int:
    """Reads a whole number, 1 or more."""
    number = count(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text!r}")
    return number


def output_path(text: str, suffixes: tuple[str, ...] = ()) -> Path:
    """Reads a path to write to.

    Args:
        text: the path. Its folder must exist.
        suffixes: the kinds of file that can be written; by default anything.
    """
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r} to write to")
    if suffixes and (path.is_dir() or path.suffix.lower() not in suffixes):
        *others, last = suffixes
        raise argparse.ArgumentTypeError(
            f"must be a file ending in {', '.join(others)} or {last}, got {text!r}"
        )
    return path


def new_folder(text: str) -> Path:
    """Reads a folder to write, which is empty or not there yet."""
    path = output_path(text)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise argparse.ArgumentTypeError(f"{text!r} exists already. Give a new or an empty folder")
    return path


def source(text: str) -> str:
    """Reads the documents to use: a path, a pattern that matches one, or a name of `BUNDLED`."""
    if text in BUNDLED or os.path.exists(text):
        return text
    if glob.has_magic(text):
        if next(glob.iglob(text, recursive=True), None) is None:
            raise argparse.ArgumentTypeError(f"no file or folder matches {text!r}")
        return text
    message = f"there is no file or folder {text!r}"
    if " " in text:
        message += ". The documents come first, then the question"
    raise argparse.ArgumentTypeError(message)
