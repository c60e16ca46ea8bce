"""The model of a search, which is opened only when something has to be encoded."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...corpus.recipe import chunking_recipe
from ...models.model_names import STATIC, full_name, name_on_hub
from ...models.sentences import Splitter
from ..reading import default_cache_dir
from .static import StaticEncoder, is_static

if TYPE_CHECKING:
    from ...models.modeling_nextlevelbert import NextLevelBertModel
    from .onnx import OnnxEncoder
    from .torch import TorchEncoder

# Options by which an encoder may compute on the CPU, without torch.
_CPU = ("auto", "cpu")
_WITHOUT_TORCH = ("auto", "float32", "int8")
# Devices of the drivers of NVIDIA, AMD and WSL. Only torch knows whether it can use them.
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass(eq=False)
class SearchModel:
    """The model of a search.

    A static model is not opened: texts and questions are encoded from its files. A sentence encoder
    on the CPU is opened once, and exported.

    Args:
        name: folder or name of the model, see `open_model`.
        chunk_encoder: the encoder of a checkpoint that was saved without it.
        device: device that the model runs on; see `open_model`.
        dtype: precision of the weights, by torch's name, or ``"int8"`` of an export.
        export_dtype: precision of an export if `dtype` is ``"auto"``.
        use: what the model is for, in the line on stderr that names a slow one.
        cache_dir: the cache, in which exports are kept.
    """

    name: str = STATIC
    chunk_encoder: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    export_dtype: str = "float32"
    use: str = "Reading"
    cache_dir: Path | None = None

    @cached_property
    def model(self) -> NextLevelBertModel:
        """Returns the document model, which is opened by the first call."""
        from .torch import open_model  # loads torch

        dtype = self.dtype
        if dtype == "int8":
            dtype = "float32"  # of what has no export
        return open_model(
            self.name, chunk_encoder=self.chunk_encoder, device=self.device, dtype=dtype
        )

    @cached_property
    def vectors(self) -> StaticEncoder | OnnxEncoder | TorchEncoder:
        """Returns the object that encodes texts and questions."""
        encoder = self._without_torch()
        if encoder is None:
            from .torch import TorchEncoder  # loads torch

            encoder = TorchEncoder(self.model)
        if encoder.has_layers:
            print(f"{self.use} with {encoder}.", file=sys.stderr)
        return encoder

    def _without_torch(self) -> StaticEncoder | OnnxEncoder | TorchEncoder | None:
        """Returns an encoder that stands for the model, which is exported if need be."""
        if self.chunk_encoder or self.device not in _CPU or self.dtype not in _WITHOUT_TORCH:
            return None
        dtype = self.dtype
        if dtype == "auto":
            dtype = self.export_dtype
        if self.name == "minilm" and dtype == "int8" and find_spec("onnxruntime"):
            from .onnx import MINILM, OnnxEncoder

            return OnnxEncoder(MINILM, "int8")
        folder = _folder_of(self.name)
        if folder is None:
            return None
        if is_static(folder):
            return StaticEncoder(folder)
        from .onnx import Export

        export = Export(folder, self.cache_dir or default_cache_dir())
        may_use_gpu = self.device == "auto" and any(map(os.path.exists, _DRIVERS))
        if may_use_gpu or not export.is_made:
            from .export import make_export  # loads torch

            if not make_export(self.model, export):
                return None
        return export.open(dtype)

    def recipe(self, splitter: Splitter | None) -> dict[str, Any]:
        """Returns how vectors are made, as in a corpus."""
        chunking = chunking_recipe(self.vectors.rule, splitter)
        return {"encoder": self.vectors.encoder_recipe, "chunking": chunking}


def _folder_of(name: str) -> Path | None:
    """Returns the folder of a model; None for a model of the Hub that was not downloaded."""
    path = full_name(name_on_hub(name))
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import try_to_load_from_cache

    with suppress(ValueError):  # no name on the Hub, which the error of opening it says
        file = try_to_load_from_cache(path, "modules.json")
        if isinstance(file, str):
            return Path(file).parent
    return None


def search_model(model: NextLevelBertModel | SearchModel | None) -> SearchModel:
    """Returns a model of a search for one, a document model, or None (the installed checkpoint)."""
    if isinstance(model, SearchModel):
        return model
    opened = SearchModel()
    if model is not None:
        from .torch import TorchEncoder

        opened.vectors = TorchEncoder(model)
    return opened
