"""A checkpoint goes through `mteb.evaluate` as it is, and gets the scores that ours say it has."""

from __future__ import annotations

from itertools import islice

import mteb
import pytest
import torch
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel
from nextlevelbert.data.documents import python_manual
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores


def manual_task() -> RetrievalTask:
    """Both ends of twenty pages of Python's manual; each first end is a query for the second ends of two pages."""
    by_end = {page.text[-1_200:]: page.text for page in islice(python_manual(1_500), 30)}  # some end alike: a tie
    pages = list(by_end.values())[:20]
    return RetrievalTask(
        "manual",
        {f"q{number}": page[:200] for number, page in enumerate(pages)},
        {f"d{number}": page[-1_200:] for number, page in enumerate(pages)},
        {f"q{number}": {f"d{number}": 1, f"d{(number + 1) % 20}": 1} for number in range(20)},
    )


class ManualRetrieval(AbsTaskRetrieval):
    """The same task as mteb wants it, with data that need no Hub."""

    metadata = TaskMetadata(
        name="ManualRetrieval",
        dataset={"path": "local/none", "revision": "1"},
        description="The end of a page of Python's manual from its beginning.",
        reference="https://docs.python.org",
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="map_at_100",
    )

    def load_data(self, **kwargs) -> None:
        task = manual_task()
        self.queries = {"test": dict(task.queries)}
        self.corpus = {"test": dict(task.documents)}
        self.relevant_docs = {"test": {query: dict(found) for query, found in task.relevant.items()}}
        self.data_loaded = True


@pytest.fixture(scope="module")
def model(toy_encoder_path, tmp_path_factory) -> SentenceTransformer:
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).save_pretrained(folder)
    return SentenceTransformer(str(folder), device="cpu")


def test_mteb_scores_a_checkpoint_as_we_do(model):
    task = manual_task()
    lengths = [plan.chunks for plan in model[0].auto_model.plan(list(task.documents.values()))]
    assert min(lengths) > 10
    result = mteb.evaluate(model, ManualRetrieval(), cache=None, show_progress_bar=False)
    [theirs] = result.task_results[0].scores["test"]
    queries, documents = (model.encode(list(texts.values())) for texts in (task.queries, task.documents))
    ours = retrieval_scores(rank_documents(task, queries, documents))
    assert {
        "mrr": theirs["mrr_at_20"],  # of twenty documents
        "mrr@10": theirs["mrr_at_10"],
        "hit_rate@10": theirs["hit_rate_at_10"],
        "map": theirs["map_at_20"],
        "recall@10": theirs["recall_at_10"],
    } == pytest.approx({name: ours[name] for name in ("mrr", "mrr@10", "hit_rate@10", "map", "recall@10")}, abs=1e-5)
    assert theirs["main_score"] == pytest.approx(ours["map"], abs=1e-5)
    assert 0.05 < ours["map"] < 0.95
