"""Ctrl-C as a terminal sends it, in the middle of a folder: one line, status 130, and the next start goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = 16


def start(*arguments: object) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "nextlevelbert", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def done(said: bytes) -> list[int]:
    """Files that were done at each state of the progress bar."""
    return [int(count) for count in re.findall(rb"(\d+)/%d " % FILES, said)]


@pytest.mark.long
@pytest.mark.parametrize("more", [["search", "{books}", "a whale"], ["embed", "{books}", "-o", "{books}.npz"]])
def test_a_second_start_goes_on(tmp_path, more):
    books = tmp_path / "books"
    books.mkdir()
    for number in range(FILES):
        # Words that the tokenizer has not seen take time.
        text = " ".join(f"whale{number}x{word}" for word in range(12_000))
        (books / f"{number}.txt").write_text(text)
    command = [each.format(books=books) for each in more] + ["--cache_dir", tmp_path / "cache"]
    first, said = start(*command), b""
    while not any(done(said)):
        part = os.read(first.stderr.fileno(), 4_096)
        assert part, said.decode()
        said += part
    first.send_signal(signal.SIGINT)
    output, rest = first.communicate(timeout=300)
    assert first.returncode == 130
    assert output == b""
    *_, last = rest.decode().splitlines()
    found = re.fullmatch(rf"Stopped\. (\d+) of {FILES} files are done\. Start the same .* to go on from there\.", last)
    assert found, last
    assert "Traceback" not in (said + rest).decode()
    second = start(*command)
    output, rest = second.communicate(timeout=300)
    assert second.returncode == 0
    assert output
    assert min(done(rest)) == int(found[1]) > 0
