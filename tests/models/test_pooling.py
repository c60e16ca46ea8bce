"""Pooling by hand, and whitening against scikit-learn's discriminant analysis."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nextlevelbert import NextLevelBertConfig, NextLevelBertModel
from nextlevelbert.fitting import fit_whitening
from nextlevelbert.models import pooling
from nextlevelbert.models.pooling import pool

from ..segment_toys import close


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0, -2.0], [3.0, -1.0], [9.0, 9.0]], [[7.0, 7.0]] * 3])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    expected = {
        "mean": [2.0, -1.5],
        "sum": [4.0, -3.0],
        "max": [3.0, -1.0],
        "cls": [1.0, -2.0],
        "lasttoken": [3.0, -1.0],
        "mean_sqrt_len_tokens": [4 / math.sqrt(2), -3 / math.sqrt(2)],
        "weightedmean": [7 / 3, -4 / 3],
    }
    for mode, row in expected.items():
        torch.testing.assert_close(pool(hidden, mask, mode), torch.tensor([row, [0.0, 0.0]]))
    with pytest.raises(ValueError, match="Unknown pooling 'median'"):
        pool(hidden, mask, "median")


@pytest.mark.parametrize("mode", ["mean", "sum", "max", "cls", "lasttoken", "mean_sqrt_len_tokens", "weightedmean"])
def test_one_vector_alone_is_its_own_pool(mode):
    hidden = torch.tensor([[[9.0, 9.0], [3.0, -1.0], [9.0, 9.0]]])
    torch.testing.assert_close(pool(hidden, torch.tensor([[0, 1, 0]]), mode), torch.tensor([[3.0, -1.0]]))


def documents_with_an_own_spread():
    """Chunks around 9 centres, spread unlike in every direction; one document has a single chunk."""
    draw = np.random.default_rng(4)
    spread = draw.normal(size=(6, 6))
    sizes = [7, 12, 1, 30, 2, 9, 15, 4, 20]
    return [torch.tensor(5 * draw.normal(size=6) + draw.normal(size=(size, 6)) @ spread).half() for size in sizes]


@pytest.mark.filterwarnings("ignore:Only one sample available")  # sklearn, of the document of one chunk
@pytest.mark.parametrize("shrinkage", [0.1, 2.0])
def test_whitening_is_the_inverse_root_of_the_covariance_within_documents_as_sklearn_has_it(shrinkage):
    documents = documents_with_an_own_spread()
    chunks = torch.cat(documents).double().numpy()
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    within = LinearDiscriminantAnalysis(solver="eigen", store_covariance=True).fit(chunks, owners).covariance_
    held_back = shrinkage * np.diag(within).mean() * np.eye(6)
    empty = torch.zeros(0, 6)
    mean, weight = fit_whitening([empty, *documents[:4], empty, *documents[4:]], shrinkage)
    assert mean.dtype == weight.dtype == torch.float32
    np.testing.assert_allclose(weight, fractional_matrix_power(within + held_back, -0.5), atol=1e-6, rtol=1e-5)
    np.testing.assert_allclose(mean, chunks.mean(axis=0), atol=1e-6, rtol=1e-5)
    assert abs(weight - weight.diag().diag()).max() > 0.02  # directions were mixed, so that this shows something
    other_way_round = fit_whitening((document.flip(0) for document in reversed(documents)), shrinkage)
    close(mean, other_way_round[0], atol=1e-6)
    close(weight, other_way_round[1], atol=1e-6)


@pytest.mark.parametrize("shrinkage", [1e-6, 0.1, 3.0])
def test_fewer_chunks_than_dimensions_are_whitened_without_a_large_decomposition(shrinkage, monkeypatch):
    torch.manual_seed(4)
    spread = torch.linspace(0.01, 2, 60)
    documents = [torch.randn(count, 60) * spread for count in (1, 5, 20, 7)]
    documents.append(documents[1][:2].repeat(2, 1))  # fewer directions than chunks
    expected = fit_whitening(documents * 2, shrinkage)  # the same covariance, of more chunks than dimensions
    sizes, eigh = [], torch.linalg.eigh

    def counted(matrix):
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", counted)
    mean, weight = fit_whitening(documents, shrinkage)
    assert sizes == [37]
    close(mean, expected[0], atol=1e-6)
    close(weight, expected[1], atol=1e-5 * expected[1].abs().max().item())


@pytest.mark.parametrize(
    ("documents", "shrinkage", "message"),
    [
        ([torch.ones(5, 3)], 0.1, r"got 5 chunk\(s\) in 1 document\(s\)"),
        ([torch.ones(5, 3), torch.ones(0, 3)], 0.1, r"got 5 chunk\(s\) in 1 document\(s\)"),
        ([torch.randn(1, 3) for _ in range(4)], 0.1, r"got 4 chunk\(s\) in 4 document\(s\)"),
        ([], 0.1, r"got 0 chunk\(s\) in 0 document\(s\)"),
        ([torch.ones(3, 4), torch.zeros(3, 4)], 0.1, "The 6 chunks do not differ within their documents"),
        ([torch.randn(3, 4), torch.full((3, 4), math.nan)], 0.1, "or contain NaN: there is nothing to whiten"),
        ([torch.randn(5, 3), torch.randn(5, 3)], 0.0, "shrinkage must be positive, got 0.0"),
        ([torch.randn(5, 3), torch.randn(5, 3)], math.nan, "shrinkage must be positive, got nan"),
    ],
)
def test_what_whitening_cannot_be_fitted_to(documents, shrinkage, message):
    with pytest.raises(ValueError, match=message):
        fit_whitening(iter(documents), shrinkage)


def test_whitening_cut_to_the_directions_that_tell_documents_apart(monkeypatch):
    """Against scikit-learn's linear discriminant analysis: the same subspace, in the same order."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    draw = torch.Generator().manual_seed(0)
    spread = torch.randn(6, 6, generator=draw)
    documents = [torch.randn(6, generator=draw) + torch.randn(40, 6, generator=draw) @ spread for _ in range(12)]
    mean, whole = fit_whitening(documents, shrinkage=1e-9, size=6)
    for size in (1, 2, 4):
        cut = fit_whitening(documents, shrinkage=1e-9, size=size)
        torch.testing.assert_close(cut[1].abs(), whole[:size].abs(), atol=1e-4, rtol=1e-3)  # up to the sign
    judge = LinearDiscriminantAnalysis(solver="eigen").fit(
        torch.cat(documents).numpy(), [number for number, each in enumerate(documents) for _ in each]
    )
    theirs = torch.from_numpy(judge.scalings_[:, :4].T).float()
    cosines = torch.nn.functional.cosine_similarity(whole[:4], theirs)
    torch.testing.assert_close(cosines.abs(), torch.ones(4), atol=1e-3, rtol=0)
    plain = fit_whitening(documents, shrinkage=1e-9)
    vectors = documents[3] - mean
    torch.testing.assert_close((vectors @ whole.T).norm(dim=1), (vectors @ plain[1].T).norm(dim=1))
    monkeypatch.setattr(pooling, "_ROWS_PER_PRODUCT", 100)  # four products of three documents in place of one
    for values, expected in zip(fit_whitening(documents, shrinkage=1e-9, size=6), (mean, whole), strict=True):
        torch.testing.assert_close(values, expected, atol=1e-4, rtol=1e-3)
    with pytest.raises(ValueError, match="size must be from 1 to 6"):
        fit_whitening(documents, size=7)


def test_neighbours_start_with_a_large_share_that_falls_with_the_distance():
    """By hand: v + 0.8 of the neighbours, 0.4 of theirs, and a tenth of the mean; what lies outside counts nothing."""
    config = NextLevelBertConfig(
        encoder_config={"hidden_size": 12, "num_hidden_layers": 0},
        chunk_encoder_config={"hidden_size": 12},
        neighbours=2,
    )
    context = NextLevelBertModel(config).neighbours
    vectors = torch.randn(1, 4, 12, generator=torch.Generator().manual_seed(0))
    found = context(vectors, torch.ones(1, 4, dtype=torch.bool))
    v = [torch.zeros(12), torch.zeros(12), *vectors[0], torch.zeros(12), torch.zeros(12)]
    for place in range(4):
        own = v[place + 2] + 0.8 * (v[place + 1] + v[place + 3]) + 0.4 * (v[place] + v[place + 4])
        expected = own + 0.1 * vectors[0].mean(dim=0)
        torch.testing.assert_close(found[0, place], expected / expected.norm())
