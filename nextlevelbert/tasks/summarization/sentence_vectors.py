"""A baseline for summaries: any encoder's vector of each sentence alone, frozen, and the head that the models have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from ...finetuning.other_encoders import OtherEncoder
from ...finetuning.vector_models import encode_in_parts
from ...models.losses import labelled_loss
from ...models.modeling_nextlevelbert import ExtractiveSummarizationOutput
from .data import SummarizationData


class SentenceVectorDataset(Dataset):
    """Documents as the vectors of their sentences, with a label for each.

    Args:
        data: the documents.
        vectors: of every sentence, by its text, ``[D]`` each.
    """

    def __init__(self, data: SummarizationData, vectors: Mapping[str, torch.Tensor]) -> None:
        self.data = data
        self.rows = [
            {
                "labels": torch.tensor(document.labels),
                "vectors": torch.stack([vectors[sentence] for sentence in document.sentences]),  # [S, D]
            }
            for document in data.documents
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.rows[index]

    def collate(self, rows: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """A batch of B documents: `labels` ``[B, S]``, -100 after the last sentence, and `vectors` ``[B, S, D]``."""
        return {
            "labels": pad_sequence([row["labels"] for row in rows], batch_first=True, padding_value=-100),
            "vectors": pad_sequence([row["vectors"].float() for row in rows], batch_first=True),
        }


def encode_sets(
    name: str, sets: Mapping[str, SummarizationData], device: torch.device
) -> tuple[OtherEncoder, dict[str, SentenceVectorDataset]]:
    """The encoder, and a dataset for every set, by its name; each distinct sentence is encoded once.

    Args:
        name: folder or name on the Hub, of any model that sentence-transformers opens.
        sets: the documents.
        device: for encoding.
    """
    encoder = OtherEncoder(name).to(device)
    sentences = (each for data in sets.values() for document in data.documents for each in document.sentences)
    distinct = list(dict.fromkeys(sentences))
    books = encode_in_parts(encoder, distinct, "encoding sentences")
    vectors = {text: book.document.half() for text, book in zip(distinct, books, strict=True)}
    return encoder, {part: SentenceVectorDataset(data, vectors) for part, data in sets.items()}


class SentenceVectorClassifier(nn.Module):
    """A score for each sentence from its own vector: the linear layer of `BertAlForExtractiveSummarization`.

    Args:
        hidden_size: D, size of a vector.
    """

    accepts_loss_kwargs = False  # the loss is a mean over the documents of the batch

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(hidden_size, 1)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, vectors: torch.Tensor, labels: torch.Tensor) -> ExtractiveSummarizationOutput:
        """Scores ``[B, S]`` and the models' loss, from vectors ``[B, S, D]`` and labels ``[B, S]`` (-100: none)."""
        logits = self.classifier(vectors).squeeze(-1)
        return ExtractiveSummarizationOutput(loss=labelled_loss(logits, labels), logits=logits)
