"""Questions over several documents."""

from .questions import Answer, answer

__all__ = ["Answer", "answer"]
