"""Encodes questions with a static model without torch, whose import takes longer than a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

_TABLE = "chunk_encoder.model.embedding.weight"
_MEAN = "whitening.mean"
_WEIGHT = "whitening.weight"
# Values of a configuration that a question can be encoded with here.
_EXPECTED = {
    "model_type": "nextlevelbert",
    "chunking": "fixed",
    "chunk_encoder_pooling": "mean",
    "include_chunk_encoder": True,
}
_SMALLEST_LENGTH = 1e-12  # as in torch's `normalize`


class StaticQuestions:
    """Encodes questions with the files of a static model, as `NextLevelBertModel` does.

    Only the rows of the question's tokens are read from the table of token vectors.

    Args:
        folder: folder of the model, for which `is_static` is true.

    Attributes:
        is_whitened: true if the model whitens vectors.
    """

    def __init__(self, folder: Path) -> None:
        config = _read_json(folder / "config.json")
        self._weights = folder / "model.safetensors"
        self._capacity = config["chunk_size"]
        self._capacity -= len(config["chunk_prefix_ids"]) + len(config["chunk_suffix_ids"])
        self._is_normalized = config["chunk_encoder_normalize"]
        self.is_whitened: bool = config["whiten_chunks"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def vector(self, question: str) -> np.ndarray | None:
        """Encodes a question.

        Returns:
            The mean of its chunk vectors, ``[D]`` float32, whitened if the model whitens vectors,
            with length 1; None if the question holds no token.
        """
        ids = self._tokenizer.encode(question, add_special_tokens=False).ids
        if not ids:
            return None
        with safe_open(self._weights, framework="numpy") as file:
            names = {name.removeprefix("model."): name for name in file.keys()}  # noqa: SIM118
            table = file.get_slice(names[_TABLE])
            vectors = np.concatenate([table[token : token + 1] for token in ids])  # [T, D]
            vectors = vectors.astype(np.float32)
            starts = np.arange(0, len(ids), self._capacity)
            sizes = np.diff([*starts, len(ids)])
            chunks = np.add.reduceat(vectors, starts) / sizes[:, None].astype(np.float32)
            if self._is_normalized:
                chunks = _unit(chunks)
            vector = chunks.mean(axis=0)
            if self.is_whitened:
                mean = file.get_tensor(names[_MEAN]).astype(np.float32)
                weight = file.get_tensor(names[_WEIGHT]).astype(np.float32)
                vector = weight @ (vector - mean)
        return _unit(vector)


def is_static(folder: Path) -> bool:
    """Returns whether a folder holds a model whose questions `StaticQuestions` can encode."""
    files = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    if not all((folder / name).is_file() for name in files):
        return False
    config = _read_json(folder / "config.json")
    encoder = config.get("chunk_encoder_config", {})
    return (
        all(config.get(name) == value for name, value in _EXPECTED.items())
        and not config.get("prompts")
        and encoder.get("model_type") == "static-embedding"
        and not encoder.get("sentence_steps")
        and not _read_json(folder / "tokenizer_config.json").get("split_special_tokens")
    )


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, _SMALLEST_LENGTH)
