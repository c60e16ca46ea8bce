"""Encoded corpora on disk: documents as shards of float16 chunk vectors, written once and read many times.

Layout of a corpus folder::

    manifest.json             what made it: encoder, weight hash, chunking, versions; and what is in it
    shard-00000.safetensors   vectors [n, D] float16 · spans [n, 2] int64 · document_offsets [d + 1] int64

A document lies whole in one shard. A shard appears under its name only when it is complete, so a run
that was killed goes on with the first shard that is missing and ends with the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub import CommitInfo, HfApi, snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig

from ..models.chunking import ChunkingRule

if TYPE_CHECKING:
    from datasets import Dataset

MANIFEST = "manifest.json"
FORMAT_VERSION = 2


@dataclass(frozen=True)
class EncodedDocument:
    """One document of a corpus: its id, plain chunk vectors ``[n, D]`` float16 and their characters ``[n, 2]``."""

    id: str
    vectors: torch.Tensor
    spans: torch.Tensor


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def chunking_facts(rule: ChunkingRule) -> dict[str, Any]:
    """A chunking rule as a manifest holds it."""
    return {
        "mode": rule.mode,
        "chunk_size": rule.chunk_size,
        "prefix_ids": list(rule.prefix_ids),
        "suffix_ids": list(rule.suffix_ids),
        "sentence_token_ids": rule.sentence_token_ids,
    }


def differing_fields(left: dict[str, Any], right: dict[str, Any], prefix: str = "") -> list[str]:
    """``name: left value, right value`` of every entry in which two nested dictionaries differ."""
    found = []
    for key in sorted(left.keys() | right.keys()):
        a, b = left.get(key), right.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differing_fields(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(f"{prefix}{key}: {a!r}, {b!r}")
    return found


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a corpus folder says of itself.

    Raises:
        FileNotFoundError: if there is no manifest.
        ValueError: if it is damaged, or of a version of the format that is not known here.
    """
    if not (folder / MANIFEST).exists():
        raise FileNotFoundError(
            f"No encoded corpus at {folder}: {MANIFEST} is missing. Make one with encode_corpus, or with "
            "run_pretraining.py --train_file ... --corpus_dir."
        )
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        version, _ = manifest["format_version"], manifest["complete"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / MANIFEST} is damaged ({error!r}). Delete the folder and encode again.") from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{folder} has format_version {version!r}; this version of the package reads {FORMAT_VERSION}."
        )
    return manifest


def read_shard_head(path: Path) -> dict[str, Any]:
    """Document entries, chain (see `extend_chain`) and offsets of a shard, without its vectors."""
    try:
        with safe_open(path, framework="pt") as file:
            offsets = file.get_tensor("document_offsets").numpy()
            head = json.loads(file.metadata()["shard"])
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a whole shard of an encoded corpus ({error}). Delete it and encode again."
        ) from error
    return {**head, "offsets": offsets, "chunks": int(offsets[-1])}


class VectorCorpus:
    """A finished corpus: random access to documents or to any run of chunk vectors, by memory map.

    Opening reads the shards' headers only. Vectors stay float16 until they are on the device.

    Args:
        path: the corpus folder.

    Attributes:
        manifest: the content of ``manifest.json``.
        document_ids: ids in corpus order.
        document_offsets: ``[N + 1]`` int64; document i is chunks ``offsets[i]`` to ``offsets[i + 1]``.

    Raises:
        FileNotFoundError: if there is no corpus.
        ValueError: if it is half-written, or a shard is missing or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        if not self.manifest["complete"]:
            raise ValueError(f"The corpus at {self.path} is incomplete; run the same encoding again to resume it.")
        heads = []
        for number in range(self.manifest["shards"]):
            shard = self.path / shard_name(number)
            if not shard.exists():
                raise ValueError(
                    f"The corpus at {self.path} is missing {shard.name}; copy the whole corpus, or encode it again."
                )
            heads.append(read_shard_head(shard))
        found = {"documents": sum(len(head["documents"]) for head in heads), "chunks": sum(h["chunks"] for h in heads)}
        if differences := differing_fields({key: self.manifest[key] for key in found}, found):
            raise ValueError(
                f"The shards at {self.path} are not those of its manifest (manifest, shards): "
                f"{'; '.join(differences)}. Copy the whole corpus, or encode it again."
            )
        self.document_ids = [entry["id"] for head in heads for entry in head["documents"]]
        self._shard_starts = np.cumsum([0] + [head["chunks"] for head in heads])
        offsets = [head["offsets"][:-1] + start for head, start in zip(heads, self._shard_starts, strict=False)]
        self.document_offsets = np.append(np.concatenate(offsets), self._shard_starts[-1])
        self._index = {name: position for position, name in enumerate(self.document_ids)}
        self._files: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}  # open maps do not travel to a spawned worker; they are reopened there

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
                self._files[shard] = safe_open(self.path / shard_name(shard), framework="pt")
            pieces.append(self._files[shard].get_slice(name)[start - first : last - first])
            if last >= stop:
                return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
            start, shard = last, shard + 1

    def check_model(self, config: PreTrainedConfig) -> None:
        """Refuses a model whose vectors would not be those of this corpus.

        Args:
            config: of the model, a `NextLevelBertConfig` or one with the same fields.

        Raises:
            ValueError: naming each field that differs, with the corpus's value and the model's.
        """
        rule = config.chunking_rule()
        model = {
            "encoder": {
                "fingerprint": config.chunk_encoder_fingerprint,
                "hidden_size": config.chunk_hidden_size,
                "pooling": config.chunk_encoder_pooling,
                "normalize": config.chunk_encoder_normalize,
            },
            "chunking": chunking_facts(rule),
        }
        corpus = {
            "encoder": {key: self.manifest["encoder"][key] for key in model["encoder"]},
            "chunking": self.manifest["chunking"],
        }
        differences = differing_fields(corpus, model)
        if differences:
            raise ValueError(
                f"The corpus at {self.path} does not fit the model (corpus, model): {'; '.join(differences)}. "
                "Encode the documents again with the model's encoder and chunking, or load the model that fits."
            )

    def to_dataset(self) -> Dataset:
        """The corpus as a `datasets.Dataset`: one row a document, columns id, vectors ``[n][D]`` and spans ``[n][2]``.

        For looking and exporting; training reads the shards themselves, a hundred times faster.
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
        """Downloads (once) and opens a corpus that `push_to_hub` put on the Hub."""
        patterns = [MANIFEST, "shard-*.safetensors"]
        return cls(
            snapshot_download(repo_id, repo_type="dataset", revision=revision, token=token, allow_patterns=patterns)
        )
