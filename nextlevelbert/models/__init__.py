"""Configurations, models and the processor, with all that a saved checkpoint needs.

These files import their siblings only.
"""

from .bert_al_sentences import encode_sentences, select_sentences

__all__ = ["encode_sentences", "select_sentences"]
