"""MUC, B³, CEAF_e, LEA and the CoNLL score of clusters of mentions; see README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation.coreference import cluster_scores, coreference_scores


class ConllCoreference(evaluate.Metric):
    def _info(self):
        mention = datasets.Sequence(datasets.Value("int64"))
        clusters = datasets.Sequence(datasets.Sequence(mention))
        forms = [datasets.Value("string"), datasets.Value("int64"), clusters]
        features = [datasets.Features({"predictions": form, "references": form}) for form in forms]
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

    def _compute(self, predictions, references):
        if not isinstance(references[0], list):  # the cluster of each mention
            return coreference_scores(references, predictions)
        return cluster_scores(key=all_clusters(references), response=all_clusters(predictions))


def all_clusters(documents):
    """Returns the clusters of all documents, whose mentions begin with the index of theirs."""
    clusters = []
    for index, document in enumerate(documents):
        clusters += [[(index, *mention) for mention in cluster] for cluster in document]
    return clusters
