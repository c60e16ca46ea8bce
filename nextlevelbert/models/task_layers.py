"""What the heads for tasks share: a document beside its question, and a small classifier over both."""

from __future__ import annotations

import torch
from torch import nn


class TaskClassifier(nn.Sequential):
    """Linear, ReLU, Linear over [document vector ; encoded question] (paper, section 4.1 "Experimental Setup")."""

    def __init__(self, in_features: int, hidden_size: int, out_features: int) -> None:
        super().__init__(nn.Linear(in_features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, out_features))


def concatenate_pairs(
    documents: torch.Tensor, pairs: torch.Tensor | None, document_index: torch.Tensor | None
) -> torch.Tensor:
    """Puts each document's vector beside the vectors of its questions.

    Args:
        documents: ``[B, D]`` document vectors.
        pairs: ``[N, D]`` vectors of questions or ``[N, C, D]`` of candidates; None where the document stands alone.
        document_index: ``[N]``, the document of each question; None where N = B and they stand in order.

    Returns:
        ``[N, D]`` alone, ``[N, 2D]`` beside questions, ``[N, C, 2D]`` beside candidates.

    Raises:
        ValueError: for an index outside the documents, or numbers that do not fit each other.
    """
    if document_index is not None:
        outside = (document_index < 0) | (document_index >= len(documents))
        if document_index.ndim != 1 or len(document_index) == 0 or outside.any():
            raise ValueError(
                f"document_index must be [N] numbers from 0 to {len(documents) - 1}, the documents of this batch, "
                f"and at least one; got {document_index.tolist()}."
            )
        documents = documents[document_index]  # [N, D]
    if pairs is None:
        return documents
    if len(pairs) != len(documents):
        raise ValueError(
            f"{len(pairs)} questions beside {len(documents)} documents: give one for each, or document_index [N] with "
            "the document that each question is about."
        )
    if pairs.ndim == 3:
        documents = documents.unsqueeze(1).expand(-1, pairs.shape[1], -1)  # [N, C, D]
    return torch.cat([documents, pairs.to(documents.dtype)], dim=-1)


def split_pair(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None, token_type_ids: torch.Tensor, prefix: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Masks ``[B, T]`` of document and question in ids that a tokenizer made of a pair.

    Args:
        input_ids: ``[B, T]``: [CLS] document [SEP] question [SEP].
        attention_mask: ``[B, T]``, zero at padding.
        token_type_ids: ``[B, T]``, 1 at the question.
        prefix: special tokens in front, which belong to both.
    """
    mask = torch.ones_like(input_ids).bool() if attention_mask is None else attention_mask.bool()
    question = mask & (token_type_ids == 1)
    return mask & ~question, question | (mask & (mask.cumsum(dim=1) <= prefix))


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str | None) -> None:
    """Looks at labels before a loss function fails on them less kindly, or computes something else.

    Args:
        labels: ``[N]`` class numbers or values, or ``[N, K]`` zeros and ones.
        logits: ``[N, K]``.
        problem_type: as in transformers; guessed from K and the labels' dtype where it is None.

    Raises:
        ValueError: naming the rows and what is allowed there.
    """
    classes = logits.shape[-1]
    floating = labels.is_floating_point()
    kind = problem_type or (
        "regression"
        if classes == 1
        else "multi_label_classification"
        if floating or labels.ndim == 2
        else "single_label_classification"
    )
    if kind == "regression":
        if labels.numel() != logits.numel():
            raise ValueError(f"Regression wants {tuple(logits.shape)} values as labels, got {tuple(labels.shape)}.")
        bad = ~torch.isfinite(labels.float()).reshape(len(logits), -1).all(dim=1)
        wanted = "finite numbers"
    elif kind == "multi_label_classification":
        if labels.shape != logits.shape or not floating:
            raise ValueError(
                f"Several labels a row are floats {tuple(logits.shape)}, one column a class, got {labels.dtype} "
                f"{tuple(labels.shape)}."
            )
        bad = ((labels < 0) | (labels > 1) | labels.isnan()).any(dim=1)
        wanted = "from 0 to 1"
    else:
        if labels.shape != logits.shape[:1] or labels.dtype != torch.long:
            raise ValueError(
                f"labels must be integers [{len(logits)}] (torch.int64), got {labels.dtype} {tuple(labels.shape)}."
            )
        bad = ((labels < 0) | (labels >= classes)) & (labels != -100)  # -100: not counted, as everywhere in torch
        wanted = f"from 0 to {classes - 1} (or -100: not counted)"
    if bad.any():
        rows = bad.nonzero().flatten().tolist()
        raise ValueError(
            f"labels of rows {rows} must be {wanted}, got {labels[bad].tolist()}; set num_labels to the number of "
            "classes when the model is loaded."
        )


def check_sentence_labels(labels: torch.Tensor, sentences: torch.Tensor) -> torch.Tensor:
    """Where sentences have a label, ``[B, S]`` bool.

    Args:
        labels: ``[B, S]``, 0 or 1, -100 where unknown.
        sentences: ``[B, S]`` bool, true where there is one.

    Raises:
        ValueError: for labels of another shape or with other values, a label where there is no sentence, or none at
            all.
    """
    if labels.shape != sentences.shape:
        raise ValueError(
            f"labels must be {tuple(sentences.shape)}, one a sentence of the longest document, got "
            f"{tuple(labels.shape)}; fill up with -100."
        )
    known = labels != -100
    bad = known & ((labels != 0) & (labels != 1) | ~sentences)
    if bad.any() or not known.any():
        documents = bad.any(dim=1).nonzero().flatten().tolist()
        wrong = f"documents {documents} have others" if documents else "there is none but -100"
        raise ValueError(
            "labels must be 1 for sentences of the summary, 0 for others, and -100 where unknown or behind a "
            f"document's last sentence; {wrong}."
        )
    return known
