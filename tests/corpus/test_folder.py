"""A corpus at an address: the same bytes as in a folder, whole parts, and a bounded cache."""

import collections
import pickle

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from fsspec.registry import known_implementations

from nextlevelbert import VectorCorpus, encode_corpus
from nextlevelbert.corpus.folder import CorpusFolder

from ..toys.corpora import DOCUMENTS, SMALL, all_equal, interrupted_after_the_first_part, parts

ADDRESS = "memory://bucket/corpus"


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/bucket", recursive=True)


@pytest.fixture
def address(corpus, memory):
    for name, content in parts(corpus.path).items():
        memory.pipe_file(f"/bucket/corpus/{name}", content)
    return ADDRESS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def stored(memory):
    names = memory.glob("/bucket/corpus/*")
    return {name.rsplit("/", 1)[-1]: memory.cat_file(name) for name in names}


def part_paths(memory):
    return sorted(memory.glob("/bucket/corpus/part-*"))


@pytest.fixture
def requests(monkeypatch):
    """Names of the files that are written, and of those that are opened."""
    names = collections.defaultdict(list)
    pipe_file = MemoryFileSystem.pipe_file
    open_file = MemoryFileSystem.open

    def pipe_and_note(self, path, value, **options):
        names["written"].append(path.rsplit("/", 1)[-1])
        return pipe_file(self, path, value, **options)

    def open_and_note(self, path, *arguments, **options):
        names["opened"].append(path.rsplit("/", 1)[-1])
        return open_file(self, path, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_and_note)
    monkeypatch.setattr(MemoryFileSystem, "open", open_and_note)
    return names


def test_an_address_gets_the_bytes_of_a_folder(corpus, source, rule, memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    made = encode_corpus(DOCUMENTS, source, rule, ADDRESS, **SMALL)

    assert stored(memory) == parts(corpus.path)
    assert all_equal(corpus, made)
    assert all_equal(made, corpus)
    assert made.fingerprint() == corpus.fingerprint()
    assert made.empty == {"blank"}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_finished_corpus_is_written_by_nobody(source, rule, address, requests):
    encode_corpus(DOCUMENTS, source, rule, address, **SMALL)

    assert requests["written"] == []


def test_a_kill_between_two_parts_costs_the_second(corpus, source, rule, memory, requests):
    with interrupted_after_the_first_part():
        encode_corpus(DOCUMENTS, source, rule, ADDRESS, **SMALL)
    with pytest.raises(ValueError, match="lacks part 1"):
        VectorCorpus(ADDRESS)
    requests["written"].clear()

    encode_corpus(DOCUMENTS, source, rule, ADDRESS, **SMALL)

    assert stored(memory) == parts(corpus.path)
    names = [name[:11] for name in requests["written"]]
    assert names == ["part-000001", "part-000002", "_SUCCESS"]


def test_a_damaged_part_is_named(address, memory):
    path = part_paths(memory)[1]
    content = bytearray(memory.cat_file(path))
    content[len(content) // 2] ^= 1
    memory.pipe_file(path, bytes(content))

    with pytest.raises(ValueError, match=f"memory://{path[1:]} is damaged"):
        [*VectorCorpus(address)]


def test_a_part_that_cannot_be_fetched_is_not_called_damaged(address, memory, monkeypatch):
    def fail(*arguments, **options):
        raise TimeoutError("the network")

    corpus = VectorCorpus(address)
    monkeypatch.setattr(MemoryFileSystem, "open", fail)

    with pytest.raises(OSError, match=r"part-000000-\w+\.parquet cannot be reached: the network"):
        corpus.vectors(0, 1)


class NoCredentialsError(Exception):
    """An error of a package, such as botocore's."""


@pytest.mark.parametrize("error", [TimeoutError("the network"), NoCredentialsError("the network")])
def test_a_part_that_cannot_be_read_to_its_end_is_not_called_damaged(address, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    corpus = VectorCorpus(address)
    monkeypatch.setattr(MemoryFile, "read", fail)

    with pytest.raises(OSError, match=r"part-000000-\w+\.parquet cannot be reached: the network"):
        corpus.vectors(0, 1)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (NoCredentialsError("no keys"), OSError, "bucket/corpus cannot be reached: no key"),
        (PermissionError("not yours"), OSError, "bucket/corpus cannot be reached: not yours"),
        (TypeError("a fault"), TypeError, "^a fault$"),
        (ValueError("a fault"), ValueError, "^a fault$"),
        (ImportError("a fault"), ImportError, "^a fault$"),
        (ZeroDivisionError("a fault"), ZeroDivisionError, "^a fault$"),
        (KeyError("name"), KeyError, "^'name'$"),
    ],
)
def test_a_fault_of_a_program_is_not_called_unreachable(
    address, monkeypatch, error, expected, message
):
    def fail(*arguments, **options):
        raise error

    # Undone before the fixture removes the bucket, for which older versions of fsspec list it.
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "ls", fail)
        with pytest.raises(expected, match=message):
            VectorCorpus(address)


def test_a_part_is_decoded_once(corpus, address, requests):
    assert all_equal(corpus, VectorCorpus(address))
    requests["opened"].clear()

    again = VectorCorpus(address)
    opened = collections.Counter(requests["opened"])
    again.vectors(0, again.num_chunks)

    assert collections.Counter(requests["opened"]) == opened


def test_a_part_that_was_written_again_is_decoded_again(corpus, address, memory, cache):
    VectorCorpus(address).vectors(0, corpus.num_chunks)
    before = {*cache.rglob("part-000000*.npy")}
    path = part_paths(memory)[0]
    memory.pipe_file(path, memory.cat_file(path))

    VectorCorpus(address).vectors(0, corpus.num_chunks)

    after = {*cache.rglob("part-000000*.npy")}
    assert len(before) == len(after) == 1
    assert before != after


def test_a_loop_writes_nothing(corpus, address, cache):
    documents = [*VectorCorpus(address)]

    assert [document.id for document in documents] == corpus.document_ids
    assert not cache.exists()


def test_the_cache_takes_at_most_what_is_left_free(corpus, address, cache, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**9, 10**9, 0))
    opened = VectorCorpus(address)

    every = opened.vectors(0, opened.num_chunks)

    assert every.equal(corpus.vectors(0, corpus.num_chunks))
    assert len(opened._copies) == 1
    assert len([*cache.rglob("*.npy")]) <= 1


def test_other_users_cannot_read_the_cache(corpus, address, cache):
    VectorCorpus(address).vectors(0, 1)

    [folder] = (cache / "nextlevelbert" / "corpora").iterdir()

    assert folder.stat().st_mode & 0o077 == 0


def test_a_corpus_travels_without_the_secrets_of_its_store(address, monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "memory", {"secret": "of-a-test"})

    pickled = pickle.dumps(VectorCorpus(address))

    assert b"of-a-test" not in pickled
    assert len(pickle.loads(pickled)) == 4


def test_packed_sequences_read_an_address(corpus, address):
    from nextlevelbert import PackedVectorDataset

    one = PackedVectorDataset(VectorCorpus(address), sequence_length=8)
    other = PackedVectorDataset(corpus, sequence_length=8)

    assert len(one) == len(other)
    for mine, other_sequence in zip(one, other, strict=True):
        assert mine.inputs_embeds.equal(other_sequence.inputs_embeds)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="must not hold a name or a password") as error:
        CorpusFolder("ftp://me:secret@host/corpus")

    assert "secret" not in str(error.value)


def test_an_address_that_nothing_opens_makes_no_folder(source, rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(OSError, match="nowhere://bucket/corpus cannot be reached: Protocol not"):
        encode_corpus(DOCUMENTS, source, rule, "nowhere://bucket/corpus", **SMALL)
    with pytest.raises(ValueError, match="'s3:/bucket/corpus' is an address, not a path"):
        encode_corpus(DOCUMENTS, source, rule, "s3:/bucket/corpus", **SMALL)

    assert list(tmp_path.iterdir()) == []


def test_the_package_that_an_address_needs_is_named(monkeypatch):
    absent = {"class": "absent_package.Store", "err": "Install absent_package"}
    monkeypatch.setitem(known_implementations, "absent", absent)

    with pytest.raises(OSError, match="absent://bucket/corpus cannot be reached: Install absent"):
        VectorCorpus("absent://bucket/corpus")


def test_a_server_that_refuses_the_connection_is_named():
    with pytest.raises(OSError, match=r"ftp://127\.0\.0\.1:1/corpus cannot be reached: .*refused"):
        VectorCorpus("ftp://127.0.0.1:1/corpus")


def test_the_address_of_this_machine_is_a_folder(tmp_path):
    folder = CorpusFolder(f"file://{tmp_path}/corpus")

    assert folder.path == tmp_path / "corpus"
