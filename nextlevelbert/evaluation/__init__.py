"""How well the models do: metrics that no library has."""

from .masked_vectors import context_mean_baseline, masked_vector_scores

__all__ = ["context_mean_baseline", "masked_vector_scores"]
