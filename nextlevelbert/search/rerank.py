"""Ranks the first passages of a search again, by a second model that reads only these passages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .encoders.choice import SearchModel, search_model

if TYPE_CHECKING:
    from ..models.modeling_nextlevelbert import NextLevelBertModel

PASSAGES = 15
"""Passages that are read for a question: two CPU-seconds on a busy processor with AVX2."""
_PASSAGES_PER_WRITE = 32  # what a killed command has to read again
_MOST_PASSAGES = 60_000  # whose vectors are kept, 100 MB of MiniLM


class Reranker:
    """Reads the first passages of a search with a second model, and ranks them again.

    The score of a passage becomes the weighted mean of its cosine by this model and of its score
    before; of a library whose model has no token vectors, of the words that it shares with the
    question. The vectors of passages are kept beside the vectors of the
    folder, so that a later question does not read these passages again.

    Args:
        model: the second model, from `open_model`, or a `SearchModel`. Its weights must not change
            while it is in use.
        passages: number of passages that are read for a question.
        weight: weight of the cosine.

    Raises:
        ValueError: if `passages` is less than 1.
    """

    def __init__(
        self,
        model: NextLevelBertModel | SearchModel,
        *,
        passages: int = PASSAGES,
        weight: float = 0.6,
    ) -> None:
        if passages < 1:
            raise ValueError(f"passages must be 1 or more, got {passages}.")
        self.passages = passages
        self.weight = weight
        self._encoder = search_model(model).vectors
        dtype = self._encoder.encoder_recipe["dtype"]
        self._key = f"{self._encoder.fingerprint()} {dtype}".encode()

    @property
    def name(self) -> str:
        """Returns the name of the second model."""
        return self._encoder.encoder_recipe["name"]

    def cosines(self, question: str, texts: Sequence[str], store: Path) -> np.ndarray:
        """Returns the cosines of passages with a question, ``[n]``.

        Args:
            question: text of the question.
            texts: the n passages.
            store: the database in which the vectors of passages are kept.

        Raises:
            ValueError: if the question holds no token.
            DatabaseError: if the database cannot be used.
        """
        from ..vector_cache import VectorCache

        query = self._encoder.question_vector(question)
        if query is None:
            raise ValueError(
                f"The question {question!r} holds no word that the model of --rerank can read."
            )
        keys = [hashlib.sha256(self._key + text.encode()).digest() for text in texts]
        with closing(VectorCache(store.parent, _MOST_PASSAGES, name=store.name)) as cache:
            vectors = cache.complete(keys, texts, self._vectors, _PASSAGES_PER_WRITE)
        # Row by row, so that equal passages have equal scores.
        return np.einsum("nd,d->n", np.stack(vectors), query)

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vector of each text ``[n, D]``, from the vectors of its chunks.

        A chunk counts by the square of its length. A passage is a chunk of the library's model that
        was widened to whole sentences, so that most have one full chunk and a short rest. With the
        same weight for both, the MRR of MiniLM on the everyday questions for choosing was .434, and
        .524 without the rest.
        """
        encoded = self._encoder.encode(texts)
        vectors = np.zeros((len(texts), encoded.plain.shape[1]), np.float32)
        start = 0
        for index, spans in enumerate(encoded.spans):
            weights = np.square(np.diff(spans).ravel() / len(texts[index]), dtype=np.float32)
            stop = start + len(spans)
            vectors[index] = weights @ encoded.plain[start:stop] / max(weights.sum(), 1e-9)
            start = stop
        return self._encoder.search_vectors(vectors)


def installed_reranker(passages: int = PASSAGES) -> Reranker | None:
    """Returns how `search` and `app` rank again: by the MiniLM that is installed with the package.

    Returns:
        A reranker; None without onnxruntime, which the extra ``minilm`` installs.
    """
    if find_spec("onnxruntime") is None:
        return None
    return named_reranker("minilm", passages, dtype="int8")


def named_reranker(
    name: str,
    passages: int,
    *,
    device: str = "auto",
    dtype: str = "auto",
    cache_dir: Path | None = None,
) -> Reranker:
    """Returns a reranker by the name of its model.

    Args:
        name: folder or name of the second model.
        passages: number of passages that are read for a question.
        device: see `SearchModel`.
        dtype: see `SearchModel`; by default, an encoder that can be exported reads in 8 bits.
        cache_dir: see `SearchModel`.
    """
    use = f"Ranking the first {passages} passages again"
    model = SearchModel(
        name, device=device, dtype=dtype, export_dtype="int8", use=use, cache_dir=cache_dir
    )
    return Reranker(model, passages=passages)


def scores_again(scores: np.ndarray, texts: np.ndarray, ranked: np.ndarray) -> np.ndarray:
    """Puts passages that were ranked again before all others, which keep their order.

    Args:
        scores: score of each passage before, ``[N]``.
        texts: a number for the text of each passage, ``[N]``; equal texts have equal numbers.
        ranked: the new score of each passage that was read, ``[N]``; NaN for the others.

    Returns:
        The scores ``[N]``. Copies of a passage that was read have its score.
    """
    was_read = ~np.isnan(ranked)
    order = np.argsort(texts[was_read])
    numbers = texts[was_read][order]
    position = np.searchsorted(numbers, texts).clip(max=len(numbers) - 1)
    is_first = numbers[position] == texts
    again = ranked[was_read][order][position]
    best_of_rest = scores[~is_first].max(initial=-np.inf)
    rest = scores - best_of_rest + again[is_first].min() - 1e-3
    return np.where(is_first, again, rest)
