"""Measuring in a process of its own, so that no memory of an earlier run counts; with a limit on its memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
# Forked from a process that has imported everything and computed nothing: fresh, without seconds of imports each.
_PROCESSES = multiprocessing.get_context("forkserver")


def prepare_processes(*modules: str) -> None:
    """Before the first process is made: what is imported once for all, and memory whose peaks can be read."""
    # Blocks of 1 MiB and more are given back when freed; with glibc's own moving limit, peaks vary by a third.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**20)
    _PROCESSES.set_forkserver_preload([*modules])


def in_fresh_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, _PROCESSES) as pool:
        return pool.submit(function, *arguments, **options).result()


def in_limited_process(
    limit: float, function: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Result | None:
    """What a function returns in a process of its own; None if that process came to need more than `limit` GiB."""
    stopped = _PROCESSES.Event()
    with ProcessPoolExecutor(1, _PROCESSES, _watch, (limit, stopped)) as pool:
        try:
            return pool.submit(function, *arguments, **options).result()
        except torch.OutOfMemoryError:  # of a GPU
            return None
        except BrokenProcessPool:
            if stopped.is_set():
                return None
            raise


def _watch(limit: float, stopped: Event) -> None:
    """Ends this process, and says so, once it needs more than `limit` GiB."""

    def look() -> None:
        while resident_peak_mib() < limit * 1024:
            time.sleep(0.02)
        stopped.set()
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def resident_peak_mib() -> float:
    """The most memory, in MiB, that this process has had resident so far."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss begins with what the process had that started this one
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def peak_mib() -> float:
    """The most memory so far, in MiB, allocated on the GPU or else resident."""
    return torch.cuda.max_memory_allocated() / 2**20 if CUDA else resident_peak_mib()


def peak_and_seconds(run: Callable[[], object], repeats: int = 1) -> tuple[float, float]:
    """MiB that the first run takes above what is held before it, and the median of the seconds of all runs."""
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident now
    peaks, seconds = [peak_mib()], []
    for _ in range(repeats):
        start = _clock()
        run()
        seconds.append(_clock() - start)
        peaks.append(peak_mib())
    return peaks[1] - peaks[0], statistics.median(seconds)


def _clock() -> float:
    """Seconds of this process's CPU time, because other jobs slow the clock's; with a GPU the clock's."""
    if CUDA:
        torch.cuda.synchronize()
    return time.perf_counter() if CUDA else time.process_time()
