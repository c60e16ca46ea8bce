"""Where files are: by path, folder or pattern, and looked at before anything is loaded."""

from __future__ import annotations

import fnmatch
import functools
import glob
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .book_files import BOOKS, check_package
from .texts import check_kind, open_binary, open_utf8

logger = logging.getLogger(__name__)

Source = str | Path | Iterable[str | Path]

TEXTS = (".txt", ".md", ".markdown", ".html", ".htm", *BOOKS)  # one document a file
TABLES = (".jsonl", ".json", ".csv", ".parquet")  # one document a row
SUPPORTED = f"{', '.join(TEXTS + TABLES)} (all also .gz), folders and patterns of these, and folders of save_to_disk"


class SourceFile(NamedTuple):
    """A file or a folder of ``save_to_disk``, and the id of its document, or None for a table."""

    path: Path
    id: str | None


def suffix(path: Path) -> str:
    """The suffix in lower case; of ``x.jsonl.gz`` it is ``.jsonl``."""
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def is_saved_dataset(folder: Path) -> bool:
    """Whether `datasets` wrote this folder by ``save_to_disk``."""
    single = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return single or (folder / "dataset_dict.json").is_file()


def check_source(source: str | Path | None) -> None:
    """Looks at a path before anything is loaded or made: whether it is there, and its files are no other kind.

    Args:
        source: a file of any kind, a folder (which is not looked into), or a pattern. None is nothing to check.

    Raises:
        FileNotFoundError: if there is nothing of that name.
        ValueError: for a pipe or device, a link that leads nowhere, a file that is empty or not UTF-8, and a kind of
            file whose package is not installed.
    """
    if source is None:
        return
    for path in _found(source, "Check the path. A dataset on the Hub is given by --dataset_name."):
        if not path.is_dir():
            check_package(path, suffix(path))
            with (open_binary if suffix(path) in (".parquet", *BOOKS) else open_utf8)(path) as file:
                if not file.peek(1):
                    raise ValueError(f"{path} is empty: it has no rows.")


def source_files(source: Source, unique_ids: bool = True) -> list[SourceFile]:
    """The files of a source, always in the same order; nothing is opened.

    Args:
        source: a file, a folder (with the folders in it, but without what begins with a dot), a pattern such as
            ``books/**/*.txt``, or several of these. A pattern is one only where no file has that very name.
        unique_ids: refuse two files whose documents would have one id, such as ``a.txt`` and ``a.pdf``.

    Raises:
        FileNotFoundError: if there is nothing of that name.
        ValueError: for a kind of file that is not supported or whose package is not installed, a pipe or device, a
            link to a folder above it, and ids that are not unique.
    """
    files = [file for each in ([source] if isinstance(source, (str, Path)) else source) for file in _files_of(each)]
    if not files:
        raise ValueError(f"Got no file to read. Supported: {SUPPORTED}.")
    first: dict[str, Path] = {}
    for path, _ in files:
        if first.setdefault(os.path.abspath(path), path) is not path:
            raise ValueError(f"{path} is given twice. Name each file once.")
    first = {}
    for path, name in files if unique_ids else ():
        if name is not None and first.setdefault(name, path) is not path:
            raise ValueError(
                f"{first[name]} and {path} would both be document {name!r}. Rename or leave out one of them, or "
                "give a folder above both, which makes the folders between a part of the ids."
            )
    return files


def find_paths(source: str | Path) -> list[Path]:
    """The file or folder of this name, else all that match it as a pattern, in order; an empty list for nothing.

    Raises:
        ValueError: for a pipe or device, and a link that leads nowhere.
    """
    if not str(source) or "\0" in str(source):
        raise ValueError(f"Got {str(source)!r} where the path of a file or folder is needed.")
    path = Path(source)
    found = [path] if path.exists() or path.is_symlink() else _matching(path)
    for each in found:
        check_kind(each)
    return found


def _found(source: str | Path, advice: str) -> list[Path]:
    if paths := find_paths(source):
        return paths
    pattern = ", and nothing matches it as a pattern" if glob.escape(str(source)) != str(source) else ""
    raise FileNotFoundError(f"No file or folder {str(source)!r}{pattern}. {advice}")


def _files_of(source: str | Path) -> list[SourceFile]:
    found = _found(source, f"Supported: {SUPPORTED}.")
    root = Path(*_fixed_parts(Path(source)))
    root = root if root.is_dir() else root.parent
    files = []
    for path in found:
        for each in _supported_files(path) if path.is_dir() and not is_saved_dataset(path) else [path]:
            if suffix(each) in TEXTS:
                check_package(each, suffix(each))
                files.append(SourceFile(each, _text_id(each, root)))
            elif suffix(each) in TABLES or each.is_dir():
                files.append(SourceFile(each, None))
            else:
                raise ValueError(f"Cannot read {each}. Supported: {SUPPORTED}.")
    return files


def _text_id(path: Path, root: Path) -> str:
    """The path below `root`, without suffixes."""
    bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    name = bare.with_suffix("").relative_to(root).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"The file name {str(path)!r} is not UTF-8. Rename the file.") from None
    return name


def _supported_files(folder: Path) -> list[Path]:
    """All files of a supported kind in a folder, in the order of their paths."""
    files: list[Path] = []
    others = Counter[str]()
    for path, is_folder in _walk(folder):
        if not is_folder and (suffix(path) in TEXTS + TABLES or path.is_dir()):
            files.append(path)
        elif not is_folder:
            others[path.suffix or "without suffix"] += 1
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
    if not files:
        raise ValueError(f"The folder {folder} holds nothing to read ({kinds or 'no file'}). Supported: {SUPPORTED}.")
    if others:
        _warn_once(f"{folder}: files of kinds that are not supported are left out ({kinds}).")
    return sorted(files)


@functools.lru_cache(maxsize=100)
def _warn_once(message: str) -> None:
    logger.warning(message)


def _walk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A folder and what is in it, without what begins with a dot, and whether it is a folder to go into.

    Links are followed. A folder of ``save_to_disk`` is not gone into.
    """
    waiting = [(folder, frozenset[tuple[int, int]]())]
    while waiting:
        path, above = waiting.pop()
        if path.suffix and suffix(path) not in TEXTS + TABLES and path.is_symlink() and not path.exists():
            yield path, False  # nobody would have read it; without a suffix it may have been a folder of books
            continue
        check_kind(path)
        is_folder = path.is_dir() and not is_saved_dataset(path)
        yield path, is_folder
        if is_folder:
            status = path.stat()
            this = (status.st_dev, status.st_ino)
            if this in above:
                raise ValueError(f"{path} is a link to a folder above it. Remove the link.")
            waiting += [(path / name, above | {this}) for name in os.listdir(path) if not name.startswith(".")]


def _fixed_parts(pattern: Path) -> tuple[str, ...]:
    """The parts of a path before the first one that is a pattern, not a name."""
    parts = pattern.parts
    for number, part in enumerate(parts):
        if glob.escape(part) != part and not Path(*parts[: number + 1]).exists():
            return parts[:number]
    return parts


def _matching(pattern: Path) -> list[Path]:
    """All paths that match, in order. ``**`` is any number of folders; * does not match a dot at the beginning."""
    fixed = _fixed_parts(pattern)
    rest = list(pattern.parts[len(fixed) :])
    found = [Path(*fixed)] if rest else []
    while rest and rest[-1] == "**":  # a folder stands for all that is in it
        rest.pop()
    for part in rest:
        folders, found = [path for path in found if path.is_dir()], []
        for folder in folders:
            if part == "**":
                found += [path for path, is_folder in _walk(folder) if is_folder]
            else:
                names = [name for name in os.listdir(folder) if name == part or fnmatch.fnmatchcase(name, part)]
                found += [folder / name for name in names if part.startswith(".") or not name.startswith(".")]
    return sorted(set(found))
