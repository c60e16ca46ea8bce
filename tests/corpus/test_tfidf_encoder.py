"""Hashed TF-IDF as a chunk encoder: similarities are those of scikit-learn, in all places where encoders stand."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfTransformer

from nextlevelbert import (
    Document,
    NextLevelBertModel,
    combine_chunk_encoders,
    distill_chunk_encoder,
    encode_corpus,
    fit_tfidf_encoder,
    load_chunk_encoder,
)
from nextlevelbert.models.chunking import ChunkingRule
from tests.golden.inputs import DOCUMENTS, FOLDER

TEXTS = [document.text for document in DOCUMENTS]
ENCODER = FOLDER / "encoder" / "sentences"
CHUNK_SIZE = 12


@pytest.fixture(scope="module")
def whole():
    return load_chunk_encoder(ENCODER, "golden/encoder")


@pytest.fixture(scope="module")
def tfidf(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfidf") / "words"
    return fit_tfidf_encoder(whole, TEXTS, folder, hidden_size=4_096, chunk_size=CHUNK_SIZE)


def counted(source, texts):
    """Counts ``[N, V]`` of all chunks, and their ids and borders."""
    rule = ChunkingRule.from_tokenizer(source.tokenizer, CHUNK_SIZE)
    parts, borders = [], [0]
    for text in texts:
        ids = np.asarray(source.tokenizer(text, add_special_tokens=False)["input_ids"])
        parts.append(ids)
        borders += (rule.boundaries(ids)[1:] + borders[-1]).tolist()
    ids, boundaries = np.concatenate(parts), np.asarray(borders)
    rows = max(source.tokenizer.get_vocab().values()) + 1
    counts = np.stack([np.bincount(ids[a:b], minlength=rows) for a, b in itertools.pairwise(borders)])
    return counts, ids, boundaries, rule


@pytest.mark.parametrize("sublinear", [False, True])
def test_similarities_are_those_of_scikit_learn(whole, tfidf, tmp_path, sublinear):
    if not sublinear:
        tfidf = fit_tfidf_encoder(
            whole, TEXTS, tmp_path / "linear", hidden_size=4_096, chunk_size=CHUNK_SIZE, sublinear_tf=False
        )
    counts, ids, boundaries, rule = counted(tfidf, TEXTS)
    for word, row in tfidf.tokenizer.get_vocab().items():
        if not any(letter.isalpha() for letter in word):
            counts[:, row] = 0
    theirs = TfidfTransformer(smooth_idf=True, norm=None).fit(counts)
    assert counts.max() > 1
    damped = np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0) if sublinear else counts
    exact = damped * (theirs.idf_ - 1)  # scikit-learn adds 1, so that words of every chunk count, too
    lengths = np.linalg.norm(exact, axis=1)
    exact = exact[lengths > 0] / lengths[lengths > 0, None]
    assert len(exact) > 20
    ours = tfidf.encoder.encode(ids, boundaries, rule).numpy()[lengths > 0]
    error = (ours @ ours.T - exact @ exact.T)[np.triu_indices(len(exact), 1)]
    assert abs(error).max() < 8 / np.sqrt(4_096)  # the bound of Johnson and Lindenstrauss, for all pairs
    assert np.sqrt((error**2).mean()) < 1.5 / np.sqrt(4_096)
    assert (exact @ exact.T)[np.triu_indices(len(exact), 1)].std() > 2 / np.sqrt(4_096)  # there is something to see


def test_padded_chunks_have_the_vectors_of_bags(tfidf):
    """Counts of a token leave padding out, also where it pads with a token of the text."""
    rule = ChunkingRule.from_tokenizer(tfidf.tokenizer, CHUNK_SIZE)
    weights = tfidf.encoder.model.weight.abs()
    the, sea, ship = weights.topk(3).indices.tolist()
    bags = tfidf.encoder.encode(np.array([the, sea, the, ship, ship]), np.array([0, 4, 5]), rule)
    ids, mask = torch.tensor([[the, sea, the, ship], [ship, ship, the, the]]), torch.tensor([[1] * 4, [1, 0, 0, 0]])
    torch.testing.assert_close(tfidf.encoder(ids, mask), bags)
    model = tfidf.encoder.model
    ratio = bags[0, model.places[the]] / bags[0, model.places[sea]]
    torch.testing.assert_close(ratio, (1 + np.log(2)) * model.weight[the] / model.weight[sea])


def test_weights_by_hand(tfidf):
    counts, *_ = counted(tfidf, TEXTS)
    words, model = tfidf.tokenizer.get_vocab(), tfidf.encoder.model
    row = words["the"]
    expected = np.log((1 + len(counts)) / (1 + (counts[:, row] > 0).sum()))
    assert abs(model.weight[row].item()) == pytest.approx(expected, rel=1e-5)
    assert model.weight[words["."]] == 0 == model.weight[words["[UNK]"]]
    token = model(torch.tensor([[row]])).last_hidden_state[0, 0]
    assert token.nonzero().flatten().tolist() == [model.places[row].item()]
    assert token.sum() == model.weight[row]


def test_same_seed_same_encoder(whole, tfidf, tmp_path):
    again = fit_tfidf_encoder(whole, TEXTS, tmp_path / "again", hidden_size=4_096, chunk_size=CHUNK_SIZE)
    assert again.fingerprint == tfidf.fingerprint == load_chunk_encoder(tmp_path / "again").fingerprint
    other = fit_tfidf_encoder(whole, TEXTS, tmp_path / "other", hidden_size=4_096, chunk_size=CHUNK_SIZE, seed=1)
    assert other.fingerprint != tfidf.fingerprint
    assert sum(file.stat().st_size for file in (tmp_path / "again").glob("*.safetensors")) < 500_000


def test_every_route_gives_the_same(tfidf, tmp_path):
    model = NextLevelBertModel.from_chunk_encoder(tfidf, chunk_size=CHUNK_SIZE, num_hidden_layers=0)
    books = model.encode(TEXTS[:3])
    for number, book in enumerate(books):
        batch = model.tokenizer(TEXTS[number], return_tensors="pt")
        torch.testing.assert_close(model(**batch).pooler_output[0], book.document)
        for _ in range(2):
            torch.testing.assert_close(model.encode(TEXTS[number], cache_dir=tmp_path / "cache").plain, book.plain)
    rule = model.config.chunking_rule()
    corpus = encode_corpus([Document("a", TEXTS[0])], tfidf, rule, tmp_path / "corpus", progress=False)
    corpus.check_model(model.config)
    torch.testing.assert_close(corpus[0].vectors.float(), books[0].plain, atol=1e-3, rtol=0)


def test_beside_a_static_encoder_it_opens_anywhere(whole, tmp_path):
    """Saved, opened again, by sentence-transformers, and by its own code where the package is missing."""
    static = distill_chunk_encoder(whole, tmp_path / "static")
    tfidf = fit_tfidf_encoder(whole, TEXTS, tmp_path / "words", hidden_size=64, chunk_size=CHUNK_SIZE)
    both = combine_chunk_encoders(
        [static, tfidf], TEXTS, tmp_path / "both", weights=[2, 3], sizes=[None, 16], chunk_size=CHUNK_SIZE
    )
    assert both.encoder.hidden_size == static.encoder.hidden_size + 16
    model = NextLevelBertModel.from_chunk_encoder(both, chunk_size=CHUNK_SIZE, num_hidden_layers=0)
    model.to(torch.float16).save_pretrained(tmp_path / "saved")
    assert str(tmp_path) not in (tmp_path / "saved" / "config.json").read_text()
    again = NextLevelBertModel.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    expected = again.encode(TEXTS[1]).document
    assert load_chunk_encoder(tmp_path / "saved").fingerprint == both.fingerprint
    found = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(TEXTS[1])
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-3)
    code = (
        "import sys; sys.modules['nextlevelbert'] = sys.modules['sentence_transformers'] = None\n"
        "from transformers import AutoModel\n"
        f"model = AutoModel.from_pretrained({str(tmp_path / 'saved')!r}, trust_remote_code=True)\n"
        f"print(model.float().encode({TEXTS[1]!r}).document.tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(np.fromstring(printed.strip("[]\n"), sep=","), expected.numpy(), atol=2e-3)


def test_texts_without_a_known_word(tfidf):
    """Punctuation and nothing give the zero vector; unknown tokens do, too, and are warned of."""
    model = NextLevelBertModel.from_chunk_encoder(tfidf, chunk_size=CHUNK_SIZE, num_hidden_layers=0)
    assert model.encode("").plain.shape == (0, 4_096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not model.encode("... !").plain.any()
    with pytest.warns(UserWarning, match="unknown tokens only"):
        assert not model.encode("\U0001f40b").plain.any()


def test_refused(whole, tmp_path):
    with pytest.raises(ValueError, match="hidden_size must be at least 1, got 0"):
        fit_tfidf_encoder(whole, TEXTS, tmp_path / "no", hidden_size=0)
    with pytest.raises(ValueError, match="hold no tokens"):
        fit_tfidf_encoder(whole, ["", " "], tmp_path / "no")
    assert not (tmp_path / "no").exists()
