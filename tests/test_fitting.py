"""What is fitted in closed form, against scikit-learn and by hand; and pooling by hand."""

import copy
import dataclasses
import itertools
import re
import warnings

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from nextlevelbert import ChunkingRule, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.fitting import combine_chunk_encoders, fit_tfidf_encoder
from nextlevelbert.models.chunk_encoder import encode_documents
from nextlevelbert.whitening import fit_whitening

from .frozen.cases import TEXTS as FROZEN
from .frozen.cases import text as story
from .toys.vectors import close, save_random_table

TEXTS = [*FROZEN, story(7, 30), story(8, 60)]
CHUNK_SIZE = 12


@pytest.fixture(scope="module")
def whole(toy_encoder_path):
    return load_chunk_encoder(toy_encoder_path, "toy/encoder")


@pytest.fixture(scope="module")
def tfidf(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfidf") / "words"
    return fit_tfidf_encoder(whole, TEXTS, folder, hidden_size=4_096, chunk_size=CHUNK_SIZE)


@pytest.fixture(scope="module")
def parts(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts") / "static"
    save_random_table(whole.tokenizer, 16, folder)
    return [load_chunk_encoder(folder), whole]


@pytest.fixture(scope="module")
def hybrid(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid") / "both"
    return combine_chunk_encoders(parts, TEXTS, folder, weights=[3, 4], chunk_size=12)


@pytest.fixture(scope="module")
def model(hybrid):
    torch.manual_seed(0)
    return NextLevelBertModel.from_chunk_encoder(hybrid, chunk_size=12, num_hidden_layers=0)


def test_similarities_are_those_of_scikit_learn(minilm, tmp_path):
    """With MiniLM's whole vocabulary: the buckets of a smaller one change with the tests' words."""
    tfidf = fit_tfidf_encoder(
        minilm, TEXTS, tmp_path / "words", hidden_size=4_096, chunk_size=CHUNK_SIZE
    )
    rule = ChunkingRule.from_tokenizer(tfidf.tokenizer, CHUNK_SIZE)
    words = tfidf.tokenizer.get_vocab()
    documents = [
        np.asarray(ids) for ids in tfidf.tokenizer(TEXTS, add_special_tokens=False).input_ids
    ]
    boundaries = list(map(rule.boundaries, documents))
    rows = []
    for ids, borders in zip(documents, boundaries, strict=True):
        for start, end in itertools.pairwise(borders):
            rows.append(np.bincount(ids[start:end], minlength=max(words.values()) + 1))
    counts = np.stack(rows)
    for word, row in words.items():
        if not re.search(r"[^\W\d_]", word):
            counts[:, row] = 0

    assert counts.max() > 1
    # scikit-learn adds 1 to the logarithm, so that words of every chunk count, too.
    weights = TfidfTransformer(smooth_idf=True, norm=None).fit(counts).idf_ - 1
    exact = weights * np.where(counts, 1 + np.log(np.maximum(counts, 1)), 0)
    lengths = np.linalg.norm(exact, axis=1)
    exact = exact[lengths > 0] / lengths[lengths > 0, None]
    assert len(exact) > 20
    vectors = torch.cat(encode_documents(tfidf.encoder, documents, boundaries, rule))
    vectors = vectors.numpy()[lengths > 0]
    pairs = np.triu_indices(len(exact), 1)
    expected = (exact @ exact.T)[pairs]
    error = (vectors @ vectors.T)[pairs] - expected
    unit = 1 / np.sqrt(4_096)
    assert abs(error).max() < 8 * unit  # the bound of Johnson and Lindenstrauss, for all pairs
    assert np.sqrt((error**2).mean()) < 1.5 * unit
    assert expected.std() > 2 * unit  # there is something to see


def test_weights_of_tokens_by_hand(toy_encoder_path, tmp_path):
    """ln((1 + N) / (1 + n)), if n of N = 5 chunks contain a token."""
    source = load_chunk_encoder(toy_encoder_path)
    texts = ["sea sea", "sea whale", "ship", "ship whale", "whale !"]

    encoder = fit_tfidf_encoder(source, texts, tmp_path / "words", chunk_size=CHUNK_SIZE)

    weights = encoder.encoder.model.weight.abs()
    ids = source.tokenizer.convert_tokens_to_ids(["whale", "sea", "ship", "captain", "!"])
    expected = torch.tensor([6 / 4, 6 / 3, 6 / 3, 6 / 1, 1]).log()
    close(weights[ids], expected)


def test_texts_without_a_known_word(tfidf):
    """Punctuation and nothing give the zero vector; unknown tokens do, too, and are warned of."""
    model = NextLevelBertModel.from_chunk_encoder(tfidf, chunk_size=CHUNK_SIZE, num_hidden_layers=0)

    assert model.encode("").plain.shape == (0, 4_096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not model.encode("... !").plain.any()
    with pytest.warns(UserWarning, match="unknown tokens only"):
        assert not model.encode("\U0001f40b").plain.any()


def chunks_of(part, model, text):
    ids = np.asarray(model.tokenizer(text, add_special_tokens=False)["input_ids"])
    rule = model.config.chunking_rule()
    return part.encoder.encode(ids, rule.boundaries(ids), rule)


def test_another_weighting_is_another_encoder(parts, hybrid, tmp_path):
    other = combine_chunk_encoders(parts, TEXTS, tmp_path / "other", weights=[4, 3], chunk_size=12)

    assert other.fingerprint != hybrid.fingerprint
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        NextLevelBertModel.from_chunk_encoder(hybrid, chunk_size=12).encode(
            TEXTS[0], chunk_encoder=other
        )


def unit(vectors):
    return torch.nn.functional.normalize(vectors, dim=1)


@pytest.mark.parametrize("whiten", [[True, True], [True, False]])
def test_vectors_by_hand(parts, model, tmp_path, whiten):
    """Each part centred, whitened or not, of length 1, weighted."""
    options = {"weights": [3, 4], "whiten": whiten, "chunk_size": CHUNK_SIZE}
    both = combine_chunk_encoders(parts, TEXTS, tmp_path / "both", **options)
    shares = []
    for part, weight, white in zip(parts, (0.6, 0.8), whiten, strict=True):
        chunks = [chunks_of(part, model, text) for text in TEXTS]
        mean, matrix = fit_whitening(chunks)
        if not white:
            mean = torch.cat(chunks).mean(dim=0)
            matrix = torch.eye(len(mean))
        shares.append(weight * unit((chunks[2] - mean) @ matrix.T))

    close(chunks_of(both, model, TEXTS[2]), torch.cat(shares, dim=1))
    assert load_chunk_encoder(tmp_path / "both").fingerprint == both.fingerprint


def test_saved_opened_and_lent(hybrid, model, fresh_process, tmp_path):
    """In half precision, under the same fingerprint; and by its own code."""
    copy.deepcopy(model).half().save_pretrained(tmp_path)

    assert str(tmp_path) not in (tmp_path / "config.json").read_text()
    lent = load_chunk_encoder(tmp_path)
    assert (lent.name, lent.fingerprint) == (hybrid.name, hybrid.fingerprint)
    again = NextLevelBertModel.from_pretrained(tmp_path, dtype=torch.float32)
    for opened in (
        again,
        NextLevelBertModel.from_chunk_encoder(lent, chunk_size=12, num_hidden_layers=0),
    ):
        close(opened.encode(TEXTS[1]).plain, model.encode(TEXTS[1]).plain, atol=4e-3)
    code = (
        "import sys; sys.modules['sentence_transformers'] = None\n"
        "from transformers import AutoModel\n"
        f"model = AutoModel.from_pretrained({str(tmp_path)!r}, trust_remote_code=True).float()\n"
        f"print(model.encode({TEXTS[1]!r}).document.tolist())"
    )
    printed = fresh_process(code, hidden=True)
    expected = again.encode(TEXTS[1]).document.numpy()
    np.testing.assert_allclose(np.fromstring(printed.strip("[]\n"), sep=","), expected, atol=1e-4)


def test_what_it_refuses(parts, minilm, tmp_path):
    folder = tmp_path / "no"
    words = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    foreign = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    unlike = [parts[0], dataclasses.replace(minilm, tokenizer=foreign)]
    options = {"weights": [1, 1], "chunk_size": 12}

    for wrong, texts, word in [
        (unlike, TEXTS, "different vocabularies"),
        (parts, [""], "no tokens"),
    ]:
        with pytest.raises(ValueError, match=word):
            combine_chunk_encoders(wrong, texts, folder, **options)
    with pytest.raises(ValueError, match="no tokens"):
        fit_tfidf_encoder(parts[1], ["", " "], folder)
    assert not folder.exists()
