"""The model of a search, which is opened only when something has to be encoded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...corpus.recipe import chunking_recipe
from ...models.sentences import Splitter
from .static import StaticEncoder, is_static

if TYPE_CHECKING:
    from ...models.modeling_nextlevelbert import NextLevelBertModel
    from .torch import TorchEncoder

_INSTALLED = Path(__file__).parents[2] / "static"  # see `fitting.static_checkpoint`
# Options by which a static model computes in float32 on the CPU.
_CPU = ("auto", "cpu")
_FLOAT32 = ("auto", "float32")


class SearchModel:
    """The model of a search.

    A static model is not opened: texts and questions are encoded from its files.

    Args:
        opener: function that opens the document model.
        folder: folder of the model, if `opener` opens it in float32 on the CPU (default: the model
            is opened at once).
    """

    def __init__(self, opener: Callable[[], NextLevelBertModel], folder: Path | None) -> None:
        self._opener = opener
        self._folder = folder

    @cached_property
    def model(self) -> NextLevelBertModel:
        """Returns the document model, which is opened by the first call."""
        return self._opener()

    @cached_property
    def vectors(self) -> StaticEncoder | TorchEncoder:
        """Returns the object that encodes texts and questions."""
        if self._folder is not None and is_static(self._folder):
            return StaticEncoder(self._folder)
        from .torch import TorchEncoder  # loads torch

        return TorchEncoder(self.model)

    def recipe(self, splitter: Splitter | None) -> dict[str, Any]:
        """Returns how vectors are made, as in a corpus."""
        chunking = chunking_recipe(self.vectors.rule, splitter)
        return {"encoder": self.vectors.encoder_recipe, "chunking": chunking}


def search_model(model: NextLevelBertModel | SearchModel | None) -> SearchModel:
    """Returns a model of a search for one, a document model, or None (the installed checkpoint)."""
    if model is None:
        return named_model()
    if isinstance(model, SearchModel):
        return model
    return SearchModel(lambda: model, folder=None)


def named_model(
    name: str | None = None,
    *,
    chunk_encoder: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> SearchModel:
    """Returns the model of a command, which is opened when it is needed.

    Args:
        name: folder or name of the model, see `open_model`.
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on.
        dtype: precision of the weights, by torch's name.
    """
    if name is None:
        name = os.environ.get("NEXTLEVELBERT_MODEL", "")
    folder = None
    if chunk_encoder is None and device in _CPU and dtype in _FLOAT32:
        folder = Path(name)
        if name in ("", "nextlevelbert-static"):  # `models.model_names` imports the Hub's client
            folder = _INSTALLED

    def opener() -> NextLevelBertModel:
        from .torch import describe, open_model  # loads torch

        model = open_model(name, chunk_encoder=chunk_encoder, device=device, dtype=dtype)
        if model.get_chunk_encoder().has_layers:
            print(f"Reading with {describe(model)}.", file=sys.stderr)
        return model

    return SearchModel(opener, folder)
