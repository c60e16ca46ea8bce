"""The vector cache: the bits that were written come back, kills and neighbours do no harm, the bound holds."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from nextlevelbert.models import vector_cache, vector_database
from nextlevelbert.vector_cache import VectorCache, chunk_keys

MIB = 2**20
SOURCE = Path(vector_cache.__file__).parent

# What the processes below share with this one: keys by name, and vectors that follow from their keys. Any bits
# may occur in them, NaN among them. The module is imported without its package, which takes seconds.
COMMON = """
import hashlib, os, signal, sys, types
import numpy as np
sys.modules["models"] = types.ModuleType("models")
sys.modules["models"].__path__ = [sys.argv[1]]
from models import vector_cache
def keys_of(name, count):
    return [hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(count)]
def vectors_of(keys, size):
    return np.frombuffer(b"".join(hashlib.shake_256(key).digest(4 * size) for key in keys), "<f4").reshape(-1, size)
"""

# Writes batches and says so; in batch 6 it kills itself between two rows, with rows already spilled to the log.
KILLED = """
cache = vector_cache.VectorCache(sys.argv[2], int(sys.argv[3]))
cache._database.execute("PRAGMA cache_size = 4")
checksum, calls = vector_cache._checksum, [0]
def count(key, vector):
    calls[0] += 1
    if calls[0] == 6 * 200 + 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return checksum(key, vector)
vector_cache._checksum = count
for batch in range(10):
    keys = keys_of(f"batch {batch}", 200)
    cache.write(keys, vectors_of(keys, 384))
    print(batch, flush=True)
"""

ENDLESS = """
cache = vector_cache.VectorCache(sys.argv[2], int(sys.argv[3]))
for batch in range(1_000_000):
    keys = keys_of(f"batch {batch}", 200)
    cache.write(keys, vectors_of(keys, 384))
    print(batch, flush=True)
"""

# Three of them start together on a missing folder; half of what they write is the same.
NEIGHBOUR = """
sys.stdin.readline()
for batch in range(20):
    with vector_cache.VectorCache(sys.argv[2], int(sys.argv[3])) as cache:
        for name in (f"shared {batch}", f"{sys.argv[4]} {batch}"):
            keys = keys_of(name, 60)
            found, vectors = cache.read(keys, 384)
            assert vectors[found].tobytes() == vectors_of(keys, 384)[found].tobytes()
            cache.write(keys, vectors_of(keys, 384))
"""


# Eight processes that make 60 new caches, each at the same moment. SQLite refuses some of them a lock that it should
# wait for: without a second try most runs of this fail.
MAKERS = """
import multiprocessing
context = multiprocessing.get_context("fork")
barrier = context.Barrier(8)
def make(who):
    try:
        for number in range(60):
            barrier.wait()
            with vector_cache.VectorCache(f"{sys.argv[2]}/{number}") as cache:
                keys = keys_of(f"{who} {number}", 2)
                cache.write(keys, vectors_of(keys, 384))
    except BaseException:
        barrier.abort()
        raise
processes = [context.Process(target=make, args=(who,)) for who in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
"""


def keys_of(name: str, count: int) -> list[bytes]:
    return [hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(count)]


def vectors_of(keys: list[bytes], size: int = 384) -> np.ndarray:
    data = b"".join(hashlib.shake_256(key).digest(4 * size) for key in keys)
    return np.frombuffer(data, "<f4").reshape(-1, size)


def check_all(cache: VectorCache, keys: list[bytes], size: int = 384) -> np.ndarray:
    """Which keys are found; every vector must be right to the bit, or zero."""
    found, vectors = cache.read(keys, size)
    assert vectors.shape == (len(keys), size)
    assert vectors.dtype == np.float32
    assert vectors.tobytes() == np.where(found[:, None], vectors_of(keys, size).view("<u4"), 0).astype("<u4").tobytes()
    return found


def ask(folder: Path, pragma: str):
    """What SQLite itself says of the file, through a connection of its own."""
    database = sqlite3.connect(folder / "vectors.sqlite3")
    try:
        return database.execute(f"PRAGMA {pragma}").fetchone()[0]
    finally:
        database.close()


def stored(folder: Path, keys: list[bytes]) -> np.ndarray:
    """Which keys are in the file; unlike `VectorCache.read`, looking does not count as use."""
    database = sqlite3.connect(folder / "vectors.sqlite3")
    try:
        there = {key for (key,) in database.execute("SELECT key FROM vectors")}
    finally:
        database.close()
    return np.array([key in there for key in keys])


def start(program: str, *arguments: object, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", COMMON + program, str(SOURCE), *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, **options)


# --- reading and writing


def test_bits_come_back_in_the_order_asked(tmp_path):
    written, missing = keys_of("written", 1_300), keys_of("missing", 1_300)
    with VectorCache(tmp_path / "new" / "folder") as cache:
        cache.write(written, vectors_of(written))
    rng = np.random.default_rng(0)
    asked = [(written + missing)[i] for i in rng.integers(0, 2_600, 4_000)]  # both kinds, many of them twice
    with VectorCache(str(tmp_path / "new" / "folder")) as cache:
        found = check_all(cache, asked)
        assert found.tolist() == [key in set(written) for key in asked]
        assert check_all(cache, []).shape == (0,)
        cache.write([], np.zeros((0, 384), np.float32))


def test_a_vector_written_again_is_replaced_and_the_last_of_a_call_counts(tmp_path):
    key = keys_of("twice", 1)
    with VectorCache(tmp_path) as cache:
        cache.write(key * 2, np.array([[1, 2], [3, 4]], np.float32))
        assert cache.read(key, 2)[1].tolist() == [[3, 4]]
        cache.write(key, np.array([[5, 6]], np.float32))
        assert cache.read(key, 2)[1].tolist() == [[5, 6]]


def test_two_hidden_sizes_in_one_cache(tmp_path):
    small, large = keys_of("small", 50), keys_of("large", 50)
    with VectorCache(tmp_path) as cache:
        cache.write(small, vectors_of(small, 384))
        cache.write(large, vectors_of(large, 5_000))  # 20 kB: more than a page
        assert check_all(cache, small, 384).all()
        assert check_all(cache, large, 5_000).all()
        with pytest.raises(ValueError, match="hidden_size is 768, but a vector of 384 values"):
            cache.read(small, 768)


# --- keys


def test_keys_are_what_the_docstring_says():
    parts = ["MiniLM é".encode(), struct.pack("<2q", 101, 7), struct.pack("<q", 102)]
    head = hashlib.sha256(b"".join(struct.pack("<q", len(part)) + part for part in parts)).digest()
    expected = [hashlib.sha256(head + struct.pack(f"<{len(ids)}i", *ids)).digest() for ids in ([5, 6], [], [29_999])]
    for dtype in (np.int32, np.int64, np.uint16):
        ids, boundaries = np.array([5, 6, 29_999], dtype), np.array([0, 2, 2, 3])
        assert chunk_keys("MiniLM é", ids, boundaries, (101, 7), [102]) == expected


def test_keys_do_not_depend_on_where_a_chunk_stands():
    ids = np.random.default_rng(0).integers(0, 30_000, 100).astype(np.int32)
    alone = chunk_keys("encoder", ids[40:60], np.array([0, 10, 20]), (101,), (102,))
    assert chunk_keys("encoder", ids, np.array([0, 40, 50, 60, 100]), (101,), (102,))[1:3] == alone
    assert chunk_keys("encoder", ids, np.array([40, 50, 60]), (101,), (102,)) == alone
    assert chunk_keys("encoder", ids, np.array([7]), (101,), (102,)) == []


def test_keys_differ_where_anything_differs():
    ids = np.array([5, 6, 7, 8], np.int32)
    whole = np.array([0, 4])
    keys = [
        chunk_keys("a", ids, whole, [1, 2], [3]),
        chunk_keys("b", ids, whole, [1, 2], [3]),
        chunk_keys("a", ids, whole, [1], [2, 3]),
        chunk_keys("a", ids, whole, [1, 2, 3], []),
        chunk_keys("a", ids, whole, [], [1, 2, 3]),
        chunk_keys("a", np.array([2, 5, 6, 7, 8], np.int32), np.array([0, 5]), [1], [3]),  # the same run of ids
        chunk_keys("a", ids[::-1], whole, [1, 2], [3]),
        chunk_keys("a", ids, np.array([0, 1, 2, 4]), [1, 2], [3]),
        chunk_keys("a", ids, np.array([1, 3]), [1, 2], [3]),
        chunk_keys("a", ids, np.array([0, 3, 4]), [1, 2], [3]),
    ]
    flat = [key for some in keys for key in some]
    assert all(len(key) == 32 for key in flat)
    assert len(set(flat)) == len(flat) == 13


@pytest.mark.parametrize(
    ("ids", "boundaries", "message"),
    [
        (np.array([1.0]), np.array([0, 1]), "input_ids must be integers"),
        (np.array([[1]]), np.array([0, 1]), "input_ids must be integers"),
        (np.array([2**31]), np.array([0, 1]), "input_ids must be integers"),  # would wrap round to another id
        (np.array([1, 2]), np.array([0, 3]), "within 0 to 2"),
        (np.array([1, 2]), np.array([-1, 2]), "within 0 to 2"),
        (np.array([1, 2]), np.array([0, 2, 1]), "with a fall between"),
        (np.array([1, 2]), np.array([], np.int64), "at least one"),
    ],
)
def test_impossible_chunks(ids, boundaries, message):
    with pytest.raises(ValueError, match=message):
        chunk_keys("encoder", ids, boundaries, (), ())


# --- kills and neighbours


@pytest.mark.parametrize("max_bytes", [64 * MIB, MIB], ids=["roomy", "always full"])
def test_killed_between_two_rows(tmp_path, max_bytes):
    process = start(KILLED, tmp_path, max_bytes)
    said = process.communicate()[0].split()
    assert (process.returncode, said) == (-9, ["0", "1", "2", "3", "4", "5"])
    assert ask(tmp_path, "integrity_check") == "ok"
    with VectorCache(tmp_path, max_bytes) as cache:
        found = [check_all(cache, keys_of(f"batch {batch}", 200)) for batch in range(10)]
        assert found[5].all()
        assert not np.concatenate(found[7:]).any()
        if max_bytes > MIB:  # the batch fits into one transaction
            assert np.concatenate(found[:6]).all()
            assert not found[6].any()
        keys = keys_of("afterwards", 200)
        cache.write(keys, vectors_of(keys))
        assert check_all(cache, keys).all()


@pytest.mark.parametrize("batches", [1, 4, 23])
def test_killed_by_another_at_any_time(tmp_path, batches):
    process = start(ENDLESS, tmp_path, 64 * MIB)
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(batches)]
    process.kill()
    said += process.communicate()[0].splitlines()
    assert process.returncode == -9
    assert ask(tmp_path, "integrity_check") == "ok"
    with VectorCache(tmp_path, 64 * MIB) as cache:
        for batch in range(len(said)):
            assert check_all(cache, keys_of(f"batch {batch}", 200)).all()
        for batch in range(len(said), len(said) + 3):
            assert check_all(cache, keys_of(f"batch {batch}", 200)).sum() in (0, 200)


@pytest.mark.long
@pytest.mark.parametrize("max_bytes", [64 * MIB, MIB], ids=["roomy", "always full"])
def test_three_processes_at_once(tmp_path, max_bytes):
    folder = tmp_path / "cache"
    running = [start(NEIGHBOUR, folder, max_bytes, name, stdin=subprocess.PIPE) for name in "abc"]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait() for process in running] == [0, 0, 0]
    assert ask(folder, "integrity_check") == "ok"
    assert (folder / "vectors.sqlite3").stat().st_size <= max_bytes
    with VectorCache(folder, max_bytes) as cache:
        names = [f"{name} {batch}" for name in ("shared", "a", "b", "c") for batch in range(20)]
        found = np.stack([check_all(cache, keys_of(name, 60)) for name in names])
        assert found.all() if max_bytes > MIB else found.any()


@pytest.mark.long
def test_processes_that_make_the_same_cache(tmp_path):
    assert start(MAKERS, tmp_path).wait() == 0
    for number in range(60):
        with VectorCache(tmp_path / str(number)) as cache:
            assert check_all(cache, [key for who in range(8) for key in keys_of(f"{who} {number}", 2)]).all()


# --- bounds


@pytest.mark.parametrize(
    ("size", "max_bytes"), [(32, MIB), (384, MIB), (384, 6 * MIB), (1_024, 2 * MIB), (5_000, 4 * MIB)]
)
def test_the_bound_holds_and_what_is_used_stays(tmp_path, size, max_bytes):
    hot = keys_of("hot", max_bytes // (4 * size) // 16)
    batch = max_bytes // (4 * size) // 20
    with VectorCache(tmp_path, max_bytes) as cache:
        cache.write(hot, vectors_of(hot, size))
        for number in range(100):  # five times what fits
            keys = keys_of(f"cold {number}", batch)
            cache.write(keys, vectors_of(keys, size))
            assert ask(tmp_path, "page_count") * ask(tmp_path, "page_size") <= max_bytes
            assert check_all(cache, hot, size).all()
        cold = [key for number in range(100) for key in keys_of(f"cold {number}", batch)]
        found = stored(tmp_path, cold)
        check_all(cache, cold, size)
    assert (tmp_path / "vectors.sqlite3").stat().st_size <= max_bytes
    assert ask(tmp_path, "integrity_check") == "ok"
    assert not found[: 50 * batch].any()
    kept = int(np.argmax(found))
    assert found[kept:].all()  # the newest without a gap
    row = 4 * size + 128  # with its key, twice, and what SQLite needs
    assert (found.sum() + len(hot)) * row > max_bytes / 2


def test_a_write_larger_than_the_cache_leaves_its_end(tmp_path):
    keys = keys_of("large", 3_000)  # 4.6 MB
    with VectorCache(tmp_path, MIB) as cache:
        cache.write(keys, vectors_of(keys))
        found = check_all(cache, keys)
    assert (tmp_path / "vectors.sqlite3").stat().st_size <= MIB
    assert found[-300:].all()
    assert not found[:2_000].any()


def test_rows_stay_as_long_as_there_is_room(tmp_path):
    keys = keys_of("room", 300)
    with VectorCache(tmp_path) as cache:
        cache.write(keys, vectors_of(keys))
        used = ask(tmp_path, "page_count") - ask(tmp_path, "freelist_count")
        for more, all_stay in ((0, True), (1, False)):
            with cache._database.transaction():
                cache._database.make_room(more, used)
            assert stored(tmp_path, keys).all() == all_stay


def test_reads_write_only_when_new_vectors_came(tmp_path):
    old, new = keys_of("old", 50), keys_of("new", 40)
    observer = None
    try:
        with VectorCache(tmp_path, MIB) as cache:
            cache.write(old, vectors_of(old))
            observer = sqlite3.connect(tmp_path / "vectors.sqlite3")

            def commits() -> int:  # changes with every commit of another connection
                return observer.execute("PRAGMA data_version").fetchone()[0]

            before = commits()
            for _ in range(3):
                check_all(cache, old)
            assert commits() == before
            cache.write(new, vectors_of(new))  # 150 KB with the old ones, just more than an eighth
            before = commits()
            check_all(cache, old)  # placed anew
            moved = commits()
            assert moved != before
            check_all(cache, old + new[-1:])
            assert commits() == moved
    finally:
        if observer is not None:
            observer.close()


def test_a_smaller_bound_makes_the_file_smaller(tmp_path):
    keys = keys_of("many", 4_000)
    with VectorCache(tmp_path, 16 * MIB) as cache:
        cache.write(keys, vectors_of(keys))
    assert (tmp_path / "vectors.sqlite3").stat().st_size > 6 * MIB
    with VectorCache(tmp_path, 2 * MIB) as cache:
        found = check_all(cache, keys)
    assert (tmp_path / "vectors.sqlite3").stat().st_size <= 2 * MIB
    assert ask(tmp_path, "integrity_check") == "ok"
    assert found[-1_000:].all()
    assert not found[:2_000].any()


def test_the_log_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_database, "_LOG_BYTES", MIB)
    with VectorCache(tmp_path) as cache:
        cache._database.execute("PRAGMA wal_autocheckpoint = 0")  # as good as readers that are always in the way
        for number in range(12):
            keys = keys_of(f"batch {number}", 500)
            cache.write(keys, vectors_of(keys))
            assert (tmp_path / "vectors.sqlite3-wal").stat().st_size <= MIB
        assert check_all(cache, keys_of("batch 0", 500)).all()


# --- errors


@pytest.mark.parametrize("content", [b"Call me Ishmael. " * 5_000, b"SQLite format 3\0" + bytes(5_000)])
def test_a_file_that_is_no_cache(tmp_path, content):
    file = tmp_path / "vectors.sqlite3"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="damaged, or not a vector cache") as caught:
        VectorCache(tmp_path)
    assert str(file) in str(caught.value)
    assert f"delete the folder {str(tmp_path)!r}" in str(caught.value)
    assert file.read_bytes() == content


def test_a_database_of_another_program(tmp_path):
    file = tmp_path / "vectors.sqlite3"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE letters (sender TEXT)")
    database.close()
    content = file.read_bytes()
    with pytest.raises(ValueError, match="is a SQLite database, but not a vector cache"):
        VectorCache(tmp_path)
    assert file.read_bytes() == content


def test_another_version(tmp_path):
    VectorCache(tmp_path).close()
    database = sqlite3.connect(tmp_path / "vectors.sqlite3")
    database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(ValueError, match=r"has version 7, this version of the package reads 1; delete the folder"):
        VectorCache(tmp_path)


@pytest.mark.parametrize("harm", ["one bit of a vector", "two keys exchanged", "pages", "cut off"])
def test_a_damaged_cache(tmp_path, harm):
    keys = keys_of("harmed", 300)
    with VectorCache(tmp_path) as cache:
        cache.write(keys, vectors_of(keys))
    file = tmp_path / "vectors.sqlite3"
    content = bytearray(file.read_bytes())
    if harm == "one bit of a vector":
        content[content.index(vectors_of(keys)[123].tobytes()) + 700] ^= 4
    elif harm == "two keys exchanged":
        database = sqlite3.connect(file)
        for number, key in ((5, b"aside"), (6, keys[4]), (5, keys[5])):
            database.execute("UPDATE vectors SET key = ? WHERE id = ?", (key, number))
        database.commit()
        database.close()
        content = file.read_bytes()
    elif harm == "pages":
        content[16_384:] = b"\xa5" * (len(content) - 16_384)
    else:
        del content[len(content) // 2 :]
    file.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged") as caught, VectorCache(tmp_path) as cache:
        cache.read(keys, 384)
    assert f"delete the folder {str(tmp_path)!r}" in str(caught.value)


def test_an_empty_file_is_a_new_cache(tmp_path):  # its maker was killed before it wrote anything
    (tmp_path / "vectors.sqlite3").touch()
    keys = keys_of("first", 3)
    with VectorCache(tmp_path) as cache:
        cache.write(keys, vectors_of(keys))
        assert check_all(cache, keys).all()


def test_too_small_a_bound(tmp_path):
    with pytest.raises(ValueError, match="max_bytes must be at least 1048576"):
        VectorCache(tmp_path / "cache", 1_000_000)
    assert not (tmp_path / "cache").exists()
    with (
        VectorCache(tmp_path, MIB) as cache,
        pytest.raises(ValueError, match="too small for vectors of 100000 values; give at least") as caught,
    ):
        cache.write(keys_of("huge", 1), np.zeros((1, 100_000), np.float32))
    enough = int(str(caught.value).rstrip(".").split()[-1])
    keys = keys_of("huge", 4)
    with VectorCache(tmp_path, enough) as cache:
        cache.write(keys, vectors_of(keys, 100_000))
        assert check_all(cache, keys, 100_000)[-1]
    assert (tmp_path / "vectors.sqlite3").stat().st_size <= enough


def test_a_path_that_is_a_file(tmp_path):
    (tmp_path / "cache").touch()
    with pytest.raises(ValueError, match=r"but '.*cache' is a file; give a folder"):
        VectorCache(tmp_path / "cache")


@pytest.fixture
def as_a_user_without_rights():
    """A folder, and a function after which this process may read but not change it (root gives up being root)."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()

    def give_up() -> None:
        for path in [folder, *folder.iterdir()]:
            path.chmod(0o555)
        if user == 0:
            os.seteuid(65_534)

    yield folder, give_up
    if user == 0:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("there_before", [True, False])
def test_a_read_only_folder(as_a_user_without_rights, there_before):
    folder, give_up = as_a_user_without_rights
    if there_before:
        VectorCache(folder).close()
    give_up()
    with pytest.raises(OSError, match=r"vectors\.sqlite3.*(cannot be written to|read-only)"):
        VectorCache(folder)
    with pytest.raises(PermissionError, match="inner"):
        VectorCache(folder / "inner")


def test_a_read_only_file(as_a_user_without_rights):
    folder, _ = as_a_user_without_rights
    keys = keys_of("some", 10)
    cache = VectorCache(folder)
    cache._database.execute("PRAGMA query_only = 1")
    with pytest.raises(OSError, match="it is read-only; make folder and file writable"):
        cache.write(keys, vectors_of(keys))
    cache.close()


def test_a_full_disk_leaves_what_was_there(tmp_path):
    keys, more = keys_of("before", 100), keys_of("more", 500)
    with VectorCache(tmp_path) as cache:
        cache.write(keys, vectors_of(keys))
        pages = ask(tmp_path, "page_count")
        cache._database.execute(f"PRAGMA max_page_count = {pages + 3}")  # SQLite's own "database or disk is full"
        with pytest.raises(OSError, match="the disk is full; make room"):
            cache.write(more, vectors_of(more))
        assert check_all(cache, keys).all()
        assert not check_all(cache, more).any()
        cache._database.execute("PRAGMA max_page_count = 1000000")
        cache.write(more, vectors_of(more))
        assert check_all(cache, more).all()


def test_a_process_that_does_not_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_database, "_LOCK_SECONDS", 0.05)
    keys = keys_of("some", 10)
    with VectorCache(tmp_path) as cache:
        other = sqlite3.connect(tmp_path / "vectors.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="another process held it"):
            cache.write(keys, vectors_of(keys))
        assert not check_all(cache, keys).any()  # reading needs no lock
        other.close()
        cache.write(keys, vectors_of(keys))
        assert check_all(cache, keys).all()


@pytest.mark.parametrize(
    ("keys", "vectors", "message"),
    [
        ([b"short"], np.zeros((1, 4), np.float32), "key 0 is 5 bytes"),
        (["a" * 32], np.zeros((1, 4), np.float32), "key 0 is str"),
        ([bytes(32)], np.zeros((2, 4), np.float32), r"\[1, D\] of float32, one row per key, got float32 \(2, 4\)"),
        ([bytes(32)], np.zeros((1, 4), np.float16), r"got float16 \(1, 4\)"),
        ([bytes(32)], np.zeros(4, np.float32), r"got float32 \(4,\)"),
        ([bytes(32)], [[0.0]], "got list"),
    ],
)
def test_impossible_writes(tmp_path, keys, vectors, message):
    with VectorCache(tmp_path) as cache, pytest.raises(ValueError, match=message):
        cache.write(keys, vectors)


def test_impossible_reads_and_use_after_close(tmp_path):
    cache = VectorCache(tmp_path)
    with pytest.raises(ValueError, match="key 1 is 31 bytes"):
        cache.read([bytes(32), bytes(31)], 4)
    cache.close()
    cache.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        cache.read([bytes(32)], 4)
