"""The task ``classification``: one class or several for each document, perhaps with a question."""

from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import HfArgumentParser

from ..data.words import split_terms
from ..training.runs import bind_folder, logged_run
from .arguments import FinetuningArguments
from .card import card_snippet
from .labels import SEVERAL, LabelSet
from .options import FAMILIES, MODELS, VectorModelArguments
from .run import ClassifierRun, LoadSets, PredictLogits, Reader
from .seeds import Result, Scores, report
from .token_reader import TokenReader
from .vector_reader import VectorReader

_USE = (
    "It predicts the classes below for documents of the kind that it was trained on. Check it on"
    " your own documents before decisions depend on it."
)


@logged_run()
def main(values: dict[str, Any], load_sets: LoadSets, data_name: str | None = None) -> None:
    """Trains a classifier per seed, and publishes the best one.

    Args:
        values: options by name, except those of the sets; the others have their defaults.
        load_sets: reads the data sets ``train`` and ``validation``, and perhaps ``test``, as
            `load_classes` returns them, by a seed; see `read_sets`.
        data_name: Hub name of the data set, for the card; None for files.
    """
    groups = (*MODELS[values.get("model_type", "nextlevelbert")], FinetuningArguments)
    *model_options, args = HfArgumentParser(groups).parse_dict(values)

    # 1. The sets, and the labels of the training set.
    sets = load_sets(seed=args.seed)
    run = ClassifierRun(
        task="classification",
        args=args,
        data_name=data_name,
        options=model_options,
        sets=sets,
        labels=LabelSet.of(sets["train"]),
        fit_word_counts=fit_tfidf,
    )

    # 2. What the model reads: word counts, stored chunk vectors, or tokens.
    if run.model == "tfidf":
        report_word_counts(run)
        return

    reader: Reader
    if VectorModelArguments in groups:
        reader = VectorReader(args, run.labels, *model_options)
    else:
        reader = TokenReader(args, run.labels, *model_options)

    # 3. A training per seed.
    results = run.train(reader)

    # 4. The table, and the model of the best seed with its card.
    pair = ""
    if "question" in sets["train"].features and reader.family in FAMILIES:
        pair = '["a question about it"]'

    run.publish(
        results,
        reader,
        intended_use=_USE,
        snippet=card_snippet("AutoModelForSequenceClassification", reader.family, pair=pair),
        pipeline_tag="text-classification",
    )


# --- The baseline that needs no encoder


def report_word_counts(run: ClassifierRun) -> None:
    """Scores word counts on all sets but the training set, and writes their predictions."""
    bind_folder(run.args.output_dir, run.settings())
    folder = Path(run.args.output_dir) / "seed-0"
    scores: dict[str, Scores] = {}
    predict = fit_tfidf(run.sets["train"], run.labels)
    for name, dataset in run.sets.items():
        if name != "train":
            scores |= run.score(name, predict(dataset), folder)

    if run.args.should_save:
        report(
            run.args,
            [Result(seed=0, scores=scores)],
            run.reported,
            name=run.model,
            baselines={"most frequent label": run.majority_scores(run.reported)},
            metric="accuracy",
        )


def fit_tfidf(train: Dataset, labels: LabelSet) -> PredictLogits:
    """Fits word counts and logistic regression to documents, with scikit-learn.

    The features are sublinear TF-IDF over words and pairs of words in at least two training
    documents, a question before its document; the regularisation is chosen by cross-validation.

    Returns:
        Function that computes log-probabilities ``[N, K]`` of a set; if documents may have several
        labels, log-odds, because each class has its own classifier.

    Raises:
        ValueError: for a class with fewer than two training examples, or documents without a common
            word.
    """
    from scipy.special import logit
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    several = labels.problem_type == SEVERAL
    truth = labels.array(train["label"])  # [N] or [N, K]
    classifier: Any = LogisticRegressionCV(
        Cs=[0.1, 1.0, 10.0, 100.0, 1000.0],
        cv=_folds(truth),
        max_iter=1000,
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    if several:
        classifier = OneVsRestClassifier(classifier)

    words = TfidfVectorizer(
        tokenizer=split_terms,
        token_pattern=None,
        sublinear_tf=True,
        ngram_range=(1, 2),
        min_df=2,
    )
    pipeline = make_pipeline(words, classifier)
    pipeline.fit(_texts_with_questions(train), truth)

    def predict(dataset: Dataset) -> np.ndarray:
        texts = _texts_with_questions(dataset)
        if several:
            # scikit-learn adds a column in front for the absence of a single class.
            return logit(pipeline.predict_proba(texts))[:, -len(labels.names) :]
        scores = np.full((len(texts), len(labels.names)), -np.inf)
        scores[:, np.unique(truth)] = pipeline.predict_log_proba(texts)
        return scores

    return predict


def _texts_with_questions(dataset: Dataset) -> list[str]:
    return [f"{row.get('question', '')} {row['text']}" for row in dataset]


def _folds(labels: np.ndarray) -> int:
    """Returns the number of folds of cross-validation: at most five, and each has all classes."""
    columns = [labels]
    if labels.ndim == 2:
        columns = [column for column in labels.T if len(set(column)) == 2]

    folds = 5
    for column in columns:
        _, counts = np.unique(column, return_counts=True)
        folds = min(folds, int(counts.min()))

    if folds < 2:
        raise ValueError("TF-IDF needs at least two training examples of every class.")

    return folds
