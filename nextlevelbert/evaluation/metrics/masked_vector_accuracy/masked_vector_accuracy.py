"""Cosine of predicted vectors to their targets, and how often the target is the nearest of its
pool; see README.md."""

import datasets
import evaluate
import torch
from torch.nn.functional import normalize


class MaskedVectorAccuracy(evaluate.Metric):
    def _info(self):
        vector = datasets.Sequence(datasets.Value("float32"))
        features = datasets.Features({"predictions": vector, "references": vector})
        return evaluate.MetricInfo(
            description=__doc__, citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references, pools=None):
        """`pools`: the pool of each position, by any number; by default all are in one."""
        vectors, targets = (
            normalize(torch.tensor(rows), dim=-1) for rows in (predictions, references)
        )  # [M, D]
        numbers = torch.zeros(len(targets)) if pools is None else torch.as_tensor(pools)
        together = numbers[:, None] == numbers  # [M, M]
        cosines = (vectors @ targets.T).masked_fill(~together, -2.0)
        right = cosines.diagonal()
        better, tied = (cosines > right[:, None]).sum(dim=1), (cosines == right[:, None]).sum(dim=1)
        accuracy = torch.where(
            better == 0, 1.0 / tied, 0.0
        )  # a constant prediction scores as chance does
        chance = 1.0 / together.sum(dim=1)
        scores = {"masked_cosine": right, "masked_accuracy": accuracy, "chance_accuracy": chance}
        return {name: float(values.mean()) for name, values in scores.items()}
