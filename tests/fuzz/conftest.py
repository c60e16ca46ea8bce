"""The profile of the long run; `pytest tests/fuzz --hypothesis-profile=fuzz`."""

from __future__ import annotations

from hypothesis import settings

from .cases import LONG

settings.register_profile(LONG)
