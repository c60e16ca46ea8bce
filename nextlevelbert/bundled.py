"""Sources of documents that need no file of the user; imports nothing that takes time."""

from pathlib import Path

PYTHON_MANUAL = "python-manual"
EXAMPLE_BOOKS = "example-books"
BUNDLED = (EXAMPLE_BOOKS, PYTHON_MANUAL)


def example_books() -> str:
    """Returns the folder with the first pages of six novels, which are installed with the package.

    Example:
        >>> import nextlevelbert
        >>> len(list(nextlevelbert.read_documents(nextlevelbert.example_books())))
        6
    """
    return str(Path(__file__).with_name("example_books"))


def resolve_source(source: str) -> str:
    """Returns the folder of the books that ``"example-books"`` names; other sources as they are."""
    if source == EXAMPLE_BOOKS:
        return example_books()
    return source
