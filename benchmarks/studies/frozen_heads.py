"""One head for every kind of frozen document vector: logistic regression, its strength chosen by
cross-validation.

    python -m benchmarks.studies.frozen_heads --train_file train.jsonl --test_file test.jsonl \\
        --model nextlevelbert/static --encoder sentence-transformers/all-MiniLM-L6-v2

Rows: each model; the mean of its chunk vectors, plain and whitened; `fit`'s model of the training
documents, over the first model's chunk encoder; the first tokens that a sentence encoder reads;
TF-IDF of words and pairs of words; and each with TF-IDF, by the sum of the probabilities of both
heads. Accuracies with 95 % over the test documents. Columns ``text`` and ``label``.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import measuring
from nextlevelbert import CachedEncoder, NextLevelBertModel, load_chunk_encoder
from nextlevelbert.data.tables import open_rows
from nextlevelbert.fitting import combine_chunk_encoders, fit_tfidf_encoder
from nextlevelbert.search.fit import PLACES, STATIC_SHARE


def classifier(strengths: np.ndarray) -> Any:
    from sklearn.linear_model import LogisticRegressionCV

    options = {"l1_ratios": (0.0,), "use_legacy_attributes": False}
    return LogisticRegressionCV(
        Cs=strengths, cv=5, max_iter=1000, scoring="neg_log_loss", **options
    )


def probabilities(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Predicts probabilities ``[M, K]`` by logistic regression of vectors ``[N, D]``."""
    if train.shape[1] > len(train):  # the optimum lies in the span of the training examples
        axes = np.linalg.qr(train.T)[0]
        train, test = train @ axes, test @ axes
    return classifier(np.logspace(0, 4, 5)).fit(train, labels).predict_proba(test)


def counted(train: list[str], labels: np.ndarray, test: list[str]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
    return (
        make_pipeline(words, classifier(np.logspace(-1, 3, 5)))
        .fit(train, labels)
        .predict_proba(test)
    )


def vectors_of(train: list[str], test: list[str], args: Namespace) -> dict[str, np.ndarray]:
    """Encodes the documents of both sets, ``[N + M, D]``, by row of the table."""
    vectors: dict[str, np.ndarray] = {}
    for path in args.model:
        model = NextLevelBertModel.from_pretrained(path).eval()
        chunk_encoder = None
        if model.chunk_encoder is None:
            chunk_encoder = CachedEncoder(load_chunk_encoder(args.encoder).encoder, args.cache)
        books = model.encode([*train, *test], chunk_encoder=chunk_encoder)
        vectors[Path(path).name] = torch.stack([book.document for book in books]).double().numpy()
        means = torch.stack([book.plain.float().mean(dim=0) for book in books])
        vectors[f"{Path(path).name}: mean of its chunk vectors"] = means.double().numpy()
        whitened = [model.prepare_chunks(book.plain.float()).mean(dim=0) for book in books]
        vectors[f"{Path(path).name}: their whitened mean"] = torch.stack(whitened).double().numpy()
    with tempfile.TemporaryDirectory() as folder:
        source = load_chunk_encoder(args.model[0])
        counts = fit_tfidf_encoder(source, train, f"{folder}/words", hidden_size=PLACES)
        weights = [STATIC_SHARE**0.5, (1 - STATIC_SHARE) ** 0.5]
        both = combine_chunk_encoders(
            [source, counts], train, f"{folder}/both", weights, whiten=[True, False]
        )
        fitted = NextLevelBertModel.from_chunk_encoder(both, num_hidden_layers=0, pooling="plain")
        documents = [book.document for book in fitted.encode([*train, *test])]
        vectors["fit, to the training documents"] = torch.stack(documents).double().numpy()
    if args.encoder:
        from sentence_transformers import SentenceTransformer

        vectors["the first tokens"] = (
            SentenceTransformer(args.encoder).encode([*train, *test]).astype(float)
        )
    return vectors


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=Path, required=True)
    parser.add_argument("--test_file", type=Path, required=True)
    parser.add_argument(
        "--model", nargs="+", required=True, help="folders of NextLevelBERT checkpoints"
    )
    parser.add_argument(
        "--encoder", help="a sentence encoder: for models without one, and for its first tokens"
    )
    parser.add_argument("--cache", type=Path, help="folder for the encoder's chunk vectors")
    parser.add_argument("--most", type=int, help="training documents, in a fixed random order")
    measuring.add_json_option(parser)
    args = parser.parse_args()
    rows = [[row for _, row in open_rows(path).rows] for path in (args.train_file, args.test_file)]
    if args.most is not None:
        np.random.default_rng(0).shuffle(rows[0])
        rows[0] = rows[0][: args.most]
    train, test = ([row["text"] for row in part] for part in rows)
    labels, truth = (np.array([row["label"] for row in part]) for part in rows)
    vectors = vectors_of(train, test, args)
    words = counted(train, labels, test)
    scores_of = {"TF-IDF": words}
    for name, part in vectors.items():
        scores_of[name] = probabilities(part[: len(train)], labels, part[len(train) :])
        scores_of[f"{name} + TF-IDF"] = scores_of[name] + words
    classes, alone = np.unique(labels), np.arange(len(test))
    figures = {}
    table = []
    for name, scores in scores_of.items():
        right = (classes[scores.argmax(axis=1)] == truth).astype(float)
        accuracy = measuring.with_interval(right, alone, 0)
        figures[name] = {"accuracy": accuracy}
        table.append([name, "{:.3f} ({:.3f} to {:.3f})".format(*accuracy)])
    measuring.write_figures(args.json, figures, train=len(train), test=len(test))
    measuring.print_header(
        "float32", f"{len(train)} documents to train with, {len(test)} to report on"
    )
    measuring.print_table(
        ["", "accuracy"], sorted(table, key=lambda row: str(row[1]), reverse=True)
    )


if __name__ == "__main__":
    main()
