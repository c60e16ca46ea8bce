"""Baselines of classification: the mean of the chunk vectors, and word counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from ..models.chunk_encoder import masked_mean
from ..models.modeling_nextlevelbert import TaskClassifier, concatenate_pairs
from ..models.pretrained import classification_loss
from .labelled_documents import LabelledDocuments


class MeanClassifier(nn.Module):
    """Avg. SBERT: the classifier of our heads over the plain mean of the chunk vectors; SBERT over the first alone.

    With `pair`, documents come with questions, or (`choice`) with choices, which gives logits ``[N, C]``.
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(self, hidden_size: int, outputs: int, pair: bool, choice: bool, problem_type: str) -> None:
        super().__init__()
        self.choice, self.problem_type = choice, problem_type
        self.classifier = TaskClassifier(hidden_size * (2 if pair else 1), 768, outputs)
        for parameter in self.classifier.parameters():  # as the heads start
            nn.init.normal_(parameter, std=0.02) if parameter.ndim == 2 else nn.init.zeros_(parameter)

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor, pair_embeds: torch.Tensor | None = None,
        document_index: torch.Tensor | None = None, labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:  # fmt: skip
        """As `NextLevelBertForSequenceClassification` and `NextLevelBertForMultipleChoice`."""
        documents = masked_mean(inputs_embeds, attention_mask)  # [B, D]
        logits = self.classifier(concatenate_pairs(documents, pair_embeds, document_index))  # [N, K] or [N, C, 1]
        logits = logits.squeeze(-1) if self.choice else logits
        config = PreTrainedConfig(num_labels=logits.shape[-1], problem_type=self.problem_type)
        loss = None if labels is None else classification_loss(logits, labels, config)
        return SequenceClassifierOutput(loss, logits)


def tfidf(sets: Mapping[str, LabelledDocuments]) -> dict[str, np.ndarray]:
    """Word counts and logistic regression, by scikit-learn: the baseline that needs no encoder.

    Sublinear TF-IDF over words and pairs of words in at least two training documents, a question before its document;
    the regularisation is chosen by cross-validation. Several labels have a classifier for each class.

    Returns:
        For each set but ``"train"`` log-probabilities ``[N, K]``; with several labels, log-odds.
    """
    from scipy.special import logit
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline

    train = sets["train"]
    if train.problem_type == "regression":
        raise ValueError("--model tfidf classifies, and the labels are values; give another --model.")
    several, labels = train.problem_type == "multi_label_classification", train.labels()  # [N] or [N, K]
    columns = [column for column in labels.T if len(set(column)) == 2] if several else [labels]
    folds = min([5, *(int(np.unique(column, return_counts=True)[1].min()) for column in columns)])
    if folds < 2:
        raise ValueError("--model tfidf needs at least two training examples of every class.")
    classifier: Any = LogisticRegressionCV(
        Cs=[0.1, 1.0, 10.0, 100.0, 1000.0], cv=folds, max_iter=1000, scoring="neg_log_loss", l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )  # fmt: skip
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
    pipeline = make_pipeline(words, OneVsRestClassifier(classifier) if several else classifier)
    texts = {name: [f"{row.question or ''} {row.text}" for row in data.examples] for name, data in sets.items()}
    pipeline.fit(texts.pop("train"), labels)
    if several:
        return {name: logit(pipeline.predict_proba(rows)) for name, rows in texts.items()}
    scores = {name: np.full((len(rows), len(train.label_names or ())), -np.inf) for name, rows in texts.items()}
    for name, rows in texts.items():
        scores[name][:, np.unique(labels)] = pipeline.predict_log_proba(rows)
    return scores
