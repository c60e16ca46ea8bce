"""The checkpoint that is installed with the package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

_NAME = "nextlevelbert-static"


def static_checkpoint() -> str:
    """Folder of nextlevelbert-static (26 MB), for `from_pretrained`, `SentenceTransformer` and every `--model`.

    It comes with the package, so nothing is downloaded. What it is and how good: `model_cards/nextlevelbert-static`.

    Raises:
        FileNotFoundError: where the package was copied without it.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> import nextlevelbert
        >>> model = SentenceTransformer(nextlevelbert.static_checkpoint())
        >>> model.encode(["the text of a whole book", "and of another one"]).shape
        (2, 384)
    """
    beside_the_sources = Path(__file__).parents[1] / "checkpoints" / _NAME
    if (beside_the_sources / "config.json").exists():
        return str(beside_the_sources)
    try:
        files = distribution("nextlevelbert").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        if file.parts[-2:] == (_NAME, "config.json") and Path(str(file.locate())).exists():
            return str(Path(str(file.locate())).parent.resolve())
    raise FileNotFoundError(
        f"This installation does not contain the checkpoint {_NAME}. Install nextlevelbert by pip, or give the folder "
        "of a checkpoint."
    )
