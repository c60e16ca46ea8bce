"""MUC, B³, CEAF_e and LEA of clusters of coreferent mentions, and the CoNLL score; see
README.md."""

import datasets
import evaluate

from nextlevelbert.evaluation.coreference import cluster_scores, coreference_scores


class ConllCoreference(evaluate.Metric):
    def _info(self):
        mention = datasets.Sequence(datasets.Value("int64"))
        clusters = datasets.Sequence(datasets.Sequence(mention))
        kinds = [datasets.Value("string"), datasets.Value("int64"), clusters]
        features = [datasets.Features({"predictions": kind, "references": kind}) for kind in kinds]
        return evaluate.MetricInfo(
            description=__doc__, citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references):
        if not isinstance(references[0], list):  # the cluster of each mention
            return coreference_scores(references, predictions)
        sides = [
            [
                [(number, *mention) for mention in cluster]
                for number, document in enumerate(side)
                for cluster in document
            ]
            for side in (references, predictions)
        ]
        return cluster_scores(*sides)
