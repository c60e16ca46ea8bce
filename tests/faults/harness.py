"""Kills a process at a chosen file operation. Every case is a fork of one process that has imported
everything.

An operation is whatever Python reports to its audit hooks and changes a file: opening for writing,
renaming, removing, making and removing folders. The process is killed before the operation, so that
of n operations every state between two of them is met; or after a file was opened and before it is
written, when it is empty. `torch.save` and safetensors write in other languages and are announced
here; other such writes count as one operation with the one before.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

# Audit events that change files; the path is their first argument.
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = os.O_CREAT | os.O_TRUNC  # opening with these makes or empties a file
ENDS = {"kill": signal.SIGKILL, "opened": signal.SIGKILL}
SECONDS = 120


@dataclass(frozen=True)
class Outcome:
    """How a forked call ended, after so many file operations."""

    killed: bool  # by the harness
    stuck: bool  # it did not end in time
    error: str | None  # what it raised, as "Type: message"
    operations: int
    value: Any = None  # what it returned


def forked(
    call: Callable[[], Any], folder: Path, kill_at: int | None = None, how: str = "kill"
) -> Outcome:
    """Runs `call` in a fork of this process.

    Args:
        call: takes nothing; what it returns has to be a value of JSON.
        folder: operations on paths in here are counted.
        kill_at: number of the operation, from 0, before which the process ends; None lets it run.
        how: the name of the signal that ends it; ``"kill"`` stands for SIGKILL, and ``"opened"``
            for SIGKILL after the file of the operation was opened, and so perhaps emptied.
            ``"full"`` lets that operation, and each after it that would write, fail as on a full
            disk. ``"copy"`` lets it run; before every operation that finds more in the folder than
            changed code, it is copied to ``FOLDER-states/NUMBER``: what a kill leaves; and with the
            file that the operation opens to ``FOLDER-states/NUMBER-opened``.
    """
    inner, outer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inner)
        try:
            _run(call, folder, kill_at, how, outer)
        finally:
            os._exit(1)  # where the parent is gone: no fork may go on with its tests
    os.close(outer)
    pipe = os.fdopen(inner, "rb")
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(SECONDS)
    payload = pipe.read()
    _, status = os.waitpid(child, 0)
    left = signal.alarm(0)
    pipe.close()
    if payload:
        return Outcome(False, False, **json.loads(payload))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM):
        return Outcome(left > 0, left == 0, None, kill_at or 0)
    raise RuntimeError(f"The fork ended with status {status} and sent nothing.")


def _run(call, folder, kill_at, how, pipe):
    """The fork: never returns."""
    # The threads of the parent did not come along, and would be waited for.
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    count = 0
    copying = False
    place = str(folder)
    last: dict[str, tuple[int, int]] = {}

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count, copying, last
        if copying:
            return
        flags = 0
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITES:
                return
        elif event in EVENTS and not (
            event == "os.mkdir" and os.path.isdir(arguments[0])
        ):  # that changes nothing
            path = arguments[0]
        else:
            return
        path = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        # Names without a folder are those that a tree is removed by.
        if not (path.startswith(place) or (path and os.sep not in path)):
            return
        if how == "copy":
            copying = True
            before = last
            files = [path for path in folder.rglob("*") if path.suffix != ".py"]
            last = {str(path): (0, 0) if path.is_dir() else _stamp(path) for path in files}
            state = folder.with_name(f"{folder.name}-states") / f"{count:03d}"
            if last != before:
                shutil.copytree(folder, state)
            _copy_opened(folder, state.with_name(f"{state.name}-opened"), path, flags)
            copying = False
        elif count == kill_at and how != "full":
            copying = True
            _end(how, path, flags)
        count += 1
        if (
            how == "full"
            and kill_at is not None
            and count > kill_at
            and event in ("open", "os.mkdir")
        ):
            raise OSError(28, "No space left on device", path)

    sys.addaudithook(watch)
    _announce(torch, "save", 1, CHANGES)
    _announce(safetensors.torch, "serialize_file", 1)
    outcome: dict[str, Any] = {"error": None, "value": None}
    try:
        outcome["value"] = call()
    except BaseException as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    outcome["operations"] = count
    sys.stdout.flush()
    with os.fdopen(pipe, "w", encoding="utf-8") as file:
        json.dump(outcome, file)
    os._exit(0)


def _stamp(path):
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _end(how, path, flags):
    """Ends this process before an operation, or after the file of the operation was opened."""
    if how == "opened":
        _open_and_leave(path, flags)
    os.kill(os.getpid(), ENDS.get(how) or signal.Signals[how])


def _copy_opened(folder, state, path, flags):
    """Copies a folder in which a file was just opened with these flags, if that changes it."""
    if flags & CHANGES and path.startswith(str(folder)):
        shutil.copytree(folder, state)
        _open_and_leave(str(state) + path.removeprefix(str(folder)), flags)


def _open_and_leave(path, flags):
    """Makes or empties a file, as opening it with these flags does."""
    if flags & CHANGES and os.path.isabs(path):
        os.close(os.open(path, os.O_WRONLY | flags & CHANGES))


def _announce(module, name, place, flags=0):
    """Lets a function that opens files outside Python report it; its argument number `place` is the
    path."""
    function = getattr(module, name)

    def announced(*arguments: Any, **options: Any) -> Any:
        if len(arguments) > place and isinstance(arguments[place], (str, os.PathLike)):
            sys.audit("open", str(arguments[place]), "w", os.O_WRONLY | flags)
        return function(*arguments, **options)

    setattr(module, name, announced)


def tree(folder: Path, ignored: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The bytes of every file under a folder, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ignored
    }
