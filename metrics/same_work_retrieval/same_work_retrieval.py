"""MAP, MRR and hit rate of finding passages of the same work by vectors; see README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation import RetrievalTask, rank_documents, retrieval_scores


class SameWorkRetrieval(evaluate.Metric):
    def _info(self):
        vector = datasets.Sequence(datasets.Value("float32"))
        features = []
        for kind in ("string", "int64"):
            work = datasets.Value(kind)
            features.append(datasets.Features({"predictions": vector, "references": work}))
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

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
