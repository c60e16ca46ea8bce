"""Cosine of predicted vectors to their targets, and accuracy in a pool; see README.md."""

import datasets
import evaluate
import torch

from nextlevelbert.evaluation import find_targets

CITATION = """\
@inproceedings{czinczoll2024nextlevelbert,
  title={NextLevelBERT: Masked Language Modeling with Higher-Level Representations for Long
    Documents},
  author={Czinczoll, Tamara and H{\\"o}nes, Christoph and Schall, Maximilian and de Melo, Gerard},
  booktitle={Proceedings of the 62nd Annual Meeting of the Association for Computational
    Linguistics},
  year={2024}
}
"""
INPUTS = """
Args:
    predictions: the predicted vectors, each a list of D numbers.
    references: the true vector of each prediction, in the same order.

Returns:
    masked_cosine: mean cosine of a prediction to its reference.
    masked_accuracy: share of predictions whose nearest reference is their own.
    chance_accuracy: accuracy of guessing.
"""


class MaskedVectorAccuracy(evaluate.Metric):
    def _info(self):
        vector = datasets.Sequence(datasets.Value("float32"))
        features = datasets.Features({"predictions": vector, "references": vector})
        return evaluate.MetricInfo(
            description=__doc__,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def _compute(self, predictions, references):
        if not references:
            raise ValueError("There are no predictions. Give at least one, and its reference.")
        scores = find_targets(torch.tensor(predictions), torch.tensor(references))
        return {
            "masked_cosine": float(scores.cosine.mean()),
            "masked_accuracy": float(scores.found.mean()),
            "chance_accuracy": float(scores.chance.mean()),
        }
