"""Retrieval in the script."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from nextlevelbert import NextLevelBertModel

from ..finetuning_toys import BREAD, SEA, predictions, start, write


def test_retrieval_by_the_script(toy_checkpoint, tmp_path):
    pairs = [{"query": f"the {word}", "document": f"The {word} of the {word}. " * 9} for word in (*SEA, *BREAD)]
    options = {"--test_file": write(tmp_path / "pairs.jsonl", pairs)}
    for model in ("bm25", "tfidf", toy_checkpoint):
        start(tmp_path / Path(model).name, model, task="retrieval", **options)
    scores = json.loads((tmp_path / "bm25" / "results.json").read_text())["scores"]
    assert scores["mrr"] == 1.0
    assert scores["queries"] == 10
    [line, *_] = predictions(tmp_path / "toy" / "predictions.jsonl")
    model = NextLevelBertModel.from_pretrained(toy_checkpoint)
    query = model.encode(pairs[0]["query"]).document
    cosines = [torch.cosine_similarity(query, model.encode(pair["document"]).document, dim=0) for pair in pairs]
    assert line == {
        "query": "query-000000",
        "ranks_of_relevant_documents": [1 + sum(bool(other > cosines[0]) for other in cosines)],
    }
    assert (tmp_path / "toy" / "mrr_by_length.png").read_bytes().startswith(b"\x89PNG")
