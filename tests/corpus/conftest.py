"""Four documents, and the corpus of three shards that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextlevelbert import (
    ChunkingRule,
    Document,
    encode_corpus,
)

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


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
