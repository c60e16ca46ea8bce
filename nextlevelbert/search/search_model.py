"""The model of a search, which is opened only when something has to be encoded."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .file_states import FileStates, state_of
from .parts import VERSION
from .reading import ReadingOptions
from .static_question import StaticQuestions, is_static

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

_INSTALLED = Path(__file__).parents[1] / "static"  # see `fitting.static_checkpoint`
# Options by which a static model computes in float32 on the CPU.
_CPU = ("auto", "cpu")
_FLOAT32 = ("auto", "float32")


class SearchModel:
    """The model of a search.

    A static model is not needed for a question over documents that were encoded before: the
    question is encoded from the model's files, and the cache knows the shelf of the model.

    Args:
        opener: function that opens the document model.
        folder: folder of the model, if `opener` opens it in float32 on the CPU (default: the model
            is opened at once).
    """

    def __init__(self, opener: Callable[[], NextLevelBertModel], folder: Path | None) -> None:
        self._opener = opener
        self._folder = None
        if folder is not None and is_static(folder):
            self._folder = folder

    @cached_property
    def model(self) -> NextLevelBertModel:
        """Returns the document model, which is opened by the first call."""
        return self._opener()

    def shelf_key(self, reading: ReadingOptions) -> str:
        """Returns a hash of what the parts of a shelf depend on, besides the files."""
        if self._folder is None or reading.splitter is not None:
            return self._computed_key(reading)
        files = sorted(path for path in self._folder.iterdir() if path.is_file())
        state = state_of(files)
        name = f"{VERSION} {self._folder.resolve()} {reading.text_column} {reading.id_column}"
        digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:32]
        states = FileStates(reading.cache_dir / ".shelves" / f"model-{digest}")
        key = states.content(name, state)
        if key is None:
            key = self._computed_key(reading)
            states.remember(name, state, key)
            states.save([name])
        return key

    def _computed_key(self, reading: ReadingOptions) -> str:
        from .model_vectors import shelf_key  # loads torch

        return shelf_key(self.model, reading)

    @cached_property
    def _static_questions(self) -> StaticQuestions | None:
        if self._folder is None:
            return None
        return StaticQuestions(self._folder)

    @property
    def is_whitened(self) -> bool:
        """Returns whether the model whitens the vectors that are compared."""
        if self._static_questions is not None:
            return self._static_questions.is_whitened
        return getattr(self.model.config, "whiten_chunks", False)  # HATE has no whitening

    def question_vector(self, question: str) -> np.ndarray | None:
        """Encodes a question, see `model_vectors.question_vector`."""
        if self._static_questions is not None:
            return self._static_questions.vector(question)
        from .model_vectors import question_vector  # loads torch

        return question_vector(self.model, question)

    def search_vectors(self, plain: np.ndarray) -> np.ndarray:
        """Prepares chunk vectors ``[N, D]`` for comparison, as float32 on the CPU."""
        from .model_vectors import search_vectors  # loads torch

        return search_vectors(self.model, plain)


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
        folder = Path(name or _INSTALLED)

    def opener() -> NextLevelBertModel:
        from .open_model import describe, open_model  # loads torch

        model = open_model(name, chunk_encoder=chunk_encoder, device=device, dtype=dtype)
        if model.get_chunk_encoder().has_layers:
            print(f"Reading with {describe(model)}.", file=sys.stderr)
        return model

    return SearchModel(opener, folder)
