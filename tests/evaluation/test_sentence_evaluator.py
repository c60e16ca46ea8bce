"""The evaluator of sentence-transformers for long documents, by itself and in its trainer."""

from __future__ import annotations

import csv

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from nextlevelbert import NextLevelBertModel
from nextlevelbert.evaluation import (
    RetrievalTask,
    chunk_similarity,
    ndcg,
    rank_by_scores,
    rank_documents,
    retrieval_scores,
    run_by_scores,
    run_documents,
)
from nextlevelbert.evaluation.sentence_evaluator import LongDocumentRetrievalEvaluator


@pytest.fixture(scope="module")
def sentence_transformer(toy_encoder_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("retriever")
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=8).save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def words_task() -> RetrievalTask:
    """Documents of several chunks; each query is a word that its document repeats, among others."""
    words = ["whale", "ball", "ship", "letter", "moor", "attic", "castle", "train"]
    documents = {f"d{number}": f"{word} and then. " * 12 for number, word in enumerate(words)}
    queries = {f"q{number}": f"the {word}" for number, word in enumerate(words)}
    return RetrievalTask("words", queries, documents, {f"q{n}": {f"d{n}": 1} for n in range(len(words))})


def test_the_evaluator(sentence_transformer, words_task, tmp_path, caplog):
    evaluator = LongDocumentRetrievalEvaluator(words_task, k=3, batch_size=4)
    metrics = evaluator(sentence_transformer, str(tmp_path / "eval"), epoch=1, steps=20)
    queries = sentence_transformer.encode(list(words_task.queries.values()))
    documents = sentence_transformer.encode(list(words_task.documents.values()))
    own = retrieval_scores(rank_documents(words_task, queries, documents), k=3)
    own["ndcg@3"] = ndcg(words_task, run_documents(words_task, queries, documents), 3)
    assert metrics == pytest.approx({f"words_{name}": value for name, value in own.items()})
    assert evaluator.primary_metric == "words_mrr"
    assert 0 < metrics["words_mrr"] < 1
    evaluator(sentence_transformer, str(tmp_path / "eval"), epoch=2, steps=40)
    with open(tmp_path / "eval" / evaluator.csv_file, newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["epoch"], line["steps"]) for line in lines] == [("1", "20"), ("2", "40")]
    assert float(lines[0]["mrr@3"]) == own["mrr@3"]
    assert "cut" not in caplog.text


@pytest.mark.parametrize("score", ["chunks", "maxsim", "both"])
def test_the_evaluator_by_chunks(score, sentence_transformer, toy_encoder_path, words_task):
    metrics = LongDocumentRetrievalEvaluator(words_task, k=3, score=score, top_chunks=2)(sentence_transformer)
    inside = sentence_transformer[0].model
    sides = [inside.encode(list(texts.values())) for texts in (words_task.queries, words_task.documents)]
    found = chunk_similarity(
        *([book.chunks for book in side] for side in sides), "maxsim" if score == "maxsim" else "nearest", 2
    )
    if score == "both":
        one, other = (torch.stack([book.document for book in side]) for side in sides)
        found = (found + torch.cosine_similarity(one[:, None], other[None], dim=2)).round(decimals=6)
    own = retrieval_scores(rank_by_scores(words_task, found.numpy()), k=3)
    own["ndcg@3"] = ndcg(words_task, run_by_scores(words_task, found.numpy()), 3)
    assert metrics == pytest.approx({f"words_{name}": value for name, value in own.items()})
    assert 0 < metrics["words_mrr"] < 1
    with pytest.raises(ValueError, match="needs the chunk vectors of a NextLevelBERT or HATE"):
        LongDocumentRetrievalEvaluator(words_task, score=score)(SentenceTransformer(toy_encoder_path, device="cpu"))
    with pytest.raises(ValueError, match="document, chunks, maxsim or both, got 'best'"):
        LongDocumentRetrievalEvaluator(words_task, score="best")


def test_a_model_that_cuts_is_named(toy_encoder_path, words_task, caplog):
    model = SentenceTransformer(toy_encoder_path, device="cpu")
    model.max_seq_length = 36  # and each document has 36 words
    LongDocumentRetrievalEvaluator(words_task)(model)
    assert "cut" not in caplog.text
    model.max_seq_length = 16
    LongDocumentRetrievalEvaluator(words_task)(model)
    assert "reads at most 16 tokens of a text" in caplog.text
    assert "at least 8 of the 16 texts of task words are truncated" in caplog.text


def test_the_evaluator_in_the_trainer(toy_encoder_path, words_task, tmp_path):
    model = SentenceTransformer(toy_encoder_path, device="cpu")
    pairs = Dataset.from_dict(
        {"anchor": list(words_task.queries.values()), "positive": list(words_task.documents.values())}
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, use_cpu=True, eval_strategy="steps",
        eval_steps=1, save_steps=1, learning_rate=1e-3, load_best_model_at_end=True, disable_tqdm=True,
        metric_for_best_model="eval_words_mrr", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model),
        evaluator=LongDocumentRetrievalEvaluator(words_task),
    )  # fmt: skip
    trainer.train()
    logged = [entry["eval_words_mrr"] for entry in trainer.state.log_history if "eval_words_mrr" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == max(logged)
    assert (tmp_path / "eval/Long-Document-Retrieval_evaluation_words@10_results.csv").exists()
