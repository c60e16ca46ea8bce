"""MAP, MRR and hit rate of finding passages of the same work by vectors; see README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores

CITATION = """\
@article{jarvelin2002cumulated,
  title={Cumulated Gain-Based Evaluation of IR Techniques},
  author={J{\\"a}rvelin, Kalervo and Kek{\\"a}l{\\"a}inen, Jaana},
  journal={ACM Transactions on Information Systems},
  volume={20},
  number={4},
  year={2002}
}
"""
INPUTS = """
Args:
    predictions: the vectors of passages, each a list of D numbers.
    references: the work of each passage: a name or a number.
    k: the cut-off rank of mrr@k, hit_rate@k, recall@k and ndcg@k (default: 10).

Returns:
    map, mrr, mrr@k, hit_rate@k, recall@k, ndcg@k: means over the passages whose work has others.
    queries: number of these passages.
"""


class SameWorkRetrieval(evaluate.Metric):
    def _info(self):
        vector = datasets.Sequence(datasets.Value("float32"))
        features = []
        for kind in ("string", "int64"):
            work = datasets.Value(kind)
            features.append(datasets.Features({"predictions": vector, "references": work}))
        return evaluate.MetricInfo(
            description=__doc__,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def add_batch(self, *, predictions=None, references=None, **kwargs):
        """Adds predictions and their references; `evaluate` itself fails at none."""
        if predictions is not None and len(predictions) == 0:
            raise ValueError("There are no predictions. Give at least one, and its reference.")
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(self, predictions, references, k=10):
        """Ranks all passages for each; the only passage of a work is no query."""
        passages_of: dict[str | int, list[int]] = {}
        for index, work in enumerate(references):
            passages_of.setdefault(work, []).append(index)

        queries = []
        relevant = {}
        for index, work in enumerate(references):
            others = [other for other in passages_of[work] if other != index]
            if others:
                queries.append(predictions[index])
                relevant[str(index)] = {str(other): 1 for other in others}
        task = RetrievalTask(
            "same work",
            queries=dict.fromkeys(relevant, ""),
            documents={str(index): "" for index in range(len(references))},
            relevant=relevant,
        )
        return retrieval_scores(rank_documents(task, queries, predictions), k)
