"""`TrainingArguments` of pretraining."""

from dataclasses import dataclass

from ..training.arguments import BaseTrainingArguments
from .options import PretrainingOptions


@dataclass
class PretrainingArguments(PretrainingOptions, BaseTrainingArguments):
    """`TrainingArguments` with the options and defaults of pretraining."""
