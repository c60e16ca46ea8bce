"""Finds files and reads their text, which may be packed as ``.gz``."""

import codecs
import glob
import gzip
import io
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TextIO

from ..messages import readable_name

TABLES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")  # one document a row
PLAIN_TEXTS = (".txt", ".md", ".markdown")
# Each of these files is one document; `books` reads those with markup.
TEXTS = (*PLAIN_TEXTS, ".html", ".htm", ".xhtml", ".epub", ".pdf", ".docx")
# A text, or a line of a table, that takes more than this when it is unpacked is refused.
UNPACKED_LIMIT = 2**28
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # begins like UTF-16, so it comes before it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_ANY_FOLDER = re.compile(r"(?<![^/\\])\*\*(?:[/\\]|$)")
logger = logging.getLogger(__name__)


class TooLargeError(ValueError):
    """Says that a file takes more memory when it is unpacked than one text may have."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} takes more than {UNPACKED_LIMIT:,} bytes when it is unpacked. Unpack or divide"
            " it yourself, or leave it out."
        )


class NulError(UnicodeError):
    """Says that a text holds NUL characters, as no text does."""

    def __init__(self) -> None:
        super().__init__(
            "it holds NUL characters: it is packed, or no text, or UTF-16 without a byte order mark"
        )


class PartlyReadError(ValueError):
    """Names the missing parts of a file that was read in part."""


def suffix(path: Path) -> str:
    """Returns the suffix in lower case, which is ``.jsonl`` for ``x.jsonl.gz``."""
    _, ending = os.path.splitext(path.name.lower().removesuffix(".gz"))
    return ending


def is_packed(path: Path) -> bool:
    """Returns whether the file is packed as ``.gz``."""
    return path.suffix.lower() == ".gz"


def packed(path: Path) -> Path:
    """Returns the file, or the same with ``.gz`` where only that exists."""
    compressed = path.with_name(f"{path.name}.gz")
    if compressed.exists() and not path.exists():
        return compressed
    return path


def find_paths(source: str | Path) -> list[Path]:
    """Returns the file or folder of this name, else all that match it as a pattern, in order.

    Like a folder, ``**`` enters each folder once, through links, too. `glob` enters a folder again
    through each link: one link to the folder above makes 41 paths of one file, and with a second
    link `glob` did not end within 20 s.
    """
    if os.path.exists(source):
        return [Path(source)]

    before, *after = _ANY_FOLDER.split(str(source), maxsplit=1)
    if not after:
        return sorted(map(Path, glob.glob(before)))

    roots = sorted(map(Path, glob.glob(before or ".")))
    if after == [""]:
        return roots

    paths = set[Path]()
    for folder, _ in _folders_below(roots):
        paths.update(find_paths(os.path.join(glob.escape(str(folder)), *after)))

    return sorted(paths)


def is_saved_dataset(folder: Path) -> bool:
    """Returns whether `datasets` wrote this folder by ``save_to_disk``.

    Other programs, too, write a file ``state.json``, so the files are looked into.
    """
    splits = _json_object(folder / "dataset_dict.json").get("splits")
    if isinstance(splits, list) and splits:
        return all(_is_saved_split(folder / str(split)) for split in splits)
    return _is_saved_split(folder)


def _is_saved_split(folder: Path) -> bool:
    state = _json_object(folder / "state.json")
    return "_data_files" in state and os.path.isfile(folder / "dataset_info.json")


def _json_object(path: Path) -> dict[str, Any]:
    """Reads an object from a JSON file; it is empty if the file holds anything else."""
    if not os.path.isfile(path):
        return {}
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return value


def files_below(roots: list[Path]) -> list[Path]:
    """Returns files, and the files and saved data sets in and below folders, in order."""
    folders = [path for path in roots if os.path.isdir(path)]
    paths = set(roots).difference(folders)
    for folder, files in _folders_below(folders):
        if is_saved_dataset(folder):
            paths.add(folder)
        else:
            paths.update(folder / name for name in files)
    return sorted(paths, key=attrgetter("parts"))  # paths take longer to compare


def _folders_below(roots: list[Path]) -> Iterator[tuple[Path, list[str]]]:
    """Yields folders and those below them, links last, with the names of their files.

    Links to folders are followed, each folder once. Folders that begin with a dot are left out, and
    those in a saved data set. Folders that may not be opened are named in a warning. Folders may be
    nested deeper than Python's limit of recursion, which ends `os.walk`.
    """
    visited = set()
    waiting = sorted(map(str, roots), key=os.path.islink)
    for start in waiting:  # grows by the links that are found: folders come before links to them
        open_folders = [start]
        while open_folders:
            folder = open_folders.pop()
            try:
                status = os.stat(folder)
                with os.scandir(folder) as entries:
                    folders, files = _names_by_kind(entries)
            except OSError as error:
                _warn_of_folder(folder, error)
                continue

            identity = (status.st_dev, status.st_ino)
            if identity in visited:
                continue
            visited.add(identity)
            yield Path(folder), files

            if is_saved_dataset(Path(folder)):
                continue
            for name in folders:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    waiting.append(path)
                else:
                    open_folders.append(path)


def _names_by_kind(entries: Iterator[os.DirEntry[str]]) -> tuple[list[str], list[str]]:
    """Returns the names of folders that do not begin with a dot, and of files."""
    folders = []
    files = []
    for entry in entries:
        try:
            is_folder = entry.is_dir()
        except OSError:  # a link to itself
            is_folder = False

        if not is_folder:
            files.append(entry.name)
        elif not entry.name.startswith("."):
            folders.append(entry.name)

    return folders, files


def _warn_of_folder(folder: str, error: OSError) -> None:
    logger.warning("Left out: folder %s: %s.", readable_name(folder), error.strerror)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turns errors of reading a file into a ValueError that names it."""
    try:
        yield
    except Exception as error:  # what parsers and data sets raise for a bad file is told nowhere
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        cause = reason(error)
        if not os.path.exists(path):
            cause = "It was removed meanwhile."
        raise ValueError(f"{path} cannot be read: {cause}") from error


def reason(error: Exception) -> str:
    """Returns the message of an error as a sentence, with the remedy for a wrong encoding."""
    if isinstance(error, PermissionError):
        return f"{error.strerror}. Change its permissions, or leave it out."
    sentence = f"{str(error).rstrip('.') or type(error).__name__}."
    if isinstance(error, UnicodeError):
        return f"{sentence} Save it in UTF-8."
    return sentence


class _Unpacked(gzip.GzipFile):
    """A file that is packed as ``.gz``. Like gunzip, it ignores bytes behind the last member."""

    def readinto(self, buffer: Any) -> int:
        data = b""
        try:
            data = self.read1(len(buffer))
        except gzip.BadGzipFile as error:  # also raised for a wrong checksum
            if self.tell() == 0 or "Not a gzipped file" not in str(error):
                raise
            name = readable_name(self.name)
            logger.warning("%s was read in part: the bytes at its end are not packed.", name)

        buffer[: len(data)] = data
        return len(data)


def _open_bytes(path: Path) -> io.BufferedReader:
    """Opens a file, unpacked if it is a ``.gz``."""
    if is_packed(path):
        return io.BufferedReader(_Unpacked(path))  # type: ignore[arg-type]  # it has `readinto`
    return open(path, "rb")


def read_bytes(path: Path) -> bytes:
    """Reads a whole file, unpacked if it is a ``.gz``.

    Raises:
        ValueError: if it takes more than 256 MB when it is unpacked.
    """
    if not is_packed(path):
        return path.read_bytes()
    with _open_bytes(path) as file:
        data = file.read(UNPACKED_LIMIT + 1)
    if len(data) > UNPACKED_LIMIT:
        raise TooLargeError(str(path))
    return data


def read_text(path: Path) -> str:
    """Reads a text file, with a line feed after each line; a ValueError names the file."""
    with named_errors(path):
        text = decode(read_bytes(path))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode(data: bytes) -> str:
    """Decodes a text by its byte order mark, else as UTF-8.

    Raises:
        ValueError: if the bytes are in another encoding.
    """
    encoding = encoding_of_mark(data)
    if encoding is not None:
        return data.decode(encoding)
    if b"\0" in data:
        raise NulError
    return data.decode()


def encoding_of_mark(data: bytes) -> str | None:
    """Returns the encoding that a byte order mark names, or None."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding
    return None


def check_utf8(text: str) -> None:
    """Raises a UnicodeError if a line of `table_lines` was not UTF-8."""
    if not text.isascii():
        text.encode("utf-8", "surrogateescape").decode("utf-8")


@contextmanager
def open_text(path: Path, newline: str | None = None, errors: str = "strict") -> Iterator[TextIO]:
    """Opens a text file in UTF-8 (or UTF-16 with a byte order mark), perhaps packed as ``.gz``.

    Args:
        path: the file, which a ValueError names.
        newline: handling of line ends, passed on to `open`.
        errors: handling of bytes that are not UTF-8, passed on to `open`.
    """
    with named_errors(path), _open_bytes(path) as file:
        encoding = encoding_of_mark(file.peek(4)) or "utf-8"
        with io.TextIOWrapper(file, encoding, errors, newline) as text_file:
            yield text_file


def table_lines(path: Path, newline: str | None = None) -> Iterator[str]:
    """Streams the lines of a table, with their ends; bytes that are not UTF-8 are escaped.

    See `check_utf8`, which tells such lines from others, so that they cost no other line.

    Raises:
        ValueError: for a table in UTF-16 without a byte order mark, and a packed line without end.
    """
    limit = -1
    if is_packed(path):
        limit = UNPACKED_LIMIT

    with open_text(path, newline=newline, errors="surrogateescape") as file:
        for line_number, line in enumerate(iter(partial(file.readline, limit), ""), start=1):
            if line_number == 1 and "\0" in line:
                raise NulError
            if len(line) == limit:
                raise TooLargeError(f"line {line_number}")
            yield line
