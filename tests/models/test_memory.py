"""Peak memory does not grow with the length of a document, beyond its ids and vectors."""

import json
import subprocess
import sys

import pytest

ENCODED = """
from nextlevelbert import NextLevelBertModel
model = NextLevelBertModel.from_chunk_encoder(sys.argv[1], chunk_size=256)
plan = model.plan(text)
embedding = model.encode(text)
assert len(embedding.chunks) == plan.chunks
tokens = plan.tokens
"""

SUMMARIZED = """
from nextlevelbert import BertAlForExtractiveSummarization
model = BertAlForExtractiveSummarization.from_encoder(sys.argv[1], recurrence="replace")
text = text.replace("the whale", "The whale")  # sentences begin with a capital
summary = model.summarize(text)
assert len(summary.scores) == text.count(".")
tokens = 11 * len(summary.scores)
"""

WORKER = """
import json, resource, sys
from pathlib import Path
text = "the whale and the ship and the sea. " * (int(sys.argv[2]) // 9)
{what}
if Path("/proc/self/status").exists():  # on Linux, ru_maxrss begins with the peak of the process that started this one
    [peak] = [int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM:")]
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if sys.platform == "darwin" else 1)
print(json.dumps([tokens, peak / 2**10]))
"""


def measure(what: str, encoder: str, tokens: int) -> tuple[int, float]:
    """Tokens and peak resident memory in MiB of a fresh process that reads one document."""
    command = [sys.executable, "-c", WORKER.replace("{what}", what), encoder, str(tokens)]
    tokens, peak = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return tokens, peak


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "times", "mebibytes"), [(ENCODED, 40, 200), (SUMMARIZED, 16, 200)]
)
def test_a_long_document_takes_little_more_than_one_of_thirty_thousand_tokens(
    toy_encoder_path, what, times, mebibytes
):
    """The toy encoder leaves what could grow: text, ids, offsets, vectors and windows; of a
    summary, without passes of `tokens_at_once`, the states of a layer alone would take 700 MB.
    """
    short_tokens, short = measure(what, toy_encoder_path, 30_000)
    long_tokens, long = measure(what, toy_encoder_path, times * 30_000)

    assert long_tokens > 0.93 * times * short_tokens > 0
    assert long - short < mebibytes
