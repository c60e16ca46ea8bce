"""Unpacks the files of zip archives, which may be built to take too much memory."""

import io
import zipfile
import zlib

from lxml import etree

from ..files import UNPACKED_LIMIT, TooLargeError

DAMAGED = (
    KeyError,
    EOFError,
    RuntimeError,  # locked, or packed in a way that zipfile does not know
    etree.XMLSyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What `Archive.unpack` and `parse_xml` raise for a file that is missing or damaged."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of EPUB and Word
_BYTES_OF_TAG = 32  # a tree takes 125 bytes for a tag and 240 for an attribute


class Archive:
    """Unpacks the files of a zip archive, and counts what is unpacked and generated.

    Attributes:
        left: the bytes and characters that may still be unpacked or generated.
    """

    def __init__(self, data: bytes) -> None:
        self.zip_file = zipfile.ZipFile(io.BytesIO(data))
        self.left = UNPACKED_LIMIT

    def spend(self, size: int) -> None:
        """Counts bytes or characters; a TooLargeError says that there are too many."""
        self.left -= size
        if self.left < 0:
            raise TooLargeError("it")

    def unpack(self, name: str) -> bytes:
        """Unpacks one file, in which each tag and attribute counts as 32 bytes more.

        Raises:
            TooLargeError: if the files that were unpacked take too much together.
        """
        entry = self.zip_file.getinfo(name)
        if entry.compress_type not in _METHODS:  # a few bytes of bzip2 become gigabytes at once
            raise zipfile.BadZipFile("it is packed by another method than deflate")
        self.spend(entry.file_size)
        with self.zip_file.open(entry) as file:
            data = file.read(entry.file_size)  # without a size, also what the entry does not tell
        self.spend(_BYTES_OF_TAG * (data.count(b"<") + data.count(b"=")))
        return data


def parse_xml(data: bytes, recover: bool = False) -> etree._Element | None:
    """Parses XML without its entities; if it recovers, as far as it goes, which may be nowhere."""
    parser = etree.XMLParser(resolve_entities=False, huge_tree=True, recover=recover)
    return etree.fromstring(data, parser)
