"""Remembers what files hold, so that files that have not changed are not read again."""

import json
import os
import time
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

# Nanoseconds. Some file systems count time in steps of two seconds: a file that was changed within
# the last step may change once more without another time stamp.
_COARSEST_TIME = 2 * 10**9


class State(NamedTuple):
    """The state of files, which differs after any change.

    Args:
        values: size, times and inode of each file. The time of the last change to the inode shows
            an edit whose author has set the time stamp back.
        is_settled: true if the next change will be seen in the values.
    """

    values: list[list[int]]
    is_settled: bool


def state_of(paths: Sequence[Path]) -> State:
    """Returns the state of files.

    Raises:
        OSError: if a file does not exist.
    """
    now = time.time_ns()
    values = []
    newest = 0
    for path in paths:
        status = os.stat(path)
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
        values.append([status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino])
    return State(values, is_settled=newest + _COARSEST_TIME < now)


class FileStates:
    """Remembers the content of files by their state, in a file that may be deleted at any time.

    Args:
        path: the file, JSON behind a line with its checksum.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stored = dict[str, Any]()
        with suppress(OSError):
            first_line, _, text = path.read_bytes().partition(b"\n")
            if first_line == _checksum(text):
                self._stored = json.loads(text)
        self._contents = dict(self._stored)

    def content(self, name: str, state: State) -> Any:  # noqa: ANN401  # what was remembered
        """Returns what is remembered about files; None if they are new, or have changed."""
        values, content = self._contents.get(name, (None, None))
        if values == state.values:
            return content
        return None

    def remember(self, name: str, state: State, content: object) -> None:
        """Remembers what files hold, if the next change to them will be seen.

        The state is the one before the files were read.
        """
        if state.is_settled:
            self._contents[name] = [state.values, content]

    def save(self, names: Sequence[str]) -> None:
        """Writes what is remembered about some files, and forgets others."""
        self._contents = {name: self._contents[name] for name in names if name in self._contents}
        if self._contents == self._stored:
            return
        text = json.dumps(self._contents).encode()
        temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex[:8]}.new")
        with suppress(OSError):  # in a folder that is read-only, files are read each time
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_checksum(text) + b"\n" + text)
            os.replace(temporary, self._path)
        self._stored = dict(self._contents)


def _checksum(text: bytes) -> bytes:
    return f"{zlib.crc32(text):08x}".encode()
