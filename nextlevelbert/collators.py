"""Documents, or their stored chunk vectors, as padded batches.

Notation for shapes: B documents, n chunks of one, L most chunks of one, D hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence


def pad_vectors(documents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Chunk vectors ``[n, D]`` of B documents as ``inputs_embeds [B, L, D]`` and ``attention_mask [B, L]``."""
    lengths = torch.tensor([len(vectors) for vectors in documents])
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return {"inputs_embeds": pad_sequence(list(documents), batch_first=True), "attention_mask": mask}


class DataCollatorForDocumentChoice:
    """Batches for `AutoModelForMultipleChoice` of rows ``question, choices, label`` and ``text`` or ``inputs_embeds``.

    For any tokenizer, also one without token types. A text with several questions in a batch is read once. `Trainer`
    needs ``remove_unused_columns=False``, or drops the texts.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def _tokens(self, texts: Sequence[str]) -> Any:
        return self.tokenizer(list(texts), padding=True, return_tensors="pt", verbose=False)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels`` [N], ``pair_input_ids`` [N, C, Q] with their mask, and the documents, of ids or vectors."""
        batch = {"labels": torch.tensor([row["label"] for row in rows])}
        if "inputs_embeds" in rows[0]:  # stored chunk vectors [n, D]
            batch |= pad_vectors([torch.as_tensor(row["inputs_embeds"]).float() for row in rows])
        else:
            texts = list(dict.fromkeys(row["text"] for row in rows))
            documents = self._tokens(texts)
            batch |= {name: documents[name] for name in ("input_ids", "attention_mask")}
            batch["document_index"] = torch.tensor([texts.index(row["text"]) for row in rows])
        pairs = self._tokens([f"{row['question']} {choice}" for row in rows for choice in row["choices"]])
        return batch | {
            f"pair_{name}": pairs[name].unflatten(0, (len(rows), -1)) for name in ("input_ids", "attention_mask")
        }


class DataCollatorForLabelledVectors:
    """Batches of rows with ``labels`` and ``inputs_embeds`` ``[n, D]``, for the classifiers over chunk vectors."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """``labels``, ``inputs_embeds`` [B, L, D] float32 and ``attention_mask`` [B, L]."""
        labels = torch.tensor([row["labels"] for row in rows])  # first: `Trainer` takes its length for the batch size
        return {"labels": labels, **pad_vectors([row["inputs_embeds"].float() for row in rows])}
