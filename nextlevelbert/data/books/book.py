"""Reads a book of any kind by the reader of its suffix."""

from itertools import accumulate
from pathlib import Path

from ..files import TooLargeError, named_errors, read_bytes, reason, suffix
from .epub import read_epub
from .html import read_html
from .pdf import read_pdf
from .word import read_docx

# Each returns pages or paragraphs, and notes on parts that were not read.
_READERS = {
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
    ".epub": read_epub,
    ".pdf": read_pdf,
    ".docx": read_docx,
}


def read_book(path: Path) -> tuple[str, dict[str, list[int]], str]:
    """Reads the text of a book, with a blank line between paragraphs and between pages.

    Returns:
        The text; for a PDF ``{"pages": the character at which each page begins}``; and what of the
        file was not read, such as a page of an EPUB, or an empty text.

    Raises:
        ValueError: if the file is damaged, locked or without text, or a package is missing.
    """
    ending = suffix(path)
    with named_errors(path):
        data = read_bytes(path)

    try:
        pieces, notes_on_parts = _READERS[ending](data)
    except ImportError as error:
        raise ValueError(
            f"{path} needs the package {error.name}: pip install {error.name}, or leave it out."
        ) from error
    except (UnicodeError, TooLargeError) as error:
        raise ValueError(f"{path} cannot be read: {reason(error)}") from error
    except Exception as error:  # what the parsers raise for damaged bytes is told nowhere
        raise ValueError(
            f"{path} cannot be read as {ending[1:].upper()} ({error}): it is damaged or locked."
            " Repair or unlock it, or leave it out."
        ) from error

    text = "\n\n".join(pieces)
    notes = "; ".join(notes_on_parts)
    if not text.strip():
        if notes:
            raise ValueError(f"{path} holds no text: {notes}.")
        raise ValueError(f"{path} holds no text.")

    if ending != ".pdf":
        return text, {}, notes

    lengths = [len(page) + 2 for page in pieces]
    return text, {"pages": list(accumulate(lengths[:-1], initial=0))}, notes
