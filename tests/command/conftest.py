"""The command of the tests of search, and their books."""

from ..search.conftest import books, command, exports, toy

__all__ = ["books", "command", "exports", "toy"]
