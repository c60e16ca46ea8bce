"""Reads the files of a checkpoint as NextLevelBERT's authors publish it: a configuration and tensors, and no code.

A pickle (`pytorch_model.bin`, `.ckpt`) can name any function for Python to call when it is opened. Here PyTorch's
unpickler for weights reads it, which rebuilds tensors and refuses to call anything else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load_file

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
_SPECIAL_VECTORS = "special_vec_embeddings.weight"  # in each of their checkpoints

# Classes of the authors' training code: a `.ckpt` of theirs holds one of each beside tensors and plain values.
_TRAINING_SETTINGS = ("arguments.TrainingArgs", "src.model.ModelArgs")


class _NotRead:
    """Stands in for the training settings in a `.ckpt`, and keeps nothing of them."""

    def __setstate__(self, state: object) -> None:
        pass


def read_checkpoint(
    source: str | os.PathLike[str], revision: str | None = None
) -> tuple[dict[str, Any] | None, dict[str, torch.Tensor]]:
    """Configuration and tensors of a checkpoint; of what is on the Hub, only these files are downloaded.

    Args:
        source: a name on the Hub, a folder, or a file of weights.
        revision: the version on the Hub.

    Returns:
        What `config.json` holds, or None where there is none beside a file of weights; and tensors by name.

    Raises:
        FileNotFoundError: if there is no such checkpoint, or a file of it is missing.
        ValueError: for a damaged file, a pickle that holds more than tensors, or a revision of something local.
    """
    path = _find(source, revision)
    folder = path.parent if path.is_file() else path
    names = [path.name] if path.is_file() else [name for name in _WEIGHTS if (path / name).is_file()]
    configured = (folder / "config.json").is_file()
    if not names or not (configured or path.is_file()):
        wanted = " or ".join(_WEIGHTS) if configured else "config.json"
        held = some(each.name for each in folder.iterdir()) or "nothing"
        raise FileNotFoundError(f"{str(folder)!r} has no {wanted}; it holds {held}.")
    weights = folder / names[0]
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if configured else None
        tensors = load_file(weights) if weights.suffix == ".safetensors" else _read_pickle(weights)
    except (json.JSONDecodeError, SafetensorError) as error:
        raise ValueError(
            f"A file in {str(folder)!r} is damaged, or only a pointer to the real one ({error}); fetch it again."
        ) from error
    return config, _unwrapped(tensors)


def _find(source: str | os.PathLike[str], revision: str | None) -> Path:
    """A folder or file of this machine, downloaded where it was not."""
    name, path = os.fspath(source), Path(source)
    if path.exists():
        if revision is not None:
            raise ValueError(f"{name!r} is on this machine and has no revision {revision!r}; leave that out.")
        return path
    try:
        for weights in _WEIGHTS:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=["config.json", weights]))
            if (folder / weights).is_file():
                break
    except (OSError, ValueError) as error:
        version = "" if revision is None else f" of revision {revision!r}"
        raise FileNotFoundError(
            f"Found no checkpoint {name!r}{version}: no such folder or file, and not on the Hub or in its cache. "
            "Give a folder, or a name such as 'aiintelligentsystems/nextlevelbert-256'."
        ) from error
    return folder


def _read_pickle(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a saved state dict, or of the one in a `.ckpt`."""
    try:
        with torch.serialization.safe_globals([(_NotRead, name) for name in _TRAINING_SETTINGS]):
            held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is no pickle, or a broken one, can fail in any way
        if asked := re.search(r"GLOBAL (\S+)", str(error)):
            raise ValueError(
                f"{str(path)!r} was refused: opening it would call {asked[1]}, and only tensors are read here. If you "
                "trust the file, save its state dict as model.safetensors where it was made, and convert that."
            ) from None  # PyTorch's own message says how to open it all the same
        raise ValueError(
            f"{str(path)!r} cannot be read as tensors: it is damaged, only a pointer to the real file, or of another "
            "format. Fetch it again."
        ) from None
    state = held.get("state_dict", held) if isinstance(held, dict) else None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in state.items()
    ):
        raise ValueError(
            f"{str(path)!r} holds no state dict, which is tensors by name, or a table with these under 'state_dict'."
        )
    return state


def _unwrapped(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors without what a wrapper around the model, such as that of `torch.compile`, puts before every name."""
    prefix = next((name.removesuffix(_SPECIAL_VECTORS) for name in weights if name.endswith(_SPECIAL_VECTORS)), "")
    if not all(name.startswith(prefix) for name in weights):
        return weights
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}


def some(names: Iterable[str]) -> str:
    """The first five in order, and how many more there are."""
    ordered = sorted(names)
    return ", ".join(ordered[:5]) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")
