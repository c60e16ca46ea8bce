"""Chunk vectors on disk: a folder of Parquet parts that any tool reads, written once and read many times.

A row is a chunk: ``document``, ``chunk`` (its number in the document), ``start`` and ``end`` (its characters) and
``vector`` (float16); the rows of a document stand together. How they were made, the *recipe*, is in the metadata of
the schema. `encode_corpus` names a part by its number and a hash of its documents and goes on where parts are missing;
``_SUCCESS`` holds their number once all are there. The parts of other engines have any names.

Notation for shapes: N chunks of a corpus or part, n chunks of a document, D hidden size.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
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

from ..data.documents import as_documents
from ..encoders import LoadedChunkEncoder, load_chunk_encoder
from ..models.chunking import ChunkingRule, Splitter, chunk_spans, flatten_chunks, tokenize_document

logger = logging.getLogger(__name__)

DONE, FILES = "_SUCCESS", "*.parquet"
_PART = re.compile(r"part-(\d{6})-[0-9a-f]{16}\.parquet")
_CARD = """---\ntags: [nextlevelbert, chunk-vectors]\n---\n# Chunk vectors of {} documents\n
{} vectors of {} dimensions by `{}`; no text is included.\n
```python\nfrom nextlevelbert import VectorCorpus\n\ncorpus = VectorCorpus.from_hub("{}")\n```\n"""


def _chunking(rule: ChunkingRule, splitter: Splitter | str | None) -> dict[str, Any]:
    """How texts are cut, as JSON has it; ValueError for a splitter without a name or beside fixed chunks."""
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


def chunk_table(schema: pa.Schema, ids: Sequence[Any], spans: Sequence[np.ndarray], vectors: torch.Tensor) -> pa.Table:
    """Rows of documents: their ids, the character spans ``[n, 2]`` of each, and the vectors ``[N, D]`` of all."""
    counts = [len(span) for span in spans]
    chunks = np.concatenate([np.zeros(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)])
    starts, ends = np.concatenate([np.zeros((0, 2), np.int64), *spans]).T
    names = pa.array([str(name) for name in ids], pa.string()).take(pa.array(np.repeat(np.arange(len(ids)), counts)))
    values = pa.array(vectors.cpu().half().numpy().reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(values, vectors.shape[1])
    return pa.Table.from_arrays([names, *map(pa.array, (chunks, starts, ends)), rows], schema=schema)


class ChunkVectors:
    """From a batch of documents to the rows of a corpus, in any engine that maps functions over batches.

    Such as `datasets.Dataset.map(batched=True)`, Ray Data's `map_batches`, Spark's `mapInArrow`, and `encode_corpus`.

    Args:
        encoder: from `load_chunk_encoder`, and goes along to other processes; or its name or path, and each loads it.
        rule, splitter: how texts are cut, as in ``encode``; a corpus notes the splitter's name.
        tokens_per_batch: as in ``ChunkEncoder.encode``.
        device: where the encoder runs; by default where it is.
    """

    def __init__(
        self,
        encoder: LoadedChunkEncoder | str,
        rule: ChunkingRule,
        splitter: Splitter | None = None,
        tokens_per_batch: int | None = None,
        device: str | None = None,
    ) -> None:
        self.encoder, self.rule, self.splitter = encoder, rule, splitter
        self.tokens_per_batch, self.device, self.bar = tokens_per_batch, device, None

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
        facts = {"name": self.source.name, "fingerprint": self.source.fingerprint, "hidden_size": encoder.hidden_size}
        facts |= {"pooling": encoder.pooling, "normalize": encoder.normalize, "dtype": encoder.precision}
        return {"encoder": facts, "chunking": _chunking(self.rule, self.splitter)}

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with the recipe as metadata."""
        return corpus_schema(self.recipe)

    def __call__(self, batch: Any) -> pa.Table:
        """Rows of the documents ``{"id": […], "text": […]}``: lists, arrays or an Arrow table.

        A warning names a document without a token, which has no row; a ValueError one whose vectors are not finite.
        """
        ids, texts = ([getattr(value, "as_py", lambda v=value: v)() for value in batch[key]] for key in ("id", "text"))
        tokens = [tokenize_document(self.source.tokenizer, text) for text in texts]
        cuts = []
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
            raise ValueError(
                f"The encoder gave {len(bad)} vectors that are not finite; document {name!r} is the first."
            )
        return chunk_table(self.schema, ids, list(map(chunk_spans, tokens, cuts)), vectors)


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
    vectors: Any = encoder if rule is None else ChunkVectors(encoder, rule, splitter, tokens_per_batch)  # type: ignore[arg-type]
    folder, planned, waiting = Path(folder), dict[int, Path](), deque[Future[None]]()
    folder.mkdir(parents=True, exist_ok=True)
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    # An accelerator reads one part while the next is tokenised; a CPU is busy anyway.
    parallel = isinstance(vectors, ChunkVectors) and vectors.source.encoder.device.type != "cpu"
    with ThreadPoolExecutor(2) as pool, tqdm(desc=folder.name, unit="chunk", disable=not progress) as vectors.bar:
        for number, path, group in _plan(documents, folder, vectors.schema, characters_per_part, append):
            planned[number] = path
            if number % processes == rank and not path.exists():
                (folder / DONE).unlink(missing_ok=True)
                if parallel:
                    waiting.append(pool.submit(_write_rows, path, vectors, group))
                else:
                    _write_rows(path, vectors, group)
            if len(waiting) > 2:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
    vectors.bar = None
    if not planned:
        raise ValueError("No document was given; a corpus needs at least one.")
    if further := [path for number, path in _numbered(folder).items() if number > max(planned)]:
        raise ValueError(
            f"{folder} holds more documents than are given, in {further[0].name}. Encode into another folder."
        )
    _finish(folder, planned, rank)
    return VectorCorpus(folder)


def _numbered(folder: Path) -> dict[int, Path]:
    """The parts that `encode_corpus` wrote, by number, in order."""
    names = (_PART.fullmatch(path.name) for path in sorted(folder.iterdir()))
    return {int(name[1]): folder / name[0] for name in names if name}


def _plan(
    documents: Iterable[Any], folder: Path, schema: pa.Schema, characters: int, append: bool
) -> Iterator[tuple[int, Path, dict[str, list[str]]]]:
    """Number, path and documents of each part; ValueError where the folder holds another one in its place."""
    present, earlier, first = _numbered(folder), set[str](), 0
    for path in present.values():
        with _reading(path) as file:
            metadata = file.schema_arrow.metadata
        _check_recipe(path, json.loads(metadata[b"recipe"]), json.loads(schema.metadata[b"recipe"]))
    for count, (digest, group) in enumerate(_groups(documents, characters, schema.metadata[b"recipe"])):
        if append and count == 0:  # after all others, or where an earlier call appended the same documents
            first = next((number for number, path in present.items() if digest in path.name), len(present))
            for path in list(present.values())[:first]:
                with _reading(path) as file:
                    earlier.update(file.read(["document"])["document"].to_pylist())
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
        seen.add(document.id)
        if size >= characters and document.text.strip():
            yield digest.hexdigest()[:16], {"id": ids, "text": texts}
            size, ids, texts, digest = 0, [], [], hashlib.sha256(recipe)
        ids.append(document.id)
        texts.append(document.text)
        size += len(document.text)
        digest.update(f"{document.id!r} {len(document.text)} {document.text}".encode())
    if ids:
        yield digest.hexdigest()[:16], {"id": ids, "text": texts}


def _write_rows(path: Path, vectors: Any, group: dict[str, list[str]]) -> None:
    table = vectors(group)
    if len(table) == 0:
        raise ValueError(f"Not one of {len(group['id'])} documents holds a token, from {group['id'][0]!r} on.")
    if empty := sorted(set(group["id"]) - set(table["document"].unique().to_pylist())):
        table = table.replace_schema_metadata({**table.schema.metadata, b"empty": json.dumps(empty)})
    write_part(path, table)


def _finish(folder: Path, planned: Mapping[int, Path], rank: int) -> None:
    """Says that all parts are there, once those of other processes are, too."""
    done, count = folder / DONE, str(max(planned) + 1)
    while any(not path.exists() for path in planned.values()) or (rank > 0 and not done.exists()):
        time.sleep(0.2)
    if rank == 0 and not (done.exists() and done.read_text() == count):
        for leftover in folder.glob("*.tmp"):  # of processes that were killed
            leftover.unlink(missing_ok=True)
        with whole_file(done) as file:
            file.write(count.encode())


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
    """Writes rows as a Parquet part with page check sums, which is there whole or not at all."""
    options = {"compression": "zstd", "use_dictionary": ["document"], "write_statistics": ["document", "chunk"]}
    with whole_file(Path(path)) as file:
        pq.write_table(table, file, write_page_checksum=True, **options)


@contextmanager
def _reading(path: Path) -> Iterator[pq.ParquetFile]:
    """An open part; an error names it, which Arrow's own do not."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
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


def _check_recipe(path: Path, stored: Mapping[str, Any], recipe: Mapping[str, Any]) -> None:
    """Refuses what was made otherwise. Where the encoder lies does not matter, only its weights."""
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
            with _reading(part) as file:
                metadata = file.schema_arrow.metadata or {}
                names, chunks = file.read(["document", "chunk"]).columns
                stored = json.loads(metadata.get(b"recipe", b"null"))
                self.empty.update(json.loads(metadata.get(b"empty", b"[]")))
            recipe = recipe or stored
            if recipe is None:
                raise ValueError(f"{part} does not say how it was made; give the recipe of `ChunkVectors`.")
            _check_recipe(part, stored or recipe, recipe)
            numbers.append(chunks.to_numpy())
            self.document_ids += names.filter(pc.equal(chunks, 0)).to_pylist()
        self.recipe = dict(recipe or {})
        self.hidden_size: int = self.recipe["encoder"]["hidden_size"]
        self.splitter: str | None = self.recipe["chunking"]["splitter"]
        self._starts = np.cumsum([0, *map(len, numbers)])
        self.num_chunks, number = int(self._starts[-1]), np.concatenate(numbers)
        place = np.arange(self.num_chunks)
        self.document_offsets = np.append(np.flatnonzero(number == 0), self.num_chunks)
        if (number != place - np.maximum.accumulate(np.where(number == 0, place, 0))).any():
            raise ValueError(f"{self.path}: the rows of a document do not stand together, in the order of its chunks.")
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        if twice := [name for position, name in enumerate(self.document_ids) if self._index[name] != position]:
            raise ValueError(
                f"{self.path} has two documents with the id {twice[0]!r}; ids must be unique in a corpus."
            )
        self._vectors, self._spans = dict[int, torch.Tensor](), dict[int, torch.Tensor]()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_vectors": {}, "_spans": {}}  # a spawned worker maps the files itself

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
        return self._rows(self._vectors, self._decoded, start, stop)

    def __getitem__(self, document: int | str) -> EncodedDocument:
        if document in self.empty:
            return EncodedDocument(str(document), self.vectors(0, 0), torch.zeros(0, 2, dtype=torch.int64))
        number = self._index.get(document) if isinstance(document, str) else document
        if number is None:
            raise KeyError(f"No document {document!r} in {self!r}.")
        if not -len(self) <= number < len(self):
            raise IndexError(f"Document {number} is not in {self!r}.")
        start, stop = self.document_offsets.tolist()[number % len(self) :][:2]
        spans = self._rows(self._spans, self._read_spans, start, stop)
        return EncodedDocument(self.document_ids[number], self.vectors(start, stop), spans)

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[number] for number in range(len(self)))

    def _rows(
        self, parts: dict[int, Any], read: Callable[[Path], torch.Tensor], start: int, stop: int
    ) -> torch.Tensor:
        """Rows of a column by number, from the parts that hold them."""
        if not 0 <= start <= stop <= self.num_chunks:
            raise IndexError(f"Chunks {start}:{stop} are not in {self!r}.")
        first = min(int(np.searchsorted(self._starts, start, side="right")) - 1, len(self._paths) - 1)
        pieces = []
        for part in range(first, max(int(np.searchsorted(self._starts, stop)), first + 1)):
            if part not in parts:
                parts[part] = read(self._paths[part])
            begin = int(self._starts[part])
            pieces.append(parts[part][max(start - begin, 0) : stop - begin])
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _read_spans(self, path: Path) -> torch.Tensor:
        with _reading(path) as file:
            return torch.from_numpy(np.stack([column.to_numpy() for column in file.read(["start", "end"]).columns], 1))

    def _decoded(self, path: Path) -> torch.Tensor:
        """All vectors of a part, ``[N, D]``."""
        copy = path.parent / ".vectors" / f"{path.stem}.{path.stat().st_mtime_ns:x}.npy"
        if not copy.exists():
            with _reading(path) as file:
                values = [np.asarray(piece.flatten()) for piece in file.read(["vector"])["vector"].chunks]
                array = np.concatenate(values).astype(np.float16, copy=False).reshape(-1, self.hidden_size)
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
        """Refuses a model whose vectors would not be those of this corpus.

        Args:
            config: of the model, a `NextLevelBertConfig` or one with the same fields.
            splitter: the one that its `encode` is given, or the name of it; None for the model's own rule.

        Raises:
            ValueError: naming each field that differs, with the corpus's value and the model's.
        """
        encoder = {name: getattr(config, f"chunk_encoder_{name}") for name in ("fingerprint", "pooling", "normalize")}
        encoder |= {"hidden_size": config.chunk_hidden_size}
        model = {"encoder": encoder, "chunking": _chunking(config.chunking_rule(), splitter)}
        stored = {**self.recipe, "encoder": {name: self.recipe["encoder"][name] for name in encoder}}
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
    if numbered := _numbered(folder):
        done = folder / DONE
        count = int(done.read_text()) if done.exists() else max(numbered) + 1
        missing = sorted(set(range(count)) - numbered.keys())
        if missing or not done.exists():
            what = f"lacks part {missing[0]}" if missing else "is incomplete"
            raise ValueError(f"The corpus at {folder} {what}; run the same encoding again to complete it.")
    return paths


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
    lengths = torch.tensor([len(vectors) for vectors in documents])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {"inputs_embeds": pad_sequence(list(documents), batch_first=True), "attention_mask": mask}


class DataCollatorForLabelledVectors:
    """Batches of rows with ``labels`` and ``inputs_embeds`` ``[n, D]``, for the classifiers over chunk vectors."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels``, ``inputs_embeds`` [B, L, D] float32 and ``attention_mask`` [B, L]."""
        labels = torch.tensor([row["labels"] for row in rows])  # first: `Trainer` takes its length for the batch size
        return {"labels": labels, **pad_vectors([row["inputs_embeds"].float() for row in rows])}
