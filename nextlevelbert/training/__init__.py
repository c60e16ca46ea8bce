"""Holds what pretraining and fine-tuning share."""

from .epochs import SetEpochCallback
from .options import run_command

__all__ = ["SetEpochCallback", "run_command"]
