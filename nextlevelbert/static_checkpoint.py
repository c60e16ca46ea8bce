"""The checkpoint that is installed with the package."""

from __future__ import annotations

from importlib.resources import files


def static_checkpoint() -> str:
    """Folder of nextlevelbert-static (26 MB), for `from_pretrained`, `SentenceTransformer` and every `--model`.

    It comes with the package, so nothing is downloaded.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> import nextlevelbert
        >>> model = SentenceTransformer(nextlevelbert.static_checkpoint())
        >>> model.encode(["the text of a whole book", "and of another one"]).shape
        (2, 384)
    """
    return str(files("nextlevelbert") / "static")
