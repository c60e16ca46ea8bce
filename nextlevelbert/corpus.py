"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads; `chunk_vectors` writes
it.

A row is a chunk: ``document``, ``chunk`` (its number in the document), ``start`` and ``end`` (its
characters) and ``vector`` (float16); the rows of a document stand together. How they were made, the
*recipe*, is in the metadata of the schema. `encode_corpus` names a part by its number and a hash of
its documents, and ``_SUCCESS`` holds their number once all are there. The parts of other engines
have any names. Shapes: N chunks of all documents, n of one, D values.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pkgutil
import re
import uuid
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from transformers import PreTrainedConfig

from .models.chunking import ChunkingRule, Splitter
from .models.sentences import text_sentences

logger = logging.getLogger(__name__)
DONE = "_SUCCESS"
FILES = "*.parquet"
COLUMNS = ("document", "chunk", "start", "end", "vector")
_PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")
_CARD = """---\ntags: [nextlevelbert, chunk-vectors]\n---\n# Chunk vectors of {} documents\n
{} vectors of {} dimensions by `{}`; no text is included.\n
```python\nfrom nextlevelbert import VectorCorpus\n\ncorpus = VectorCorpus.from_hub("{}")\n```\n"""


def chunking_recipe(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """How texts are cut, as JSON has it; ValueError for a splitter without a name."""
    if splitter is not None and not isinstance(splitter, str):
        named = splitter if hasattr(splitter, "__qualname__") else type(splitter)
        splitter = f"{named.__module__}.{named.__qualname__}"
        if splitter.endswith(("<lambda>", "functools.partial")):
            raise ValueError(
                "A corpus notes its splitter's name, which a lambda or partial lacks; give a"
                " function."
            )
    facts = {name: value for name, value in asdict(rule).items() if name != "max_chunk_size"}
    return json.loads(json.dumps({**facts, "splitter": splitter}))


def find_splitter(name: str | None) -> Splitter | None:
    """Imports a sentence splitter by its name, such as ``nltk.tokenize.sent_tokenize``.

    Args:
        name: the module and the function, with dots. ``text_sentences`` is this package's own.
            None stands for the chunking rule of the model.

    Raises:
        ValueError: if there is no such function.
    """
    if name is None:
        return None
    if name == "text_sentences":
        return text_sentences
    try:
        splitter = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"There is no sentence splitter {name!r} ({error}). Give a module and a function, such"
            " as nltk.tokenize.sent_tokenize, or text_sentences."
        ) from error
    if not callable(splitter):
        raise ValueError(f"The sentence splitter {name!r} is no function, but {splitter!r}.")
    return splitter


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """The columns of a corpus, with the recipe as metadata; it needs
    ``recipe["encoder"]["hidden_size"]``.
    """
    vector = pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])
    columns = {
        "document": pa.string(),
        "chunk": pa.int32(),
        "start": pa.int64(),
        "end": pa.int64(),
        "vector": vector,
    }
    return pa.schema(list(columns.items()), metadata={"recipe": json.dumps(recipe)})


def recipe_facts(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the vectors, without nesting: where the encoder lies does not matter, only its
    weights.
    """
    flat = {
        f"{part}.{name}": value for part, facts in recipe.items() for name, value in facts.items()
    }
    return {name: value for name, value in flat.items() if name != "encoder.name"}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The fields in which two recipes differ, with both values; encoders of other weights are
    named.
    """
    left = recipe_facts(one)
    right = recipe_facts(other)
    fields = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    for facts, encoder in ((left, one["encoder"]), (right, other["encoder"])):
        facts["encoder.fingerprint"] = (
            f"{encoder.get('name')} ({str(encoder.get('fingerprint'))[:12]}…)"
        )
    return "; ".join(f"{name}: {left.get(name)!r}, {right.get(name)!r}" for name in fields)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name when it is whole and on the disk."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_part(path: str | Path, table: pa.Table) -> None:
    """Writes rows as a Parquet part with check sums of its pages and columns, whole or not at
    all.
    """
    metadata = table.schema.metadata or {}
    sums = {key.decode(): zlib.crc32(value) for key, value in metadata.items()}
    sums |= {name: _check_sum(table[name]) for name in COLUMNS if name in table.column_names}
    options = {
        "compression": "zstd",
        "use_dictionary": ["document"],
        "write_statistics": ["document", "chunk"],
    }
    with whole_file(Path(path)) as file:
        table = table.replace_schema_metadata({**metadata, "sums": json.dumps(sums)})
        pq.write_table(table, file, write_page_checksum=True, **options)


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers of a column, of lists one after the other; `flatten` minds the offset of a
    slice.
    """
    array = column.combine_chunks()
    return np.asarray(array.flatten() if array.type.num_fields else array)


def _check_sum(column: pa.ChunkedArray) -> int:
    """Of the values: a page's check sum leaves out its header, so that it alone misses some flipped
    bits.
    """
    if pa.types.is_string(column.type):
        return zlib.crc32("\0".join(column.to_pylist()).encode())
    return zlib.crc32(np.ascontiguousarray(_values(column)).data)


def read_columns(path: Path, *names: str, recipe: Mapping[str, Any] | None = None) -> Any:
    """Metadata and columns of a part; an error names one that is damaged (Arrow's do not), or of
    another recipe.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = file.schema_arrow.metadata or {}
            columns = file.read(list(names)).columns
        sums = json.loads(metadata.get(b"sums", b"{}")) if _PART.fullmatch(path.name) else {}
        actual = {
            key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"
        }
        actual |= {name: _check_sum(column) for name, column in zip(names, columns, strict=True)}
        if bad := [name for name, value in actual.items() if value != sums.get(name, value)]:
            raise ValueError(f"the checksum of {bad[0]!r} does not match.")
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
        advice = "Delete it and run the same encoding again, which writes this part only."
        raise ValueError(
            f"{path} is damaged, or no part of this corpus: {error} {advice}"
        ) from error
    stored = json.loads(metadata.get(b"recipe", b"null"))
    if stored and recipe and (differences := _differences(stored, recipe)):
        advice = "Write to another folder, or delete this one."
        raise ValueError(f"{path} was made in another way (there, here): {differences}. {advice}")
    return metadata, *columns


def numbered_parts(folder: Path) -> dict[int, Path]:
    """The parts that `encode_corpus` wrote, by number, in order."""
    names = (_PART.fullmatch(path.name) for path in sorted(folder.iterdir()))
    return {int(name[1]): folder / name[0] for name in names if name}


def _finished_parts(folder: Path) -> list[Path]:
    """The parts of a corpus in order, if none is missing."""
    if not (paths := sorted(folder.glob(FILES))):
        raise FileNotFoundError(
            f"There is no encoded corpus at {folder}: no Parquet file. encode_corpus makes one."
        )
    if numbered := numbered_parts(folder):
        count = int((folder / DONE).read_text()) if (folder / DONE).exists() else len(numbered) + 1
        if missing := sorted(set(range(count)) - numbered.keys()):
            raise ValueError(
                f"{folder} is incomplete: it lacks part {missing[0]}. Run the same encoding again."
            )
    return paths


@dataclass(frozen=True)
class EncodedDocument:
    """A document of a corpus: its id, plain chunk vectors ``[n, D]`` float16 and their character
    spans ``[n, 2]``.
    """

    id: str
    vectors: torch.Tensor
    spans: torch.Tensor


class VectorCorpus:
    """A finished corpus: random access to documents and to any run of chunk vectors.

    A part is decoded when it is first read from, into the hidden folder ``.vectors`` beside it (or
    into memory, where that cannot be written), and then mapped into memory: a run of vectors is a
    view.

    Args:
        path: the corpus folder.
        recipe: `ChunkVectors.recipe`, for parts of an engine that does not keep a schema's
            metadata.

    Attributes:
        document_ids, document_offsets: in the order of the parts' names; document i is chunks
            offsets[i:i + 2].
        empty: ids of documents without a token, which are in no other list; ``corpus[id]`` has no
            vectors.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: naming a part that is missing, of another recipe or, also when it is read from,
            damaged.
    """

    def __init__(self, path: str | Path, recipe: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self.document_ids = list[str]()
        self.empty = set[str]()
        self._paths = _finished_parts(self.path)
        numbers = list[np.ndarray]()
        for part in self._paths:
            metadata, names, chunks = read_columns(part, "document", "chunk", recipe=recipe)
            recipe = recipe or json.loads(metadata.get(b"recipe", b"null"))
            if recipe is None:
                raise ValueError(
                    f"{part} does not say how it was made; give the recipe of `ChunkVectors`."
                )
            self.empty.update(json.loads(metadata.get(b"empty", b"[]")))
            numbers.append(_values(chunks))
            self.document_ids += names.filter(pa.array(numbers[-1] == 0)).to_pylist()
        self.recipe = dict(recipe or {})
        self.hidden_size: int = self.recipe["encoder"]["hidden_size"]
        self.splitter: str | None = self.recipe["chunking"]["splitter"]
        self._starts = np.cumsum([0, *map(len, numbers)]).tolist()
        number = np.concatenate(numbers)
        self.num_chunks = len(number)
        place = np.arange(len(number))
        self.document_offsets = np.append(np.flatnonzero(number == 0), self.num_chunks)
        if (number != place - np.maximum.accumulate(np.where(number == 0, place, 0))).any():
            raise ValueError(
                f"{self.path}: the rows of a document do not stand together, in the order of its"
                " chunks."
            )
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        if twice := [
            name for position, name in enumerate(self.document_ids) if self._index[name] != position
        ]:
            raise ValueError(
                f"{self.path} has two documents with the id {twice[0]!r}; ids must be unique."
            )
        self._loaded: dict[int, torch.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}  # a spawned worker maps the files itself

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        name = self.recipe["encoder"]["name"]
        return (
            f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by"
            f" {name})"
        )

    def fingerprint(self) -> str:
        """SHA-256 of ids, order and names of parts, which hold hashes of recipe and texts."""
        names = [path.name for path in self._paths]
        offsets = self.document_offsets.tolist()
        return hashlib.sha256(json.dumps([names, self.document_ids, offsets]).encode()).hexdigest()

    def vectors(self, start: int, stop: int) -> torch.Tensor:
        """Chunk vectors ``[stop - start, D]`` float16 by their number in the corpus, across
        documents and parts.
        """
        if not 0 <= start <= stop <= self.num_chunks:
            raise IndexError(f"Chunks {start}:{stop} are not in {self!r}.")
        first = min(bisect_right(self._starts, start), len(self._paths)) - 1
        pieces = []
        for part in range(first, max(bisect_left(self._starts, stop), first + 1)):
            if (rows := self._loaded.get(part)) is None:
                rows = self._loaded[part] = self._decoded(self._paths[part])
            pieces.append(rows[max(start - self._starts[part], 0) : stop - self._starts[part]])
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    @cached_property
    def _spans(self) -> torch.Tensor:  # [N, 2], characters of all chunks
        columns = [
            list(map(_values, read_columns(path, "start", "end")[1:])) for path in self._paths
        ]
        return torch.from_numpy(np.concatenate(columns, axis=1).T)

    def __getitem__(self, document: int | str) -> EncodedDocument:
        number = self._index.get(document) if isinstance(document, str) else document
        if number is None and document not in self.empty:
            raise KeyError(f"No document {document!r} in {self!r}.")
        if number is not None and not -len(self) <= number < len(self):
            raise IndexError(f"Document {number} is not in {self!r}.")
        start, stop = (
            (0, 0)
            if number is None
            else self.document_offsets[[number % len(self), number % len(self) + 1]]
        )
        name = str(document) if number is None else self.document_ids[number]
        return EncodedDocument(name, self.vectors(int(start), int(stop)), self._spans[start:stop])

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[number] for number in range(len(self)))

    def _decoded(self, path: Path) -> torch.Tensor:
        """All vectors of a part, ``[N, D]``; a copy without the check sum in its name is made
        anew.
        """
        folder = path.parent / ".vectors"
        name = f"{path.stem}.{path.stat().st_mtime_ns:x}"
        for copy in folder.glob(f"{path.stem}.*.npy"):
            with suppress(EOFError, ValueError, OSError):
                array = np.load(copy, mmap_mode="c")
                if copy.stem == f"{name}.{zlib.crc32(array.data):08x}":
                    return torch.from_numpy(np.asarray(array))
                # of the part as it was before, or damaged; one that is cut off is written over
                copy.unlink()
        array = (
            _values(read_columns(path, "vector")[1])
            .reshape(-1, self.hidden_size)
            .astype(np.float16)
        )
        copy = folder / f"{name}.{zlib.crc32(array.data):08x}.npy"
        try:
            folder.mkdir(exist_ok=True)
            with whole_file(copy) as stream:
                np.save(stream, array)
            array = np.load(copy, mmap_mode="c")
        except OSError as error:
            logger.warning(
                "%s cannot be written (%s); %s stays in memory.", folder, error, path.name
            )
        return torch.from_numpy(np.asarray(array))

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """A ValueError names each field in which a model (with the splitter of its ``encode``)
        differs from this.
        """
        fields = ("name", "fingerprint", "pooling", "normalize")
        encoder = {name: getattr(config, f"chunk_encoder_{name}") for name in fields}
        encoder |= {"hidden_size": config.chunk_hidden_size}
        model = {"encoder": encoder, "chunking": chunking_recipe(config.chunking_rule(), splitter)}
        stored = {
            **self.recipe,
            "encoder": {name: self.recipe["encoder"].get(name) for name in encoder},
        }
        if differences := _differences(stored, model):
            advice = (
                "Encode the documents again with the model's encoder and chunking, or load the"
                " model that fits."
            )
            raise ValueError(
                f"{self!r} does not fit the model (corpus, model): {differences}. {advice}"
            )

    def push_to_hub(
        self, repo_id: str, private: bool | None = None, token: str | None = None
    ) -> CommitInfo:
        """Uploads the parts as a dataset repository ``"user/name"``: vectors and character spans,
        not the texts.
        """
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        card = _CARD.format(
            len(self), self.num_chunks, self.hidden_size, self.recipe["encoder"]["name"], repo
        )
        api.upload_file(
            path_or_fileobj=card.encode(),
            path_in_repo="README.md",
            repo_id=repo,
            repo_type="dataset",
        )
        options: Any = {
            "allow_patterns": [DONE, FILES],
            "delete_patterns": FILES,
        }  # of an earlier, longer corpus
        return api.upload_folder(
            repo_id=repo, folder_path=self.path, repo_type="dataset", **options
        )

    @classmethod
    def from_hub(
        cls, repo_id: str, revision: str | None = None, token: str | None = None
    ) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded (once) and opens it."""
        options: Any = {"revision": revision, "token": token, "allow_patterns": [DONE, FILES]}
        return cls(snapshot_download(repo_id, repo_type="dataset", **options))
