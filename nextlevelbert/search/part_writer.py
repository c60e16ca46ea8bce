"""Makes the parts of a shelf: reads files, encodes their documents and writes Parquet.

The columns beside those of a corpus are ``passage_start`` and ``passage_end`` (the chunk, widened
to whole sentences), ``text`` (from the chunk, or the beginning, to the next chunk) and, in the
first row of a document, ``metadata`` (JSON: the other columns of its row), ``pages`` (the character
at which each page of a PDF begins) and ``document_vector``. The metadata of the schema holds the
notes about reading the file and the counts of unknown words.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tqdm.auto import tqdm

from ..corpus.parts import chunk_table, list_array, number_array, text_array, write_part
from ..data.documents import Document
from ..data.files import readable_name, reason
from .cache_files import name_by_checksum, writing
from .notes import Note
from .parts import FileContent, part_name, written_parts
from .passages import borders_of_passages
from .reading import (
    DocumentRun,
    ReadingOptions,
    SourceFile,
    count_unknown,
    read_runs,
    rest_of_message,
)
from .search_model import SearchModel
from .static_model import EncodedTexts

_READINGS = 3  # of a file that changes while it is read
# Characters that are encoded together, and that a part of a table holds; a kill costs no more.
_CHARACTERS = 2_000_000
_CHARACTERS_WITH_LAYERS = 200_000


class _Waiting(NamedTuple):
    """Documents that wait to be encoded, with their file and the hash of the bytes it held."""

    source: FileContent
    content: str
    run: DocumentRun


class PartWriter:
    """Encodes files into the folder of a shelf."""

    def __init__(self, folder: Path, model: SearchModel, reading: ReadingOptions) -> None:
        self._folder = folder
        self._vectors = model.vectors
        self._reading = reading
        self._schema = model.schema(reading.splitter)
        self._characters = _CHARACTERS
        if self._vectors.has_layers:
            self._characters = _CHARACTERS_WITH_LAYERS
        self._written = written_parts(folder)
        self._finished = set[str]()  # hashes of the files that were read
        self._left_out = dict[str, list[Note]]()

    def write(self, sources: Sequence[FileContent]) -> dict[str, list[Note]]:
        """Writes the parts of files that are missing, encoding many small files together for speed.

        Args:
            sources: the files. Of files with the same content, the first is read. If a file has
                changed, its new content is stored.

        Returns:
            Notes about the files that are left out, by the hash of their bytes.
        """
        waiting = []
        characters = 0
        hidden = None  # no bar in a log file
        if not sources:
            hidden = True
        for source in tqdm(sources, unit="file", disable=hidden, delay=1):
            for item in self._missing_runs(source):
                waiting.append(item)
                characters += sum(len(document.text) for document in item.run.documents)
                if characters >= self._characters:
                    self._write_readable(waiting)
                    waiting = []
                    characters = 0
        self._write_readable(waiting)
        return self._left_out

    def _missing_runs(self, source: FileContent) -> Iterator[_Waiting]:
        """Reads the documents that are in no part yet, again if the file changes meanwhile."""
        for _ in range(_READINGS):
            content = source.content
            if content in self._finished:
                return
            is_unchanged = True
            try:
                for run in read_runs(source.file, self._reading, self._characters):
                    is_unchanged = source.is_unchanged()
                    if not is_unchanged or content in self._left_out:
                        break
                    if not run.documents:
                        self._left_out[content] = run.notes
                    elif run.index not in self._written.get(content, {}):
                        yield _Waiting(source, content=content, run=run)
            except OSError as error:  # the file went away, before it was opened or after that
                note = Note("left out", f" cannot be read: {reason(error)}")
                self._left_out[content] = [note]
                return
            if is_unchanged:
                self._finished.add(content)
                return
        note = Note("left out", " changes while it is read. Run the command again.")
        self._left_out[source.content] = [note]

    def _write_readable(self, waiting: list[_Waiting]) -> None:
        """Encodes documents together, or if that fails file by file to find those that fail."""
        try:
            self._write_parts(waiting)
        except (ValueError, TypeError):
            for item in waiting:
                try:
                    self._write_parts([item])
                except (ValueError, TypeError) as error:
                    note = Note("left out", rest_of_message(item.source.file, error))
                    self._left_out[item.content] = [note]

    def _write_parts(self, waiting: Sequence[_Waiting]) -> None:
        """Encodes the documents of several files together and writes a part for each file.

        Raises:
            ValueError: or TypeError, if a document cannot be encoded.
        """
        documents = [document for item in waiting for document in item.run.documents]
        if not documents:
            return
        with warnings.catch_warnings():  # `notes_on_words` names the files
            warnings.filterwarnings("ignore", ".* (no token|unknown tokens only)")
            texts = [document.text for document in documents]
            encoded = self._vectors.encode(texts, self._reading.splitter)

        rows = self._rows(waiting, encoded)
        first_rows = np.cumsum([0, *map(len, encoded.spans)]).tolist()
        start = 0
        for _, content, run in waiting:
            stop = start + len(run.documents)
            first_row = first_rows[start]
            table = rows.slice(first_row, first_rows[stop] - first_row)
            start = stop

            counts = count_unknown(self._vectors.tokenizer, run.documents)
            metadata = {
                **self._schema.metadata,
                "notes": json.dumps(run.notes),
                "unknown": json.dumps(counts),
            }
            name = part_name(content, run.index, is_last=run.is_last)
            with writing(self._folder):
                new = self._folder / f"{name}.new"
                write_part(new, table.replace_schema_metadata(metadata))
                name_by_checksum(new, name, ".parquet")

    def _rows(self, waiting: Sequence[_Waiting], encoded: EncodedTexts) -> pa.Table:
        """Makes the rows of all documents in one table, which is faster than a table for each."""
        ids = []
        texts = []
        other_columns = []
        for source, _, run in waiting:
            for document in run.documents:
                ids.append(readable_name(document.id))
                texts.append(document.text)
                other_columns.append(_metadata_and_pages(source.file, document))
        spans = encoded.spans
        table = chunk_table(self._schema, ids, spans=spans, vectors=encoded.plain)
        passages = borders_of_passages(texts, spans)

        # Only the first row of a document has the columns that describe the document.
        document_of_row = np.repeat(np.arange(len(spans)), list(map(len, spans)))
        is_first = np.diff(document_of_row, prepend=-1) > 0
        first_only = number_array(document_of_row, is_first)
        metadata, pages = zip(*other_columns, strict=True)
        columns = {
            "passage_start": number_array(passages[:, 0]),
            "passage_end": number_array(passages[:, 1]),
            "text": text_array(_texts_of_chunks(texts, spans)),
            "pages": list_array(pages).take(first_only),
            "metadata": text_array(metadata).take(first_only),
            "document_vector": list_array(list(encoded.documents)).take(first_only),
        }
        for name, column in columns.items():
            table = table.append_column(name, column)
        return table


def _texts_of_chunks(texts: Sequence[str], spans: Sequence[np.ndarray]) -> list[str]:
    """Divides documents at the first characters of their chunks."""
    pieces: list[str] = []
    for text, span in zip(texts, spans, strict=True):
        if len(span) == 0:
            continue
        borders = [0, *span[1:, 0].tolist(), len(text)]
        pieces.extend(text[start:end] for start, end in pairwise(borders))
    return pieces


def _metadata_and_pages(file: SourceFile, document: Document) -> tuple[str, np.ndarray]:
    """Returns the metadata of a document as JSON, and the first characters of its pages."""
    metadata = dict(document.metadata)
    pages = None
    if not file.is_table:  # a table may have a column of that name
        pages = metadata.pop("pages", None)
    return metadata_json(metadata), np.array(pages or [], np.int64)


def metadata_json(metadata: dict[str, Any]) -> str:
    """Writes metadata as JSON that any reader accepts: NaN becomes null, half a surrogate "?"."""
    text = json.dumps(metadata, default=str)
    values = json.loads(text, parse_constant=lambda name: None)
    return json.dumps(values, ensure_ascii=False).encode(errors="replace").decode()
