"""Documents as token ids, for what is trained on text itself and not on stored chunk vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.documents import Document
from ..models.chunking import tokenize_document


class TokenCorpus:
    """The token ids of documents, in memory: four bytes a token, 135 MB for 200 novels.

    Args:
        documents: read once, in order; only their ids and their tokens are kept.
        tokenizer: a fast one.

    Attributes:
        document_ids: names in order.
        document_offsets: ``[N + 1]`` int64; document i is tokens ``offsets[i]`` to ``offsets[i + 1]``.

    Raises:
        ValueError: for two documents of one id.
    """

    def __init__(self, documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase) -> None:
        self.document_ids: list[str] = []
        digest, parts = hashlib.sha256(), [np.zeros(0, np.int32)]
        for document in documents:
            parts.append(tokenize_document(tokenizer, document.text).input_ids)
            self.document_ids.append(document.id)
            text = hashlib.sha256(document.text.encode("utf-8")).hexdigest()[:32]
            digest.update(f"{document.id!r} {text}\n".encode())
        known = set()
        for name in self.document_ids:
            if name in known:
                raise ValueError(f"Two documents have the id {name!r}; give each its own (--id_column).")
            known.add(name)
        self._ids = torch.from_numpy(np.concatenate(parts))  # [T]
        self.document_offsets = np.cumsum([len(part) for part in parts])
        self._fingerprint = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.document_ids)

    def __repr__(self) -> str:
        return f"TokenCorpus({len(self)} documents, {len(self._ids)} tokens)"

    @property
    def num_tokens(self) -> int:
        return len(self._ids)

    def fingerprint(self) -> str:
        """SHA-256 of the ids and texts of its documents, in order; the same as that of a `VectorCorpus` of them."""
        return self._fingerprint

    def ids(self, start: int, stop: int) -> torch.Tensor:
        """Token ids ``[stop - start]`` int32 by their number in the corpus, across documents."""
        return self._ids[start:stop]

    def __getitem__(self, document: int) -> torch.Tensor:
        """Token ids of one document, ``[T]`` int32."""
        return self._ids[self.document_offsets[document] : self.document_offsets[document + 1]]
