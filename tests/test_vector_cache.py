"""The cache of chunk vectors: no chunk is encoded twice, another encoder finds nothing, a kill
leaves whole rows."""

import contextlib
import copy
import itertools
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
import torch

from nextlevelbert import CachedEncoder, NextLevelBertModel, VectorCache

TEXT = "The whale swam. The ship sailed on, and the sea was wide. " * 12


@pytest.fixture(scope="module")
def model(toy_encoder_path):
    return NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16)


class Counted:
    """A chunk encoder that counts what it encodes."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.chunks = 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def encode(self, ids, boundaries, **options):
        self.chunks += len(boundaries) - 1
        return self.encoder.encode(ids, boundaries, **options)


def test_no_chunk_is_encoded_twice(model, tmp_path):
    counted = Counted(model.chunk_encoder)
    cached = CachedEncoder(counted, tmp_path)
    expected = model.encode(TEXT)
    first = model.encode(TEXT, chunk_encoder=cached)
    seen = counted.chunks
    again = model.encode(["", TEXT, TEXT[: len(TEXT) // 2]], chunk_encoder=cached)

    assert 0 < seen <= len(expected.plain)
    assert counted.chunks <= seen + 1  # the last chunk of the half

    for book in (first, again[1]):
        torch.testing.assert_close(book.plain, expected.plain, atol=1e-6, rtol=0)
        torch.testing.assert_close(book.document, expected.document, atol=1e-5, rtol=0)
    twice = Counted(model.chunk_encoder)
    model.encode("word " * 14 * 6, chunk_encoder=CachedEncoder(twice, tmp_path / "other"))

    assert twice.chunks == 1  # six times the same ids


def test_a_model_without_layers_encodes_with_a_cache(toy_encoder_path, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(
        toy_encoder_path, chunk_size=16, num_hidden_layers=0
    )
    cached = CachedEncoder(model.chunk_encoder, tmp_path)

    book = model.encode(TEXT, chunk_encoder=cached)

    torch.testing.assert_close(book.plain, model.encode(TEXT).plain, atol=1e-6, rtol=0)


@torch.no_grad()
def test_another_encoder_precision_or_prompt_finds_nothing(model, tmp_path):
    rule = model.config.chunking_rule()
    borders = np.array([0, 5])
    CachedEncoder(model.chunk_encoder, tmp_path).encode(np.arange(5), borders, rule)
    other = copy.deepcopy(model).chunk_encoder
    next(other.parameters())[0, 0] += 1
    half = copy.deepcopy(model).to(torch.bfloat16).chunk_encoder
    prompted = replace(rule, prefix_ids=(101, 7))
    for encoder, new_rule in ((other, rule), (half, rule), (model.chunk_encoder, prompted)):
        counted = Counted(encoder)
        CachedEncoder(counted, tmp_path).encode(np.arange(5), borders, new_rule)
        assert counted.chunks == 1
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.encode(TEXT, chunk_encoder=CachedEncoder(other, tmp_path))


def keys_of(number):
    """Of the fifty rows of a transaction."""
    return [f"{number} {row}".encode() for row in range(50)]


def write_for_ever(folder, tell):
    cache = VectorCache(folder)
    for number in itertools.count():
        cache.write(keys_of(number), np.full((50, 384), number, "f4"))
        tell.send(number)


def test_a_killed_writer_leaves_whole_transactions(tmp_path):
    receiver, tell = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=write_for_ever, args=(tmp_path, tell)
    )
    process.start()
    tell.close()
    cache = VectorCache(tmp_path)
    done = 0
    while done < 20:  # reads while the other writes
        done = receiver.recv()
        assert len(cache.read(keys_of(done))) == 50
    process.kill()
    process.join()
    with contextlib.suppress(EOFError):
        while True:
            done = receiver.recv()
    cache = VectorCache(tmp_path)
    for index in range(done + 2):
        rows = cache.read(keys_of(index))
        # Of the last, which it did not tell of, all or none.
        assert len(rows) == 50 or (index > done and not rows)
        for row in rows.values():
            assert (row == index).all()


@pytest.mark.parametrize(("content", "size"), [(b"no database" * 500, None), (None, 9_000)])
def test_a_damaged_database_is_named_with_the_remedy(tmp_path, content, size):
    """Overwritten, or cut off by a power cut."""
    VectorCache(tmp_path).write(keys_of(1), np.ones((50, 384), "f4"))
    path = tmp_path / "vectors.sqlite3"
    path.write_bytes((content or path.read_bytes())[:size])
    for log in tmp_path.glob("vectors.sqlite3-*"):
        log.unlink()

    with pytest.raises(OSError, match=r"vectors\.sqlite3 cannot be used: .*delete this file"):
        VectorCache(tmp_path).read(keys_of(1))


def test_a_database_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "vectors.sqlite3").mkdir()
    with pytest.raises(OSError, match=r"vectors\.sqlite3 cannot be used: unable to open"):
        VectorCache(tmp_path)


def test_a_cache_with_a_limit_forgets_half_of_its_vectors(tmp_path):
    """So that its file does not grow; a vector that it still has is right."""
    cache = VectorCache(tmp_path, most_vectors=700)
    rows = np.random.default_rng(0).normal(size=(1_000, 64)).astype(np.float32)
    keys = [number.to_bytes(32) for number in range(1_000)]
    for start in range(0, 1_000, 100):
        cache.write(keys[start : start + 100], rows[start : start + 100])

    kept = cache.read(keys)
    cache.close()

    assert 250 < len(kept) <= 700
    assert (tmp_path / "vectors.sqlite3").stat().st_size < 400_000
    for key, vector in kept.items():
        np.testing.assert_array_equal(vector, rows[int.from_bytes(key)])
