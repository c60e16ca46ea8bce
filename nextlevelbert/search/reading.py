"""Lists and reads the files of a source, with notes about what was not read."""

from __future__ import annotations

import hashlib
import os
import posixpath
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from pydoc_data import topics
from typing import TYPE_CHECKING, Any, NamedTuple

from ..bundled import PYTHON_MANUAL, resolve_source
from ..data.documents import Document
from ..data.files import (
    TEXTS,
    PartlyReadError,
    find_paths,
    named_errors,
    suffix,
)
from ..data.reading import (
    named_files,
    read_documents,
)
from ..data.rows import NoDocumentError
from ..messages import names_in_line, readable_name
from ..models.files import local_path
from ..models.sentences import Splitter
from ..models.tokenizing import private_tokenizer
from .notes import Note, Notes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# A document is named if the model does not know the words that make up this share of its text.
_UNKNOWN_SHARE = 0.05
_BYTES_OF_BLANK = 1_000  # at most, in a file that is looked at for white space
_READINGS = 3  # of a file that changes while it is read
_CHARACTERS_PER_RUN = 1_000_000  # read at once, if nothing is written
# Nanoseconds. Some file systems count time in steps of two seconds: a file that was changed within
# the last step may change once more without another time stamp.
_COARSEST_TIME = 2 * 10**9


def default_cache_dir() -> Path:
    """Returns the folder of the cache: of the XDG base directories, or in the home folder."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
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

    def __post_init__(self) -> None:
        local_path(self.cache_dir)


@dataclass
class SourceFile:
    """A file of a source, and what it held when it was last looked at.

    Args:
        path: the file.
        name: printed name of the file, which is the path below the folder.
        is_table: true for a table, in which each row is a document.
        content: hash of the file's bytes.
        state: the state of the file before it was hashed, see `state_of_files`.
    """

    path: Path
    name: str
    is_table: bool
    content: str = ""
    state: str = ""

    def name_of(self, document: str) -> str:
        """Returns the printed name of a document of the file."""
        if self.is_table:
            return f"{self.name}#{document}"
        return self.name

    @property
    def key(self) -> str:
        """Returns the name by which the content of the file is remembered."""
        return readable_name(os.path.abspath(self.path))

    def paths(self) -> list[Path]:
        """Returns the file, or the files of a saved data set."""
        if str(self.path) == PYTHON_MANUAL:
            return [Path(topics.__file__)]  # which is written anew for each version of Python
        if self.is_table and self.path.is_dir():
            return sorted(path for path in self.path.rglob("*") if path.is_file())
        return [self.path]

    def content_hash(self) -> str:
        """Hashes the bytes of the file, and how they are read.

        Raises:
            OSError: if the file cannot be read.
        """
        digest = hashlib.sha256()
        for path in self.paths():
            digest.update(f"{suffix(path)} {path.suffix}".encode(errors="replace"))
            with path.open("rb") as stream:
                hashlib.file_digest(stream, lambda: digest)
        return digest.hexdigest()[:32]

    def look(self, known_state: str = "", known_content: str = "") -> None:
        """Looks at the file, and hashes it unless its state is known.

        Raises:
            ValueError: if the file cannot be read.
        """
        with named_errors(self.path):
            self.state = state_of_files(self.paths())
            if self.state and self.state == known_state:
                self.content = known_content
            else:
                self.content = self.content_hash()


def state_of_files(paths: Iterable[Path]) -> str:
    """Describes files by their sizes, times and inodes.

    The time of the last change to the inode shows an edit whose author has set the time stamp back.

    Returns:
        The state; empty if the next change to a file may not be seen in it.
    """
    now = time.time_ns()
    states = []
    for path in paths:
        status = path.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        if max(times) + _COARSEST_TIME >= now:
            return ""
        states.append((status.st_size, times, status.st_ino))
    return repr(states)


def list_files(source: str, notes: Notes) -> list[SourceFile]:
    """Lists the files of a source, without those that this package has written.

    Args:
        source: a file, a folder or a pattern; or Python's manual, which is one table.
        notes: gets a note on vectors (of ``embed`` and `encode_corpus`) and on models (of ``fit``
            and the trainers).

    Raises:
        ValueError: if there is no file, or no file holds more than white space.
    """
    source = resolve_source(source)
    if source == PYTHON_MANUAL:
        return [SourceFile(Path(PYTHON_MANUAL), PYTHON_MANUAL, is_table=True)]
    files = []
    models = set()
    for path, name in named_files(source, notes.add_line).items():
        if path.name == "config.json" and (path.parent / "model.safetensors").is_file():
            models.add(path.parent)
            note = Note("left out", ": it is the folder of a model.")
            notes.add(posixpath.dirname(name) or ".", [note])
        elif is_own_output(path):
            rest = ": nextlevelbert wrote it; it holds vectors."
            notes.add(name, [Note("left out", rest)])
        else:
            files.append(SourceFile(path, name, is_table=suffix(path) not in TEXTS))
    if models:
        files = [file for file in files if not models.intersection(file.path.parents)]
    if files and all(_is_blank(file.path) for file in files):
        names = names_in_line([readable_name(file.path.name) for file in files])
        raise ValueError(f"{source!r} holds no text. Empty or only white space: {names}.")
    return files


def _is_blank(path: Path) -> bool:
    try:
        return os.path.getsize(path) <= _BYTES_OF_BLANK and not path.read_bytes().strip()
    except OSError:
        return False  # a saved data set; or reading says what is wrong with the file


def is_own_output(path: Path) -> bool:
    """Returns whether a file is a Parquet file of vectors by this package."""
    if path.suffix.lower() != ".parquet":
        return False
    import pyarrow as pa  # as long to import as numpy
    import pyarrow.parquet as pq

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


class DocumentRun(NamedTuple):
    """Some documents of a file, in their order.

    Args:
        file: the file.
        content: hash of the bytes that the file held.
        position: index of the run among those of the file.
        documents: the documents. Only a file that holds no text has a run without documents.
        is_last: true for the last run of the file.
        notes: in the last run, notes about rows and pages of the file that were not read.
    """

    file: SourceFile
    content: str
    position: int
    documents: list[Document]
    is_last: bool = False
    notes: Sequence[Note] = ()


def read_runs(file: SourceFile, reading: ReadingOptions, characters: int) -> Iterator[DocumentRun]:
    """Streams the documents of a file that hold text, at least one run of them.

    If two rows have the same id, the second is named ``id (2)``.

    Args:
        file: the file.
        reading: names the columns of tables.
        characters: number of characters after which a run ends, with the document that reaches it.
    """
    errors: list[ValueError] = []
    rows = read_documents(file.path, reading.text_column, reading.id_column, on_error=errors.append)
    times = Counter[str]()
    position = 0
    size = 0
    documents: list[Document] = []
    for row in rows:
        if not row.text.strip():
            continue
        if size >= characters:
            yield DocumentRun(file, file.content, position, documents)
            position += 1
            size = 0
            documents = []
        times[row.id] += 1
        name = row.id
        if times[name] > 1:
            name = f"{name} ({times[name]})"
        documents.append(replace(row, id=name))
        size += len(row.text)
    notes = _notes_on_reading(file, errors, is_empty=not documents)
    yield DocumentRun(file, file.content, position, documents, is_last=True, notes=notes)


def read_content(
    file: SourceFile, reading: ReadingOptions, characters: int
) -> Iterator[DocumentRun]:
    """Streams the runs of a file; if it changes meanwhile, it is read again from its beginning.

    Args:
        file: the file; its content and state are those of the last reading.
        reading: names the columns of tables.
        characters: number of characters after which a run ends.

    Raises:
        ValueError: if the file cannot be read any more, or changes again and again.
    """
    with named_errors(file.path):
        for _ in range(_READINGS):
            for run in read_runs(file, reading, characters):
                file.look(file.state, file.content)
                if file.content != run.content:
                    break
                yield run
            else:  # to the last run
                return
        raise ValueError("It changes while it is read. Run the command again.")


def _notes_on_reading(file: SourceFile, errors: list[ValueError], is_empty: bool) -> list[Note]:
    """Describes the errors of a file; there is at least one note about a file without text."""
    notes = [note_on_error(file, error) for error in errors]
    if not is_empty:
        return notes
    if not notes:
        notes.append(Note("left out", " holds no text."))
    if errors and isinstance(errors[0], NoDocumentError):  # settings, perhaps hundreds of files
        notes = [notes[0]._replace(kind="no table of documents")]
    return notes


def read_files(
    source: str, reading: ReadingOptions, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Document]:
    """Reads the documents of all files that can be read.

    Files that were not read, and words that `tokenizer` does not know, are named on stderr.
    """
    all_notes = Notes()
    try:
        for file in list_files(source, all_notes):
            counts = []
            for run in read_runs(file, reading, _CHARACTERS_PER_RUN):
                counts.append(count_unknown(tokenizer, run.documents))
                all_notes.add(file.name, run.notes)
                yield from run.documents
            all_notes.add(file.name, notes_on_words(file, counts))
    finally:
        all_notes.print()


def count_unknown(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[Document]
) -> dict[str, Any]:
    """Lists the documents that hold no token, or many words that a tokenizer does not know.

    Unknown words are many if they make up 5 % of the characters of all words, or more.

    Returns:
        The number of all documents, and ids, which JSON can store; see `notes_on_words`.
    """
    wordless = []
    unknown = []
    tokens = private_tokenizer(tokenizer)([document.text for document in documents])
    for document, tokenized in zip(documents, tokens, strict=True):
        is_unknown = tokenized.input_ids == tokenizer.unk_token_id
        sizes = tokenized.char_ends - tokenized.char_starts
        if len(tokenized) == 0:
            wordless.append(document.id)
        elif sizes[is_unknown].sum() / max(sizes.sum(), 1) >= _UNKNOWN_SHARE:
            unknown.append(document.id)
    return {"documents": len(documents), "wordless": wordless, "unknown": unknown}


def notes_on_words(file: SourceFile, counts: Sequence[Mapping[str, Any]]) -> list[Note]:
    """Describes how many documents of a file hold no token, or many unknown words."""
    notes = []
    faults = {
        "wordless": "it holds no word that the model can read",
        "unknown": f"the model does not know {_UNKNOWN_SHARE:.0%} of the text or more",
    }
    total = sum(count["documents"] for count in counts)
    for name, fault in faults.items():
        ids = list(chain.from_iterable(count[name] for count in counts))
        rows = ""
        if ids and file.is_table:
            rows = f", in {len(ids)} of {total} rows, {ids[0]!r} first"
        if ids:
            notes.append(Note("note", f": {fault}{rows}."))
    return notes


def note_on_error(file: SourceFile, error: Exception) -> Note:
    """Returns the note that a file, or a part of it, was not read."""
    head = "left out"
    if isinstance(error, PartlyReadError):
        head = "note"
    message = readable_name(str(error))
    rest = message.removeprefix(readable_name(file.path))
    if rest == message:
        rest = f": {message}"
    return Note(head, rest)
