"""The static encoder, a rule of chunks, the corpus that both make of the toy documents, and S3."""

import logging

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


# Not of the package: when a worker leaves it and comes back, moto still has the bucket.
@pytest.fixture(scope="session")
def s3():
    """The address of moto's server, with a bucket."""
    import s3fs
    from moto.server import ThreadedMotoServer  # tests need it

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    store = s3fs.S3FileSystem(
        key="user", secret="other", endpoint_url=endpoint, skip_instance_cache=True
    )
    store.mkdir("bucket")
    yield endpoint, store
    server.stop()
