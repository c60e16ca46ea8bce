"""Lists and reads the files of a source, with notes about what was not read."""

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from transformers import PreTrainedTokenizerBase

from ..data.documents import (
    PYTHON_MANUAL,
    Document,
    read_documents,
    resolve_source,
    root_of,
    source_files,
)
from ..data.files import NoDocumentError, PartlyReadError, find_paths, readable_name
from ..models.chunking import tokenize_document
from ..models.sentences import Splitter
from .notes import Note, Notes

# A document is named if the model does not know the words that make up this share of its text.
_UNKNOWN_SHARE = 0.05


def default_cache_dir() -> Path:
    """Returns the folder of the cache: of the XDG base directories, or in the home folder."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if folder == "":
        return Path.home() / ".cache" / "nextlevelbert"
    return Path(folder) / "nextlevelbert"


@dataclass(frozen=True)
class ReadingOptions:
    """Says how to read the files of a source, and where to keep their passages and vectors.

    Args:
        cache_dir: the folder of all shelves (default: ``nextlevelbert`` in the user's cache).
        text_column: the column of the text in tables.
        id_column: the column of the id in tables.
        splitter: function that finds sentences, as in ``encode`` (default: the model's own rule).
    """

    cache_dir: Path = field(default_factory=default_cache_dir)
    text_column: str = "text"
    id_column: str = "id"
    splitter: Splitter | None = None


@dataclass(frozen=True)
class SourceFile:
    """A file of a source.

    Args:
        path: the file.
        name: printed name of the file, which is the path below the folder.
        is_table: true for a table, in which each row is a document.
    """

    path: Path
    name: str
    is_table: bool

    def name_of(self, document: str) -> str:
        """Returns the printed name of a document of the file."""
        if self.is_table:
            return f"{self.name}#{document}"
        return self.name


def list_files(source: str, notes: Notes) -> list[SourceFile]:
    """Lists the files of a source, without those that this package has written.

    Args:
        source: a file, a folder or a pattern; or Python's manual, which is one table.
        notes: gets a note on vectors (of ``embed`` and `encode_corpus`) and on models (of ``fit``
            and the trainers).
    """
    if source == PYTHON_MANUAL:
        return [SourceFile(Path(PYTHON_MANUAL), PYTHON_MANUAL, is_table=True)]
    root = root_of(source)
    files = []
    models = set()
    for path, document_id in source_files(source):
        name = readable_name("/".join(path.parts[len(root.parts) :]))
        if path.name == "config.json" and (path.parent / "model.safetensors").is_file():
            models.add(path.parent)
            note = Note("left out", ": it is the folder of a model.")
            notes.add(posixpath.dirname(name) or ".", [note])
        elif is_own_output(path):
            rest = ": nextlevelbert wrote it; it holds vectors."
            notes.add(name, [Note("left out", rest)])
        else:
            files.append(SourceFile(path, name, is_table=document_id is None))
    if models:
        files = [file for file in files if not models.intersection(file.path.parents)]
    return files


def is_own_output(path: Path) -> bool:
    """Returns whether a file is a Parquet file of vectors by this package."""
    if path.suffix.lower() != ".parquet":
        return False
    try:
        metadata = pq.read_schema(path).metadata
    except (pa.ArrowException, OSError):
        return False  # `read_file` says what is wrong with the file
    return metadata is not None and b"recipe" in metadata


def check_output(source: str, output: Path) -> None:
    """Refuses to write over a document of the source, or a file that would be read as one.

    Raises:
        ValueError: if the output is a file of the source that another program wrote, or a table in
            the source that cannot be told from a table of documents, as a Parquet file can.
    """
    output = output.resolve()
    folders = [path.resolve() for path in find_paths(source)]
    if not {output, *output.parents}.intersection(folders):
        return
    if output.exists() and not is_own_output(output):
        raise ValueError(f"{output} is a document of {source}; name another file to write.")
    if output.suffix.lower() in (".csv", ".jsonl"):
        raise ValueError(
            f"{output} would be read as a document of {source}; name a file outside of it."
        )


def read_file(file: SourceFile, reading: ReadingOptions) -> tuple[list[Document], list[Note]]:
    """Reads the documents of a file that hold text.

    If two rows have the same id, the second is named ``id (2)``.

    Args:
        file: the file.
        reading: names the columns of tables.

    Returns:
        The documents, and notes about rows and pages that were not read. Without documents, there
        is at least one note.
    """
    errors: list[ValueError] = []
    rows = read_documents(file.path, reading.text_column, reading.id_column, on_error=errors.append)
    documents = []
    times = Counter[str]()
    for row in rows:
        if not row.text.strip():
            continue
        times[row.id] += 1
        name = row.id
        if times[name] > 1:
            name = f"{name} ({times[name]})"
        documents.append(replace(row, id=name))

    notes = []
    for error in errors:
        head = "left out"
        if isinstance(error, PartlyReadError):
            head = "note"
        notes.append(Note(head, rest_of_message(file, error)))
    if documents:
        return documents, notes
    if not notes:
        notes.append(Note("left out", " holds no text."))
    if errors and isinstance(errors[0], NoDocumentError):  # settings, perhaps hundreds of files
        notes = [notes[0]._replace(kind="no table of documents")]
    return documents, notes


def read_files(
    source: str, reading: ReadingOptions, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, Document]]:
    """Reads the documents of all files that can be read, each with its name.

    Files that were not read, and words that `tokenizer` does not know, are named on stderr.

    Args:
        source: a file, a folder or a pattern.
        reading: names the columns of tables.
        tokenizer: the tokenizer of the model.
    """
    all_notes = Notes()
    try:
        for file in list_files(resolve_source(source), all_notes):
            documents, notes = read_file(file, reading)
            if documents:
                notes += notes_on_words(tokenizer, file, documents)
            all_notes.add(file.name, notes)
            for document in documents:
                yield file.name_of(readable_name(document.id)), document
    finally:
        all_notes.print()


def notes_on_words(
    tokenizer: PreTrainedTokenizerBase, file: SourceFile, documents: Sequence[Document]
) -> list[Note]:
    """Names the documents of a file that hold no token, or many unknown words.

    Unknown words are many if they make up 5 % of the text or more.
    """
    wordless = []
    unknown = []
    for document in documents:
        share = unknown_share(tokenizer, document.text)
        if share is None:
            wordless.append(document.id)
        elif share >= _UNKNOWN_SHARE:
            unknown.append(document.id)

    notes = []
    faults = {
        "it holds no word that the model can read": wordless,
        f"the model does not know {_UNKNOWN_SHARE:.0%} of the text or more": unknown,
    }
    for fault, ids in faults.items():
        if not ids:
            continue
        rows = ""
        if file.is_table:
            rows = f", in {len(ids)} of {len(documents)} rows, {ids[0]!r} first"
        notes.append(Note("note", f": {fault}{rows}."))
    return notes


def unknown_share(tokenizer: PreTrainedTokenizerBase, text: str) -> float | None:
    """Measures the share of a text in words that a tokenizer does not know.

    Returns:
        Characters of unknown words by characters of all words; None for a text without a token.
    """
    tokens = tokenize_document(tokenizer, text)
    if len(tokens) == 0:
        return None
    sizes = tokens.char_ends - tokens.char_starts
    unknown = sizes[np.isin(tokens.input_ids, tokenizer.unk_token_id)]
    return float(unknown.sum() / max(sizes.sum(), 1))


def rest_of_message(file: SourceFile, error: Exception) -> str:
    """Returns the message of an error about a file, without the path that it begins with."""
    message = readable_name(str(error))
    path = readable_name(file.path)
    if message.startswith(path):
        return message.removeprefix(path)
    return f": {message}"
