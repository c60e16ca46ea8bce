"""The folder of a corpus, on this machine or at an address, whose files are whole or absent."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import tokenize
from huggingface_hub import cached_assets_path

from ..models.files import local_path, write_whole


class CorpusFolder:
    """A folder on this machine, or an address that fsspec opens, such as ``s3://bucket/corpus``.

    At an address, one request writes a file, which is then whole. The access rights come from the
    environment of each process: none are kept in this object.

    Args:
        path: the folder or the address; it need not exist.

    Attributes:
        path: the folder as a path, or the address as a text.

    Raises:
        ValueError: for an address that holds a password.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        address = os.fspath(path).removeprefix("file://")
        self.path: Path | str = address.rstrip("/")
        if re.search(r"://[^/]*@", address):
            raise ValueError(
                "An address must not hold a name or a password, because it is logged. Give them in"
                " the environment, as the package that opens the address describes."
            )
        if "://" not in address:
            self.path = local_path(address)

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def _reach(self, name: str = "") -> Iterator[tuple[AbstractFileSystem, str]]:
        """Yields the file system of this process and thread, and the path of a file in it.

        Raises:
            ConnectionError: the address is unknown or cannot be reached, its package is missing, or
                a request of the block fails; the error names the file.
        """
        store: AbstractFileSystem | None = None
        try:
            if isinstance(self.path, Path):
                store = LocalFileSystem()
                root = str(self.path)
            else:
                store, root = url_to_fs(self.path)
            yield store, f"{root}/{name}"
        except Exception as error:
            # Packages raise classes of their own. Any other built-in error is a fault of a program,
            # unless no store was opened: its protocol may be unknown, or its package missing.
            is_fault = type(error).__module__ == "builtins" and not isinstance(error, OSError)
            if store is not None and is_fault:
                raise
            address = f"{self}/{name}".rstrip("/")
            raise ConnectionError(f"{address} cannot be reached: {error}") from error

    def stamps(self) -> dict[str, str]:
        """Returns the names of the files in order, each with a hash that a new content changes."""
        names = {}
        with self._reach() as (store, root):
            store.invalidate_cache()  # other processes write, too
            with suppress(FileNotFoundError):
                for entry in store.ls(root, detail=True):
                    # A machine may mount the folder elsewhere, which is no new content.
                    names[os.path.basename(entry["name"])] = tokenize({**entry, "name": ""})
        return dict(sorted(names.items()))

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Opens a file for reading, which fetches only the bytes that are asked for."""
        with self._reach(name) as (store, path), store.open(path, cache_type="none") as stream:
            yield stream

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all."""
        if isinstance(self.path, Path):
            write_whole(self.path / name, content)
        else:
            with self._reach(name) as (store, path):
                store.pipe_file(path, content)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        if name in self.stamps():
            with self._reach(name) as (store, path):
                store.rm_file(path)

    @property
    def copies(self) -> Path:
        """Returns the folder of decoded parts; of an address, in the Hub's cache."""
        if isinstance(self.path, Path):
            return self.path / ".vectors"
        folder = cached_assets_path("nextlevelbert", "corpora", tokenize(self.path))
        folder.chmod(0o700)  # texts can be guessed from vectors
        return folder

    def limit_copies(self) -> bool:
        """Removes the half of the decoded parts of all addresses that was used longest ago.

        Nothing is removed if they take at most as much as is left free on the disk.

        Returns:
            Whether some were removed.
        """
        if isinstance(self.path, Path):
            return False
        folder = self.copies.parent
        with suppress(FileNotFoundError):  # another process removes them, too
            copies = sorted(folder.glob("*/*.npy"), key=os.path.getmtime)
            if sum(map(os.path.getsize, copies)) > shutil.disk_usage(folder).free:
                for copy in copies[: (len(copies) + 1) // 2]:
                    copy.unlink()
                return True
        return False
