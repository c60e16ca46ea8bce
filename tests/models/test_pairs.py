"""Rows of a document and a question are split, and vectors of both are joined."""

import pytest
import torch

from nextlevelbert.models.pairs import concatenate_pairs, shared_documents, split_pairs

# [CLS] 5 6 [SEP] 7 [SEP] [PAD]
IDS = torch.tensor([[1, 5, 6, 2, 7, 2, 0]])
TYPES = torch.tensor([[0, 0, 0, 0, 1, 1, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1, 0]])


def test_both_texts_of_a_row_keep_the_special_token_at_the_start():
    masks = split_pairs(IDS, MASK, TYPES, prefix=[1])

    assert masks is not None
    documents, questions = masks
    assert IDS[documents].tolist() == [1, 5, 6, 2]
    assert IDS[questions].tolist() == [1, 7, 2]


def test_a_row_without_a_question_is_no_pair():
    assert split_pairs(IDS, MASK, torch.zeros_like(TYPES), prefix=[1]) is None


def test_candidates_of_a_question_share_their_document():
    rows = torch.stack([IDS, IDS], dim=1)  # [1, 2, 7]
    documents = torch.stack([MASK, MASK], dim=1)

    ids, mask = shared_documents(rows, documents)

    assert ids.tolist() == IDS.tolist()
    assert mask.tolist() == MASK.tolist()


def test_the_vector_of_a_document_is_beside_each_of_its_questions():
    documents = torch.tensor([[1.0], [2.0]])
    questions = torch.tensor([[10.0], [20.0], [30.0]])

    joined = concatenate_pairs(documents, questions, torch.tensor([0, 1, 1]))

    assert joined.tolist() == [[1, 10], [2, 20], [2, 30]]
    with pytest.raises(ValueError, match="3 questions for 2 documents"):
        concatenate_pairs(documents, questions, None)


def test_the_vector_of_a_document_is_beside_each_candidate():
    candidates = torch.tensor([[[10.0], [20.0]]])

    joined = concatenate_pairs(torch.tensor([[1.0]]), candidates, None)

    assert joined.tolist() == [[[1, 10], [1, 20]]]
