"""Makes batches of documents with labels, for the stock `Trainer`.

Shapes: B documents, n chunks of one, L of the longest, D values; N rows, C choices of a row, Q
tokens of the longest question with a choice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..messages import names_in_line, short
from ..models.windows import pad_vectors


def _label_tensor(labels: Sequence[Any]) -> Tensor:
    """Stacks the labels of rows, which are numbers or tensors of the same shape."""
    for label in labels:
        if isinstance(label, str):
            raise ValueError(
                f"A label must be a number, from 0; got {short(label)}. Use class_encode_column for"
                " classes, and the position of the right choice for multiple choice."
            )

    return torch.stack([torch.as_tensor(label) for label in labels])


class DataCollatorForLabelledVectors:
    """Makes batches of stored chunk vectors for the heads.

    A row is a dict with the chunk vectors of a document, ``inputs_embeds`` [n, D], and its class as
    ``label`` or ``labels`` (not needed for prediction). ``pair_embeds`` is the vector of a question
    [D], or the vectors of its choices [C, D]. If rows name their ``document``, a document of
    several rows is read once.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Makes a batch.

        Returns:
            ``labels`` [N], ``document_index`` [N] (if the rows name their documents),
            ``pair_embeds`` [N, D] or [N, C, D], ``inputs_embeds`` [B, L, D] float32 and
            ``attention_mask`` [B, L].

        Raises:
            ValueError: a label is a text.
        """
        # `Trainer` takes the length of the first entry for the batch size: a row each.
        batch = {}
        for name in ("label", "labels"):
            if name in rows[0]:
                batch["labels"] = _label_tensor([row[name] for row in rows])
                break

        documents = rows
        if "document" in rows[0]:
            names = [row["document"] for row in rows]
            row_of = dict(zip(names, rows, strict=True))
            documents = list(row_of.values())
            distinct = list(row_of)
            document_index = [distinct.index(name) for name in names]
            batch["document_index"] = torch.tensor(document_index)

        if "pair_embeds" in rows[0]:
            pairs = [torch.as_tensor(row["pair_embeds"]).float() for row in rows]
            batch["pair_embeds"] = torch.stack(pairs)

        vectors = [torch.as_tensor(row["inputs_embeds"]).float() for row in documents]
        batch |= pad_vectors(vectors)
        return batch


class DataCollatorForDocumentChoice:
    """Makes batches for `AutoModelForMultipleChoice`, also with a tokenizer without token types.

    A row is a dict with a ``question``, its ``choices``, the index of the right choice as ``label``
    (not needed for prediction), and either a ``text`` or the stored chunk vectors of one,
    ``inputs_embeds`` [n, D]. A text with several questions in a batch is read once. Set
    ``remove_unused_columns=False`` in the `TrainingArguments`; otherwise `Trainer` drops the texts.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.collate_vectors = DataCollatorForLabelledVectors()

    def _tokens(self, texts: Sequence[str]) -> Mapping[str, Tensor]:
        tokens = self.tokenizer(list(texts), padding=True, return_tensors="pt", verbose=False)
        return {name: tokens[name] for name in ("input_ids", "attention_mask")}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Makes a batch of N rows with C choices each.

        Returns:
            ``labels`` [N], ``pair_input_ids`` [N, C, Q] with their mask, and the documents as ids
            or vectors.

        Raises:
            ValueError: rows lack a column that is needed, or a label is a text.
        """
        has_vectors = "inputs_embeds" in rows[0]
        needed = {"question", "choices"}
        if not has_vectors:
            needed.add("text")
        if not needed <= rows[0].keys():
            raise ValueError(
                f"The rows have the columns {names_in_line(sorted(rows[0]))}. Multiple choice needs"
                " text, question, choices and, to train, label. Rename columns with"
                " rename_columns, and give a Trainer remove_unused_columns=False."
            )

        batch: dict[str, Tensor] = {}
        if has_vectors:
            batch = self.collate_vectors(rows)
        else:
            if "label" in rows[0]:
                batch["labels"] = _label_tensor([row["label"] for row in rows])
            texts = [row["text"] for row in rows]
            distinct = list(dict.fromkeys(texts))
            batch |= self._tokens(distinct)
            document_index = [distinct.index(text) for text in texts]
            batch["document_index"] = torch.tensor(document_index)

        pairs = []
        for row in rows:
            pairs += [f"{row['question']} {choice}" for choice in row["choices"]]

        for name, values in self._tokens(pairs).items():
            batch[f"pair_{name}"] = values.unflatten(0, (len(rows), -1))

        return batch
