"""Files of the cache: written whole or not at all, with the checksum at the end of their name."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from safetensors import SafetensorError


class CacheError(OSError):
    """Says that a file of the cache cannot be written."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names a file of the cache in an error of writing, with the remedy.

    Raises:
        CacheError: if the file cannot be written.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        cause = str(error)
        if isinstance(error, OSError) and error.strerror:
            cause = error.strerror
        raise CacheError(
            f"{path} cannot be written: {cause}. Make room on its disk, or name another folder for"
            " the cache with --cache_dir."
        ) from error


def checksum(path: Path) -> str:
    """Returns the CRC-32 of a file's bytes."""
    value = 0
    with path.open("rb") as file:
        for block in iter(partial(file.read, 1 << 20), b""):
            value = zlib.crc32(block, value)
    return f"{value:08x}"


def is_whole(path: Path) -> bool:
    """Returns whether a file of the cache has the checksum with which its name ends."""
    try:
        return path.stem.endswith(f"-{checksum(path)}")
    except OSError:
        return False


def name_by_checksum(path: Path, name: str, suffix: str) -> Path:
    """Renames a finished file, whose checksum is put behind its new name.

    Args:
        path: the file, which gets its name once its bytes are on the disk.
        name: the name before the checksum.
        suffix: the suffix behind the checksum.

    Returns:
        The new path.
    """
    named = path.with_name(f"{name}-{checksum(path)}{suffix}")
    os.replace(path, named)
    return named
