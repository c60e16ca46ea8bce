"""Configurations, models and the processor, with all that a saved checkpoint needs.

These files import their siblings only.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bert_al_sentences import encode_sentences, select_sentences

__all__ = ["encode_sentences", "select_sentences"]


def __getattr__(name: str) -> Any:
    """Imports a function when it is first used: search reads sentences without torch."""
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.bert_al_sentences"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
