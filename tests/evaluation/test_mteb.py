"""A checkpoint goes through `mteb.evaluate` as it is, and gets the scores that ours say it has."""

from itertools import islice

import pytest
import torch
from sentence_transformers import SentenceTransformer

from nextlevelbert import NextLevelBertModel
from nextlevelbert.data.reading import python_manual
from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores


def manual_task():
    """Both ends of twenty pages of Python's manual; each first end is a query for the second ends
    of two pages."""
    # Some pages have the same end, which would tie.
    long_pages = filter(lambda page: len(page.text) >= 1_500, python_manual())
    by_end = {page.text[-1_200:]: page.text for page in islice(long_pages, 30)}
    queries = {}
    documents = {}
    relevant = {}
    for index, page in enumerate(list(by_end.values())[:20]):
        queries[f"q{index}"] = page[:200]
        documents[f"d{index}"] = page[-1_200:]
        relevant[f"q{index}"] = {f"d{index}": 1, f"d{(index + 1) % 20}": 1}
    return RetrievalTask("manual", queries, documents, relevant)


def scores_of_mteb(model, task):
    """The same task as mteb defines one, with data that need no Hub."""
    import mteb  # here: it takes seconds

    class ManualRetrieval(mteb.abstasks.AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name="ManualRetrieval",
            description="A page from its beginning.",
            type="Retrieval",
            category="t2t",
            dataset={"path": "local/none", "revision": "1"},
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="map_at_100",
        )

        def load_data(self, **kwargs):
            self.queries = {"test": dict(task.queries)}
            self.corpus = {"test": dict(task.documents)}
            self.relevant_docs = {
                "test": {query: dict(pages) for query, pages in task.relevant.items()}
            }
            self.data_loaded = True

    results = mteb.evaluate(model, ManualRetrieval(), cache=None, show_progress_bar=False)
    return results.task_results[0].scores["test"][0]


@pytest.mark.long
def test_mteb_scores_a_checkpoint_as_we_do(toy_encoder_path, tmp_path):
    torch.manual_seed(0)
    NextLevelBertModel.from_chunk_encoder(toy_encoder_path, chunk_size=16).save_pretrained(tmp_path)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    task = manual_task()
    expected = scores_of_mteb(model, task)
    queries, documents = (
        model.encode(list(texts.values())) for texts in (task.queries, task.documents)
    )
    scores = retrieval_scores(rank_documents(task, queries, documents))
    names = {
        "mrr": "mrr_at_20",
        "mrr@10": "mrr_at_10",
        "hit_rate@10": "hit_rate_at_10",
        "recall@10": "recall_at_10",
    }
    for name, reference in {**names, "map": "main_score"}.items():
        assert scores[name] == pytest.approx(expected[reference], abs=1e-5)

    assert 0.05 < scores["map"] < 0.95
