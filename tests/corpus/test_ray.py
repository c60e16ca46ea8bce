"""A corpus by Ray, whose workers are killed: the same vectors, or the same bytes, in a folder and on
S3.

Two workers, one of which is killed once. `make test-long` installs Ray.
"""

import os
import signal

import pytest

from nextlevelbert import ChunkVectors, VectorCorpus, encode_corpus, static_checkpoint
from nextlevelbert.corpus.folder import CorpusFolder

from ..toys.corpora import DOCUMENTS, SMALL, all_equal, objects, parts

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ray(s3):
    """A cluster of two processors that finds the server of S3 in its environment."""
    import ray
    import s3fs

    store = {
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "other",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3[0],
        "no_proxy": "127.0.0.1",
        # Ray's workers have the lowest priority but four, so that each import takes minutes beside
        # other work.
        "RAY_worker_niceness": "0",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(params=["folder", "s3"])
def target(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "corpus")
    return f"s3://bucket/{tmp_path.name}"


def test_ray_data_writes_and_reads_the_vectors_of_a_folder(
    corpus, source, rule, ray, target, tmp_path
):
    mark = tmp_path / "killed"

    class OnceKilled(ChunkVectors):
        def __call__(self, batch):
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch)

    texts = [{"id": document.id, "text": document.text} for document in DOCUMENTS]
    rows = ray.data.from_items(texts, override_num_blocks=2).map_batches(
        OnceKilled,
        fn_constructor_args=(static_checkpoint(), rule),
        batch_size=2,
        batch_format="pyarrow",
        concurrency=2,
    )
    rows.write_parquet(target)

    assert mark.exists()
    made = VectorCorpus(target)
    assert all_equal(made, corpus)
    assert made.recipe["encoder"]["fingerprint"] == source.fingerprint
    assert ray.data.read_parquet(target).count() == corpus.num_chunks


def test_ray_reads_the_parts_of_encode_corpus(corpus, source, rule, ray, target):
    encode_corpus(DOCUMENTS, source, rule, target, **SMALL)

    table = ray.data.read_parquet(target).to_pandas().sort_values(["document", "chunk"])

    for name in corpus.document_ids:
        vectors = table.loc[table["document"] == name, "vector"].tolist()
        assert vectors == corpus[name].plain.numpy().tolist()


def test_tasks_write_the_bytes_of_a_folder(corpus, rule, ray, s3, target, tmp_path):
    """A task of Ray for each process; one is killed at its first part, and runs again."""
    mark = tmp_path / "killed"

    @ray.remote(max_retries=5, retry_exceptions=[OSError])
    def encode(rank):
        os.environ.update(RANK=str(rank), WORLD_SIZE="2")
        write = CorpusFolder.write

        def write_or_die(self, name, content):
            if rank == 1 and name.startswith("part") and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, name, content)

        CorpusFolder.write = write_or_die
        encode_corpus(DOCUMENTS, static_checkpoint(), rule, target, **SMALL)

    ray.get([encode.remote(rank) for rank in range(2)])

    assert mark.exists()
    made = parts(tmp_path / "corpus")
    if target.startswith("s3://"):
        made = objects(s3[1], target.removeprefix("s3://"))
    assert made == parts(corpus.path)
