"""Chunk vectors on disk: a folder of Parquet parts that any tool reads, written once and read many times.

A row is a chunk: ``document``, ``chunk`` (its number in the document), ``start`` and ``end`` (its characters) and
``vector`` (float16); the rows of a document stand together. How they were made, the *recipe*, is in the metadata of
the schema. `encode_corpus` names a part by its number and a hash of its documents and goes on where parts are missing;
``_SUCCESS`` holds their number once all are there. The parts of other engines have any names.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import PreTrainedConfig

from .chunk_vectors import ChunkVectors, chunk_table, chunking_recipe, corpus_schema  # noqa: F401
from .data.documents import as_documents
from .encoders import LoadedChunkEncoder
from .models.chunking import ChunkingRule, Splitter

logger = logging.getLogger(__name__)

DONE, FILES, COLUMNS = "_SUCCESS", "*.parquet", ("document", "chunk", "start", "end", "vector")
_PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")
_CARD = """---\ntags: [nextlevelbert, chunk-vectors]\n---\n# Chunk vectors of {} documents\n
{} vectors of {} dimensions by `{}`; no text is included.\n
```python\nfrom nextlevelbert import VectorCorpus\n\ncorpus = VectorCorpus.from_hub("{}")\n```\n"""


def encode_corpus(
    documents: Iterable[Any],
    encoder: LoadedChunkEncoder | str | Callable[[dict[str, list[str]]], pa.Table],
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

    The micro-batches of a part depend on its documents only. So a run that was killed and goes on, or several under
    torchrun or accelerate (process ``RANK`` of ``WORLD_SIZE`` writes every n-th part), end with the bytes of one
    straight run, on the same kind of processor. To mend a damaged part, delete it and run again.

    Args:
        documents: texts, ``(id, text)``, dicts, a `datasets.Dataset`, `Document` objects: see `as_documents`.
        encoder, rule, tokens_per_batch, splitter: as in `ChunkVectors`; or what is called like it, and no rule.
        folder: where the parts go. A finished corpus of the same documents is returned as it is.
        characters_per_part: a part ends with the document that reaches this many; the most that a kill can cost.
        append: the documents come after those that are there, in further parts.
        progress: show a bar.

    Raises:
        ValueError: for two documents of one id, no document with a token, vectors that are not finite, or a folder
            that holds other documents or belongs to another recipe.
    """
    vectors: Any = ChunkVectors(encoder, rule, splitter, tokens_per_batch) if rule else encoder  # type: ignore[arg-type]
    folder, planned = Path(folder), dict[int, Path]()
    folder.mkdir(parents=True, exist_ok=True)
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    with tqdm(desc=folder.name, unit="chunk", disable=not progress) as vectors.bar:
        for number, path, group in _plan(documents, folder, vectors.schema, characters_per_part, append):
            planned[number] = path
            if number % processes == rank and not path.exists():
                (folder / DONE).unlink(missing_ok=True)
                _write_group(path, vectors, group)
    vectors.bar = None
    if not planned:
        raise ValueError("No document was given; a corpus needs at least one.")
    if further := [path.name for number, path in _numbered(folder).items() if number > max(planned)]:
        raise ValueError(f"{folder} holds more documents than are given, in {further[0]}. Encode into another folder.")
    while not all(path.exists() for path in planned.values()) or (rank > 0 and not (folder / DONE).exists()):
        time.sleep(0.2)  # until the other processes have written theirs
    if rank == 0 and not (folder / DONE).exists():
        for leftover in folder.glob("*.tmp"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        with whole_file(folder / DONE) as file:
            file.write(str(max(planned) + 1).encode())
    return VectorCorpus(folder)


def _numbered(folder: Path) -> dict[int, Path]:
    """The parts that `encode_corpus` wrote, by number, in order."""
    names = (_PART.fullmatch(path.name) for path in sorted(folder.iterdir()))
    return {int(name[1]): folder / name[0] for name in names if name}


def _plan(
    documents: Iterable[Any], folder: Path, schema: pa.Schema, characters: int, append: bool
) -> Iterator[tuple[int, Path, dict[str, list[str]]]]:
    """Number, path and documents of each part; ValueError where the folder holds another one in its place."""
    present, earlier, first, recipe = _numbered(folder), set[str](), 0, schema.metadata[b"recipe"]
    for path in present.values():
        _check_recipe(path, _read(path)[0], json.loads(recipe))
    for count, (digest, group) in enumerate(_groups(documents, characters, recipe)):
        if append and count == 0:  # after all others, or where an earlier call appended the same documents
            first = next((number for number, path in present.items() if digest in path.name), len(present))
            earlier.update(*(_read(present[number], "document")[1].to_pylist() for number in range(first)))
        if twice := earlier.intersection(group["id"]):
            raise ValueError(f"{folder} has a document {min(twice)!r} already; ids must be unique in a corpus.")
        path = folder / f"part-{first + count:06d}-{digest}.parquet"
        if (other := present.get(first + count, path)) != path:
            raise ValueError(
                f"{other} holds other documents than are given (from {group['id'][0]!r} on), or was written with "
                "another characters_per_part. Encode into another folder, or delete this one."
            )
        yield first + count, path, group


def _groups(documents: Iterable[Any], characters: int, recipe: bytes) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """A hash of recipe, ids and texts, and the documents, of each part. None begins with a blank document."""
    seen, size, ids, texts, digest = set[str](), 0, list[str](), list[str](), hashlib.sha256(recipe)
    for document in as_documents(documents):
        if document.id in seen:
            raise ValueError(f"Two documents have the id {document.id!r}; ids must be unique in a corpus.")
        if size >= characters and document.text.strip():
            yield digest.hexdigest()[:16], {"id": ids, "text": texts}
            size, ids, texts, digest = 0, [], [], hashlib.sha256(recipe)
        seen.add(document.id)
        ids.append(document.id)
        texts.append(document.text)
        size += len(document.text)
        digest.update(f"{document.id!r} {len(document.text)} {document.text}".encode())
    if ids:
        yield digest.hexdigest()[:16], {"id": ids, "text": texts}


def _write_group(path: Path, vectors: Any, group: dict[str, list[str]]) -> None:
    table = vectors(group)
    if len(table) == 0:
        raise ValueError(f"Not one of {len(group['id'])} documents holds a token, from {group['id'][0]!r} on.")
    empty = sorted(set(group["id"]) - set(table["document"].unique().to_pylist()))
    write_part(path, table.replace_schema_metadata({**table.schema.metadata, "empty": json.dumps(empty)}))


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
    sums |= {name: _check_sum(table[name]) for name in COLUMNS}
    options = {"compression": "zstd", "use_dictionary": ["document"], "write_statistics": ["document", "chunk"]}
    with whole_file(Path(path)) as file:
        table = table.replace_schema_metadata({**metadata, "sums": json.dumps(sums)})
        pq.write_table(table, file, write_page_checksum=True, **options)


def _values(column: pa.ChunkedArray) -> np.ndarray:
    """The numbers of a column, of lists one after the other; `flatten` minds the offset of a slice."""
    return np.concatenate([np.asarray(piece.flatten() if piece.type.num_fields else piece) for piece in column.chunks])


def _check_sum(column: pa.ChunkedArray) -> int:
    strings = pa.types.is_string(column.type)
    return zlib.crc32("\0".join(column.to_pylist()).encode() if strings else np.ascontiguousarray(_values(column)))


def _read(path: Path, *names: str) -> Any:
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


def _check_recipe(path: Path, metadata: Mapping[bytes, bytes], recipe: Mapping[str, Any]) -> None:
    """Refuses a part that was made otherwise. Where the encoder lies does not matter, only its weights."""
    stored = json.loads(metadata.get(b"recipe", b"null")) or recipe
    bare = ({**facts, "encoder": {**facts["encoder"], "name": None}} for facts in (stored, recipe))
    if differences := differing_fields(*bare):
        advice = "Write to another folder, or delete this one."
        raise ValueError(f"{path} was made in another way (there, here): {'; '.join(differences)}. {advice}")


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
        recipe: encoder and chunking. `splitter` is the name of the function that found sentences, or None.
        document_ids: ids in corpus order; the parts are in the order of their names.
        document_offsets: ``[len + 1]`` int64; document i is chunks ``offsets[i]`` to ``offsets[i + 1]``.
        empty: ids of documents without a token, which are in no other list; ``corpus[id]`` has no vectors.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: if it is incomplete, or a part is damaged or of another recipe, which is named. Reading raises it,
            too, for a part whose vectors are damaged.
    """

    def __init__(self, path: str | Path, recipe: Mapping[str, Any] | None = None) -> None:
        self.path, self.document_ids, self.empty = Path(path), list[str](), set[str]()
        self._paths, numbers = _finished_parts(self.path), list[np.ndarray]()
        for part in self._paths:
            metadata, names, chunks = _read(part, "document", "chunk")
            recipe = recipe or json.loads(metadata.get(b"recipe", b"null"))
            if recipe is None:
                raise ValueError(f"{part} does not say how it was made; give the recipe of `ChunkVectors`.")
            _check_recipe(part, metadata, recipe)
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
        """SHA-256 of recipe, ids, texts and order; for texts, the names of parts stand, which hold their hashes."""
        facts = [self.recipe["encoder"]["fingerprint"], self.recipe["chunking"], [path.name for path in self._paths]]
        facts += [self.document_ids, self.document_offsets.tolist()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

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
        return torch.from_numpy(np.stack([_values(column) for column in _read(path, "start", "end")[1:]], axis=1))

    def _decoded(self, path: Path) -> torch.Tensor:
        """All vectors of a part, ``[N, D]``."""
        copy = path.parent / ".vectors" / f"{path.stem}.{path.stat().st_mtime_ns:x}.npy"
        if not copy.exists():
            array = _values(_read(path, "vector")[1]).astype(np.float16, copy=False).reshape(-1, self.hidden_size)
            try:
                copy.parent.mkdir(exist_ok=True)
                for old in copy.parent.glob(f"{path.stem}.*.npy"):
                    old.unlink(missing_ok=True)
                with whole_file(copy) as stream:
                    np.save(stream, array)
            except OSError as error:
                logger.warning("%s cannot be written (%s); %s stays in memory.", copy.parent, error, path.name)
                return torch.from_numpy(array)
        return torch.from_numpy(np.asarray(np.load(copy, mmap_mode="c")))

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """Refuses a model whose vectors would not be those of this corpus: a ValueError names each field that differs.

        Args:
            config: of the model, a `NextLevelBertConfig` or one with the same fields.
            splitter: the one that its `encode` is given, or the name of it; None for the model's own rule.
        """
        encoder = {name: getattr(config, f"chunk_encoder_{name}") for name in ("fingerprint", "pooling", "normalize")}
        encoder |= {"hidden_size": config.chunk_hidden_size}
        model = {"encoder": encoder, "chunking": chunking_recipe(config.chunking_rule(), splitter)}
        stored = {**self.recipe, "encoder": {name: self.recipe["encoder"].get(name) for name in encoder}}
        if differences := differing_fields(stored, model):
            raise ValueError(
                f"The corpus at {self.path} does not fit the model (corpus, model): {'; '.join(differences)}. "
                "Encode the documents again with the model's encoder and chunking, or load the model that fits."
            )

    def push_to_hub(self, repo_id: str, private: bool | None = None, token: str | None = None) -> CommitInfo:
        """Uploads the parts as a dataset repository ``"user/name"``: vectors and character spans, not the texts."""
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        card = _CARD.format(len(self), self.num_chunks, self.hidden_size, self.recipe["encoder"]["name"], repo)
        api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo, repo_type="dataset")
        options = {"allow_patterns": [DONE, FILES], "delete_patterns": FILES}  # those of an earlier, longer corpus
        return api.upload_folder(repo_id=repo, folder_path=self.path, repo_type="dataset", **options)

    @classmethod
    def from_hub(cls, repo_id: str, revision: str | None = None, token: str | None = None) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded (once) and opens it."""
        options = {"revision": revision, "token": token, "allow_patterns": [DONE, FILES]}
        return cls(snapshot_download(repo_id, repo_type="dataset", **options))


def _finished_parts(folder: Path) -> list[Path]:
    """The parts of a corpus in order, if none is missing."""
    if not (paths := sorted(folder.glob(FILES))):
        raise FileNotFoundError(f"There is no encoded corpus at {folder}: no Parquet file. encode_corpus makes one.")
    done, numbered = folder / DONE, _numbered(folder)
    count = int(done.read_text()) if done.exists() and numbered else max(numbered, default=-1) + 1
    missing = sorted(set(range(count)) - numbered.keys())
    if missing or (numbered and not done.exists()):
        what = f"lacks part {missing[0]}" if missing else "is incomplete"
        raise ValueError(f"The corpus at {folder} {what}; run the same encoding again to complete it.")
    return paths


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
    lengths = torch.tensor([len(vectors) for vectors in documents])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {"inputs_embeds": pad_sequence(list(documents), batch_first=True), "attention_mask": mask}


class DataCollatorForDocumentChoice:
    """Batches for `AutoModelForMultipleChoice` of rows ``question, choices, label`` and ``text`` or ``inputs_embeds``.

    For any tokenizer, also one without token types. A text with several questions in a batch is read once. `Trainer`
    needs ``remove_unused_columns=False``, or drops the texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self.tokenizer(list(texts), padding=True, return_tensors="pt", verbose=False)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels`` [N], ``pair_input_ids`` [N, C, Q] with their mask, and the documents, of ids or vectors."""
        batch = {"labels": torch.tensor([row["label"] for row in rows])}
        if "inputs_embeds" in rows[0]:  # stored chunk vectors [n, D]
            batch |= pad_vectors([torch.as_tensor(row["inputs_embeds"]).float() for row in rows])
        else:
            texts = list(dict.fromkeys(row["text"] for row in rows))
            documents = self._tokens(texts)
            batch |= {name: documents[name] for name in ("input_ids", "attention_mask")}
            batch["document_index"] = torch.tensor([texts.index(row["text"]) for row in rows])
        pairs = self._tokens([f"{row['question']} {choice}" for row in rows for choice in row["choices"]])
        return batch | {
            f"pair_{name}": pairs[name].unflatten(0, (len(rows), -1)) for name in ("input_ids", "attention_mask")
        }


class DataCollatorForLabelledVectors:
    """Batches of rows with ``labels`` and ``inputs_embeds`` ``[n, D]``, for the classifiers over chunk vectors."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels``, ``inputs_embeds`` [B, L, D] float32 and ``attention_mask`` [B, L]."""
        labels = torch.tensor([row["labels"] for row in rows])  # first: `Trainer` takes its length for the batch size
        return {"labels": labels, **pad_vectors([row["inputs_embeds"].float() for row in rows])}
