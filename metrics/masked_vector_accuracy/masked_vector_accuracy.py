"""Cosine of predicted vectors to their targets, and accuracy in a pool; see README.md."""

import datasets
import evaluate
import torch

from nextlevelbert.evaluation import find_targets


class MaskedVectorAccuracy(evaluate.Metric):
    def _info(self):
        vector = datasets.Sequence(datasets.Value("float32"))
        features = datasets.Features({"predictions": vector, "references": vector})
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

    def _compute(self, predictions, references):
        scores = find_targets(torch.tensor(predictions), torch.tensor(references))
        return {
            "masked_cosine": float(scores.cosine.mean()),
            "masked_accuracy": float(scores.found.mean()),
            "chance_accuracy": float(scores.chance.mean()),
        }
