"""The start of ``nextlevelbert pretrain``."""

from __future__ import annotations

import importlib
from typing import Any

from ..pretraining.options import GROUPS, DocumentArguments
from . import trainings

_PROG = "nextlevelbert pretrain"
_ABOUT = """\
Pretrains a NextLevelBERT or HATE. It encodes documents as chunk vectors on disk, trains a model to
predict masked vectors, and saves a checkpoint with its card. Without --do_train, it only encodes
the documents."""


def read_options(argv: list[str]) -> dict[str, Any]:
    """Reads a command line, or prints the help; see `trainings.read_options`."""
    return trainings.read_options(
        trainings.read_line(_PROG, argv),
        prog=_PROG,
        about=_ABOUT,
        groups=GROUPS,
        arguments="nextlevelbert.pretraining.arguments:PretrainingArguments",
    )


def run(argv: list[str]) -> None:
    """Pretrains as a command line says."""
    options = read_options(argv)
    importlib.import_module("nextlevelbert.public")  # registers the models
    data = trainings.take_data(options, DocumentArguments)
    documents = importlib.import_module("nextlevelbert.pretraining.sources").open_documents(data)
    importlib.import_module("nextlevelbert.pretraining.pretrain").pretrain(options, *documents)
