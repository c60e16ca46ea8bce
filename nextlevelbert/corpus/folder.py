"""The folder of a corpus, on this machine or at an address, whose files are whole or absent."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import tokenize
from huggingface_hub import cached_assets_path

from ..models.files import local_path, whole_file
from .hold import hold_folder

_PASSWORD = re.compile(r"://[^/]*@")


class LocalFolder:
    """A folder on this machine.

    Attributes:
        path: the folder.
        copies: folder of the decoded vectors.
        has_exact_stamps: false, because a file can change within a step of the clock.
        seconds_between_looks: time to wait before the files are listed again.
    """

    has_exact_stamps = False
    seconds_between_looks = 0.2

    def __init__(self, path: Path) -> None:
        self.path = path
        self.copies = path / ".vectors"

    def __str__(self) -> str:
        return str(self.path)

    def stamps(self) -> dict[str, str]:
        """Returns the names of the files in order, each with the time when it was written."""
        if not self.path.is_dir():
            return {}
        paths = sorted(self.path.iterdir())
        return {path.name: f"{path.stat().st_mtime_ns:x}" for path in paths if path.is_file()}

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Returns a file for `pyarrow`, which opens it without Python."""
        return nullcontext(self.path / name)

    def read(self, name: str) -> bytes:
        """Reads a file."""
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, whole or not at all."""
        with whole_file(self.path / name) as file:
            file.write(content)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def hold(self, rank: int = 0) -> AbstractContextManager[None]:
        """Keeps other runs out; see `hold_folder`."""
        return hold_folder(self.path, rank)

    def clean(self) -> None:
        """Removes what processes that were killed have left."""
        for leftover in self.path.glob(".tmp*"):
            shutil.rmtree(leftover)

    def limit_copies(self) -> bool:
        """Keeps all decoded vectors; returns whether some were removed."""
        return False


class AddressedFolder:
    """A folder at an address that fsspec opens, such as ``s3://bucket/corpus``.

    A file is written by one request, after which it is whole. The access rights come from the
    environment of each process: none are kept in this object.

    Attributes:
        path: the address.
        has_exact_stamps: true, because a store has a new entry for each new content.
        seconds_between_looks: time to wait before the files are listed again.
    """

    has_exact_stamps = True
    seconds_between_looks = 5.0

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    def __str__(self) -> str:
        return self.path

    @property
    def _store(self) -> tuple[AbstractFileSystem, str]:
        """Returns the file system, which belongs to a process and a thread, and the folder."""
        with _named(self.path):
            return url_to_fs(self.path)

    @property
    def copies(self) -> Path:
        """Returns the folder of the decoded vectors in the Hub's cache on this machine."""
        folder = cached_assets_path("nextlevelbert", "corpora", tokenize(self.path))
        folder.chmod(0o700)  # texts can be guessed from vectors
        return folder

    def stamps(self) -> dict[str, str]:
        """Returns the names of the files in order, each with a hash of the store's entry."""
        store, root = self._store
        store.invalidate_cache()  # other processes write, too
        with _named(self.path):
            try:
                entries = store.ls(root, detail=True)
            except FileNotFoundError:
                return {}
        names = {entry["name"].rsplit("/", 1)[-1]: tokenize(entry) for entry in entries}
        return dict(sorted(names.items()))

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Opens a file for `pyarrow`, which reads parts of it."""
        store, root = self._store
        return store.open(f"{root}/{name}", cache_type="none")

    def read(self, name: str) -> bytes:
        """Reads a file."""
        store, root = self._store
        with _named(f"{self.path}/{name}"):
            return store.cat_file(f"{root}/{name}")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file by one request."""
        store, root = self._store
        with _named(f"{self.path}/{name}"):
            store.pipe_file(f"{root}/{name}", content)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        store, root = self._store
        if name in self.stamps():
            with _named(f"{self.path}/{name}"):
                store.rm_file(f"{root}/{name}")

    def hold(self, rank: int = 0) -> AbstractContextManager[None]:
        """Lets other runs in: they write the same files."""
        return nullcontext()

    def clean(self) -> None:
        """Leaves the folder as it is: a killed process leaves nothing."""

    def limit_copies(self) -> bool:
        """Removes the decoded vectors of all addresses that were used longest ago.

        The others take at most as much as is left free on the disk.

        Returns:
            Whether some were removed.
        """
        disk = shutil.disk_usage(self.copies)
        if disk.free >= disk.total / 2:
            return False
        files = []
        for path in self.copies.parent.glob("*/*.npy"):
            with suppress(FileNotFoundError):  # removed by another process
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in files) - disk.free
        is_any_removed = excess > 0
        for _, size, path in sorted(files):
            if excess <= 0:
                break
            path.unlink(missing_ok=True)
            excess -= 2 * size  # which is free from now on
        return is_any_removed


Folder = LocalFolder | AddressedFolder


@contextmanager
def _named(address: str) -> Iterator[None]:
    """Names an address in the error of any library."""
    try:
        yield
    except Exception as error:
        raise OSError(f"{address} cannot be reached: {error}") from error


def open_folder(path: str | os.PathLike) -> Folder:
    """Returns the folder of a corpus, which need not exist.

    Args:
        path: path on this machine, or an address that fsspec opens.

    Raises:
        ValueError: for an address that holds a password.
        OSError: for an address that no installed package opens.
    """
    address = os.fspath(path)
    if "://" not in address:
        return LocalFolder(local_path(address))
    if _PASSWORD.search(address):
        raise ValueError(
            "An address must not hold a name or a password, because it is logged. Give them in the"
            " environment, as the package that opens the address describes."
        )
    folder = AddressedFolder(address)
    store, root = folder._store
    if isinstance(store, LocalFileSystem):
        return LocalFolder(Path(root))
    return folder
