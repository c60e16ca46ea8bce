"""Records of a document for a vector database."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextlevelbert import DocumentEmbedding

FOUND = DocumentEmbedding(
    document=torch.tensor([9.0, 9.0]),
    chunks=torch.tensor([[1.0, 2.0]]),  # the second was cut off
    plain=torch.tensor([[3.0, 4.0], [5.0, 6.0]]),
    spans=np.array([[0, 4], [5, 7]]),
)


def test_records_hold_place_text_metadata_and_vector():
    first, second = FOUND.to_records("ahab", "Call me.", {"year": 1851})
    expected = {"id": "ahab#0", "document": "ahab", "start": 0, "end": 4, "text": "Call", "metadata": {"year": 1851}}
    assert first == {**expected, "vector": [3.0, 4.0]}
    assert (second["id"], second["text"], second["vector"]) == ("ahab#1", "me", [5.0, 6.0])
    assert "text" not in FOUND.to_records("ahab")[0]


def test_contextual_vectors_and_whole_documents():
    assert [record["vector"] for record in FOUND.to_records("ahab", level="chunks")] == [[1.0, 2.0]]
    [whole] = FOUND.to_records("ahab", "Call me.", level="document")
    assert (whole["id"], whole["start"], whole["end"], whole["vector"]) == ("ahab", 0, 8, [9.0, 9.0])
    with pytest.raises(ValueError, match="'plain', 'chunks' or 'document', got 'all'"):
        FOUND.to_records("ahab", level="all")
