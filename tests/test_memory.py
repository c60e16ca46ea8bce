"""Peak memory does not grow with the length of a document, beyond its ids and vectors."""

from __future__ import annotations

import json
import subprocess
import sys

WORKER = """
import json, resource, sys
from nextlevelbert import NextLevelBertModel
model = NextLevelBertModel.from_chunk_encoder(sys.argv[1], chunk_size=256)
text = "the whale and the ship and the sea. " * (int(sys.argv[2]) // 9)
plan = model.plan(text)
embedding = model.encode(text)
assert len(embedding.chunks) == plan.chunks
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([plan.tokens, peak / (2**20 if sys.platform == "darwin" else 2**10)]))
"""


def measure(encoder: str, tokens: int) -> tuple[int, float]:
    """Tokens and peak resident memory in MiB of a fresh process that encodes one document."""
    command = [sys.executable, "-c", WORKER, encoder, str(tokens)]
    tokens, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return tokens, peak


def test_two_million_tokens_take_little_more_than_twenty_thousand(toy_encoder_path):
    """The toy encoder leaves what could grow: text, ids, offsets, vectors and windows."""
    short_tokens, short = measure(toy_encoder_path, 20_000)
    long_tokens, long = measure(toy_encoder_path, 2_000_000)
    assert long_tokens > 95 * short_tokens > 0
    assert long - short < 400
