"""Do the vectors of passages tell which work they are from? MAP, MRR and hit rate; see
README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation.retrieval import RetrievalTask, rank_documents, retrieval_scores


class SameWorkRetrieval(evaluate.Metric):
    def _info(self):
        vector, works = datasets.Sequence(datasets.Value("float32")), ("string", "int64")
        pairs = [{"predictions": vector, "references": datasets.Value(kind)} for kind in works]
        features = [datasets.Features(pair) for pair in pairs]
        return evaluate.MetricInfo(
            description=__doc__, citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references, k=10):
        """The only passage of a work is in the pool that is searched, but searches for nothing
        itself."""
        names = [str(number) for number in range(len(references))]
        work = dict(zip(names, references, strict=True))
        same = {
            name: {other: 1 for other in names if work[other] == work[name] and other != name}
            for name in names
        }
        relevant = {name: grades for name, grades in same.items() if grades}
        task = RetrievalTask(
            "same work", dict.fromkeys(relevant, ""), dict.fromkeys(names, ""), relevant
        )
        queries = [predictions[int(name)] for name in relevant]
        return retrieval_scores(rank_documents(task, queries, predictions), k)
