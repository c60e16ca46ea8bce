"""``nextlevelbert cache``: lists what searches keep of folders and encoders, and removes it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from ..models.files import load_json, read_json
from .encoders.onnx import DESCRIPTION, EXPORTS
from .reading import default_cache_dir
from .store import ABOUT, STORES

_SECONDS_PER_DAY = 86_400


class KeptStore(NamedTuple):
    """Describes the store of a folder and a model, or the export of an encoder.

    Attributes:
        folder: folder of the store or the export.
        source: the folder, file or pattern that was searched; of an export, name of the encoder.
        model: name of the encoder; of an export, that it is one.
        size: bytes on the disk.
        days: days since it was last opened.
    """

    folder: Path
    source: str
    model: str
    size: int
    days: float


def kept_stores(cache_dir: Path) -> list[KeptStore]:
    """Lists the stores and exports of a cache, the last used first."""
    stores = []
    for file in (cache_dir / EXPORTS).glob(f"*/{DESCRIPTION}"):
        name = load_json(file)["recipe"]["name"]
        stores.append(_kept(file.parent, source=name, model="exported to ONNX"))
    for folder in (cache_dir / STORES).glob("*"):
        described = read_json(folder / ABOUT) or {"source": "?", "model": "?"}
        stores.append(_kept(folder, **described))
    return sorted(stores, key=lambda store: store.days)


def _kept(folder: Path, source: str, model: str) -> KeptStore:
    """Adds the size of a folder, and the days since it was used."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    days = (time.time() - folder.stat().st_mtime) / _SECONDS_PER_DAY
    return KeptStore(folder, source, model, size=size, days=days)


def run(
    cache_dir: Path | None = None,
    *,
    remove: str | None = None,
    remove_unused: int | None = None,
) -> None:
    """Prints what is kept; with one of the options, removes some of it.

    Args:
        cache_dir: the cache (default: ``nextlevelbert`` in the user's cache).
        remove: the source whose stores are removed, or the name of an encoder whose exports are
            removed.
        remove_unused: what was not opened for so many days is removed.

    Raises:
        ValueError: if nothing is kept of `remove`.
    """
    cache_dir = cache_dir or default_cache_dir()
    stores = kept_stores(cache_dir)
    verb = ""
    if remove is not None:
        names = (remove, os.path.abspath(remove))
        stores = [store for store in stores if store.source in names]
        if not stores:
            raise ValueError(f"Nothing is kept of {remove} in {cache_dir}.")
    if remove_unused is not None:
        stores = [store for store in stores if store.days >= remove_unused]
    if remove is not None or remove_unused is not None:
        verb = "Removed "
        for store in stores:
            shutil.rmtree(store.folder)

    for store in stores:
        size = f"{store.size / 1e6:,.1f} MB"
        print(f"{verb}{store.folder.name[:8]}  {store.source}  {store.model}, {size},", end=" ")
        print(f"last used {store.days:.0f} days ago")
    total = sum(store.size for store in stores) / 1e6
    print(f"{verb}{total:,.1f} MB of {len(stores):,} folders in {cache_dir}")
