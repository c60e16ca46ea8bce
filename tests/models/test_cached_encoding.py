"""What is in the cache is not encoded again, and gives the results of an encoding without a cache."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools

import pytest
import torch
from tqdm.auto import tqdm

from nextlevelbert import ChunkingRule, Document, NextLevelBertModel, encode_corpus, load_chunk_encoder
from nextlevelbert.models.chunk_encoder import ChunkEncoder
from nextlevelbert.models.chunking import tokenize_document
from nextlevelbert.vector_cache import CachedEncoder, VectorCache

TEXT = " ".join(f"On day {day} the whale swam {day * 7} miles, and nobody on board slept." for day in range(60))


@pytest.fixture(scope="module")
def source(toy_encoder_path):
    return load_chunk_encoder(toy_encoder_path)


@pytest.fixture
def model(source):
    return NextLevelBertModel.from_chunk_encoder(source, chunk_size=16)


@pytest.fixture
def encoded(monkeypatch) -> list[int]:
    """How many chunks each call of the encoder got."""
    counts: list[int] = []
    encode = ChunkEncoder.encode

    def counting(self, input_ids, boundaries, *args, **kwargs):
        counts.append(len(boundaries) - 1)
        return encode(self, input_ids, boundaries, *args, **kwargs)

    monkeypatch.setattr(ChunkEncoder, "encode", counting)
    return counts


def test_the_second_time_nothing_is_encoded(model, encoded, tmp_path):
    plain = model.encode(TEXT)
    first = model.encode(TEXT, cache_dir=tmp_path)
    chunks = len(plain.chunks)
    assert encoded == [chunks, chunks]
    second = model.encode(TEXT, cache_dir=tmp_path)
    assert encoded == [chunks, chunks]
    assert torch.equal(second.plain, first.plain)
    assert torch.equal(second.document, first.document)
    torch.testing.assert_close(second.plain, plain.plain, atol=1e-5, rtol=0)
    torch.testing.assert_close(second.document, plain.document, atol=1e-5, rtol=0)
    assert (second.spans == plain.spans).all()


def test_only_new_chunks_are_encoded_and_equal_ones_once(model, encoded, tmp_path):
    plain = model.encode("The whale swam. " * 70).plain  # 4 ids over and over: few kinds of chunk
    encoded.clear()
    cached = model.encode("The whale swam. " * 70, cache_dir=tmp_path).plain
    kinds = {tuple(ids) for ids in chunks_of(model, "The whale swam. " * 70)}
    assert encoded == [len(kinds)]
    assert len(kinds) < 10
    torch.testing.assert_close(cached, plain, atol=1e-5, rtol=0)
    model.encode([TEXT, "The whale swam. " * 70], cache_dir=tmp_path)
    assert encoded[1:] == [len({tuple(ids) for ids in chunks_of(model, TEXT)})]


def chunks_of(model, text):
    ids = tokenize_document(model.tokenizer, text).input_ids
    cuts = model.config.chunking_rule().boundaries(ids)
    return [ids[start:end].tolist() for start, end in itertools.pairwise(cuts)]


def test_the_bar_counts_every_chunk_once(source, tmp_path):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    ids = tokenize_document(source.tokenizer, "The whale swam. " * 70 + TEXT).input_ids
    boundaries = rule.boundaries(ids)
    with VectorCache(tmp_path) as cache:
        for _ in ("new", "found"):
            with tqdm(file=io.StringIO()) as bar:
                CachedEncoder(source.encoder, cache).encode(ids, boundaries, rule, bar=bar)
                assert bar.n == len(boundaries) - 1


def test_an_edited_text_with_packed_sentences(source, encoded, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=64, chunking="packed_sentences")
    text = " ".join(f"On day {day} the whale swam {day * 7} miles, and nobody slept." for day in range(700))
    model.encode(text, cache_dir=tmp_path)
    cut = text.index("On day 3 ")
    edited = text[:cut] + "A gull came aboard and would not leave. " + text[cut:]
    result = model.encode(edited, cache_dir=tmp_path)
    assert 0 < encoded[1] <= 12 < len(result.plain) / 10
    torch.testing.assert_close(result.plain, model.encode(edited).plain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", ["weights", "dtype", "pooling", "normalize", "heads"])
def test_another_encoder_finds_nothing(source, encoded, tmp_path, change):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    ids = tokenize_document(source.tokenizer, TEXT).input_ids
    boundaries = rule.boundaries(ids)
    other = ChunkEncoder(source.encoder.model.config, "mean", True)
    other.load_state_dict(source.encoder.state_dict())
    with VectorCache(tmp_path) as cache:
        CachedEncoder(source.encoder, cache).encode(ids, boundaries, rule)
        CachedEncoder(other, cache).encode(ids, boundaries, rule)
        assert len(encoded) == 1  # the same weights in another object
        if change == "weights":
            with torch.no_grad():
                other.model.embeddings.LayerNorm.bias[0] += 0.01
        elif change == "dtype":
            other.bfloat16()
        elif change == "pooling":
            other.pooling = "cls"
        elif change == "heads":
            config = copy.deepcopy(source.encoder.model.config)
            config.num_attention_heads = 2
            other = ChunkEncoder(config, "mean", True)
            other.load_state_dict(source.encoder.state_dict())
        else:
            other.normalize = False
        vectors = CachedEncoder(other, cache).encode(ids, boundaries, rule)
    assert len(encoded) == 2
    torch.testing.assert_close(vectors, other.encode(ids, boundaries, rule), atol=2e-2, rtol=0)


def test_a_corpus_takes_from_the_cache_and_puts_into_it(model, source, encoded, tmp_path):
    expected = model.encode(TEXT, cache_dir=tmp_path / "cache")
    rule = model.config.chunking_rule()
    documents = [Document("seen", TEXT), Document("new", TEXT[300:])]
    arguments = {"cache_dir": tmp_path / "cache", "progress": False}
    corpus = encode_corpus(documents, source, rule, tmp_path / "corpus", **arguments)
    assert encoded[1] < corpus.num_chunks - len(expected.plain) + 1
    torch.testing.assert_close(corpus["seen"].vectors.float(), expected.plain, atol=1e-3, rtol=0)
    encode_corpus(documents, source, rule, tmp_path / "again", **arguments)
    assert len(encoded) == 2


def test_what_a_kill_leaves_is_used(source, encoded, tmp_path, monkeypatch):
    """Long documents reach the disk in parts, so that a run that dies in the middle has not run for nothing."""
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 8)
    ids = tokenize_document(source.tokenizer, TEXT).input_ids
    boundaries = rule.boundaries(ids)
    monkeypatch.setattr("nextlevelbert.models.vector_cache._CHUNKS_PER_WRITE", 50)
    encode, calls = ChunkEncoder.encode, []

    def dying(self, *args, **kwargs):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(args)
        return encode(self, *args, **kwargs)

    with VectorCache(tmp_path) as cache, monkeypatch.context() as patch:
        patch.setattr(ChunkEncoder, "encode", dying)
        with pytest.raises(KeyboardInterrupt):
            CachedEncoder(source.encoder, cache).encode(ids, boundaries, rule)
    with VectorCache(tmp_path) as cache:
        vectors = CachedEncoder(source.encoder, cache).encode(ids, boundaries, rule)
    torch.testing.assert_close(vectors, source.encoder.encode(ids, boundaries, rule), atol=1e-5, rtol=0)
    assert encoded[0] + encoded[1] == 100
    assert sum(encoded[:-1]) == len({tuple(ids[a:b]) for a, b in itertools.pairwise(boundaries)})


def test_vectors_that_are_not_finite_are_not_kept(source, tmp_path):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    ids = tokenize_document(source.tokenizer, TEXT).input_ids
    boundaries = rule.boundaries(ids)
    with VectorCache(tmp_path) as cache:
        encoder = CachedEncoder(source.encoder, cache)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                ChunkEncoder,
                "forward",
                lambda self, ids, mask=None: torch.full((len(ids), self.hidden_size), torch.nan),
            )
            assert encoder.encode(ids, boundaries, rule).isnan().all()
        assert encoder.encode(ids, boundaries, rule).isfinite().all()


def test_a_vector_with_a_single_number_that_is_not_finite_is_not_kept(source, tmp_path, monkeypatch):
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    ids = tokenize_document(source.tokenizer, TEXT).input_ids
    boundaries = rule.boundaries(ids)
    forward, calls = ChunkEncoder.forward, []

    def broken(self, *args):
        vectors = forward(self, *args)
        if not calls:
            vectors[0, 3], vectors[1, 4] = torch.nan, torch.inf
        calls.append(len(vectors))
        return vectors

    monkeypatch.setattr(ChunkEncoder, "forward", broken)
    with VectorCache(tmp_path) as cache:
        encoder = CachedEncoder(source.encoder, cache)
        first = encoder.encode(ids, boundaries, rule)
        assert len(first) - int(first.isfinite().all(dim=1).sum()) >= 2
        calls.append(0)
        assert encoder.encode(ids, boundaries, rule).isfinite().all()
    assert calls[calls.index(0) :] == [0, 2]  # only those two are encoded again


def test_what_is_stored_does_not_depend_on_autocast(model, tmp_path):
    exact = model.encode(TEXT)
    with torch.autocast("cpu", torch.bfloat16):
        model.encode(TEXT, cache_dir=tmp_path)
    torch.testing.assert_close(model.encode(TEXT, cache_dir=tmp_path).plain, exact.plain, atol=1e-5, rtol=0)


def test_a_model_encodes_in_another_dtype_and_keeps_its_own(model):
    exact, near = model.encode(TEXT), model.encode(TEXT, dtype=torch.bfloat16)
    half = copy.deepcopy(model.chunk_encoder).bfloat16()
    ids = tokenize_document(model.tokenizer, TEXT).input_ids
    rule = model.config.chunking_rule()
    assert torch.equal(near.plain, half.encode(ids, rule.boundaries(ids), rule))
    assert not torch.equal(near.plain, exact.plain)
    assert torch.equal(model.encode(TEXT, dtype="bfloat16").plain, near.plain)
    assert torch.equal(model.encode(TEXT).plain, exact.plain)
    assert model.chunk_encoder.precision == "float32"


def test_the_copy_follows_the_model(model, toy_encoder_path, tmp_path):
    """After other weights or another dtype the copy of before is not used; and it does not travel."""
    before = model.encode(TEXT, dtype=torch.bfloat16)
    assert model._copied_chunk_encoder is not None
    assert copy.deepcopy(model)._copied_chunk_encoder is None
    assert model.__getstate__()["_copied_chunk_encoder"] is None  # what a pickle would hold
    changed = {name: weight * 1.5 for name, weight in model.chunk_encoder.state_dict().items()}
    model.chunk_encoder.load_state_dict(changed)
    after = model.encode(TEXT, dtype=torch.bfloat16)
    assert not torch.allclose(after.plain, before.plain, atol=1e-2)
    model.encode(TEXT, dtype=torch.float16)
    model.half()
    assert torch.equal(model.encode(TEXT, dtype=torch.float16).plain, model.encode(TEXT).plain)


def test_another_form_with_other_pooling_is_refused(model, source):
    encoder = copy.deepcopy(source.encoder)
    encoder.pooling = "cls"
    with pytest.raises(ValueError, match=r"\('cls', True\), but the model was made with \('mean', True\)"):
        model.encode(TEXT, chunk_encoder=dataclasses.replace(source, encoder=encoder))


def graphs() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.long
def test_a_compiled_encoder_writes_the_same_vectors(source, tmp_path):
    torch._dynamo.utils.counters.clear()
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 16)
    documents = [Document("whale", TEXT), Document("short", "One line.")]
    plain, compiled = (
        encode_corpus(documents, source, rule, tmp_path / str(flag), compile=flag, progress=False)
        for flag in (False, True)
    )
    for name in ("whale", "short"):
        torch.testing.assert_close(compiled[name].vectors, plain[name].vectors, atol=1e-3, rtol=0)
    assert graphs() > 0
