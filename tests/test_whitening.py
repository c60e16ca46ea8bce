"""Whitening in closed form, against scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nextlevelbert import whitening
from nextlevelbert.whitening import fit_whitening

from .toys.vectors import close


def documents_with_an_own_spread():
    """Chunks around 9 centres, spread unlike in every direction; one document has a single
    chunk."""
    draw = np.random.default_rng(4)
    spread = draw.normal(size=(6, 6))
    sizes = [7, 12, 1, 30, 2, 9, 15, 4, 20]
    return [
        torch.tensor(5 * draw.normal(size=6) + draw.normal(size=(size, 6)) @ spread).half()
        for size in sizes
    ]


@pytest.mark.filterwarnings(
    "ignore:Only one sample available"
)  # sklearn, of the document of one chunk
@pytest.mark.parametrize(("options", "shrinkage"), [({}, 0.1), ({"shrinkage": 2.0}, 2.0)])
def test_whitening_is_the_inverse_root_of_the_covariance_within_documents_as_sklearn_has_it(
    options, shrinkage, monkeypatch
):
    documents = documents_with_an_own_spread()
    chunks = torch.cat(documents).double().numpy()
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    within = (
        LinearDiscriminantAnalysis(solver="eigen", store_covariance=True)
        .fit(chunks, owners)
        .covariance_
    )
    held_back = shrinkage * np.diag(within).mean() * np.eye(6)
    empty = torch.zeros(0, 6)

    mean, weight = fit_whitening([empty, *documents[:4], empty, *documents[4:]], **options)

    assert mean.dtype == weight.dtype == torch.float32
    np.testing.assert_allclose(
        weight, fractional_matrix_power(within + held_back, -0.5), atol=1e-6, rtol=1e-5
    )
    np.testing.assert_allclose(mean, chunks.mean(axis=0), atol=1e-6, rtol=1e-5)
    assert (
        abs(weight - weight.diag().diag()).max() > 0.02
    )  # directions were mixed, so that this shows something

    monkeypatch.setattr(whitening, "_ROWS_PER_PRODUCT", 20)  # several products in place of one
    again = fit_whitening(documents, **options)

    close(again, (mean, weight))


@pytest.mark.parametrize(
    ("documents", "shrinkage", "message"),
    [
        ([torch.randn(1, 3) for _ in range(4)], 0.1, r"4 chunk\(s\).*--loss smooth_l1"),
        ([torch.ones(3, 4), torch.zeros(3, 4)], 0.1, "differ within their document"),
        ([torch.ones(3, 4) * torch.tensor([[1], [1 + 1e-7], [1]])], 0.1, "differ within"),
    ],
)
def test_what_whitening_cannot_be_fitted_to(documents, shrinkage, message):
    with pytest.raises(ValueError, match=message):
        fit_whitening(iter(documents), shrinkage)
