"""Holds what pretraining and fine-tuning share."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .command_line import run_command
    from .epochs import SetEpochCallback

__all__ = ["SetEpochCallback", "run_command"]
_MODULES = {"SetEpochCallback": ".epochs", "run_command": ".command_line"}


def __getattr__(name: str) -> Any:  # noqa: ANN401  # a class or a function
    """Imports transformers when one of them is first used: the help reads options without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name], __name__), name)
