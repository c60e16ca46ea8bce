"""Four documents, and the corpus of three shards that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nextlevelbert import (
    ChunkingRule,
    Document,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.corpus.layout import MANIFEST, manifest_bytes

from ..golden.inputs import FOLDER

DOCUMENTS = [
    Document("whale", "Call me Ishmael. Some years ago I went to sea. " * 8),
    Document("short", "One line."),
    Document("tale", "It was the best of times, it was the worst of times; we had everything before us. " * 12),
    Document("family", "All happy families are alike. " * 5),
]


@pytest.fixture(scope="session")
def rule(minilm):
    return ChunkingRule.from_tokenizer(minilm.tokenizer, 16, max_chunk_size=512)


@pytest.fixture(scope="session")
def corpus(minilm, rule, tmp_path_factory):
    return encode_corpus(
        DOCUMENTS, minilm, rule, tmp_path_factory.mktemp("corpus"), characters_per_shard=380, progress=False
    )


@pytest.fixture(scope="session")
def golden_encoder():
    """The encoder of the golden corpus, and how it was cut."""
    source = load_chunk_encoder(str(FOLDER / "encoder" / "sentences"), "golden/encoder")
    return source, ChunkingRule.from_tokenizer(source.tokenizer, 12, max_chunk_size=40)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def write_unfinished(folder: Path, manifest: dict[str, Any]) -> None:
    """The manifest as it was before the corpus was finished."""
    totals = ("shards", "documents", "chunks", "tokens", "shard_chains", "shard_sums")
    bare = {key: value for key, value in manifest.items() if key not in totals}
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_bytes(manifest_bytes({**bare, "complete": False}))
