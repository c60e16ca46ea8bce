"""Reads with a static model without torch, whose import takes longer than reading a small folder.

Notation for shapes: N chunks and n documents in a group, T tokens, D size of a vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ...models.chunking import ChunkingRule, lay_windows
from ...models.files import load_json
from ...models.prompts import SplitDocument
from .files import FileEncoder, FileTokenizer, means, unit

_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
_TABLE = "chunk_encoder.model.embedding.weight"
# Values of a configuration whose model can be computed here.
_EXPECTED = {
    "model_type": "nextlevelbert",
    "chunking": "fixed",
    "chunk_encoder_pooling": "mean",
    "include_chunk_encoder": True,
    "long_documents": "window",
    "pooling": "residual",
}
_EXPECTED_ENCODER = {"model_type": "bert", "num_hidden_layers": 0}


class StaticEncoder(FileEncoder):
    """Computes from its files what a static `NextLevelBertModel` without layers computes.

    Args:
        folder: folder of the model, for which `is_static` is true.

    Attributes:
        is_whitened: true if the model whitens vectors.
        tokenizer: the tokenizer.
        rule: the rule that splits documents into chunks.
    """

    has_layers = False
    has_token_vectors = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = load_json(folder / "config.json")
        self.is_whitened: bool = self._config["whiten_chunks"]
        unknown = self._config["chunk_encoder_config"].get("unk_token_id")
        self.tokenizer: Any = FileTokenizer(folder / "tokenizer.json", unk_token_id=unknown)
        self.rule = ChunkingRule(
            chunk_size=self._config["chunk_size"],
            prefix_ids=tuple(self._config["chunk_prefix_ids"]),
            suffix_ids=tuple(self._config["chunk_suffix_ids"]),
        )

    def fingerprint(self) -> str:
        """Returns a hash of the model's files."""
        digest = hashlib.sha256()
        for name in _FILES:
            digest.update((self._folder / name).read_bytes())
        return digest.hexdigest()

    @property
    def encoder_recipe(self) -> dict[str, Any]:
        """Returns what determines the vectors of chunks, as in `ChunkVectors.recipe`."""
        return {
            "hidden_size": self._config["chunk_encoder_config"]["hidden_size"],
            "pooling": self._config["chunk_encoder_pooling"],
            "normalize": self._config["chunk_encoder_normalize"],
            "name": self._config["chunk_encoder_name"],
            "fingerprint": self._config["chunk_encoder_fingerprint"],
            "dtype": "float32",
        }

    def question_vector(self, question: str) -> np.ndarray | None:
        """Encodes a question, see `TorchEncoder.question_vector`."""
        encoding = self.tokenizer.backend_tokenizer.encode(question, add_special_tokens=False)
        if not encoding.ids:
            return None
        ids = np.array(encoding.ids)
        chunks = means(self.token_vectors(ids), np.diff(self.rule.boundaries(ids)))
        return self.search_vectors(self._normalized(chunks).mean(axis=0))

    def search_vectors(self, plain: np.ndarray) -> np.ndarray:
        """Prepares chunk vectors ``[..., D]`` for comparison, in float32."""
        return unit(self._prepared(plain))

    @cached_property
    def _weights(self) -> dict[str, np.ndarray]:
        """Returns the weights as stored; the names of some begin with the model below a head."""
        weights = load_file(self._folder / "model.safetensors")
        return {name.removeprefix("model."): values for name, values in weights.items()}

    def _weight(self, name: str) -> np.ndarray:
        return self._weights[name].astype(np.float32)

    @cached_property
    def _table(self) -> np.ndarray:
        """Returns the vectors of all tokens, ``[V, D]``."""
        return self._weight(_TABLE)

    def token_vectors(self, ids: np.ndarray) -> np.ndarray:
        """Returns the vectors of a few tokens ``[T, D]``; the whole table would take longer."""
        return self._weights[_TABLE][ids].astype(np.float32)

    def chunk_vectors(self, group: Sequence[SplitDocument]) -> np.ndarray:
        """Averages the token vectors of each chunk, ``[N, D]``.

        A product of sparse matrices takes half as long, but half a second to import.

        Raises:
            ValueError: if a token has no vector.
        """
        vectors = [self._table[:0]]
        try:
            for document, boundaries in group:
                for start, stop in pairwise(boundaries.tolist()):
                    tokens = self._table[document.input_ids[start:stop]]
                    vectors.append(tokens.mean(axis=0, keepdims=True))
        except IndexError as error:
            raise ValueError(str(error)) from error
        return self._normalized(np.concatenate(vectors))

    def document_vectors(self, plain: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Computes document vectors, as `ResidualPooling` does over an encoder without layers.

        Without layers, the contextual vector of a chunk depends on the chunk and on its position in
        the window. In several windows, a chunk has the mean of these vectors.

        Args:
            plain: chunk vectors of all documents, ``[N, D]``.
            counts: number of chunks in each document, 1 or more, ``[n]``.
        """
        size = self._config["max_chunks"]
        overlap = self._config["window_overlap"]
        if overlap is None:
            overlap = size // 4
        documents, starts, sizes = lay_windows(counts, size=size, overlap=overlap)
        # For each chunk of each window: its position in the window, and its row in `plain`.
        position = np.concatenate([np.arange(0), *map(np.arange, sizes)])  # also without windows
        first = (np.cumsum(counts) - counts)[documents] + starts
        row = np.repeat(first, sizes) + position

        chunks = self._prepared(plain)
        states = chunks[row] + self._weight("encoder.embeddings.token_type_embeddings.weight")[0]
        states += self._weight("encoder.embeddings.position_embeddings.weight")[1 + position]
        states -= states.mean(axis=1, keepdims=True)
        variance = np.square(states).mean(axis=1, keepdims=True)
        states /= np.sqrt(variance + self._config["encoder_config"]["layer_norm_eps"])
        states *= self._weight("encoder.embeddings.LayerNorm.weight")
        states += self._weight("encoder.embeddings.LayerNorm.bias")
        states /= np.bincount(row)[row, None]

        mean = unit(means(chunks, counts))
        contextual = unit(means(states, np.bincount(np.repeat(documents, sizes))))
        mean = mean @ self._weight("residual_pooling.plain.weight").T
        return unit(mean + contextual @ self._weight("residual_pooling.contextual.weight").T)

    def _normalized(self, vectors: np.ndarray) -> np.ndarray:
        if self._config["chunk_encoder_normalize"]:
            return unit(vectors)
        return vectors

    def _prepared(self, plain: np.ndarray) -> np.ndarray:
        """Whitens chunk vectors if the model does, as its method `prepare_chunks`."""
        if not self.is_whitened:
            return plain
        centred = plain - self._weight("whitening.mean")
        return unit(centred @ self._weight("whitening.weight").T)


def is_static(folder: Path) -> bool:
    """Returns whether a folder holds a model that `StaticEncoder` can compute."""
    if not all((folder / name).is_file() for name in _FILES):
        return False
    config = load_json(folder / "config.json")
    tokens = config.get("chunk_encoder_config", {})
    encoder = config.get("encoder_config", {})
    return (
        _EXPECTED.items() <= config.items()
        and all(type(config.get(name)) is int for name in ("chunk_size", "max_chunks"))
        and config["max_chunks"] > 0
        and not config.get("prompts")
        and tokens.get("model_type") == "static-embedding"
        and not tokens.get("sentence_steps")
        and _EXPECTED_ENCODER.items() <= encoder.items()
        and not load_json(folder / "tokenizer_config.json").get("split_special_tokens")
    )
