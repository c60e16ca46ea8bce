"""A static chunk encoder stands wherever a transformer can, and gives what sentence-transformers gives."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from nextlevelbert import (
    ChunkingRule,
    Document,
    HateModel,
    NextLevelBertForContrastiveLearning,
    NextLevelBertForSequenceClassification,
    NextLevelBertModel,
    encode_corpus,
    load_chunk_encoder,
)

from ..vector_toys import save_random_table

TEXTS = ["Call me Ishmael. Some years ago, never mind how long precisely, I went to sea.", "It’s a whale!" * 9]


@pytest.fixture(scope="module")
def folder(minilm, tmp_path_factory):
    """A random table with MiniLM's tokenizer, normalised."""
    folder = tmp_path_factory.mktemp("static") / "words"
    save_random_table(minilm.tokenizer, 32, folder)
    return folder


@pytest.fixture(scope="module")
def source(folder):
    return load_chunk_encoder(folder)


@pytest.fixture(scope="module")
def model(source):
    torch.manual_seed(0)
    return NextLevelBertModel.from_chunk_encoder(source, chunk_size=8, num_hidden_layers=1)


def plain(model, text, **options):
    return model.encode(text, **options).plain


def test_loaded(source):
    assert source.name == "words"
    assert not source.encoder.has_layers
    assert source.max_chunk_size is None
    rule = ChunkingRule.from_tokenizer(source.tokenizer, 8)
    assert (rule.prefix_ids, rule.suffix_ids, rule.capacity) == ((), (), 8)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from(["the", "sea", "whale,", "ship’s", "un­known", "日本", "..."]), min_size=1).map(" ".join)
)
def test_chunk_vectors_are_those_of_sentence_transformers(source, model, folder, text):
    book = model.encode(text)
    theirs = SentenceTransformer(str(folder), device="cpu").encode([text[start:end] for start, end in book.spans])
    ids = [source.tokenizer(text[start:end])["input_ids"] for start, end in book.spans]
    whole = source.tokenizer(text)["input_ids"]
    if list(itertools.chain(*ids)) == whole:  # no chunk ends within a word
        np.testing.assert_allclose(book.plain.numpy(), theirs, atol=1e-6)


def test_chunk_vectors_by_hand(source, model):
    table = source.encoder.model.embedding.weight
    ids = source.tokenizer(TEXTS[0])["input_ids"]
    assert len(ids) > 16
    means = torch.stack([table[ids[start : start + 8]].mean(dim=0) for start in range(0, len(ids), 8)])
    torch.testing.assert_close(plain(model, TEXTS[0]), torch.nn.functional.normalize(means, dim=-1))


def test_without_normalisation(folder, tmp_path):
    bare = SentenceTransformer(modules=[SentenceTransformer(str(folder), device="cpu")[0]], device="cpu")
    bare.save(str(tmp_path / "bare"))
    source = load_chunk_encoder(tmp_path / "bare")
    assert not source.encoder.normalize
    model = NextLevelBertModel.from_chunk_encoder(source, chunk_size=128)
    np.testing.assert_allclose(plain(model, TEXTS[0])[0].numpy(), bare.encode(TEXTS[0]), atol=1e-6)


def test_every_route_gives_the_same(source, model, tmp_path):
    """Text, ids, vectors, cache, corpus and SentenceTransformer."""
    books = model.encode(TEXTS)
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    by_ids = model(**batch)
    for number, book in enumerate(books):
        torch.testing.assert_close(by_ids.pooler_output[number], book.document)
        torch.testing.assert_close(model(inputs_embeds=book.plain[None]).pooler_output[0], book.document)
        for _ in range(2):  # written, and read
            torch.testing.assert_close(plain(model, TEXTS[number], cache_dir=tmp_path / "cache"), book.plain)
    rule = model.config.chunking_rule()
    documents = [Document(str(number), text) for number, text in enumerate(TEXTS)]
    corpus = encode_corpus(documents, source, rule, tmp_path / "corpus", progress=False)
    corpus.check_model(model.config)
    for number, book in enumerate(books):
        torch.testing.assert_close(corpus[number].vectors.float(), book.plain, atol=1e-3, rtol=0)
    model.save_pretrained(tmp_path / "saved")
    found = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, torch.stack([book.document for book in books]).numpy(), atol=1e-6)
    again = NextLevelBertModel.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(again.encode(TEXTS[0]).document, books[0].document)
    half = plain(model, TEXTS[0], dtype=torch.float16)
    torch.testing.assert_close(half, books[0].plain, atol=2e-3, rtol=0)


def test_opens_without_the_package(model, tmp_path):
    model.save_pretrained(tmp_path)
    code = (
        "import sys, json; sys.modules['nextlevelbert'] = sys.modules['sentence_transformers'] = None\n"
        "from transformers import AutoModel\n"
        f"model = AutoModel.from_pretrained({str(tmp_path)!r}, trust_remote_code=True)\n"
        f"print(json.dumps(model.encode({TEXTS[0]!r}).document.tolist()))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(json.loads(printed), model.encode(TEXTS[0]).document.numpy(), atol=1e-6)


def test_the_document_vector_starts_as_the_mean(model):
    book = model.encode(TEXTS[0])
    expected = torch.nn.functional.normalize(book.plain.mean(dim=0), dim=0)
    torch.testing.assert_close(book.document, expected)


def test_heads_and_hate_take_it(source):
    for kind in (NextLevelBertForSequenceClassification, NextLevelBertForContrastiveLearning):
        assert kind.from_chunk_encoder(source, num_hidden_layers=0).base_model.encode(TEXTS[0]).document.shape == (32,)
    hate = HateModel.from_chunk_encoder(source, hidden_size=16, num_hidden_layers=1)
    assert hate.encode(TEXTS[0]).document.shape == (16,)


def test_layers_of_a_transformer_can_be_left_out(minilm):
    model = NextLevelBertModel.from_chunk_encoder(minilm, num_hidden_layers=1)
    ours, theirs = model.encoder.state_dict(), minilm.encoder.model.state_dict()
    assert sum("encoder.layer" in name for name in ours) == 16
    for name, values in ours.items():
        assert torch.equal(values, theirs[name]), name
    with pytest.raises(ValueError, match="leave out num_hidden_layers"):
        NextLevelBertModel.from_chunk_encoder(minilm, num_hidden_layers=1, encoder_config=model.config.encoder_config)


def test_not_in_the_checkpoint(folder, source, tmp_path):
    """Then it is attached, and only if it is the same."""
    model = NextLevelBertModel.from_chunk_encoder(source, include_chunk_encoder=False)
    model.save_pretrained(tmp_path / "small")
    small = NextLevelBertModel.from_pretrained(tmp_path / "small")
    with pytest.raises(ValueError, match="'words', which made its vectors, cannot be loaded"):
        small.encode(TEXTS[0])
    assert torch.equal(
        small.encode(TEXTS[0], chunk_encoder=source).plain, plain(model, TEXTS[0], chunk_encoder=source)
    )
    other = load_chunk_encoder(folder)
    with torch.no_grad():
        other.encoder.model.embedding.weight[0, 0] += 1
    other.fingerprint = other.encoder.fingerprint()
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        small.attach_chunk_encoder(other)


def test_unknown_tokens_only(source, model):
    with pytest.warns(UserWarning, match="1 chunk.s. consist of unknown tokens only"):
        book = model.encode("\U00012000 \U00012001")
    row = source.encoder.model.embedding.weight[source.tokenizer.unk_token_id]
    torch.testing.assert_close(book.plain[0], torch.nn.functional.normalize(row, dim=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.encode("a \U00012001").plain.isfinite().all()


def saved_with(folder, target, weight):
    target.mkdir()
    for path in folder.rglob("*.json"):
        (target / path.relative_to(folder)).parent.mkdir(exist_ok=True)
        (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    (target / "checksums.json").unlink(missing_ok=True)
    save_file({"embedding.weight": weight}, target / "model.safetensors")
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[:30_000], "30000 x 32, but its tokenizer has ids up to 30521"),
        (lambda table: table[:, :0], "30522 x 0"),
        (lambda table: table.index_fill(0, torch.tensor([7]), torch.nan), "NaN"),
    ],
    ids=["another tokenizer", "empty", "NaN"],
)
def test_bad_tables(folder, tmp_path, change, message):
    table = load_file(folder / "model.safetensors")["embedding.weight"]
    bad = saved_with(folder, tmp_path / "bad", change(table).contiguous())
    with pytest.raises(ValueError, match=message):
        load_chunk_encoder(bad)


def test_an_empty_vocabulary(tmp_path):
    module = StaticEmbedding(Tokenizer(WordLevel({}, unk_token="[UNK]")), torch.zeros(1, 4))
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path))
    with pytest.raises(ValueError, match="table of 1 x 4"):
        load_chunk_encoder(tmp_path)


def test_no_other_pooling(folder):
    with pytest.raises(ValueError, match="no token order to pool by 'cls'"):
        load_chunk_encoder(folder, pooling="cls")
