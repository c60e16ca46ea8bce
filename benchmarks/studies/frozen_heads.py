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
from collections.abc import Iterable
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
        axes, _ = np.linalg.qr(train.T)
        train = train @ axes
        test = test @ axes
    return classifier(np.logspace(0, 4, 5)).fit(train, labels).predict_proba(test)


def counted(train: list[str], labels: np.ndarray, test: list[str]) -> np.ndarray:
    """Predicts probabilities ``[M, K]`` by TF-IDF of words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
    pipeline = make_pipeline(words, classifier(np.logspace(-1, 3, 5)))
    return pipeline.fit(train, labels).predict_proba(test)


def stacked(vectors: Iterable[torch.Tensor]) -> np.ndarray:
    return torch.stack(list(vectors)).double().numpy()


def checkpoint_vectors(path: str, texts: list[str], args: Namespace) -> dict[str, np.ndarray]:
    """Encodes texts with a checkpoint: its own vectors, and means of its chunk vectors."""
    model = NextLevelBertModel.from_pretrained(path).eval()
    chunk_encoder = None
    if model.chunk_encoder is None:
        chunk_encoder = CachedEncoder(load_chunk_encoder(args.encoder).encoder, args.cache)
    books = model.encode(texts, chunk_encoder=chunk_encoder)
    plain = [book.plain.float() for book in books]
    name = Path(path).name
    return {
        name: stacked(book.document for book in books),
        f"{name}: mean of its chunk vectors": stacked(chunks.mean(dim=0) for chunks in plain),
        f"{name}: their whitened mean": stacked(
            model.prepare_chunks(chunks).mean(dim=0) for chunks in plain
        ),
    }


def fitted_vectors(path: str, train: list[str], texts: list[str]) -> np.ndarray:
    """Encodes texts with what `fit` makes of the training documents."""
    with tempfile.TemporaryDirectory() as folder:
        source = load_chunk_encoder(path)
        counts = fit_tfidf_encoder(source, train, f"{folder}/words", hidden_size=PLACES)
        both = combine_chunk_encoders(
            [source, counts],
            train,
            f"{folder}/both",
            weights=[STATIC_SHARE**0.5, (1 - STATIC_SHARE) ** 0.5],
            whiten=[True, False],
        )
        model = NextLevelBertModel.from_chunk_encoder(both, num_hidden_layers=0, pooling="plain")
        return stacked(book.document for book in model.encode(texts))


def vectors_of(train: list[str], test: list[str], args: Namespace) -> dict[str, np.ndarray]:
    """Encodes the documents of both sets, ``[N + M, D]``, by row of the table."""
    texts = [*train, *test]
    vectors: dict[str, np.ndarray] = {}
    for path in args.model:
        vectors |= checkpoint_vectors(path, texts, args)
    vectors["fit, to the training documents"] = fitted_vectors(args.model[0], train, texts)
    if args.encoder:
        from sentence_transformers import SentenceTransformer

        vectors["the first tokens"] = SentenceTransformer(args.encoder).encode(texts).astype(float)
    return vectors


def read_columns(path: Path) -> tuple[list[str], np.ndarray]:
    """Reads texts and labels."""
    rows = [row for _, row in open_rows(path).rows]
    return [row["text"] for row in rows], np.array([row["label"] for row in rows])


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
    measuring.add_json_option(parser)
    args = parser.parse_args()

    train, labels = read_columns(args.train_file)
    test, truth = read_columns(args.test_file)
    words = counted(train, labels, test)
    scores_of = {"TF-IDF": words}
    for name, vectors in vectors_of(train, test, args).items():
        scores_of[name] = probabilities(vectors[: len(train)], labels, vectors[len(train) :])
        scores_of[f"{name} + TF-IDF"] = scores_of[name] + words

    classes = np.unique(labels)
    figures = {}
    for name, scores in scores_of.items():
        right = (classes[scores.argmax(axis=1)] == truth).astype(float)
        accuracy = measuring.with_interval(right, np.arange(len(test)), seed=0)
        figures[name] = {"accuracy": accuracy}
    measuring.print_header("float32", f"{len(train)} documents to train with, {len(test)} to test")
    measuring.write_figures(args.json, figures, train=len(train), test=len(test))


if __name__ == "__main__":
    main()
