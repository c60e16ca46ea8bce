"""The baselines of classification over chunk vectors and word counts, by hand and in the script."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from torch import nn

from nextlevelbert.finetuning.task import Sets
from nextlevelbert.fitting import fit_whitening
from nextlevelbert.tasks.classification import controls
from nextlevelbert.tasks.classification.baselines import ChunkMeanClassifier, tfidf_logistic_regression
from nextlevelbert.tasks.classification.controls import TaskVectors, _means, control_rows, fit_regression
from nextlevelbert.tasks.classification.data import Example, TaskData, read_classification

from ..finetuning_toys import sea_rows, start, write


def test_the_chunk_mean_baseline_by_hand():
    torch.manual_seed(0)
    model = ChunkMeanClassifier(4, "multiple_choice", 0, text_pair=False)
    documents, pairs = torch.randn(2, 3, 4), torch.randn(3, 2, 4)
    mask, index = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([0, 1, 1])
    labels = torch.tensor([1, 0, 1])
    output = model(documents, mask, pairs, index, labels)
    means = torch.stack([documents[0, :2].mean(0), documents[1].mean(0)])[index]
    features = torch.cat([means[:, None].expand(3, 2, 4), pairs], dim=-1)
    logits = model.classifier[2](model.classifier[0](features).clamp(min=0)).squeeze(-1)
    torch.testing.assert_close(output.logits, logits)
    torch.testing.assert_close(output.loss, nn.functional.nll_loss(logits.log_softmax(-1), labels))


def test_word_counts_with_several_labels(tmp_path):
    subjects = {"the ship sailed the sea": ["sea"], "the stock market fell": ["money"]}
    subjects["the ship was sold on the market"] = ["money", "sea"]
    rows = [{"text": f"{text} {n}", "label": label} for n in range(6) for text, label in subjects.items()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train = read_classification(tmp_path / "rows.jsonl")
    [logits] = tfidf_logistic_regression(train, [train])
    assert logits.shape == (18, 2)
    assert ((logits > 0) == train.labels()).all()


def test_word_counts_find_the_subject(sea_files):
    train = read_classification(sea_files["--train_file"])
    test = read_classification(sea_files["--test_file"], label_names=train.label_names)
    [logits] = tfidf_logistic_regression(train, [test])
    assert (logits.argmax(-1) == test.labels()).all()
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1)
    values = TaskData("regression", ["text"], [Example("x", 0, label=0.5)], None, "here")
    with pytest.raises(ValueError, match="TF-IDF baseline classifies, got regression"):
        tfidf_logistic_regression(values, [])


@pytest.mark.long
def test_the_baselines_in_the_same_script(toy_encoder_path, tmp_path):
    start_alike = "In the year that all of this happened to us nothing else was of interest. "
    options = {"--chunk_encoder": toy_encoder_path, "--chunk_size": "16", "--num_train_epochs": "12"}
    for option, count, seed in (("--train_file", 32, 1), ("--validation_file", 8, 2), ("--test_file", 11, 3)):
        made = [{**row, "text": start_alike + row["text"]} for row in sea_rows(count, seed)]
        options[option] = write(tmp_path / f"{seed}.jsonl", made)
    cache = ("--cache_dir", str(tmp_path / "cache"))
    accuracy = {}
    for model in ("avg_sbert", "sbert", "tobert", "tfidf"):
        start(tmp_path / model, model, *cache, **options)
        accuracy[model] = json.loads((tmp_path / model / "results.json").read_text())["seeds"]["0"]["accuracy"]
    assert accuracy["tfidf"] == 1.0
    assert accuracy["avg_sbert"] > 0.8
    # Two new layers over the chunk vectors (Pappagari et al. 2019); not trained for long enough here to be judged.
    config = json.loads((tmp_path / "tobert" / "config.json").read_text())
    assert (config["model_type"], config["encoder_config"]["num_hidden_layers"], config["chunking"]) == (
        "hate", 2, "fixed"
    )  # fmt: skip
    # Truncated to the first chunk of 14 tokens, which all documents have in common, it can only guess.
    assert accuracy["sbert"] <= 6 / 11


def vectors_of(documents: int, seed: int, pairs: int | None = None) -> TaskVectors:
    """Random chunk vectors of three dimensions, whose first one is high in every second document."""
    torch.manual_seed(seed)
    chunks = [torch.randn(4, 3) + torch.tensor([3.0 * (number % 2), 0, 0]) for number in range(documents)]
    return TaskVectors(chunks, None if pairs is None else [torch.randn(pairs, 3) for _ in range(documents)])


def sets_of(problem: str, labels: list, names: tuple[str, ...] | None) -> Sets:
    examples = [
        Example(str(n), n, "q?", ("a", "b") if names is None else None, label) for n, label in enumerate(labels)
    ]
    data = TaskData(problem, [f"document {n}" for n in range(len(labels))], examples, names, "here")
    return Sets(data, data)


def whitened_means(vectors: TaskVectors) -> np.ndarray:
    mean, weight = fit_whitening(vectors.documents)
    rows = [nn.functional.normalize((chunks - mean) @ weight.T, dim=1).mean(dim=0) for chunks in vectors.documents]
    return torch.stack(rows).numpy()


def test_the_means_beside_a_classifier():
    vectors = {"train": vectors_of(20, 0), "validation": vectors_of(20, 1)}
    sets = sets_of("single_label_classification", [0, 1] * 10, ("low", "high"))
    rows = control_rows(sets, vectors)
    assert list(rows) == ["mean of the chunk vectors, logistic regression", "whitened mean, logistic regression"]
    assert min(row["accuracy"] for row in rows.values()) > 0.9
    shuffled = [0, 0, 1, 1] * 5  # nothing in the vectors tells them apart
    assert max(row["accuracy"] for row in control_rows(sets_of("single_label_classification", shuffled, ("a", "b")),
                                                       vectors).values()) < 0.9  # fmt: skip
    single = sets_of("single_label_classification", [0] * 19 + [1], ("low", "high"))
    assert control_rows(single, vectors) == {}


def test_a_logistic_regression_in_more_dimensions_than_examples(monkeypatch):
    """It is fitted in the span of the examples, and gives what the solver gives in all dimensions."""
    draw, sizes, fit = np.random.default_rng(0), [], LogisticRegressionCV.fit
    labels = [number % 3 for number in range(24)]
    train = sets_of("single_label_classification", labels, ("a", "b", "c")).train
    features, others = draw.normal(size=(24, 90)) + np.eye(3, 90)[labels], draw.normal(size=(5, 90))
    exact = functools.partial(LogisticRegressionCV, tol=1e-10)  # else the solver stops at other points
    monkeypatch.setattr("sklearn.linear_model.LogisticRegressionCV", exact)
    options = {"cv": 5, "max_iter": 1000, "scoring": "neg_log_loss", "l1_ratios": (0.0,)}
    expected = exact(Cs=np.logspace(0, 4, 5), use_legacy_attributes=False, **options)
    expected = expected.fit(features, labels).predict_log_proba(others)
    monkeypatch.setattr(
        LogisticRegressionCV, "fit", lambda self, *data: sizes.append(data[0].shape) or fit(self, *data)
    )
    kind, logits = fit_regression(train, features, others)
    assert (kind, sizes) == ("logistic regression", [(24, 24)])
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_documents_share_a_product(monkeypatch):
    vectors, calls = vectors_of(20, 0), []
    change = lambda rows: calls.append(len(rows)) or 2 * rows  # noqa: E731
    monkeypatch.setattr(controls, "_ROWS_PER_PRODUCT", 30)
    expected = torch.stack([2 * rows.mean(dim=0) for rows in vectors.documents])
    torch.testing.assert_close(_means(vectors, change), expected)
    assert calls == [32, 32, 16]


def test_the_means_beside_several_labels_and_values():
    vectors = {"train": vectors_of(20, 0), "validation": vectors_of(20, 1)}
    several = control_rows(sets_of("multi_label_classification", [(0,), (0, 1)] * 10, ("all", "high")), vectors)
    assert list(several) == ["mean of the chunk vectors, ridge regression", "whitened mean, ridge regression"]
    assert min(row["accuracy"] for row in several.values()) > 0.9
    values = [0.5 * (number % 2) for number in range(20)]
    found = control_rows(sets_of("regression", values, None), vectors)
    train, reported = (
        torch.stack([chunks.mean(dim=0) for chunks in vectors[name].documents]).numpy().astype(float)
        for name in ("train", "validation")
    )
    expected = RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(train, values).predict(reported)
    row = found["mean of the chunk vectors, ridge regression"]
    assert row["mse"] == pytest.approx(np.mean((expected - values) ** 2))


def test_the_candidate_that_is_nearest_to_the_mean():
    vectors = {"train": vectors_of(6, 0, pairs=2)}
    vectors["validation"] = vectors["train"]
    means = torch.stack([chunks.mean(dim=0) for chunks in vectors["train"].documents]).numpy()
    white, (centre, weight) = whitened_means(vectors["train"]), fit_whitening(vectors["train"].documents)
    for title, documents, change in (
        ("mean of the chunk vectors", means, lambda pair: pair),
        ("whitened mean", white, lambda pair: (pair - centre) @ weight.T),
    ):
        pairs = [change(pair).numpy() for pair in vectors["train"].pairs]
        best = [
            int(np.argmax([row @ pair / np.linalg.norm(pair) for pair in own]))
            for row, own in zip(documents, pairs, strict=True)
        ]
        for labels, accuracy in ((best, 1.0), ([1 - label for label in best], 0.0)):
            rows = control_rows(sets_of("multiple_choice", labels, None), vectors)
            assert rows[f"candidate nearest to the {title}"]["accuracy"] == accuracy
