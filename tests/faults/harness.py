"""Kills a process at a chosen file operation. Every case is a fork of one process that has imported everything.

An operation is whatever Python reports to its audit hooks and changes a file: opening for writing, renaming, removing,
making and removing folders. The process is killed before the operation, so that of n operations every state between
two of them is met. Writes inside a library in another language count as one operation with the one before.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# Audit events that change files, and where the path stands among their arguments.
EVENTS = {
    "os.rename": 0,
    "os.remove": 0,
    "os.mkdir": 0,
    "os.rmdir": 0,
    "os.truncate": 0,
    "os.link": 0,
    "os.symlink": 0,
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """How a forked call ended.

    Attributes:
        killed: by the harness, at the operation that it was told.
        stuck: it did not end in time.
        error: what it raised, as "Type: message"; None where it returned.
        raw: whether the error comes from inside another library: its last frame is not this package's.
        operations: file operations until then.
        value: what it returned.
    """

    killed: bool
    stuck: bool
    error: str | None
    raw: bool
    operations: int
    value: Any = None


def forked(call: Callable[[], Any], folder: Path, kill_at: int | None = None, how: str = "kill") -> Outcome:
    """Runs `call` in a fork of this process.

    Args:
        call: takes nothing; what it returns has to be picklable.
        folder: operations on paths in here are counted.
        kill_at: number of the operation, from 0, before which the process ends; None lets it run.
        how: ``"kill"`` ends it by SIGKILL; ``"full"`` lets that operation, and each after it that would write, fail
            as on a full disk.
    """
    inner, outer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inner)
        _run(call, folder, kill_at, how, outer)
    os.close(outer)
    pipe = os.fdopen(inner, "rb")
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(SECONDS)
    payload = pipe.read()
    _, status = os.waitpid(child, 0)
    left = signal.alarm(0)
    pipe.close()
    if payload:
        return Outcome(False, False, **pickle.loads(payload))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Outcome(left > 0, left == 0, None, False, kill_at or 0)
    raise RuntimeError(f"The fork ended with status {status} and told nothing.")


def _run(call: Callable[[], Any], folder: Path, kill_at: int | None, how: str, pipe: int) -> None:
    """The fork: never returns."""
    torch.set_num_threads(1)  # the threads of the parent did not come along, and would be waited for
    count = 0
    place = str(folder)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITES:
                return
        elif event in EVENTS:
            path = arguments[EVENTS[event]]
        else:
            return
        path = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        # Names without a folder are those that a tree is removed by.
        if not (path.startswith(place) or (path and os.sep not in path)):
            return
        if count == kill_at and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        if how == "full" and kill_at is not None and count > kill_at and event in ("open", "os.mkdir"):
            raise OSError(28, "No space left on device", path)

    sys.addaudithook(watch)
    told: dict[str, Any] = {"error": None, "raw": False, "value": None}
    try:
        told["value"] = call()
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        told["error"] = f"{type(error).__name__}: {error}"
        told["raw"] = "nextlevelbert" not in frames[-1].filename if frames else True
    told["operations"] = count
    sys.stdout.flush()
    with os.fdopen(pipe, "wb") as file:
        pickle.dump(told, file)
    os._exit(0)


def at_once(calls: list[Callable[[], Any]], folder: Path) -> list[Outcome]:
    """Runs calls in forks of this process at the same time."""
    with tempfile.TemporaryDirectory() as told:
        children = []
        for number, call in enumerate(calls):
            child = os.fork()
            if child == 0:
                outcome = forked(call, folder)
                (Path(told) / str(number)).write_bytes(pickle.dumps(outcome))
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [pickle.loads((Path(told) / str(number)).read_bytes()) for number in range(len(calls))]


def tree(folder: Path, ignored: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The bytes of every file under a folder, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ignored
    }
