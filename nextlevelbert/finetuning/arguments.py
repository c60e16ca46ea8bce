"""`TrainingArguments` of fine-tuning."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..training.arguments import BaseTrainingArguments
from .options import FinetuningOptions


@dataclass
class FinetuningArguments(FinetuningOptions, BaseTrainingArguments):
    """`TrainingArguments` with the options and defaults of fine-tuning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds names a seed twice: {self.seeds}.")
        if self.n_gpu > 1:
            raise ValueError(
                f"Start a process for each of the {self.n_gpu} GPUs: torchrun --nproc_per_node"
                " N ..."
            )

    def for_seed(self, seed: int, folder: Path) -> Self:
        """Returns the arguments of one training, which does not publish its model."""
        args = self.without_upload()
        args.output_dir = str(folder)
        args.seed = seed
        args.data_seed = seed
        return args
