"""The part of a document model that search uses: a key for its vectors, and vectors to compare."""

import hashlib

import numpy as np
import torch

from ..models.chunk_encoder import weights_fingerprint
from ..models.modeling_nextlevelbert import NextLevelBertModel
from .part_writer import part_schema
from .parts import VERSION
from .reading import ReadingOptions, unknown_share

# Configuration values that do not change a vector.
_INCIDENTAL = (
    "_name_or_path",
    "transformers_version",
    "architectures",
    "dtype",
    "include_chunk_encoder",
)


def shelf_key(model: NextLevelBertModel, reading: ReadingOptions) -> str:
    """Hashes what the parts of a shelf depend on, besides the files."""
    values = model.config.to_dict()
    settings = sorted((name, values[name]) for name in values if name not in _INCIDENTAL)
    weights = weights_fingerprint(model)
    schema = part_schema(model, reading)
    columns = (reading.text_column, reading.id_column)
    key = (VERSION, schema.metadata, settings, weights, columns)
    return hashlib.sha256(repr(key).encode()).hexdigest()


def question_vector(model: NextLevelBertModel, question: str) -> np.ndarray | None:
    """Encodes a question for comparison with vectors from `search_vectors`.

    Returns:
        The mean of its chunk vectors, ``[D]``; None if the question holds no token.
    """
    if unknown_share(model.tokenizer, question) is None:
        return None
    return model.encode_query(question).numpy()


def search_vectors(model: NextLevelBertModel, plain: np.ndarray) -> np.ndarray:
    """Prepares chunk vectors ``[N, D]`` for comparison, see the method of the model."""
    return model.search_vectors(torch.from_numpy(plain.astype(np.float32))).numpy()
