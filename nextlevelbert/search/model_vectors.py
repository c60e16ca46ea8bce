"""Reads with a document model: the vectors of texts and questions, and what they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..models.chunking import ChunkingRule
from ..models.identity import model_identity
from ..models.modeling_nextlevelbert import NextLevelBertModel
from ..models.sentences import Splitter
from .reading import unknown_share
from .static_model import EncodedTexts


class ModelVectors:
    """Reads with a document model; `StaticModel` does the same without torch.

    Args:
        model: the model.

    Attributes:
        has_layers: true if the chunk encoder has layers, which makes it slow.
        is_whitened: true if the model whitens vectors.
        tokenizer: the tokenizer.
        rule: the rule that splits documents into chunks.
    """

    def __init__(self, model: NextLevelBertModel) -> None:
        self._model = model
        self._encoder = model.get_chunk_encoder()
        self.has_layers = self._encoder.has_layers
        self.is_whitened: bool = getattr(model.config, "whiten_chunks", False)  # not in HATE
        self.tokenizer = model.tokenizer

    @property
    def rule(self) -> ChunkingRule:
        """Returns the rule that splits documents into chunks, with the prompt of passages."""
        return self._model.prompted_rule(self._model.config.encoder_prompts().passage)

    def fingerprint(self) -> str:
        """Returns the identity of the model."""
        return model_identity(self._model, self.tokenizer)

    @property
    def encoder_recipe(self) -> dict[str, Any]:
        """Returns what determines the vectors of chunks, as in `ChunkVectors.recipe`."""
        config = self._model.config
        return {
            "hidden_size": self._encoder.hidden_size,
            "pooling": self._encoder.pooling,
            "normalize": self._encoder.normalize,
            "name": str(config.chunk_encoder_name),
            "fingerprint": config.chunk_encoder_fingerprint or self._encoder.fingerprint(),
            "dtype": self._encoder.precision,
        }

    def question_vector(self, question: str) -> np.ndarray | None:
        """Encodes a question for comparison with vectors from `search_vectors`.

        Returns:
            The mean of its chunk vectors, ``[D]``; None if the question holds no token.
        """
        if unknown_share(self.tokenizer, question) is None:
            return None
        return self._model.encode_query(question).numpy()

    def search_vectors(self, plain: np.ndarray) -> np.ndarray:
        """Prepares chunk vectors ``[N, D]`` for comparison, as float32 on the CPU."""
        return self._model.search_vectors(torch.from_numpy(plain.astype(np.float32))).numpy()

    def encode(self, texts: Sequence[str], splitter: Splitter | None = None) -> EncodedTexts:
        """Encodes documents; a bar counts the chunks of a slow encoder.

        Args:
            texts: texts of the documents.
            splitter: function that finds sentences, as in the model's ``encode``.
        """
        encoded = self._model.iter_encode(
            texts,
            show_progress_bar=self.has_layers,
            splitter=splitter,
            prompt=self._model.config.encoder_prompts().passage,
        )
        embeddings = list(encoded)
        return EncodedTexts(
            spans=[np.asarray(embedding.spans) for embedding in embeddings],
            plain=torch.cat([embedding.plain for embedding in embeddings]).numpy(),
            documents=torch.stack([embedding.document for embedding in embeddings]).numpy(),
        )
