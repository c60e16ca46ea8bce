"""The start of ``nextlevelbert pretrain``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from ..pretraining.options import GROUPS, PretrainingOptions
from .trainings import checked_line, read_line

ABOUT = """\
Pretrains a NextLevelBERT or HATE. It encodes documents as chunk vectors on disk, trains a model to
predict masked vectors, and saves a checkpoint with its card. Without --do_train, it only encodes
the documents."""
_PROG = "nextlevelbert pretrain"


def read_options(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of the training, after a check; see `checked_line`."""
    groups = {}
    for model_type, dataclasses in GROUPS.items():
        groups[model_type] = (*dataclasses, PretrainingOptions)
    return checked_line(_PROG, read_line(_PROG, argv), about=ABOUT, groups=groups)


def run(argv: Sequence[str]) -> None:
    """Pretrains as a command line says."""
    options = read_options(argv)
    importlib.import_module("nextlevelbert.public")  # registers the models
    importlib.import_module("nextlevelbert.pretraining.pretrain").main(options)
