"""JSON as it stands: an object a line, an array of objects, or one object. One object at a time is in memory."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import TABLES, suffix
from .texts import decode, not_utf8, open_utf8

Record = dict[str, Any]

_CHUNK = 1 << 16  # bytes
_LONGEST_WORD = 16  # characters of JSON that may be wrong only because they are cut off, such as -Infinity
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BLANK = re.compile(r"[ \t\r\n]*")
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}


class _RepeatedKeyError(ValueError):
    """An object has a key twice."""


def _object_of(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for number, key in enumerate(keys) if key in keys[:number]))
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_object_of)


def read_json(path: Path) -> Iterator[tuple[int, Record]]:
    """Streams the objects of a file, each with the line it begins in (from 1). Blank lines are passed over.

    Values are what Python's `json` makes of them: whole numbers of any length are kept, and no string becomes a date.

    Args:
        path: JSON lines in UTF-8, or one array of objects; if it is named ``.json``, also one object on several lines.
            All of these may be packed as ``.gz``.

    Raises:
        FileNotFoundError, ValueError: as `texts.read_lines`; ValueError naming the line that is not a JSON object, has
            a key twice, or holds a lone surrogate.
    """
    with open_utf8(path) as file:
        number = 0
        while not file.peek(1).lstrip(b" \t\r").startswith(b"["):
            line = file.readline()
            number += 1
            if line.strip():
                break
            if not line:
                return
        else:
            yield from _Stream(path, file, number + 1).array()
            return
        if suffix(path) == ".json" and not _is_whole(line):
            yield from _Stream(path, file, number, line).one_object()
            return
        while line:
            if line.strip():
                yield number, _read_line(path, number, line)
            line = file.readline()
            number += 1


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _read_line(path: Path, number: int, line: bytes) -> Record:
    text = decode(path, line, number).removeprefix("\ufeff")  # of a file that was appended to another
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        cut = not text.endswith("\n") and _ends_early(error, text)
        raise _error(path, number, error, text, cut, f", column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise _error(path, number, error, text) from error
    return _checked(path, number, value, text)


def _ends_early(error: json.JSONDecodeError, text: str, tolerance: int = 0) -> bool:
    """Whether a text that is no JSON may have been cut off."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()) - tolerance


def _error(path: Path, line: int, error: Exception, text: str, cut: bool = False, column: str = "") -> ValueError:
    """What to say of JSON that cannot be read."""
    where = f"{path}, line {line}"
    if isinstance(error, _RepeatedKeyError):
        return ValueError(f"{where}: the key {error.args[0]!r} stands twice in one object. Keep one of them.")
    if isinstance(error, RecursionError):
        return ValueError(f"{where}: arrays or objects are nested too deeply to be read.")
    if not isinstance(error, json.JSONDecodeError):
        return ValueError(f"{where}: a number has more digits than Python reads. Write it as a string.")
    if "\0" in text:
        return ValueError(f"{where} holds NUL bytes: the file is damaged, or is no text. JSON writes NUL as \\u0000.")
    if cut:
        return ValueError(f"{where}: the file is cut off in the middle of an object. Copy it again, or mend its end.")
    if error.msg == "Extra data":
        return ValueError(f"{where}{column}: more follows after the object. {_advice(path)}")
    return ValueError(f"{where}{column} is not JSON ({error.msg.removesuffix(' at')}). {_advice(path)}")


def _advice(path: Path) -> str:
    if suffix(path) == ".json":
        return "A .json file holds an array of objects, one object, or one object a line, in UTF-8."
    if suffix(path) == ".jsonl":
        return "A .jsonl file holds one object a line, in UTF-8; one object on several lines belongs in a .json."
    return (
        f"Supported: {', '.join(TABLES)} (all also .gz), and other files with a JSON object on every line, in UTF-8."
    )


def _checked(path: Path, line: int, value: Any, text: str) -> Record:
    """The value, if it is an object and its strings are valid Unicode; `text` is what it was read from."""
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "a number")
        raise ValueError(f"{path}, line {line} is not a JSON object, but {kind}. {_advice(path)}")
    if _SURROGATE.search(text):
        for key, inner in value.items():
            try:
                json.dumps([key, inner], ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                half = f"\\u{ord(error.object[error.start]):04x}"
                raise ValueError(
                    f"{path}, line {line}, column {key!a}: {half} is a lone surrogate, half of a character. Remove it."
                ) from error
    return value


class _Stream:
    """JSON that does not keep to lines.

    Args:
        path: of the file.
        file: where to read on.
        line: the number of the line that follows.
        start: bytes of it that were read already.
    """

    def __init__(self, path: Path, file: io.BufferedReader, line: int, start: bytes = b"") -> None:
        self._path, self._file = path, file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at = "", 0  # what comes before `_at` was read
        self._line, self._counted = line, 0  # the line of the character at `_counted`
        self._add(start)

    def array(self) -> Iterator[tuple[int, Record]]:
        self._expect("[")
        if self._next() != "]":
            yield self._object()
            while self._next() == ",":
                self._at += 1
                yield self._object()
        self._expect("]")
        self._expect("")

    def one_object(self) -> Iterator[tuple[int, Record]]:
        yield self._object()
        self._expect("")

    def _object(self) -> tuple[int, Record]:
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                break
            except json.JSONDecodeError as error:
                if _ends_early(error, self._text, _LONGEST_WORD) and self._more():
                    continue
                cut = _ends_early(error, self._text)
                raise _error(self._path, self._line_of(error.pos), error, self._text[self._at :], cut) from error
            except (ValueError, RecursionError) as error:
                raise _error(self._path, self._line_of(self._at), error, "") from error
        line = self._line_of(self._at)
        record = _checked(self._path, line, value, self._text[self._at : end])
        self._at = end
        return line, record

    def _expect(self, character: str) -> None:
        """Goes past this character, or raises; '' is the end."""
        if (found := self._next()) == character:
            self._at += len(character)
            return
        where = f"{self._path}, line {self._line_of(self._at)}"
        if not found:
            raise ValueError(
                f"{where}: the file is cut off in the middle of an array. Copy it again, or mend its end."
            )
        wanted = f"a comma or {character!r}" if character else "the end of the file"
        raise ValueError(f"{where}: {found!r} stands where {wanted} is needed. {_advice(self._path)}")

    def _next(self) -> str:
        """The next character that is not blank, or '' at the end; it is not gone past."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            assert blank is not None  # it matches everywhere
            self._at = blank.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Reads on, twice as much each time an object does not end; whether there was something."""
        data = self._file.read(max(_CHUNK, len(self._text) - self._at))
        if data:
            self._line_of(self._at)
            self._text, self._at, self._counted = self._text[self._at :], 0, 0
        self._add(data)
        return bool(data)

    def _add(self, data: bytes) -> None:
        try:
            self._text += self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise not_utf8(self._path, self._line_of(len(self._text)), error) from error

    def _line_of(self, at: int) -> int:
        """The line of a character that is not before those asked for earlier."""
        self._line += self._text.count("\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._line
