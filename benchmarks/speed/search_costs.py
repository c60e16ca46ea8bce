"""Measures the costs of `nextlevelbert search`: a further question, and each note of a large table.

    python -m benchmarks.speed.search_costs [--notes 10000 100000]

A further question is asked in a process of its own, over texts that were indexed before: the six
bundled books, and notes, each of which is a passage. Beside it stand a process that only starts
Python, one that only imports torch, and one in which bm25s opens its own index and answers. Each is
the fastest of three. Notes are runs of about 770 characters of Python's manual, in one file of JSON
lines. The cost of a note is the difference between the two numbers of notes, in processor seconds
and in peak memory, beside the tokenizer alone (`encode_batch_fast`). All of it runs on one thread.
"""

from __future__ import annotations

import json
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

import bm25s
import numpy as np
from tokenizers import Tokenizer

from benchmarks.common import measuring
from nextlevelbert import static_checkpoint

QUESTION = "how do I open a socket with a timeout"
CHARACTERS = 770
_SEARCH = """
import nextlevelbert_command
nextlevelbert_command.main(["search", *sys.argv[1:]])
"""
_BM25S = """
import bm25s
model = bm25s.BM25.load(sys.argv[1], mmap=True)
model.retrieve(bm25s.tokenize([sys.argv[2]], show_progress=False), k=5, show_progress=False)
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


def notes(count: int) -> Iterator[dict[str, str]]:
    """Yields runs of words of Python's manual that begin at random places."""
    words = measuring.long_text(2_000_000).split(" ")
    rng = np.random.default_rng(0)
    for index in range(count):
        start = int(rng.integers(len(words) - CHARACTERS))
        text = " ".join(words[start : start + CHARACTERS])[:CHARACTERS]
        yield {"id": str(index), "text": text}


def write_notes(path: Path, count: int) -> list[str]:
    """Writes a table of notes, and returns their texts."""
    texts = []
    with path.open("w", encoding="utf-8") as file:
        for note in notes(count):
            file.write(f"{json.dumps(note)}\n")
            texts.append(note["text"])
    return texts


def tokenizer_seconds(texts: list[str]) -> float:
    """Measures the tokenizer alone, in processor seconds."""
    tokenizer = Tokenizer.from_file(f"{static_checkpoint()}/tokenizer.json")
    start = time.process_time()
    for first in range(0, len(texts), 1_000):
        tokenizer.encode_batch_fast(texts[first : first + 1_000], add_special_tokens=False)
    return time.process_time() - start


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, nargs=2, default=[10_000, 100_000])
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    measuring.print_header("float32")

    indexing = []
    tokenizing = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [QUESTION, "--cache_dir", str(folder / "cache")]
        cost_of_process(_SEARCH, "example-books", *options)
        costs = {
            ("", "starting Python"): least_cost(""),
            ("", "importing torch"): least_cost("\nimport torch"),
            ("six books", "`search`"): least_cost(_SEARCH, "example-books", *options),
        }
        for count in args.notes:
            source = folder / f"{count}.jsonl"
            texts = write_notes(source, count)
            tokenizing.append(tokenizer_seconds(texts))
            indexing.append(cost_of_process(_SEARCH, str(source), *options))
            title = f"{count:,} notes"
            costs[title, "`search`"] = least_cost(_SEARCH, str(source), *options)

            words = bm25s.BM25()
            words.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
            words.save(folder / "bm25s")
            costs[title, "bm25s"] = least_cost(_BM25S, f"{folder}/bm25s", QUESTION)

    print("\nA further question\n")
    measuring.print_table(
        ["texts", "process", "CPU-seconds", "peak MiB"],
        [
            [title, process, f"{seconds:.2f}", f"{mebibytes:.0f}"]
            for (title, process), (seconds, mebibytes) in costs.items()
        ],
    )

    further = args.notes[1] - args.notes[0]
    seconds = indexing[1].seconds - indexing[0].seconds
    kibibytes = (indexing[1].mebibytes - indexing[0].mebibytes) * 1024 / further
    ratio = seconds / (tokenizing[1] - tokenizing[0])
    print("\nEach further note of a table\n")
    head = ["CPU-milliseconds", "times the tokenizer", "KiB of peak memory"]
    measuring.print_table(
        head, [[f"{1e3 * seconds / further:.2f}", f"{ratio:.2f}", f"{kibibytes:.1f}"]]
    )


if __name__ == "__main__":
    main()
