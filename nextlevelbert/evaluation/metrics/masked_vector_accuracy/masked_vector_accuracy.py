"""Cosine of predicted vectors to their targets, and accuracy in a pool; see README.md."""

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
        """Scores M positions; `pools` is the pool of each, by any number (default: one pool)."""
        vectors = normalize(torch.tensor(predictions), dim=-1)  # [M, D]
        targets = normalize(torch.tensor(references), dim=-1)
        if pools is None:
            pools = [0] * len(references)
        numbers = torch.as_tensor(pools)
        is_in_pool = numbers[:, None] == numbers  # [M, M]

        cosines = (vectors @ targets.T).masked_fill(~is_in_pool, -2.0)
        right = cosines.diagonal()
        better = (cosines > right[:, None]).sum(dim=1)
        tied = (cosines == right[:, None]).sum(dim=1)
        # A constant prediction scores as chance does.
        accuracy = torch.where(better == 0, 1.0 / tied, 0.0)
        chance = 1.0 / is_in_pool.sum(dim=1)
        return {
            "masked_cosine": float(right.mean()),
            "masked_accuracy": float(accuracy.mean()),
            "chance_accuracy": float(chance.mean()),
        }
