"""Encoders of other kinds as baselines: one vector for the tokens that they read at once, or late chunking."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer

from ..models.chunking import ChunkingRule, chunk_spans, tokenize_document
from ..models.modeling_nextlevelbert import DocumentEmbedding
from ..models.pretrained import usable_positions

logger = logging.getLogger(__name__)

_WINDOWS_PER_PASS = 8


class OtherEncoder:
    """An encoder of another kind, as sentence-transformers opens it: one vector a text, of the tokens that it reads.

    Without a pooling of its own it is given the mean of its token vectors (as in the NextLevelBERT paper, section 3.2,
    for BookSum). `encode` and `to` are called as those of our models.

    Args:
        name: folder or name on the Hub.
    """

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(name, device="cpu")
        self._name, self._read, self._cut = name, 0, 0

    @property
    def hidden_size(self) -> int:
        """Dimensions of a vector."""
        return int(self.model.get_embedding_dimension() or 0)

    def to(self, device: torch.device) -> OtherEncoder:
        self.model.to(device)
        return self

    def encode(self, texts: Sequence[str], dtype: str = "float32", **_: object) -> list[DocumentEmbedding]:
        """One vector for each text, as a document of one chunk; `report_cuts` says how many were cut."""
        self.model.to(getattr(torch, dtype))
        limit = self.model.max_seq_length or math.inf
        if long := [text for text in texts if len(text.encode()) > limit - 2]:  # a token is a byte or more
            lengths = map(len, self.model.tokenizer(long, verbose=False)["input_ids"])
            self._cut += sum(length > limit for length in lengths)
        self._read += len(texts)
        found = self.model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)  # [N, D]
        vectors = found.float().cpu()
        return [
            DocumentEmbedding(vector, vector[None], vector[None], np.array([[0, len(text)]]))
            for vector, text in zip(vectors, texts, strict=True)
        ]

    def report_cuts(self) -> None:
        """Says how many of the texts since the last report were cut."""
        if self._cut:
            logger.warning(
                "%s reads the first %d tokens of a text; %d of %d texts are longer.",
                self._name, self.model.max_seq_length, self._cut, self._read,
            )  # fmt: skip
        self._read = self._cut = 0


class LateChunkingEncoder:
    """Late chunking: an encoder reads whole windows, and a chunk's vector is the mean of its tokens' vectors there.

    Günther et al., 2024 (arXiv 2409.04701), section 3. So a chunk is read in the context of its window, where an
    encoder of chunks reads it alone. A document longer than the window is read in windows that overlap; of each but
    the first, the vectors of the overlap are left out (their "long late chunking", algorithm 2).

    Every window stands between the tokenizer's special tokens, whose vectors belong to no chunk. Chunks are those of
    ``chunking="fixed"``. Their vectors have length 1; the document vector is their mean.

    Args:
        name: folder or name on the Hub of an encoder that `AutoModel` opens, with a fast tokenizer.
        chunk_size: as in `ChunkingRule`, special tokens included, so that chunks are those of the other baselines.
        overlap: tokens that two windows share; by default a quarter of a window.

    Raises:
        ValueError: for an encoder with a decoder, or an overlap that is no part of a window.
    """

    def __init__(self, name: str, chunk_size: int = 256, overlap: int | None = None) -> None:
        if AutoConfig.from_pretrained(name).is_encoder_decoder:
            raise ValueError(f"--late_chunking reads with an encoder alone, and {name!r} has a decoder; give another.")
        self.model = AutoModel.from_pretrained(name, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.rule = ChunkingRule.from_tokenizer(self.tokenizer, chunk_size)
        specials = len(self.rule.prefix_ids) + len(self.rule.suffix_ids)
        limits = (usable_positions(self.model.config) or math.inf, self.tokenizer.model_max_length)
        self.window = int(min(*limits, 10**9)) - specials  # tokens of text
        self.overlap = self.window // 4 if overlap is None else overlap
        if not 0 <= self.overlap < self.window:
            raise ValueError(f"overlap must be from 0 to {self.window - 1}, within a window, got {self.overlap}.")

    @property
    def hidden_size(self) -> int:
        """Dimensions of a vector."""
        return int(self.model.config.hidden_size)

    def to(self, device: torch.device) -> LateChunkingEncoder:
        self.model.to(device)
        return self

    def encode(self, texts: Sequence[str], dtype: str = "float32", **_: object) -> list[DocumentEmbedding]:
        """Chunk vectors ``[n, D]`` of each text, and their mean ``[D]``."""
        self.model.to(getattr(torch, dtype))
        found = []
        for text in texts:
            document = tokenize_document(self.tokenizer, text)
            cuts = self.rule.boundaries(document.input_ids)
            chunks = self._chunk_vectors(torch.from_numpy(document.input_ids).long(), torch.from_numpy(cuts))
            mean = chunks.mean(dim=0) if len(chunks) else chunks.new_zeros(self.hidden_size)
            found.append(DocumentEmbedding(mean, chunks, chunks, chunk_spans(document, cuts)))
        return found

    @torch.inference_mode()
    def _chunk_vectors(self, ids: torch.Tensor, cuts: torch.Tensor) -> torch.Tensor:
        """Vectors ``[n, D]`` of the chunks ``ids[cuts[k]:cuts[k + 1]]`` of ids ``[T]``."""
        sums = torch.zeros(len(cuts) - 1, self.hidden_size)
        for place, states in self._token_states(ids):
            sums.index_add_(0, torch.searchsorted(cuts, place, right=True) - 1, states)
        return F.normalize(sums, dim=-1)  # of a sum and of a mean it is the same

    def _token_states(self, ids: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Positions ``[t]`` and vectors ``[t, D]`` of tokens; every token once, as the model's last hidden states."""
        prefix, suffix = (
            torch.tensor(part, dtype=torch.long) for part in (self.rule.prefix_ids, self.rule.suffix_ids)
        )
        device, pad = self.model.device, self.tokenizer.pad_token_id or 0
        starts = range(0, max(len(ids) - self.overlap, min(len(ids), 1)), self.window - self.overlap)
        for first in range(0, len(starts), _WINDOWS_PER_PASS):
            own = starts[first : first + _WINDOWS_PER_PASS]
            rows = [torch.cat([prefix, ids[start : start + self.window], suffix]) for start in own]
            mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)  # [B, W]
            batch = pad_sequence(rows, batch_first=True, padding_value=pad)
            hidden = self.model(input_ids=batch.to(device), attention_mask=mask.to(device)).last_hidden_state
            for start, row, states in zip(own, rows, hidden.float().cpu(), strict=True):
                tokens = len(row) - len(prefix) - len(suffix)
                skipped = self.overlap if start else 0
                place = torch.arange(start + skipped, start + tokens)
                yield place, states[len(prefix) + skipped : len(prefix) + tokens]
