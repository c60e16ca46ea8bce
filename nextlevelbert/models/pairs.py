"""Pairs of a document and a short text: questions, or candidates of a question.

Notation for shapes: B documents in a batch, T tokens of the longest row, N questions, C candidates
of each, D size of a chunk vector, H size of a document vector.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# The end of the error of a head whose questions or candidates are missing.
HOW_TO_PASS_PAIRS = (
    "pass pair_input_ids or pair_embeds, or token_type_ids that mark them with 1. If the tokenizer"
    " gives no such types, use DataCollatorForDocumentChoice."
)


def split_pairs(
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    prefix: Sequence[int],
) -> tuple[Tensor, Tensor] | None:
    """Splits rows [CLS] document [SEP] question [SEP], if token types mark questions with 1.

    Args:
        input_ids: token ids, ``[..., T]``.
        attention_mask: mask of the shape of `input_ids`.
        token_type_ids: types of the shape of `input_ids`.
        prefix: special tokens at the start of a row.

    Returns:
        The masks of the documents and of the questions, which also keep the special tokens at the
        start, of the shape of `input_ids`; None if no type is 1.
    """
    if input_ids is None or token_type_ids is None:
        return None

    is_question = token_type_ids == 1
    # The ids go to the CPU in any case, so that looking at the types costs no more waiting.
    if not bool(is_question.any()):
        return None

    mask = torch.ones_like(input_ids).bool()
    if attention_mask is not None:
        mask = attention_mask.bool()

    is_start = mask.cumsum(dim=-1) <= len(prefix)
    return mask & ~is_question, mask & (is_question | is_start)


def shared_documents(input_ids: Tensor, document_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the document that all candidates of a question have in common.

    Args:
        input_ids: token ids with a row for each candidate, ``[N, C, T]``.
        document_mask: bool mask ``[N, C, T]``, true at documents.

    Returns:
        Ids and mask of the documents, ``[N, T]`` each.

    Raises:
        ValueError: candidates of a question have different documents.
    """
    documents = input_ids * document_mask
    if not bool((documents == documents[:, :1]).all()):
        raise ValueError(
            "The candidates of a row have different documents. Give all of them the same document."
        )
    return input_ids[:, 0], document_mask[:, 0]


def concatenate_pairs(
    documents: Tensor, pairs: Tensor | None, document_index: Tensor | None
) -> Tensor:
    """Joins the vector of each question or candidate to the vector of its document.

    Args:
        documents: document vectors, ``[B, H]``.
        pairs: questions ``[N, D]`` or candidates ``[N, C, D]``; None if there are none.
        document_index: index of the document of each question, ``[N]`` (default: one each, in
            order).

    Returns:
        The joined vectors, ``[N, H]``, ``[N, H + D]`` or ``[N, C, H + D]``.
    """
    if document_index is not None:
        documents = documents[document_index]  # [N, H]
    if pairs is None:
        return documents
    if len(pairs) != len(documents):
        raise ValueError(
            f"{len(pairs)} questions for {len(documents)} documents. Give each question its"
            " document_index [N]."
        )

    if pairs.ndim == 3:
        documents = documents.unsqueeze(1).expand(-1, pairs.shape[1], -1)  # [N, C, H]

    return torch.cat([documents, pairs.to(documents.dtype)], dim=-1)
