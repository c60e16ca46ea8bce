"""Encoded corpora on disk: documents as shards of float16 chunk vectors, written once and read many times."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from tqdm.auto import tqdm
from transformers import PreTrainedConfig

from ..models.chunking import Splitter
from .layout import MANIFEST, chunking_facts, differing_fields, has_sums, mending, read_manifest, shard_name
from .shard_files import check_chain, check_shards, open_shard

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedDocument:
    """A document of a corpus: its id, plain chunk vectors ``[n, D]`` float16 and their character spans ``[n, 2]``."""

    id: str
    vectors: torch.Tensor
    spans: torch.Tensor


class VectorCorpus:
    """A finished corpus: random access, by memory map, to documents and to any run of chunk vectors.

    Opening reads and checks the heads of the shards only. A shard is compared with its check sums when it is first
    read from. Vectors stay float16.

    Args:
        path: the corpus folder.

    Attributes:
        manifest: the content of ``manifest.json``.
        document_ids: ids in corpus order.
        document_offsets: ``[N + 1]`` int64; document i is chunks ``offsets[i]`` to ``offsets[i + 1]``.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: if it is incomplete, or shards are missing, damaged or those of another corpus; each is named.
            Reading raises it, too, for a shard whose vectors or spans are damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        if not self.manifest["complete"]:
            raise ValueError(f"The corpus at {self.path} is incomplete; run the same encoding again to resume it.")
        heads = check_shards(self.path, self.manifest, range(self.manifest["shards"]))
        check_chain(self.path, self.manifest, heads)
        given = {"documents": self.manifest["documents"], "chunks": self.manifest["chunks"]}
        found = {"documents": sum(len(head.documents) for head in heads), "chunks": sum(h.chunks for h in heads)}
        if differences := differing_fields(given, found):
            raise ValueError(
                f"The shards at {self.path} are not those of its manifest (manifest, shards): "
                f"{'; '.join(differences)}. {mending(self.manifest)}"
            )
        if not has_sums(self.manifest):
            logger.warning(
                "The corpus at %s has no check sums (format version 2): damage to its vectors is not noticed. Encode "
                "the documents again, into another folder, to have them.",
                self.path,
            )
        self.document_ids = [entry["id"] for head in heads for entry in head.documents]
        self._shard_starts = np.cumsum([0] + [head.chunks for head in heads])
        offsets = [head.offsets[:-1] + start for head, start in zip(heads, self._shard_starts, strict=False)]
        self.document_offsets = np.append(np.concatenate(offsets), self._shard_starts[-1])
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        if len(self._index) < len(self.document_ids):
            twice = next(name for place, name in enumerate(self.document_ids) if self._index[name] != place)
            raise ValueError(f"The corpus at {self.path} has two documents with the id {twice!r}; encode it again.")
        documents = "".join(f"{entry['id']!r} {entry['sha256']}\n" for head in heads for entry in head.documents)
        self._fingerprint = hashlib.sha256(documents.encode()).hexdigest()
        self._sums = [head.sums for head in heads]
        self._files: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}  # a spawned worker opens the files itself

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        encoder = self.manifest["encoder"]["name"]
        return f"VectorCorpus({str(self.path)!r}: {len(self)} documents, {self.num_chunks} chunks, by {encoder})"

    @property
    def num_chunks(self) -> int:
        return int(self._shard_starts[-1])

    @property
    def hidden_size(self) -> int:
        return self.manifest["encoder"]["hidden_size"]

    @property
    def splitter(self) -> str | None:
        """Name of the function that found the sentences; None for the rule."""
        return self.manifest["chunking"].get("splitter")

    def fingerprint(self) -> str:
        """SHA-256 of the ids and texts of its documents, in order."""
        return self._fingerprint

    def vectors(self, start: int, stop: int) -> torch.Tensor:
        """Chunk vectors ``[stop - start, D]`` float16 by their number in the corpus, across documents and shards."""
        return self._read("vectors", start, stop)

    def __getitem__(self, document: int | str) -> EncodedDocument:
        if isinstance(document, str):
            if document not in self._index:
                raise KeyError(f"No document {document!r} in {self!r}.")
            document = self._index[document]
        if not -len(self) <= document < len(self):
            raise IndexError(f"Document {document} is not in {self!r}.")
        document %= len(self)
        start, stop = (int(offset) for offset in self.document_offsets[document : document + 2])
        return EncodedDocument(
            self.document_ids[document], self._read("vectors", start, stop), self._read("spans", start, stop)
        )

    def __iter__(self) -> Iterator[EncodedDocument]:
        return (self[position] for position in range(len(self)))

    def _read(self, name: str, start: int, stop: int) -> torch.Tensor:
        if not 0 <= start <= stop <= self.num_chunks:
            raise IndexError(f"Chunks {start}:{stop} are not in {self!r}.")
        pieces = []
        shard = max(int(np.searchsorted(self._shard_starts, start, side="right")) - 1, 0)
        shard = min(shard, len(self._shard_starts) - 2)
        while True:
            first = int(self._shard_starts[shard])
            last = min(stop, int(self._shard_starts[shard + 1]))
            if shard not in self._files:
                try:
                    self._files[shard] = open_shard(self.path / shard_name(shard), self._sums[shard])
                except ValueError as error:
                    raise ValueError(f"In the corpus at {self.path}, {error}. {mending(self.manifest)}") from error
            pieces.append(self._files[shard].get_slice(name)[start - first : last - first])
            if last >= stop:
                return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            start, shard = last, shard + 1

    def verify(self, progress: bool = True) -> None:
        """Reads all files and compares them with their check sums.

        Args:
            progress: show a bar.

        Raises:
            ValueError: naming every shard that is missing or damaged. Where there are no check sums (format version
                2), only shapes are checked, and that vectors are finite.
        """
        numbers = range(self.manifest["shards"])
        bar = tqdm(numbers, desc=f"checking {self.path.name}", unit="shard", disable=not progress)
        check_shards(self.path, self.manifest, bar, tensors=True)

    def check_model(self, config: PreTrainedConfig, splitter: Splitter | str | None = None) -> None:
        """Refuses a model whose vectors would not be those of this corpus.

        Args:
            config: of the model, a `NextLevelBertConfig` or one with the same fields.
            splitter: the one that its `encode` is given, or the name of it; None for the model's own rule.

        Raises:
            ValueError: naming each field that differs, with the corpus's value and the model's.
        """
        rule = config.chunking_rule()
        encoder = {
            "fingerprint": config.chunk_encoder_fingerprint,
            "hidden_size": config.chunk_hidden_size,
            "pooling": config.chunk_encoder_pooling,
            "normalize": config.chunk_encoder_normalize,
        }
        ours = {key: value for key, value in self.manifest["encoder"].items() if key in encoder}
        differences = differing_fields(
            {"encoder": ours, "chunking": self.manifest["chunking"]},
            {"encoder": encoder, "chunking": chunking_facts(rule, splitter)},
        )
        if differences:
            raise ValueError(
                f"The corpus at {self.path} does not fit the model (corpus, model): {'; '.join(differences)}. "
                "Encode the documents again with the model's encoder and chunking, or load the model that fits."
            )

    def to_dataset(self) -> Dataset:
        """The corpus as a `datasets.Dataset`: for each document a row of id, vectors ``[n][D]`` and spans ``[n][2]``.

        For inspection and export; training reads the shards themselves, which is a hundred times faster.
        """
        import pyarrow as pa
        from datasets import Dataset, concatenate_datasets

        parts = []
        for start, stop in zip(self._shard_starts[:-1], self._shard_starts[1:], strict=True):
            inside = (self.document_offsets >= start) & (self.document_offsets < stop)
            offsets = np.append(self.document_offsets[inside], stop) - start
            names = [self.document_ids[position] for position in np.flatnonzero(inside)]
            columns = {"id": pa.array(names)}
            for name, tensor in (("vectors", self.vectors(start, stop)), ("spans", self._read("spans", start, stop))):
                rows = pa.FixedSizeListArray.from_arrays(pa.array(tensor.numpy().reshape(-1)), tensor.shape[1])
                columns[name] = pa.LargeListArray.from_arrays(pa.array(offsets), rows)
            parts.append(Dataset(pa.table(columns)))
        return concatenate_datasets(parts)

    def push_to_hub(self, repo_id: str, private: bool | None = None, token: str | None = None) -> CommitInfo:
        """Uploads the folder as a dataset repository: vectors and character spans, not the texts.

        Args:
            repo_id: ``"user/name"``; created where it does not exist.
            private, token: as in `huggingface_hub`.
        """
        api = HfApi(token=token)
        repo = api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True).repo_id
        encoder, chunk_size = self.manifest["encoder"], self.manifest["chunking"]["chunk_size"]
        card = (
            "---\ntags: [nextlevelbert, chunk-vectors]\n---\n"
            f"# Chunk vectors of {len(self)} documents\n\n"
            f"{self.num_chunks} vectors of {self.hidden_size} dimensions by `{encoder['name']}` in\n"
            f"{encoder['dtype']}, from chunks of at most {chunk_size} tokens. No text is included.\n\n"
            f"```python\nfrom nextlevelbert import VectorCorpus\n\ncorpus = VectorCorpus.from_hub({repo!r})\n```\n"
        )
        api.upload_file(path_or_fileobj=card.encode(), path_in_repo="README.md", repo_id=repo, repo_type="dataset")
        return api.upload_folder(
            repo_id=repo,
            folder_path=self.path,
            repo_type="dataset",
            allow_patterns=[MANIFEST, "shard-*.safetensors"],
            delete_patterns="shard-*.safetensors",  # of an earlier, longer corpus
            commit_message="Add encoded corpus",
        )

    @classmethod
    def from_hub(cls, repo_id: str, revision: str | None = None, token: str | None = None) -> VectorCorpus:
        """Downloads a corpus that `push_to_hub` uploaded (once) and opens it."""
        patterns = [MANIFEST, "shard-*.safetensors"]
        return cls(
            snapshot_download(repo_id, repo_type="dataset", revision=revision, token=token, allow_patterns=patterns)
        )
