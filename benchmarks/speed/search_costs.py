"""Measures the costs of `nextlevelbert search`: a first search, a further question, one note more.

    python -m benchmarks.speed.search_costs [--notes 1000 10000 100000]

A further question is asked in a process of its own, over texts that were read before: the six
bundled books, and folders of notes, each of which is a passage. No second model reads passages. For
one note more, a file is added to the folder before the question. Beside it stands a process in
which bm25s makes its own index, or opens it and answers. Each but the first search is the fastest
of three. Notes are runs of about 770 characters of Python's manual, in one file of JSON lines. The
cost of a note is the difference between the last two numbers of notes, in processor seconds and on
the disk, beside the tokenizer alone (`encode_batch_fast`). All of it runs on one thread.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from benchmarks.common import measuring
from nextlevelbert import static_checkpoint

QUESTION = "how do I open a socket with a timeout"
CHARACTERS = 770
_SEARCH = """
argv = ["search", *sys.argv[1:]]
sys.argv = ["nextlevelbert"]  # so that the package knows that a command starts
from nextlevelbert.command import main
main(argv)
"""
_BM25S = """
import bm25s
model = bm25s.BM25.load(sys.argv[1], mmap=True)
model.retrieve(bm25s.tokenize([sys.argv[2]], show_progress=False), k=5, show_progress=False)
"""
_BM25S_INDEX = """
import bm25s, json
texts = [json.loads(line)["text"] for line in open(sys.argv[1])]
model = bm25s.BM25()
model.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
model.save(sys.argv[2])
"""


# At the end of each process: its peak of memory. The `ru_maxrss` of a process begins with that of
# the process that started it.
_PEAK = """
from pathlib import Path
status = Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


class Cost(NamedTuple):
    """Holds the time and memory of a process.

    Args:
        seconds: processor seconds.
        mebibytes: peak of its memory.
    """

    seconds: float
    mebibytes: float


def cost_of_process(code: str, *arguments: str) -> Cost:
    """Runs Python code in a process of its own."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    command = [sys.executable, "-c", f"import sys{code}{_PEAK}", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, int(ended.stderr.split()[-1]) / 1024)


def least_cost(code: str, *arguments: str) -> Cost:
    """Runs Python code in three processes, and returns the cost of the fastest."""
    return min(cost_of_process(code, *arguments) for _ in range(3))


def size_of(folder: Path) -> int:
    """Returns the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def cost_of_a_note(source: Path, options: list[str]) -> Cost:
    """Adds a note to a folder and asks, three times, and returns the cost of the fastest."""
    costs = []
    for index in range(3):
        (source / f"{index}.txt").write_text(f"Note {index} about a socket and its timeout.")
        costs.append(cost_of_process(_SEARCH, str(source), *options))
    return min(costs)


def notes(count: int) -> Iterator[dict[str, str]]:
    """Yields runs of words of Python's manual that begin at random places."""
    words = measuring.long_text(2_000_000).split(" ")
    rng = np.random.default_rng(0)
    for index in range(count):
        start = int(rng.integers(len(words) - CHARACTERS))
        text = " ".join(words[start : start + CHARACTERS])[:CHARACTERS]
        yield {"id": str(index), "text": text}


def tokenizer_seconds(texts: list[str]) -> float:
    """Measures the tokenizer alone, in processor seconds."""
    tokenizer = Tokenizer.from_file(f"{static_checkpoint()}/tokenizer.json")
    start = time.process_time()
    for first in range(0, len(texts), 1_000):
        tokenizer.encode_batch_fast(texts[first : first + 1_000], add_special_tokens=False)
    return time.process_time() - start


def costs_of_notes(
    folder: Path, count: int, options: list[str]
) -> tuple[list[str], int, dict[str, Cost]]:
    """Measures searches in a folder of notes, and bm25s.

    Returns:
        The texts of the notes, the bytes that are stored of them, and the cost of each process.
    """
    source = folder / f"{count}"
    table = source / "notes.jsonl"
    rows = list(notes(count))
    measuring.write_rows(table, rows)
    before = size_of(folder / "cache")
    first = cost_of_process(_SEARCH, str(source), *options)
    size = size_of(folder / "cache") - before
    index = f"{folder}/bm25s"
    costs = {
        "first search": first,
        "further question": least_cost(_SEARCH, str(source), *options),
        "one note more": cost_of_a_note(source, options),
        "bm25s, index": cost_of_process(_BM25S_INDEX, str(table), index),
        "bm25s, further question": least_cost(_BM25S, index, QUESTION),
    }
    return [row["text"] for row in rows], size, costs


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    measuring.print_header("float32")

    tokenizing = []
    sizes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [QUESTION, "--rerank", "none", "--cache_dir", str(folder / "cache")]
        costs = {
            ("six books", "first search"): cost_of_process(_SEARCH, "example-books", *options),
            ("six books", "further question"): least_cost(_SEARCH, "example-books", *options),
        }
        for count in args.notes:
            title = f"{count:,} notes"
            texts, size, of_notes = costs_of_notes(folder, count, options)
            tokenizing.append(tokenizer_seconds(texts))
            sizes.append(size)
            costs |= {(title, process): cost for process, cost in of_notes.items()}

    rows = []
    for names, (seconds, mebibytes) in costs.items():
        rows.append([*names, f"{seconds:.2f}", f"{mebibytes:.0f}"])
    measuring.print_table(["texts", "process", "CPU-seconds", "peak MiB"], rows)

    fewer, more = args.notes[-2:]
    one, other = (costs[f"{count:,} notes", "first search"].seconds for count in (fewer, more))
    stored = (sizes[-1] - sizes[-2]) / 1024 / (more - fewer)
    ratio = (other - one) / (tokenizing[-1] - tokenizing[-2])
    print("\nEach further note of a table\n")
    head = ["CPU-milliseconds", "times the tokenizer", "KiB on the disk"]
    milliseconds = 1e3 * (other - one) / (more - fewer)
    measuring.print_table(head, [[f"{milliseconds:.2f}", f"{ratio:.2f}", f"{stored:.1f}"]])


if __name__ == "__main__":
    main()
