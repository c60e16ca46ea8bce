"""Pretraining of a NextLevelBERT or HATE on chunk vectors (`vectors`), or of a CDLM on sets of documents (`cdlm`)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

MODULES = {"nextlevelbert": "vectors", "hate": "vectors", "cdlm": "cdlm"}


def main(words: Sequence[str] | None = None) -> None:
    """Pretrains the ``--model_type`` that the command line asks for, a NextLevelBERT by default."""
    from ..training.trainer import run_command, take_option, words_of

    def pretrain(words: list[str]) -> None:
        words = words_of(words)
        model_type, _ = take_option(words, "model_type", "nextlevelbert")
        if model_type not in MODULES:
            raise ValueError(f"--model_type is one of {', '.join(MODULES)}, got {model_type!r}.")
        importlib.import_module(f"{__name__}.{MODULES[model_type]}").main(words)

    run_command(pretrain, words)
