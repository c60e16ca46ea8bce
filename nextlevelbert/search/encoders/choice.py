"""The model of a search, which is opened only when something has to be encoded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...corpus.recipe import chunking_recipe
from ...models.sentences import Splitter
from ..reading import default_cache_dir
from .static import StaticEncoder, is_static

if TYPE_CHECKING:
    from ...models.modeling_nextlevelbert import NextLevelBertModel
    from .onnx import OnnxEncoder
    from .torch import TorchEncoder

_INSTALLED = Path(__file__).parents[2] / "static"  # see `fitting.static_checkpoint`
# Options by which an encoder may compute on the CPU, without torch.
_CPU = ("auto", "cpu")
_WITHOUT_TORCH = ("auto", "float32", "int8")
# Devices of the drivers of NVIDIA, AMD and WSL. Only torch knows whether it can use them.
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


class SearchModel:
    """The model of a search.

    A static model is not opened: texts and questions are encoded from its files. A sentence encoder
    on the CPU is opened once, and exported.

    Args:
        opener: function that opens the document model.
        name: folder or name of the model, if an encoder without torch may stand for it (default:
            the model is opened at once).
        device: ``"cpu"``, or ``"auto"`` for a GPU that torch can use.
        dtype: precision of an export, ``"float32"`` or ``"int8"``.
        use: what the model is for, in the line on stderr that names it; without a use, no line.
        cache_dir: the cache, in which exports are kept.
    """

    def __init__(
        self,
        opener: Callable[[], NextLevelBertModel],
        name: str | None = None,
        *,
        device: str = "auto",
        dtype: str = "float32",
        use: str = "",
        cache_dir: Path | None = None,
    ) -> None:
        self._opener = opener
        self._name = name
        self._device = device
        self._dtype = dtype
        self._use = use
        self._cache_dir = cache_dir or default_cache_dir()

    @cached_property
    def model(self) -> NextLevelBertModel:
        """Returns the document model, which is opened by the first call."""
        return self._opener()

    @cached_property
    def vectors(self) -> StaticEncoder | OnnxEncoder | TorchEncoder:
        """Returns the object that encodes texts and questions."""
        encoder = self._without_torch()
        if encoder is None:
            from .torch import TorchEncoder  # loads torch

            encoder = TorchEncoder(self.model)
        if self._use and encoder.has_layers:
            print(f"{self._use} with {encoder}.", file=sys.stderr)
        return encoder

    def _without_torch(self) -> StaticEncoder | OnnxEncoder | TorchEncoder | None:
        """Returns an encoder that stands for the model, which is exported if need be."""
        if self._name is None:
            return None
        if self._name == "minilm" and self._dtype == "int8" and find_spec("onnxruntime"):
            from .onnx import MINILM, OnnxEncoder

            return OnnxEncoder(MINILM, "int8")
        folder = _folder_of(self._name)
        if folder is None:
            return None
        if is_static(folder):
            return StaticEncoder(folder)
        from .onnx import Export

        export = Export(folder, self._cache_dir)
        may_use_gpu = self._device == "auto" and any(map(os.path.exists, _DRIVERS))
        if may_use_gpu or not export.is_made:
            from .export import make_export  # loads torch

            if not make_export(self.model, export):
                return None
        return export.open(self._dtype)

    def recipe(self, splitter: Splitter | None) -> dict[str, Any]:
        """Returns how vectors are made, as in a corpus."""
        chunking = chunking_recipe(self.vectors.rule, splitter)
        return {"encoder": self.vectors.encoder_recipe, "chunking": chunking}


def _folder_of(name: str) -> Path | None:
    """Returns the folder of a model; None for a model of the Hub that was not downloaded."""
    if name in ("", "nextlevelbert-static"):
        return _INSTALLED
    from ...models.model_names import full_name

    path = full_name(name)
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # no name on the Hub, which the error of opening it says
        for repository in (path, f"sentence-transformers/{path}"):
            file = try_to_load_from_cache(repository, "modules.json")
            if isinstance(file, str):
                return Path(file).parent
    return None


def search_model(model: NextLevelBertModel | SearchModel | None) -> SearchModel:
    """Returns a model of a search for one, a document model, or None (the installed checkpoint)."""
    if model is None:
        return named_model()
    if isinstance(model, SearchModel):
        return model
    return SearchModel(lambda: model)


def named_model(
    name: str | None = None,
    *,
    chunk_encoder: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    export_dtype: str = "float32",
    use: str = "Reading",
    cache_dir: Path | None = None,
) -> SearchModel:
    """Returns the model of a command, which is opened when it is needed.

    Args:
        name: folder or name of the model, see `open_model`.
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on.
        dtype: precision of the weights, by torch's name, or ``"int8"``.
        export_dtype: precision of an export if `dtype` is ``"auto"``.
        use: see `SearchModel`.
        cache_dir: the cache, in which exports are kept.
    """
    if name is None:
        name = os.environ.get("NEXTLEVELBERT_MODEL", "")
    own_name = None
    if chunk_encoder is None and device in _CPU and dtype in _WITHOUT_TORCH:
        own_name = name
    if dtype in ("float32", "int8"):
        export_dtype = dtype
    if dtype == "int8":
        dtype = "float32"  # of what has no export

    def opener() -> NextLevelBertModel:
        from .torch import open_model  # loads torch

        return open_model(name, chunk_encoder=chunk_encoder, device=device, dtype=dtype)

    return SearchModel(
        opener, own_name, device=device, dtype=export_dtype, use=use, cache_dir=cache_dir
    )
