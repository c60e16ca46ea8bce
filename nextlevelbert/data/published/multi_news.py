"""Multi-News (Fabbri et al., 2019): sets of news articles about one event."""

from pathlib import Path

from datasets import Dataset

from ..files import open_text


def load(source: str | Path, split: str = "train") -> Dataset:
    """Loads the authors' own files, which have a set in each line.

    Args:
        source: a ``.src`` or ``.src.cleaned``, in which NEWLINE_CHAR stands for the end of a line.
        split: ignored, because a file is one split.

    Returns:
        A row for each set: ``document``, the articles with ``|||||`` between them, as on the Hub.
    """
    with open_text(Path(source)) as file:
        texts = [line.replace("NEWLINE_CHAR", "\n") for line in file]
    return Dataset.from_dict({"document": texts})
