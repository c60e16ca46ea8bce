"""The static encoder, a rule of chunks, and the corpus that both make of the toy documents."""

import pytest

from nextlevelbert import ChunkingRule, encode_corpus, load_chunk_encoder, static_checkpoint

from ..toys.corpora import DOCUMENTS, SMALL


@pytest.fixture(scope="package")
def source():
    return load_chunk_encoder(static_checkpoint())


@pytest.fixture(scope="package")
def rule(source):
    return ChunkingRule.from_tokenizer(source.tokenizer, 16)


@pytest.fixture(scope="module")
def corpus(source, rule, tmp_path_factory):
    return encode_corpus(
        DOCUMENTS, source, rule, tmp_path_factory.mktemp("corpora") / "straight", **SMALL
    )
