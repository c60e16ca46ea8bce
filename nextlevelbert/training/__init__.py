"""Holds what pretraining and fine-tuning share."""

from .epochs import SetEpochCallback

__all__ = ["SetEpochCallback"]
