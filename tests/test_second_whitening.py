"""The closed forms that a study compares with whitening, by hand."""

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.studies.second_whitening import (
    Form,
    add_figures,
    discriminant,
    own_document_task,
    segment_means,
)
from nextlevelbert.fitting import fit_whitening

from .toys.vectors import close


def test_segments_have_nearly_equal_lengths_and_are_two_at_least():
    chunks = torch.arange(7.0)[:, None]

    assert segment_means(chunks, length=3).flatten().tolist() == [1.5, 5.0]
    assert segment_means(chunks, length=50).flatten().tolist() == [1.5, 5.0]
    assert segment_means(chunks, length=1).flatten().tolist() == list(range(7))


def test_directions_are_scaled_by_their_variance_between_documents():
    """Variances within documents are 0.5; between documents, they are 6 and 2 / 3 before shares."""
    offsets = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    means = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    segments = list(means[:, None] + offsets)

    weight = discriminant(segments, shrinkage=0.0)

    between = np.array([6, 2 / 3]) - 0.5 / 4
    between = 0.7 * between + 0.3 * between.mean()
    ratio = between / 0.5
    expected = torch.from_numpy(np.diag(ratio / (2 * ratio + 1) / 0.5)).float()
    close(weight @ weight.T, expected)


def test_the_second_whitening_is_fitted_to_means_of_whitened_chunks():
    documents = torch.randn(6, 12, 4, generator=torch.Generator().manual_seed(0))

    vector = Form(shrunk=False, length=3, shrinkage=0.5).fit(list(documents))(documents[0])

    mean, first = fit_whitening(documents)
    whitened = F.normalize((documents - mean) @ first, dim=-1)
    means = whitened.reshape(6, 4, 3, 4).mean(dim=2)
    deviations = (means - means.mean(dim=1, keepdim=True)).flatten(0, 1).double().numpy()
    covariance = deviations.T @ deviations / len(deviations)
    variances, axes = np.linalg.eigh(covariance + 0.5 * np.trace(covariance) / 4 * np.eye(4))
    second = torch.from_numpy(axes / np.sqrt(variances) @ axes.T).float()
    expected = F.normalize((documents[0] - mean) @ first @ second, dim=-1).mean(dim=0)
    close(vector, expected)


def test_a_document_wins_by_the_mean_of_its_queries():
    task = own_document_task("toy", dict.fromkeys(["a#0", "a#1", "b#0", "b#1"], "text"))
    scores = {
        "whitened": dict(zip(task.queries, [0.5, 0.5, 0.5, 0.5], strict=True)),
        "whitened twice": dict(zip(task.queries, [0.9, 0.3, 0.5, 0.5], strict=True)),
    }
    scores |= {"fit": scores["whitened"], "fit, whitened twice": scores["whitened twice"]}
    scores["shrunk"] = scores["whitened"]
    figures = {}

    add_figures(figures, "toy", scores, groups=np.array(["a", "a", "b", "b"]))

    assert task.relevant["a#0"] == {"a#1": 1}
    assert figures["whitened twice"]["toy, difference"][0] == 0.05
    assert (figures["whitened twice"]["toy, won"], figures["whitened twice"]["toy, lost"]) == (1, 0)
