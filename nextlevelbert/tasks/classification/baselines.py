"""Baselines: the mean of the chunk vectors, truncation, and word counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import logit
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from ...models.losses import classification_loss
from ...models.modeling_nextlevelbert import TaskClassifier, check_vectors, concatenate_pairs
from ...models.pooling import masked_mean
from .data import TaskData


class ChunkMeanClassifier(nn.Module):
    """The classifier of our task heads over the plain mean of the chunk vectors, with no encoder between.

    Over all chunks this is the paper's "Avg. SBERT"; given the first chunk only, its truncated SBERT. The
    chunk vectors stay frozen.

    Args:
        hidden_size: D, size of a chunk vector.
        problem_type: as in `TaskData`.
        num_labels: classes, or 1 for values; not used for multiple choice.
        text_pair: whether each document comes with a question.
        classifier_hidden_size: width of the hidden layer.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(
        self,
        hidden_size: int,
        problem_type: str,
        num_labels: int,
        text_pair: bool,
        classifier_hidden_size: int = 768,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.choice = problem_type == "multiple_choice"
        self.problem_type = "single_label_classification" if self.choice else problem_type
        self.num_labels = num_labels
        width = hidden_size * (2 if text_pair or self.choice else 1)
        self.classifier = TaskClassifier(width, classifier_hidden_size, 1 if self.choice else num_labels)
        for parameter in self.classifier.parameters():  # as the heads start
            nn.init.normal_(parameter, std=0.02) if parameter.ndim == 2 else nn.init.zeros_(parameter)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Arguments as those of `NextLevelBertForSequenceClassification` and `NextLevelBertForMultipleChoice`."""
        mask = check_vectors(inputs_embeds, attention_mask, self.hidden_size)
        documents = masked_mean(inputs_embeds, mask)  # [B, D]
        logits = self.classifier(concatenate_pairs(documents, pair_embeds, document_index))
        logits = logits.squeeze(-1) if self.choice else logits  # [N, C] or [N, num_labels]
        loss = None
        if labels is not None:
            config = PreTrainedConfig(num_labels=logits.shape[-1], problem_type=self.problem_type)
            loss = classification_loss(logits, labels, config)
        return SequenceClassifierOutput(loss, logits)


def tfidf_logistic_regression(train: TaskData, others: Sequence[TaskData]) -> list[np.ndarray]:
    """Word counts and a linear classifier, by scikit-learn: the baseline that needs no encoder.

    Sublinear TF-IDF over words and pairs of words that stand in at least two training documents; the
    regularisation of the logistic regression is chosen by five-fold cross-validation within the training set.
    A question is put before its document.

    With several labels a row there is one such classifier for each class; one that all or no training examples have
    is predicted for all or none.

    Args:
        train: with labels.
        others: what to predict.

    Returns:
        For each of `others` the log-probabilities ``[N, K]`` of the K classes; with several labels a row, log-odds.

    Raises:
        ValueError: for values, or a class with too few examples to choose the regularisation.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    several = train.problem_type == "multi_label_classification"
    if not several and train.problem_type != "single_label_classification":
        raise ValueError(f"The TF-IDF baseline classifies, got {train.problem_type}; use another --model.")
    labels = train.labels()  # [N] or [N, K]
    columns = [column for column in labels.T if len(set(column)) == 2] if several else [labels]
    folds = min([5, *(int(np.unique(column, return_counts=True)[1].min()) for column in columns)])
    if folds < 2:
        raise ValueError("The TF-IDF baseline needs at least two training examples of every class.")
    classifier = LogisticRegressionCV(
        Cs=[0.1, 1.0, 10.0, 100.0, 1000.0],
        cv=folds,
        max_iter=1000,
        scoring="neg_log_loss",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    if several:
        classifier = OneVsRestClassifier(classifier)
    pipeline = make_pipeline(TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2), classifier)
    pipeline.fit(_texts(train), labels)
    if several:
        return [logit(pipeline.predict_proba(_texts(data))) for data in others]
    known = np.unique(labels)
    classes = len(train.label_names or known)
    found = []
    for data in others:
        scores = np.full((len(data.examples), classes), -np.inf)
        scores[:, known] = pipeline.predict_log_proba(_texts(data))
        found.append(scores)
    return found


def _texts(data: TaskData) -> list[str]:
    return [f"{example.question or ''} {data.documents[example.document]}" for example in data.examples]
