"""A corpus: chunk vectors in a folder of Parquet parts that any tool reads, written once and read many times.

A row is a chunk: ``document``, ``chunk`` (its number in the document), ``start`` and ``end`` (its characters) and
``vector`` (float16); the rows of a document stand together. How they were made, the *recipe*, is in the metadata of
the schema. `encode_corpus` names a part by its number and a hash of its documents, and ``_SUCCESS`` holds their number
once all are there. The parts of other engines have any names.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from transformers import PreTrainedConfig

from .models.chunking import ChunkingRule, Splitter

logger = logging.getLogger(__name__)

DONE, FILES, COLUMNS = "_SUCCESS", "*.parquet", ("document", "chunk", "start", "end", "vector")
_PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")
_CARD = """---\ntags: [nextlevelbert, chunk-vectors]\n---\n# Chunk vectors of {} documents\n
{} vectors of {} dimensions by `{}`; no text is included.\n
```python\nfrom nextlevelbert import VectorCorpus\n\ncorpus = VectorCorpus.from_hub("{}")\n```\n"""


def chunking_recipe(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """How texts are cut, as JSON has it; ValueError for a splitter without a name, or beside fixed chunks."""
    if splitter is not None and not isinstance(splitter, str):
        named = splitter if hasattr(splitter, "__qualname__") else type(splitter)
        splitter = f"{named.__module__}.{named.__qualname__}"
        if splitter.endswith(("<lambda>", "functools.partial")):
            raise ValueError("A corpus notes its splitter's name, which a lambda or partial lacks; give a function.")
    if splitter and rule.mode == "fixed":
        raise ValueError("splitter needs a rule with mode='sentences' or 'packed_sentences'; this one has 'fixed'.")
    facts = {name: value for name, value in asdict(rule).items() if name != "max_chunk_size"}
    return json.loads(json.dumps({**facts, "splitter": splitter}))


def corpus_schema(recipe: Mapping[str, Any]) -> pa.Schema:
    """The columns of a corpus, with the recipe as metadata; it needs ``recipe["encoder"]["hidden_size"]``."""
    vector = pa.list_(pa.float16(), recipe["encoder"]["hidden_size"])
    columns = {"document": pa.string(), "chunk": pa.int32(), "start": pa.int64(), "end": pa.int64(), "vector": vector}
    return pa.schema(list(columns.items()), metadata={"recipe": json.dumps(recipe)})


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


def read_columns(path: Path, *names: str) -> Any:
    """Metadata and columns of a part; an error names it, which Arrow's own do not."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata, columns = file.schema_arrow.metadata or {}, file.read(list(names)).columns
        sums = json.loads(metadata.get(b"sums", b"{}")) if _PART.fullmatch(path.name) else {}
        actual = {key.decode(): zlib.crc32(value) for key, value in metadata.items() if key != b"sums"}
        actual |= {name: _check_sum(column) for name, column in zip(names, columns, strict=True)}
        if bad := [name for name, value in actual.items() if value != sums.get(name, value)]:
            raise ValueError(f"the check sum of {bad[0]!r} is another one.")
        return metadata, *columns
    except (pa.ArrowException, OSError, ValueError, LookupError, AttributeError) as error:
        advice = "Delete it and run the same encoding again, which writes this part only."
        raise ValueError(f"{path} is damaged, or no part of this corpus: {error} {advice}") from error


def differing_fields(left: Mapping[str, Any], right: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Fields that differ between two nested dicts, with both values."""
    differences = []
    for key in {**left, **right}:
        one, other = left.get(key), right.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            differences += differing_fields(one, other, f"{prefix}{key}.")
        elif one != other:
            differences.append(f"{prefix}{key}: {one!r}, {other!r}")
    return differences


def without_name(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the vectors: where the encoder lies does not matter, only its weights."""
    return {**recipe, "encoder": {**recipe["encoder"], "name": None}}


def recipe_differences(stored: Mapping[str, Any], recipe: Mapping[str, Any]) -> list[str]:
    """Fields that decide the vectors and differ; encoders with other weights are named."""
    same = stored["encoder"].get("fingerprint") == recipe["encoder"].get("fingerprint")

    def readable(recipe: Mapping[str, Any]) -> dict[str, Any]:
        encoder = recipe["encoder"]
        weights = None if same else f"{encoder.get('name')} ({str(encoder.get('fingerprint'))[:12]}…)"
        return {**recipe, "encoder": {**encoder, "name": None, "fingerprint": weights}}

    return differing_fields(readable(stored), readable(recipe))


def check_recipe(path: Path, metadata: Mapping[bytes, bytes], recipe: Mapping[str, Any]) -> None:
    """Refuses a part that was made otherwise."""
    stored = json.loads(metadata.get(b"recipe", b"null")) or recipe
    if differences := recipe_differences(stored, recipe):
        advice = "Write to another folder, or delete this one."
        raise ValueError(f"{path} was made in another way (there, here): {'; '.join(differences)}. {advice}")


def numbered_parts(folder: Path) -> dict[int, Path]:
    """The parts that `encode_corpus` wrote, by number, in order."""
    names = (_PART.fullmatch(path.name) for path in sorted(folder.iterdir()))
    return {int(name[1]): folder / name[0] for name in names if name}


def _finished_parts(folder: Path) -> list[Path]:
    """The parts of a corpus in order, if none is missing."""
    if not (paths := sorted(folder.glob(FILES))):
        raise FileNotFoundError(f"There is no encoded corpus at {folder}: no Parquet file. encode_corpus makes one.")
    done, numbered = folder / DONE, numbered_parts(folder)
    count = int(done.read_text()) if done.exists() and numbered else max(numbered, default=-1) + 1
    missing = sorted(set(range(count)) - numbered.keys())
    if missing or (numbered and not done.exists()):
        what = f"lacks part {missing[0]}" if missing else "is incomplete"
        raise ValueError(f"The corpus at {folder} {what}; run the same encoding again to complete it.")
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
            metadata, names, chunks = read_columns(part, "document", "chunk")
            recipe = recipe or json.loads(metadata.get(b"recipe", b"null"))
            if recipe is None:
                raise ValueError(f"{part} does not say how it was made; give the recipe of `ChunkVectors`.")
            check_recipe(part, metadata, recipe)
            self.empty.update(json.loads(metadata.get(b"empty", b"[]")))
            self.document_ids += names.filter(pc.equal(chunks, 0)).to_pylist()
            numbers.append(_values(chunks))
        self.recipe = dict(recipe or {})
        self.hidden_size: int = self.recipe["encoder"]["hidden_size"]
        self.splitter: str | None = self.recipe["chunking"]["splitter"]
        self._starts, number = np.cumsum([0, *map(len, numbers)]), np.concatenate(numbers)
        self.num_chunks, place = len(number), np.arange(len(number))
        self.document_offsets = np.append(np.flatnonzero(number == 0), self.num_chunks)
        if (number != place - np.maximum.accumulate(np.where(number == 0, place, 0))).any():
            raise ValueError(f"{self.path}: the rows of a document do not stand together, in the order of its chunks.")
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        if twice := [name for position, name in enumerate(self.document_ids) if self._index[name] != position]:
            raise ValueError(
                f"{self.path} has two documents with the id {twice[0]!r}; ids must be unique in a corpus."
            )
        self._loaded: dict[tuple[int, bool], torch.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": {}}  # a spawned worker maps the files itself

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        encoder = self.recipe["encoder"]["name"]
        return f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by {encoder})"

    def fingerprint(self) -> str:
        """SHA-256 of ids, order and names of parts, which hold hashes of recipe and texts."""
        names, offsets = [path.name for path in self._paths], self.document_offsets.tolist()
        return hashlib.sha256(json.dumps([names, self.document_ids, offsets]).encode()).hexdigest()

    def vectors(self, start: int, stop: int) -> torch.Tensor:
        """Chunk vectors ``[stop - start, D]`` float16 by their number in the corpus, across documents and parts."""
        return self._rows(start, stop)

    def __getitem__(self, document: int | str) -> EncodedDocument:
        if document in self.empty:
            return EncodedDocument(str(document), self.vectors(0, 0), torch.zeros(0, 2, dtype=torch.int64))
        number = self._index.get(document) if isinstance(document, str) else document
        if number is None:
            raise KeyError(f"No document {document!r} in {self!r}.")
        if not -len(self) <= number < len(self):
            raise IndexError(f"Document {number} is not in {self!r}.")
        start, stop = self.document_offsets[[number % len(self), number % len(self) + 1]].tolist()
        return EncodedDocument(
            self.document_ids[number], self.vectors(start, stop), self._rows(start, stop, spans=True)
        )

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[number] for number in range(len(self)))

    def _rows(self, start: int, stop: int, spans: bool = False) -> torch.Tensor:
        """Vectors or spans by number, from the parts that hold them."""
        if not 0 <= start <= stop <= self.num_chunks:
            raise IndexError(f"Chunks {start}:{stop} are not in {self!r}.")
        first = min(int(np.searchsorted(self._starts, start, side="right")) - 1, len(self._paths) - 1)
        pieces = []
        for part in range(first, max(int(np.searchsorted(self._starts, stop)), first + 1)):
            if (rows := self._loaded.get((part, spans))) is None:
                rows = self._loaded[part, spans] = (self._spans if spans else self._decoded)(self._paths[part])
            begin = int(self._starts[part])
            pieces.append(rows[max(start - begin, 0) : stop - begin])
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _spans(self, path: Path) -> torch.Tensor:
        return torch.from_numpy(
            np.stack([_values(column) for column in read_columns(path, "start", "end")[1:]], axis=1)
        )

    def _decoded(self, path: Path) -> torch.Tensor:
        """All vectors of a part, ``[N, D]``."""
        copy = path.parent / ".vectors" / f"{path.stem}.{path.stat().st_mtime_ns:x}.npy"
        if not copy.exists():
            array = (
                _values(read_columns(path, "vector")[1]).astype(np.float16, copy=False).reshape(-1, self.hidden_size)
            )
            try:
                copy.parent.mkdir(exist_ok=True)
                for old in copy.parent.glob(f"{path.stem}.*.npy"):
                    old.unlink(missing_ok=True)
                with whole_file(copy) as stream:
                    np.save(stream, array)
            except OSError as error:
                logger.warning("%s cannot be written (%s); %s stays in memory.", copy.parent, error, path.name)
                return torch.from_numpy(array.copy())
        return torch.from_numpy(np.asarray(np.load(copy, mmap_mode="c")))

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """A ValueError names each field in which a model (with the splitter of its ``encode``) differs from this."""
        fields = ("name", "fingerprint", "pooling", "normalize")
        encoder = {name: getattr(config, f"chunk_encoder_{name}") for name in fields}
        encoder |= {"hidden_size": config.chunk_hidden_size}
        model = {"encoder": encoder, "chunking": chunking_recipe(config.chunking_rule(), splitter)}
        stored = {**self.recipe, "encoder": {name: self.recipe["encoder"].get(name) for name in encoder}}
        if differences := recipe_differences(stored, model):
            advice = "Encode the documents again with the model's encoder and chunking, or load the model that fits."
            raise ValueError(f"{self!r} does not fit the model (corpus, model): {'; '.join(differences)}. {advice}")

    def push_to_hub(self, repo_id: str, private: bool | None = None, token: str | None = None) -> CommitInfo:
        """Uploads the parts as a dataset repository ``"user/name"``: vectors and character spans, not the texts."""
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        card = _CARD.format(len(self), self.num_chunks, self.hidden_size, self.recipe["encoder"]["name"], repo)
        api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo, repo_type="dataset")
        options: Any = {
            "allow_patterns": [DONE, FILES],
            "delete_patterns": FILES,
        }  # those of an earlier, longer corpus
        return api.upload_folder(repo_id=repo, folder_path=self.path, repo_type="dataset", **options)

    @classmethod
    def from_hub(cls, repo_id: str, revision: str | None = None, token: str | None = None) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded (once) and opens it."""
        options: Any = {"revision": revision, "token": token, "allow_patterns": [DONE, FILES]}
        return cls(snapshot_download(repo_id, repo_type="dataset", **options))
