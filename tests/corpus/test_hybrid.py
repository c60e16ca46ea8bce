"""A chunk encoder made of several: its vectors are those of its parts, and it is saved, cached and known as one."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from nextlevelbert import (
    Document,
    NextLevelBertModel,
    combine_chunk_encoders,
    distill_chunk_encoder,
    encode_corpus,
    load_chunk_encoder,
)
from nextlevelbert.fitting import fit_whitening
from tests.golden.inputs import DOCUMENTS, FOLDER

TEXTS = [document.text for document in DOCUMENTS]
ENCODER = FOLDER / "encoder" / "sentences"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    whole = load_chunk_encoder(ENCODER, "golden/encoder")
    return [distill_chunk_encoder(whole, tmp_path_factory.mktemp("parts") / "static"), whole]


@pytest.fixture(scope="module")
def hybrid(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid") / "both"
    return combine_chunk_encoders(parts, TEXTS, folder, weights=[3, 4], sizes=[5, None], chunk_size=12)


@pytest.fixture(scope="module")
def model(hybrid):
    torch.manual_seed(0)
    return NextLevelBertModel.from_chunk_encoder(hybrid, chunk_size=12, num_hidden_layers=0)


def chunks_of(part, model, text):
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    rule = model.config.chunking_rule()
    return part.encoder.encode(np.asarray(ids), rule.boundaries(np.asarray(ids)), rule)


def unit(vectors):
    return torch.nn.functional.normalize(vectors, dim=1)


def test_vectors_by_hand(parts, hybrid, model):
    sizes = (5, parts[1].encoder.hidden_size)
    assert hybrid.encoder.hidden_size == sum(sizes)
    shares = []
    for part, size, weight in zip(parts, (5, None), (0.6, 0.8), strict=True):
        found = [chunks_of(part, model, text) for text in TEXTS]
        mean, matrix = fit_whitening(found, size=size)
        vectors = (found[2] - mean) @ matrix.T
        shares.append(weight * vectors / vectors.norm(dim=1, keepdim=True))
    plain = model.encode(TEXTS[2]).plain
    torch.testing.assert_close(plain, torch.cat(shares, dim=1), atol=1e-5, rtol=0)
    torch.testing.assert_close(plain.norm(dim=1), torch.ones(len(plain)))


def test_a_part_that_is_not_whitened_is_centred(parts, model, tmp_path):
    both = combine_chunk_encoders(parts, TEXTS, tmp_path / "both", weights=[3, 4], whiten=[True, False], chunk_size=12)
    size = parts[0].encoder.hidden_size
    assert both.encoder.hidden_size == size + parts[1].encoder.hidden_size
    found = chunks_of(both, model, TEXTS[2])
    alone, each = ([chunks_of(part, model, text) for text in TEXTS] for part in parts)
    mean, matrix = fit_whitening(alone)
    torch.testing.assert_close(found[:, :size], 0.6 * unit((alone[2] - mean) @ matrix.T), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, size:], 0.8 * unit(each[2] - torch.cat(each).mean(dim=0)), atol=1e-5, rtol=0)
    assert load_chunk_encoder(tmp_path / "both").fingerprint == both.fingerprint
    with pytest.raises(ValueError, match="nothing to fit"):
        combine_chunk_encoders(parts, [""], tmp_path / "no", whiten=[False, False], chunk_size=12)


def test_one_encoder_everywhere(hybrid, model, tmp_path):
    book = model.encode(TEXTS[3])
    batch = model.tokenizer(TEXTS[3], return_tensors="pt")
    torch.testing.assert_close(model(**batch).pooler_output[0], book.document)
    for _ in range(2):
        torch.testing.assert_close(model.encode(TEXTS[3], cache_dir=tmp_path / "cache").plain, book.plain)
    rule = model.config.chunking_rule()
    corpus = encode_corpus([Document("a", TEXTS[3])], hybrid, rule, tmp_path / "corpus", progress=False)
    corpus.check_model(model.config)
    torch.testing.assert_close(corpus[0].vectors.float(), book.plain, atol=1e-3, rtol=0)
    ids = [(*rule.prefix_ids, 7, 8, 9, *rule.suffix_ids), (*rule.prefix_ids, 5, *rule.suffix_ids, 0, 0)]
    mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    by_hand = hybrid.encoder.encode(np.array([7, 8, 9, 5]), np.array([0, 3, 4]), rule)
    torch.testing.assert_close(hybrid.encoder(torch.tensor(ids), mask), by_hand)


def test_saved_and_opened(hybrid, model, tmp_path):
    model.save_pretrained(tmp_path)
    again = NextLevelBertModel.from_pretrained(tmp_path)
    expected = model.encode(TEXTS[1]).document
    torch.testing.assert_close(again.encode(TEXTS[1]).document, expected)
    assert again.detach_chunk_encoder().fingerprint == hybrid.fingerprint == hybrid.encoder.fingerprint()
    code = (
        "import sys; sys.modules['nextlevelbert'] = sys.modules['sentence_transformers'] = None\n"
        "from transformers import AutoModel\n"
        f"model = AutoModel.from_pretrained({str(tmp_path)!r}, trust_remote_code=True)\n"
        f"print(model.encode({TEXTS[1]!r}).document.tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(np.fromstring(printed.strip("[]\n"), sep=","), expected.numpy(), atol=1e-5)


def test_another_weight_is_another_encoder(parts, hybrid, model, tmp_path):
    other = combine_chunk_encoders(parts, TEXTS, tmp_path / "other", weights=[4, 3], sizes=[5, None], chunk_size=12)
    assert other.fingerprint != hybrid.fingerprint
    assert other.encoder.identity() != hybrid.encoder.identity()
    with pytest.raises(ValueError, match="chunk_encoder_fingerprint"):
        model.encode(TEXTS[0], chunk_encoder=other)


def test_cosines_are_weighted_means(parts, tmp_path):
    """Of the parts' cosines, by the squares of the weights."""
    alone = [
        combine_chunk_encoders([part, part], TEXTS, tmp_path / f"{size}", chunk_size=size)
        for size, part in zip((10, 12), parts, strict=True)  # the first knows no special tokens
    ]
    both = combine_chunk_encoders(parts, TEXTS, tmp_path / "both", weights=[1, 2], chunk_size=12)
    model = NextLevelBertModel.from_chunk_encoder(both, chunk_size=12)
    cosines = []
    for part in (*alone, both):
        vectors = chunks_of(part, model, TEXTS[4])
        cosines.append(vectors @ vectors.T)
    torch.testing.assert_close(cosines[2], 0.2 * cosines[0] + 0.8 * cosines[1], atol=1e-5, rtol=0)


def with_steps(folder, *steps, prompt=None):
    """The transformer of a chunk encoder with further modules, or a prompt."""
    original = SentenceTransformer(str(ENCODER), device="cpu")
    changed = SentenceTransformer(modules=[*list(original)[:2], *steps], device="cpu")
    if prompt is not None:
        changed.prompts, changed.default_prompt_name = {"given": prompt}, "given"
    changed.save_pretrained(str(folder))
    return load_chunk_encoder(folder)


def test_a_part_with_a_prompt_and_a_dense_layer(parts, tmp_path):
    size = parts[1].encoder.hidden_size
    dense = with_steps(tmp_path / "dense", Dense(size, 6), prompt="the: ")
    both = combine_chunk_encoders([parts[0], dense], TEXTS, tmp_path / "both", chunk_size=12)
    model = NextLevelBertModel.from_chunk_encoder(both, chunk_size=12, num_hidden_layers=0)
    assert both.encoder.hidden_size == parts[0].encoder.hidden_size + 6
    rule = model.config.chunking_rule()
    assert len(rule.prefix_ids) > 1  # [CLS] and the prompt
    ids = np.asarray(model.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"])
    expected = dense.encoder.encode(ids, rule.boundaries(ids), rule)
    whitened = both.encoder.model.whitenings[1](expected) * both.encoder.model.weights[1]
    torch.testing.assert_close(model.encode(TEXTS[0]).plain[:, -6:], whitened, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="put different tokens around a text, such as a prompt"):
        combine_chunk_encoders([dense, parts[1]], TEXTS, tmp_path / "no", chunk_size=12)
    with pytest.raises(ValueError, match="has a Dense layer after pooling"):
        distill_chunk_encoder(dense, tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_refused(parts, minilm, hybrid, tmp_path):
    for wrong, message in [
        ({"parts": parts[:1]}, "two encoders or more"),
        ({"parts": parts, "weights": [1.0]}, "2 encoders, 1 weights"),
        ({"parts": parts, "whiten": [True]}, "2 sizes and 1 of whiten"),
        ({"parts": parts, "sizes": [5, None], "whiten": [False, True]}, "not whitened, so it keeps its"),
        ({"parts": parts, "weights": [1.0, 0.0]}, "must be positive"),
        ({"parts": parts, "weights": [1.0, float("nan")]}, "must be positive"),
        ({"parts": [parts[0], minilm]}, "different tokens"),
        ({"parts": [hybrid, parts[0]]}, "'both' is a hybrid already"),
        ({"parts": parts, "sizes": [10_000, None]}, "size must be from 1 to"),
        ({"parts": parts, "texts": TEXTS[:1]}, "at least two documents"),
        ({"parts": parts, "chunk_size": 100_000}, "above the chunk encoder's limit"),
    ]:
        with pytest.raises(ValueError, match=message):
            combine_chunk_encoders(**{"texts": TEXTS, "folder": tmp_path / "no", "chunk_size": 12, **wrong})
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_checkpoint_lends_the_encoder_that_it_holds(hybrid, model, parts, tmp_path, dtype):
    """Also in half precision, which may not change under what fingerprint its vectors are known."""
    static = NextLevelBertModel.from_chunk_encoder(parts[0], chunk_size=12, num_hidden_layers=0)
    for whole, source in ((model, hybrid), (static, parts[0])):
        folder = tmp_path / str(type(source.encoder.model).__name__)
        copy.deepcopy(whole).to(dtype).save_pretrained(folder)
        found = load_chunk_encoder(folder)
        assert (found.name, found.fingerprint) == (source.name, source.fingerprint)
        assert found.tokenizer(TEXTS[0])["input_ids"] == source.tokenizer(TEXTS[0])["input_ids"]
        again = NextLevelBertModel.from_chunk_encoder(found, chunk_size=12, num_hidden_layers=0)
        expected = chunks_of(source, whole, TEXTS[0])
        tolerance = 1e-6 if dtype == torch.float32 else 2e-3
        assert np.allclose(chunks_of(found, again, TEXTS[0]), expected, atol=tolerance)


def test_a_checkpoint_without_an_encoder_names_the_one_it_was_made_with(parts, tmp_path):
    bare = NextLevelBertModel.from_chunk_encoder(
        parts[0], chunk_size=12, num_hidden_layers=0, include_chunk_encoder=False
    )
    bare.save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match=f"holds no chunk encoder; it was made with '{parts[0].name}': give that"):
        load_chunk_encoder(tmp_path / "bare")
