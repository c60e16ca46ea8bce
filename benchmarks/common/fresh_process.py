"""Measuring in a process of its own, so that no memory of an earlier run counts; with a limit on
its memory."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .measuring import parser_with_encoder, print_table

# Forked from a process that has imported everything and computed nothing: fresh, without seconds of
# imports each.
_PROCESSES = multiprocessing.get_context("forkserver")


def in_fresh_process(
    function: Callable[..., Any], *arguments: Any, limit: float | None = None
) -> Any:
    """Runs a function in a process of its own; returns None above `limit` GiB of memory."""
    # Blocks of 1 MiB and more are given back when freed; with glibc's own moving limit, peaks vary
    # by a third.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(2**20)
    _PROCESSES.set_forkserver_preload(["nextlevelbert", "transformers.models.bert.modeling_bert"])
    stopped = _PROCESSES.Event()
    with ProcessPoolExecutor(1, _PROCESSES, _watch, (limit, stopped)) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            if stopped.is_set():
                return None
            raise


def _watch(limit: float | None, stopped: Event) -> None:
    """Ends this process as soon as it needs more than `limit` GiB, and sets `stopped`."""

    def look() -> None:
        while resident_peak_mib() < (limit or float("inf")) * 1024:
            time.sleep(0.02)
        stopped.set()
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def resident_peak_mib() -> float:
    """Returns the most memory, in MiB, that this process has held so far; on Linux."""
    status = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def peak_and_seconds(run: Callable[[], object], repeats: int = 1) -> tuple[float, float]:
    """Measures memory and time of runs.

    Returns:
        The MiB that the first run adds, and the median CPU-seconds of all runs.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident now
    peaks = [resident_peak_mib()]
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
        peaks.append(resident_peak_mib())
    return peaks[1] - peaks[0], statistics.median(seconds)


def step(model: Any, length: int, training: bool, **labels: Any) -> None:
    """Passes a document of random words through a model, in training with the backward pass."""
    ids = torch.randint(1000, model.config.encoder_config.vocab_size, (1, length))
    ids[0, ::28] = (
        model.config.cls_token_id if hasattr(model.config, "cls_token_id") else 101
    )  # as of sentences
    with torch.set_grad_enabled(training):
        output = model(ids, **labels)
    if training:
        output.loss.backward()


def longer_positions(embeddings: Any, tokens: int) -> None:
    """Repeats the position table of a BERT up to a number of tokens."""
    table = embeddings.position_embeddings.weight.detach()
    embeddings.position_embeddings = nn.Embedding.from_pretrained(
        table[torch.arange(tokens) % len(table)], freeze=False
    )
    embeddings.position_ids = torch.arange(tokens)[None]  # [1, T]
    embeddings.token_type_ids = torch.zeros_like(embeddings.position_ids)


def grid_options(description: str | None, lengths: list[int]) -> Namespace:
    """Reads the options of a command that measures by the length of a document."""
    parser = parser_with_encoder(description)
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="tokens")
    parser.add_argument("--memory_limit", type=float, default=9.0, help="GiB of a process")
    return parser.parse_args()


def print_grid(
    measure: Callable[..., Any],
    encoder: str,
    names: Sequence[str],
    lengths: list[int],
    limit: float,
) -> None:
    """Prints peak MiB and CPU-seconds of each variant by length, beside the first variant.

    Args:
        measure: returns both values for an encoder, a variant, whether to train, and a number of
            tokens.
        encoder, names, lengths: encoder, variants and document lengths to measure.
        limit: GiB that a process may take; a variant above the limit is not tried on longer
            documents.
    """
    for training, what in enumerate(("inference", "training step")):
        figures = np.full((len(lengths), len(names), 2), np.nan)
        for row, column in np.ndindex(figures.shape[:2]):
            if row == 0 or not np.isnan(figures[row - 1, column, 0]):
                arguments = encoder, names[column], bool(training), lengths[row]
                figures[row, column] = in_fresh_process(measure, *arguments, limit=limit) or np.nan
        for kind, unit, form in (
            (0, "peak MiB above the loaded model", ",.0f"),
            (1, "CPU-seconds", ".2f"),
        ):
            print(f"\n{what}, {unit}; - : over {limit:g} GiB\n")
            rows = []
            for tokens, values in zip(lengths, figures[..., kind], strict=True):
                ratios = [f"{value / values[0]:.2f}".replace("nan", "") for value in values[1:]]
                rows.append(
                    [
                        f"{tokens:,}",
                        *(f"{value:{form}}".replace("nan", "-") for value in values),
                        *ratios,
                    ]
                )
            print_table(["tokens", *names, *(f"{name} / {names[0]}" for name in names[1:])], rows)
