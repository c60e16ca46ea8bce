"""What the benchmarks share: the text, interleaved timing, peak memory of a fresh process, and Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

Case = TypeVar("Case", bound=Hashable)

# Of Python's manual in BERT's vocabulary, roughly; every command prints the true count.
CHARACTERS_PER_TOKEN = 4


def parser_with_text(description: str | None, tokens: int) -> ArgumentParser:
    """An argument parser with what nearly every benchmark asks for: encoder, text and its length."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--file", default="python-manual", help="a .txt, .jsonl or .parquet; Python's manual if not")
    parser.add_argument("--tokens", type=int, default=tokens, help="length of the text, roughly")
    return parser


def long_text(characters: int, source: str = "python-manual") -> str:
    """Documents of a source (see `read_documents`) as one text, over and over if they are too few."""
    from nextlevelbert import read_documents

    parts: list[str] = []
    length = 0
    for document in read_documents(source):
        parts.append(document.text)
        length += len(document.text) + 2
        if length >= characters:
            break
    text = "\n\n".join(parts)
    return (text * (characters // max(len(text), 1) + 1))[:characters]


def processor() -> str:
    """The CPU's name, the cores this process may use, and which bfloat16 instructions it has."""
    facts: dict[str, str] = {}
    if os.path.exists("/proc/cpuinfo"):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name") or platform.processor() or platform.machine()
    bf16 = [flag for flag in ("avx512_bf16", "amx_bf16") if flag in facts.get("flags", "").split()]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores ({', '.join(bf16) or 'no bfloat16 instructions known'})"


def print_header(dtypes: str, *notes: str) -> None:
    """One line on which every figure below it depends, and one for each note."""
    packages = ("torch", "transformers", "sentence-transformers", "tokenizers")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    print(f"{processor()}; {dtypes}; Python {platform.python_version()}, {versions}", *notes, "", sep="\n", flush=True)


@dataclass(frozen=True)
class Seconds:
    """What one run takes: seconds on the clock, and seconds of all cores together in this process."""

    wall: float
    cpu: float


def interleaved(cases: Mapping[Case, Callable[[], Any]], rounds: int) -> tuple[dict[Case, Seconds], dict[Case, Any]]:
    """Runs every case once a round, so that a slow minute of the machine falls on all of them.

    Args:
        cases: what to run, without arguments.
        rounds: how often. The first counts like the others: with three or more the median leaves it out.

    Returns:
        Medians over the rounds, and what each case returned last.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}.")
    wall: dict[Case, list[float]] = {name: [] for name in cases}
    cpu: dict[Case, list[float]] = {name: [] for name in cases}
    results: dict[Case, Any] = {}
    for number in range(rounds):
        for name, run in cases.items():
            begin, begin_cpu = time.perf_counter(), time.process_time()
            results[name] = run()
            wall[name].append(time.perf_counter() - begin)
            cpu[name].append(time.process_time() - begin_cpu)
            print(f"round {number + 1} of {rounds}: {name}: {wall[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: Seconds(statistics.median(wall[name]), statistics.median(cpu[name])) for name in cases}, results


def peak_mib() -> float:
    """The most memory, in MiB, that this process has had resident so far."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, ru_maxrss begins with what the process had that started this one
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def in_child(script: str, *arguments: object) -> Any:
    """Runs a script in a fresh process and returns the JSON of its last line.

    Raises:
        subprocess.CalledProcessError: if it fails; what it wrote to stderr is on ours.
    """
    command = [sys.executable, script, *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table; all columns but the first are figures and stand to the right."""
    for cells in (head, ["---", *["---:"] * (len(head) - 1)], *rows):
        if len(cells) != len(head):
            raise ValueError(f"A row must have the {len(head)} cells of the head, got {len(cells)}: {cells!r}.")
        print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
