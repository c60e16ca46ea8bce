"""Peak memory does not grow with the length of a document, beyond its ids and vectors."""

from __future__ import annotations

import json
import subprocess
import sys

WORKER = """
import json, resource, sys
from pathlib import Path
from nextlevelbert import NextLevelBertModel
model = NextLevelBertModel.from_chunk_encoder(sys.argv[1], chunk_size=256)
text = "the whale and the ship and the sea. " * (int(sys.argv[2]) // 9)
plan = model.plan(text)
embedding = model.encode(text)
assert len(embedding.chunks) == plan.chunks
if Path("/proc/self/status").exists():  # on Linux, ru_maxrss begins with the peak of the process that started this one
    [peak] = [int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM:")]
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if sys.platform == "darwin" else 1)
print(json.dumps([plan.tokens, peak / 2**10]))
"""


def measure(encoder: str, tokens: int) -> tuple[int, float]:
    """Tokens and peak resident memory in MiB of a fresh process that encodes one document."""
    command = [sys.executable, "-c", WORKER, encoder, str(tokens)]
    tokens, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return tokens, peak


def test_three_million_tokens_take_little_more_than_thirty_thousand(toy_encoder_path):
    """The toy encoder leaves what could grow: text, ids, offsets, vectors and windows."""
    short_tokens, short = measure(toy_encoder_path, 30_000)
    long_tokens, long = measure(toy_encoder_path, 3_000_000)
    assert long_tokens > 95 * short_tokens > 0
    assert long - short < 400
