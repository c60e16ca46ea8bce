"""The head over frozen vectors, beside scikit-learn's own."""

import numpy as np
import pytest

from benchmarks.studies import frozen_heads


def test_a_head_over_wide_vectors_is_the_same_in_the_span_of_the_examples():
    rng = np.random.default_rng(0)
    train = rng.normal(size=(40, 60))
    test = rng.normal(size=(10, 60))
    labels = (train[:, 0] > 0).astype(int)

    predicted = frozen_heads.probabilities(train, labels, test)

    head = frozen_heads.classifier(np.logspace(0, 4, 5)).fit(train, labels)
    assert predicted == pytest.approx(head.predict_proba(test), abs=0.01)
