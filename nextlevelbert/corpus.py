"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads, written once and read many times.

A row is a chunk: ``document``, ``chunk`` (its number in the document), ``start`` and ``end`` (its characters) and
``vector`` (float16); the rows of a document stand together. How they were made, the *recipe*, is in the metadata of
the schema. `encode_corpus` names a part by its number and a hash of its documents, and ``_SUCCESS`` holds their number
once all are there. The parts of other engines have any names. Shapes: N chunks of all documents, n of one, D values.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
import uuid
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tqdm.auto import tqdm
from transformers import PreTrainedConfig

from .data.rows import as_documents
from .encoders import LoadedChunkEncoder, load_chunk_encoder
from .models.chunking import ChunkingRule, Splitter, chunk_spans, flatten_chunks, tokenize_document

logger = logging.getLogger(__name__)
Group = dict[str, list[str]]  # ids and texts of some documents
DONE, FILES, COLUMNS = "_SUCCESS", "*.parquet", ("document", "chunk", "start", "end", "vector")
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
            raise ValueError("A corpus notes its splitter's name, which a lambda or partial lacks; give a function.")
    facts = {name: value for name, value in asdict(rule).items() if name != "max_chunk_size"}
    return json.loads(json.dumps({**facts, "splitter": splitter}))


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """The columns of a corpus, with the recipe as metadata; it needs ``recipe["encoder"]["hidden_size"]``."""
    vector = pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])
    columns = {"document": pa.string(), "chunk": pa.int32(), "start": pa.int64(), "end": pa.int64(), "vector": vector}
    return pa.schema(list(columns.items()), metadata={"recipe": json.dumps(recipe)})


def _facts(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the vectors, without nesting: where the encoder lies does not matter, only its weights."""
    flat = {f"{part}.{name}": value for part, facts in recipe.items() for name, value in facts.items()}
    return {name: value for name, value in flat.items() if name != "encoder.name"}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The fields in which two recipes differ, with both values; encoders of other weights are named."""
    left, right = _facts(one), _facts(other)
    fields = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    for facts, encoder in ((left, one["encoder"]), (right, other["encoder"])):
        facts["encoder.fingerprint"] = f"{encoder.get('name')} ({str(encoder.get('fingerprint'))[:12]}…)"
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
    """Writes rows as a Parquet part with check sums of its pages and columns, whole or not at all."""
    metadata = table.schema.metadata or {}
    sums = {key.decode(): zlib.crc32(value) for key, value in metadata.items()}
    sums |= {name: _check_sum(table[name]) for name in COLUMNS if name in table.column_names}
    options = {"compression": "zstd", "use_dictionary": ["document"], "write_statistics": ["document", "chunk"]}
    with whole_file(Path(path)) as file:
        table = table.replace_schema_metadata({**metadata, "sums": json.dumps(sums)})
        pq.write_table(table, file, write_page_checksum=True, **options)


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers of a column, of lists one after the other; `flatten` minds the offset of a slice."""
    array = column.combine_chunks()
    return np.asarray(array.flatten() if array.type.num_fields else array)


def _check_sum(column: pa.ChunkedArray) -> int:
    if pa.types.is_string(column.type):
        return zlib.crc32("\0".join(column.to_pylist()).encode())
    return zlib.crc32(np.ascontiguousarray(_values(column)).data)


def _read_columns(path: Path, *names: str, recipe: Mapping[str, Any] | None = None) -> Any:
    """Metadata and columns of a part; an error names one that is damaged (Arrow's do not), or of another recipe."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata, columns = file.schema_arrow.metadata or {}, file.read(list(names)).columns
        sums = json.loads(metadata.get(b"sums", b"{}")) if _PART.fullmatch(path.name) else {}
        actual = {key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"}
        actual |= {name: _check_sum(column) for name, column in zip(names, columns, strict=True)}
        if bad := [name for name, value in actual.items() if value != sums.get(name, value)]:
            raise ValueError(f"the check sum of {bad[0]!r} is another one.")
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
        advice = "Delete it and run the same encoding again, which writes this part only."
        raise ValueError(f"{path} is damaged, or no part of this corpus: {error} {advice}") from error
    stored = json.loads(metadata.get(b"recipe", b"null"))
    if stored and recipe and (differences := _differences(stored, recipe)):
        advice = "Write to another folder, or delete this one."
        raise ValueError(f"{path} was made in another way (there, here): {differences}. {advice}")
    return metadata, *columns


def _numbered_parts(folder: Path) -> dict[int, Path]:
    """The parts that `encode_corpus` wrote, by number, in order."""
    names = (_PART.fullmatch(path.name) for path in sorted(folder.iterdir()))
    return {int(name[1]): folder / name[0] for name in names if name}


def _finished_parts(folder: Path) -> list[Path]:
    """The parts of a corpus in order, if none is missing."""
    if not (paths := sorted(folder.glob(FILES))):
        raise FileNotFoundError(f"There is no encoded corpus at {folder}: no Parquet file. encode_corpus makes one.")
    if numbered := _numbered_parts(folder):
        count = int((folder / DONE).read_text()) if (folder / DONE).exists() else len(numbered) + 1
        if missing := sorted(set(range(count)) - numbered.keys()):
            raise ValueError(f"{folder} is incomplete: it lacks part {missing[0]}. Run the same encoding again.")
    return paths


@dataclass(frozen=True)
class EncodedDocument:
    """A document of a corpus: its id, plain chunk vectors ``[n, D]`` float16 and their character spans ``[n, 2]``."""

    id: str
    vectors: torch.Tensor
    spans: torch.Tensor


class VectorCorpus:
    """A finished corpus: random access to documents and to any run of chunk vectors.

    A part is decoded when it is first read from, into the hidden folder ``.vectors`` beside it (or into memory, where
    that cannot be written), and then mapped into memory: a run of vectors is a view.

    Args:
        path: the corpus folder.
        recipe: `ChunkVectors.recipe`, for parts of an engine that does not keep a schema's metadata.

    Attributes:
        document_ids, document_offsets: in the order of the parts' names; document i is chunks offsets[i:i + 2].
        empty: ids of documents without a token, which are in no other list; ``corpus[id]`` has no vectors.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: naming a part that is missing, of another recipe or, also when it is read from, damaged.
    """

    def __init__(self, path: str | Path, recipe: Mapping[str, Any] | None = None) -> None:
        self.path, self.document_ids, self.empty = Path(path), list[str](), set[str]()
        self._paths, numbers = _finished_parts(self.path), list[np.ndarray]()
        for part in self._paths:
            metadata, names, chunks = _read_columns(part, "document", "chunk", recipe=recipe)
            recipe = recipe or json.loads(metadata.get(b"recipe", b"null"))
            if recipe is None:
                raise ValueError(f"{part} does not say how it was made; give the recipe of `ChunkVectors`.")
            self.empty.update(json.loads(metadata.get(b"empty", b"[]")))
            numbers.append(_values(chunks))
            self.document_ids += names.filter(pa.array(numbers[-1] == 0)).to_pylist()
        self.recipe = dict(recipe or {})
        self.hidden_size: int = self.recipe["encoder"]["hidden_size"]
        self.splitter: str | None = self.recipe["chunking"]["splitter"]
        self._starts, number = np.cumsum([0, *map(len, numbers)]).tolist(), np.concatenate(numbers)
        self.num_chunks, place = len(number), np.arange(len(number))
        self.document_offsets = np.append(np.flatnonzero(number == 0), self.num_chunks)
        if (number != place - np.maximum.accumulate(np.where(number == 0, place, 0))).any():
            raise ValueError(f"{self.path}: the rows of a document do not stand together, in the order of its chunks.")
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        if twice := [name for position, name in enumerate(self.document_ids) if self._index[name] != position]:
            raise ValueError(f"{self.path} has two documents with the id {twice[0]!r}; ids must be unique.")
        self._loaded: dict[int, torch.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}  # a spawned worker maps the files itself

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        name = self.recipe["encoder"]["name"]
        return f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by {name})"

    def fingerprint(self) -> str:
        """SHA-256 of ids, order and names of parts, which hold hashes of recipe and texts."""
        names, offsets = [path.name for path in self._paths], self.document_offsets.tolist()
        return hashlib.sha256(json.dumps([names, self.document_ids, offsets]).encode()).hexdigest()

    def vectors(self, start: int, stop: int) -> torch.Tensor:
        """Chunk vectors ``[stop - start, D]`` float16 by their number in the corpus, across documents and parts."""
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
        columns = [list(map(_values, _read_columns(path, "start", "end")[1:])) for path in self._paths]
        return torch.from_numpy(np.concatenate(columns, axis=1).T)

    def __getitem__(self, document: int | str) -> EncodedDocument:
        number = self._index.get(document) if isinstance(document, str) else document
        if number is None and document not in self.empty:
            raise KeyError(f"No document {document!r} in {self!r}.")
        if number is not None and not -len(self) <= number < len(self):
            raise IndexError(f"Document {number} is not in {self!r}.")
        start, stop = (0, 0) if number is None else self.document_offsets[[number % len(self), number % len(self) + 1]]
        name = str(document) if number is None else self.document_ids[number]
        return EncodedDocument(name, self.vectors(int(start), int(stop)), self._spans[start:stop])

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[number] for number in range(len(self)))

    def _decoded(self, path: Path) -> torch.Tensor:
        """All vectors of a part, ``[N, D]``; a copy without the check sum in its name is made anew."""
        folder, name = path.parent / ".vectors", f"{path.stem}.{path.stat().st_mtime_ns:x}"
        for copy in folder.glob(f"{path.stem}.*.npy"):
            with suppress(EOFError, ValueError, OSError):
                array = np.load(copy, mmap_mode="c")
                if copy.stem == f"{name}.{zlib.crc32(array.data):08x}":
                    return torch.from_numpy(np.asarray(array))
                copy.unlink()  # of the part as it was before, or damaged; one that is cut off is written over
        array = _values(_read_columns(path, "vector")[1]).reshape(-1, self.hidden_size).astype(np.float16)
        copy = folder / f"{name}.{zlib.crc32(array.data):08x}.npy"
        try:
            folder.mkdir(exist_ok=True)
            with whole_file(copy) as stream:
                np.save(stream, array)
            array = np.load(copy, mmap_mode="c")
        except OSError as error:
            logger.warning("%s cannot be written (%s); %s stays in memory.", folder, error, path.name)
        return torch.from_numpy(np.asarray(array))

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """A ValueError names each field in which a model (with the splitter of its ``encode``) differs from this."""
        fields = ("name", "fingerprint", "pooling", "normalize")
        encoder = {name: getattr(config, f"chunk_encoder_{name}") for name in fields}
        encoder |= {"hidden_size": config.chunk_hidden_size}
        model = {"encoder": encoder, "chunking": chunking_recipe(config.chunking_rule(), splitter)}
        stored = {**self.recipe, "encoder": {name: self.recipe["encoder"].get(name) for name in encoder}}
        if differences := _differences(stored, model):
            advice = "Encode the documents again with the model's encoder and chunking, or load the model that fits."
            raise ValueError(f"{self!r} does not fit the model (corpus, model): {differences}. {advice}")

    def push_to_hub(self, repo_id: str, private: bool | None = None, token: str | None = None) -> CommitInfo:
        """Uploads the parts as a dataset repository ``"user/name"``: vectors and character spans, not the texts."""
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        card = _CARD.format(len(self), self.num_chunks, self.hidden_size, self.recipe["encoder"]["name"], repo)
        api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo, repo_type="dataset")
        options: Any = {"allow_patterns": [DONE, FILES], "delete_patterns": FILES}  # of an earlier, longer corpus
        return api.upload_folder(repo_id=repo, folder_path=self.path, repo_type="dataset", **options)

    @classmethod
    def from_hub(cls, repo_id: str, revision: str | None = None, token: str | None = None) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded (once) and opens it."""
        options: Any = {"revision": revision, "token": token, "allow_patterns": [DONE, FILES]}
        return cls(snapshot_download(repo_id, repo_type="dataset", **options))


def chunk_table(schema: pa.Schema, ids: Sequence[Any], spans: Sequence[np.ndarray], vectors: torch.Tensor) -> pa.Table:
    """Rows of documents: their ids, the character spans ``[n, 2]`` of each, and the vectors ``[N, D]`` of all."""
    counts = [len(span) for span in spans]
    chunks = np.concatenate([np.zeros(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)])
    starts, ends = np.concatenate([np.zeros((0, 2), np.int64), *spans]).T
    names = pa.array([str(name) for name in ids], pa.string()).take(pa.array(np.repeat(np.arange(len(ids)), counts)))
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.cpu().half().numpy().reshape(-1)), vectors.shape[1])
    return pa.Table.from_arrays([names, *map(pa.array, (chunks, starts, ends)), rows], schema=schema)


@dataclass
class ChunkVectors:
    """A function from a batch of documents to their rows, which travels to other processes.

    For `datasets.Dataset.map(batched=True)`, Ray Data's `map_batches`, Spark's `mapInArrow`, and `encode_corpus`.

    Args:
        encoder: from `load_chunk_encoder`, and travels along; or its name or path, and each process loads it.
        rule, splitter: how texts are cut, as in ``encode``; a corpus notes the splitter's name.
        tokens_per_batch: as in ``ChunkEncoder.encode``.
        device: where the encoder runs; by default where it is.
        bar: a progress bar in chunks.
    """

    encoder: LoadedChunkEncoder | str
    rule: ChunkingRule
    splitter: Splitter | None = None
    tokens_per_batch: int | None = None
    device: str | None = None
    bar: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "source"}

    @cached_property
    def source(self) -> LoadedChunkEncoder:
        """The encoder, loaded and in its place."""
        source = load_chunk_encoder(self.encoder) if isinstance(self.encoder, str) else self.encoder
        source.encoder.to(self.device or source.encoder.device)
        return source

    @property
    def recipe(self) -> dict[str, Any]:
        """What determines the vectors of a text."""
        encoder = self.source.encoder
        facts = {name: getattr(encoder, name) for name in ("hidden_size", "pooling", "normalize")}
        facts |= {"name": self.source.name, "fingerprint": self.source.fingerprint, "dtype": encoder.precision}
        return {"encoder": facts, "chunking": chunking_recipe(self.rule, self.splitter)}

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with the recipe as metadata."""
        return corpus_schema(self.recipe)

    def __call__(self, batch: Any) -> pa.Table:
        """Rows of the documents ``{"id": […], "text": […]}``: lists, arrays or an Arrow table.

        A warning names a document without a token, which has no row; a ValueError one whose vectors are not finite.
        """
        ids, texts = (np.asarray(batch[key], object).tolist() for key in ("id", "text"))
        tokens, cuts = [tokenize_document(self.source.tokenizer, text) for text in texts], []
        for name, text, document in zip(ids, texts, tokens, strict=True):
            if len(document) == 0:
                logger.warning("Document %r holds no token, so it has no vectors.", name)
            try:
                cuts.append(self.rule.text_boundaries(text, document, self.splitter))
            except (TypeError, ValueError) as error:
                raise type(error)(f"Document {name!r}: {error}") from error
        flat_ids, boundaries, offsets = flatten_chunks([document.input_ids for document in tokens], cuts)
        vectors = self.source.encoder.encode(flat_ids, boundaries, self.rule, self.tokens_per_batch, self.bar).half()
        if bad := (~vectors.isfinite().all(dim=1)).nonzero().flatten().tolist():
            name = ids[int(np.searchsorted(offsets, bad[0], side="right")) - 1]
            raise ValueError(f"The encoder gave {len(bad)} vectors that are not finite, in document {name!r} first.")
        return chunk_table(self.schema, ids, list(map(chunk_spans, tokens, cuts)), vectors)


def encode_corpus(
    documents: Iterable[Any],
    encoder: LoadedChunkEncoder | str | Callable[[Group], pa.Table],
    rule: ChunkingRule | None,
    folder: str | Path,
    *,
    tokens_per_batch: int | None = None,
    splitter: Splitter | None = None,
    characters_per_part: int = 4_000_000,
    append: bool = False,
    progress: bool = True,
) -> VectorCorpus:
    """Encodes documents into a corpus folder, or goes on where an earlier call was killed.

    The micro-batches of a part depend on its documents only. So a run that goes on after a kill, or several processes
    (``RANK`` of ``WORLD_SIZE`` writes every n-th part), end with the bytes of a straight run on the same processor.

    Args:
        documents: texts, ``(id, text)``, dicts, a `datasets.Dataset`, `Document` objects: see `as_documents`.
        encoder, rule, tokens_per_batch, splitter: as in `ChunkVectors`; or what is called like it, and no rule.
        folder: where the parts go. A finished corpus of the same documents is returned as it is.
        characters_per_part: a part ends with the document that reaches this many; the most that a kill can cost.
        append: the documents come after those that are there, in further parts.

    Raises:
        ValueError: for documents or vectors that cannot be stored, and a folder of other documents or another recipe.
    """
    vectors: Any = ChunkVectors(encoder, rule, splitter, tokens_per_batch) if rule else encoder  # type: ignore[arg-type]
    folder, planned = Path(folder), dict[int, Path]()
    folder.mkdir(parents=True, exist_ok=True)
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    with tqdm(desc=folder.name, unit="chunk", disable=not progress) as vectors.bar, ThreadPoolExecutor(1) as disk:
        writing: Any = disk.submit(int)  # a part is written while the next one is encoded
        for number, path, group in _plan(_groups(documents, characters_per_part), folder, vectors.schema, append):
            planned[number] = path
            if number % processes == rank and not path.exists():
                (folder / DONE).unlink(missing_ok=True)
                table = vectors(group)
                if len(table) == 0:
                    raise ValueError(f"A whole part of documents holds no token, from {group['id'][0]!r} on.")
                empty = json.dumps(sorted(set(group["id"]) - set(table["document"].unique().to_pylist())))
                table = table.replace_schema_metadata({**table.schema.metadata, "empty": empty})
                writing.result()
                writing = disk.submit(write_part, path, table)
        writing.result()
    vectors.bar = None
    if not planned:
        raise ValueError("No document was given; a corpus needs at least one.")
    if further := [path.name for number, path in _numbered_parts(folder).items() if number > max(planned)]:
        raise ValueError(f"{folder} holds more documents than are given, in {further[0]}. Encode into another folder.")
    while not all(path.exists() for path in planned.values()) or (rank > 0 and not (folder / DONE).exists()):
        time.sleep(0.2)  # until the other processes have written theirs
    if rank == 0 and not (folder / DONE).exists():
        for leftover in folder.glob("*.tmp"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        with whole_file(folder / DONE) as file:
            file.write(str(max(planned) + 1).encode())
    return VectorCorpus(folder)


def _plan(groups: Iterable[Group], folder: Path, schema: pa.Schema, append: bool) -> Iterator[tuple[int, Path, Group]]:
    """Number, path and documents of each part; ValueError where the folder holds another one in its place."""
    present, seen, first, recipe = _numbered_parts(folder), set[str](), 0, json.loads(schema.metadata[b"recipe"])
    for path in present.values():
        _read_columns(path, recipe=recipe)
    for count, group in enumerate(groups):
        digest = hashlib.sha256(json.dumps([_facts(recipe), group]).encode()).hexdigest()[:16]
        if append and count == 0:  # after all others, or where an earlier call appended the same documents
            first = next((number for number, path in present.items() if digest in path.name), len(present))
            seen.update(*(_read_columns(present[number], "document")[1].to_pylist() for number in range(first)))
        for name in group["id"]:
            if name in seen:
                raise ValueError(f"Two documents have the id {name!r}; ids must be unique in {folder}.")
            seen.add(name)
        path = folder / f"part-{first + count:06d}-{digest}.parquet"
        if (other := present.get(first + count, path)) != path:
            raise ValueError(
                f"{other} holds other documents than are given (from {group['id'][0]!r} on), or was written with "
                "another characters_per_part. Encode into another folder, or delete this one."
            )
        yield first + count, path, group


def _groups(documents: Iterable[Any], characters: int) -> Iterator[Group]:
    """The documents of each part. None begins with a blank document."""
    size, group = 0, Group(id=[], text=[])
    for document in as_documents(documents):
        if size >= characters and document.text.strip():
            yield group
            size, group = 0, Group(id=[], text=[])
        group["id"].append(document.id)
        group["text"].append(document.text)
        size += len(document.text)
    if group["id"]:
        yield group
