"""Text files in UTF-8, perhaps packed as ``.gz``: opened, decoded, and named where they are something else."""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

# How files begin that are taken for text by mistake: (first bytes, what they are, what to do).
_BEGINNINGS = (
    (b"\xff\xfe\0\0", "UTF-32 (byte order mark FF FE 00 00)", "convert it with iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 (byte order mark 00 00 FE FF)", "convert it with iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "UTF-16 (byte order mark FF FE)", "convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 (byte order mark FE FF)", "convert it with iconv -f UTF-16 -t UTF-8"),
    (b"\x1f\x8b", "compressed with gzip", "give it a name that ends in .gz"),
    (b"PK\x03\x04", "a zip archive", "unpack it with unzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard", "unpack it with unzstd"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it with unxz"),
    (b"BZh91AY&SY", "compressed with bzip2", "unpack it with bunzip2"),
    (b"PAR1\x15", "Parquet", "give it a name that ends in .parquet"),
    (b"%PDF-1.", "PDF", "give it a name that ends in .pdf"),
)
_SPECIAL_KINDS = (
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_LINE_FEED = b"\n"


def check_kind(path: Path) -> None:
    """Raises FileNotFoundError or ValueError for what is neither a regular file nor a folder, and for broken links."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        broken = "is a link to a file that is not there" if path.is_symlink() else "is not there"
        raise FileNotFoundError(f"{path} {broken}. Check the path.") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise ValueError(f"{path} is a link that leads back to itself. Remove it.") from None
    for is_kind, kind in _SPECIAL_KINDS:
        if is_kind(mode):
            raise ValueError(f"{path} is {kind}, which cannot be read twice. Write its content to a file first.")


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a file, unpacked if its name ends in ``.gz``.

    Raises:
        FileNotFoundError, ValueError: as `check_kind`; ValueError where gzip data are damaged.
    """
    check_kind(path)
    try:
        with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
            yield cast(io.BufferedReader, file)  # gzip's has the same methods
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path} is not a whole gzip file ({error}). Copy it again, or take .gz off its name if it is not packed."
        ) from error
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


@contextmanager
def open_utf8(path: Path) -> Iterator[io.BufferedReader]:
    """Opens a text as bytes, after its byte order mark if there is one.

    Raises:
        FileNotFoundError, ValueError: as `open_binary`; ValueError for a file that begins like another kind (named).
    """
    with open_binary(path) as file:
        head = file.peek(64)[:64]
        for beginning, kind, remedy in _BEGINNINGS:
            if head.startswith(beginning):
                raise ValueError(f"{path} is {kind}, but UTF-8 text is needed: {remedy}.")
        if len(head) >= 4:
            for order, zeros, others in (("LE", head[1::2], head[::2]), ("BE", head[::2], head[1::2])):
                if not any(zeros) and all(others):
                    raise ValueError(
                        f"{path} looks like UTF-16 without a byte order mark (every second byte is zero), but UTF-8 "
                        f"text is needed: convert it with iconv -f UTF-16{order} -t UTF-8."
                    )
        if head.startswith(codecs.BOM_UTF8):
            file.read(len(codecs.BOM_UTF8))
        yield file


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a text, each with its number from 1 and its end. Only a line feed ends a line.

    Raises:
        FileNotFoundError, ValueError: as `open_utf8`; ValueError naming the line that is not UTF-8.
    """
    with open_utf8(path) as file:
        for number, line in enumerate(file, start=1):
            yield number, decode(path, line, number)


def read_text(path: Path) -> str:
    """A whole text, with ``\\n`` for line ends of every kind.

    Raises:
        FileNotFoundError, ValueError: as `read_lines`.
    """
    with open_utf8(path) as file:
        return decode(path, file.read()).replace("\r\n", "\n").replace("\r", "\n")


def decode(path: Path, data: bytes, line: int = 1) -> str:
    """The text of bytes that begin in this line, or a ValueError as `not_utf8`."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(path, line, error) from error


def not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> ValueError:
    """An error that says where bytes, which begin in this line, are not UTF-8, and what they may be."""
    data, at = error.object, error.start
    where = f"{path}, line {line + data.count(_LINE_FEED, 0, at)}"
    if error.reason == "unexpected end of data":
        return ValueError(f"{where}: the file is cut off in the middle of a character. Copy it again.")
    if data[at] == 0xED and data[at + 1 : at + 2] >= b"\xa0":
        return ValueError(f"{where} holds a surrogate, half of a character, which UTF-8 does not allow. Remove it.")
    meant = bytes([data[at]]).decode("windows-1252", errors="replace")
    guess = f" (in Windows-1252 it is {meant!r})" if meant != "\ufffd" else ""
    return ValueError(
        f"{where}: byte {data[at]:02X} is not UTF-8{guess}. Find out the file's encoding and convert it, for example "
        "with iconv -f WINDOWS-1252 -t UTF-8."
    )
