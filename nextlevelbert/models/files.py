"""Files of this machine that are written whole or not at all; imports no torch."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from safetensors import SafetensorError

# `Path` makes one slash of two, and a drive of Windows has one letter.
_ADDRESS = re.compile(r"[A-Za-z][\w.+-]+:/")


class WritingError(OSError):
    """Names a file or folder that cannot be written, with the cause and the remedy."""

    def __str__(self) -> str:
        return (
            f"{self.filename} cannot be written: {self.strerror}. Make room on its disk, or write"
            " to another folder."
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names a file or folder in the error of writing it, unless the error names a file in it.

    Raises:
        WritingError: if it cannot be written.
    """
    try:
        yield
    except WritingError:
        raise
    except (OSError, SafetensorError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise WritingError(0, cause, str(path)) from error


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing; the file gets its name when it is complete and on the disk."""
    with (
        whole_folder(path.parent) as temporary,
        writing(path),
        (temporary / path.name).open("wb") as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yields a hidden folder to write into, whose files are then moved into `folder`.

    After an error, the folder is as it was. If the process is killed, each file is the old one or
    the new one.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".tmp-", dir=folder) as temporary:
            yield Path(temporary)
            for parent, _, names in os.walk(temporary, topdown=False):
                target = folder / Path(parent).relative_to(temporary)
                target.mkdir(parents=True, exist_ok=True)
                # The weights come before config.json, without which a folder holds no model.
                for name in sorted(names, reverse=True):
                    os.replace(Path(parent, name), target / name)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file atomically, a text in UTF-8 with a line end.

    A file with the same content stays unchanged.
    """
    if isinstance(content, str):
        content = f"{content}\n".encode()
    path = Path(path)
    if not path.exists() or path.read_bytes() != content:
        with whole_file(path) as file:
            file.write(content)


def load_json(path: str | Path) -> Any:
    """Reads a JSON file.

    Raises:
        ValueError: the file holds no JSON; the message names it.
    """
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} is no valid JSON ({error}). It may be incomplete: write or download it again."
        ) from error


def read_json(path: str | Path) -> Any | None:
    """Reads a JSON file; returns None for a file that is missing or incomplete."""
    try:
        return load_json(path)
    except (FileNotFoundError, ValueError):
        return None


def local_path(path: str | PathLike) -> Path:
    """Returns the path of a file or folder on this machine.

    Raises:
        ValueError: for the address of an object store, such as ``s3://bucket/folder``.
    """
    if _ADDRESS.match(os.fspath(path)):
        raise ValueError(
            f"{str(path)!r} is an address, not a path on this machine. Give a local folder, and"
            " copy its files from or to the address, or mount the address as a folder."
        )
    return Path(path)
