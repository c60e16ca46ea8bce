"""The task ``multiple_choice``: chooses among candidate answers to a question about a document."""

from typing import Any

import numpy as np
from datasets import Dataset
from transformers import HfArgumentParser

from ..data.sets import distinct_texts
from ..data.words import split_terms
from ..training.runs import logged_run
from .arguments import FinetuningArguments
from .card import card_snippet
from .labels import LabelSet, pair_texts
from .options import VectorModelArguments
from .run import ClassifierRun, LoadSets, PredictLogits
from .vector_reader import VectorReader

_USE = (
    "It chooses among candidate answers to a question about a document of the kind that it was"
    " trained on. It chooses one even if none is right."
)
_SNIPPET_PAIR = '["the question? one answer", "the question? another"]'


@logged_run()
def main(values: dict[str, Any], load_sets: LoadSets, data_name: str | None = None) -> None:
    """Trains a model per seed to choose among answers, and publishes the best one.

    Args:
        values: options by name, except those of the sets; the others have their defaults.
        load_sets: reads the data sets ``train`` and ``validation``, and perhaps ``test``, as
            `load_choices` returns them, by a seed; see `read_sets`.
        data_name: Hub name of the data set, for the card; None for files.
    """
    groups = (VectorModelArguments, FinetuningArguments)
    model_args, args = HfArgumentParser(groups).parse_dict(values)

    # 1. The sets, and the choices of the training set.
    sets = load_sets(seed=args.seed)
    run = ClassifierRun(
        task="multiple_choice",
        args=args,
        data_name=data_name,
        options=[model_args],
        sets=sets,
        labels=LabelSet.of(sets["train"]),
        fit_word_counts=fit_tfidf,
    )

    # 2. What the model reads: stored chunk vectors.
    reader = VectorReader(args, run.labels, model_args)

    # 3. A training per seed.
    results = run.train(reader)

    # 4. The table, and the model of the best seed with its card.
    snippet = card_snippet(
        "AutoModelForMultipleChoice", reader.family, pair=_SNIPPET_PAIR, axis="[None]"
    )
    run.publish(
        results,
        reader,
        intended_use=_USE,
        snippet=snippet,
        pipeline_tag="multiple-choice",
    )


def fit_tfidf(train: Dataset, labels: LabelSet) -> PredictLogits:
    """Returns a function that compares choices with their documents by word counts.

    A choice, after its question, is scored by the cosine of its TF-IDF vector and the document's
    ``[N, K]``. Labels are not used. Documents of both sets are counted, so that the names in an
    unseen story have a weight.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

    words = TfidfVectorizer(tokenizer=split_terms, token_pattern=None, sublinear_tf=True)

    def predict(dataset: Dataset) -> np.ndarray:
        texts = distinct_texts(dataset)
        words.fit(distinct_texts(train) + texts)
        vectors = words.transform(texts)  # [D, words], rows of length 1
        documents = dict(zip(texts, vectors, strict=True))

        scores = []
        for row in dataset:
            choices = words.transform(pair_texts(row))  # [K, words]
            scores.append((choices @ documents[row["text"]].T).toarray()[:, 0])

        return np.array(scores)

    return predict
