"""A pretrained encoder that reads one or two windows of a document: BERT, BERT+Random and BERT+TextRank.

The baselines of the ChunkBERT paper (Jaiswal and Milios, 2023, arXiv 2310.20558, section 4.2.1), from Park et al.,
"Efficient Classification of Long Documents Using Transformers", ACL 2022 (arXiv 2203.11258).

Notation for shapes: N documents in a batch, W tokens of the longest first window, V of the longest second one,
D hidden size, K labels.
"""

from __future__ import annotations

from os import PathLike
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForSequenceClassificationLoss
from transformers.modeling_outputs import SequenceClassifierOutput

from ...models.backbones import hidden_dropout, load_backbone, usable_positions
from ...models.chunk_encoder import default_tokens_per_batch, micro_batches
from ...models.input_checks import check_labels, check_token_ids

_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


class WindowClassifier(nn.Module):
    """[CLS] of the first window, beside that of a second one where there are two, dropout and a linear layer.

    [CLS] is the last hidden state at position 0, without the pooler. The new layer starts at N(0, 0.02).

    Args:
        encoder: a `transformers` encoder, see `from_encoder`.
        problem_type: ``"regression"``, ``"single_label_classification"`` or ``"multi_label_classification"``.
        num_labels: K, classes or values.
        windows: how many windows of a document it reads, 1 or 2.

    Raises:
        ValueError: for another problem type or number of windows, or no label.

    Example:
        >>> from nextlevelbert.tasks.classification.windows import first_window, random_window
        >>> from transformers import AutoTokenizer
        >>> tokenizer = AutoTokenizer.from_pretrained(minilm)
        >>> model = WindowClassifier.from_encoder(minilm, "single_label_classification", 3, windows=2)
        >>> ids = tokenizer("Call me Ishmael. " * 500)["input_ids"]
        >>> first = first_window(ids, tokenizer, model.positions)
        >>> second = random_window(ids, tokenizer, model.positions, np.random.default_rng(0))
        >>> model(torch.tensor([first]), second_input_ids=torch.tensor([second])).logits.shape
        torch.Size([1, 3])
    """

    accepts_loss_kwargs = False  # losses are means over the batch

    def __init__(self, encoder: Any, problem_type: str, num_labels: int, windows: int) -> None:
        super().__init__()
        if problem_type not in _PROBLEM_TYPES:
            raise ValueError(f"problem_type must be one of {', '.join(_PROBLEM_TYPES)}, got {problem_type!r}.")
        if windows not in (1, 2):
            raise ValueError(f"windows must be 1 (first window) or 2 (with a second one), got {windows!r}.")
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}.")
        self.encoder = encoder
        self.problem_type = problem_type
        self.num_labels = num_labels
        self.windows = windows
        self.dropout = nn.Dropout(hidden_dropout(encoder.config))
        self.classifier = nn.Linear(windows * encoder.config.hidden_size, num_labels)
        nn.init.normal_(self.classifier.weight, std=0.02)
        nn.init.zeros_(self.classifier.bias)

    @classmethod
    def from_encoder(
        cls, name_or_path: str | PathLike[str], problem_type: str, num_labels: int, windows: int
    ) -> WindowClassifier:
        """A new classifier around a pretrained encoder, in float32: BERT, RoBERTa, MPNet, MiniLM and their like.

        Attention dropout is set to 0, because it makes a training step on a CPU more than twice as slow; hidden
        dropout stays as the encoder has it.

        Args:
            name_or_path: folder or Hub name of the encoder.
            problem_type, num_labels, windows: as in `WindowClassifier`.

        Raises:
            ValueError: if there is no such model, it is no encoder, or weights of it are missing (named).
        """
        return cls(load_backbone(name_or_path), problem_type, num_labels, windows).eval()

    def get_input_embeddings(self) -> nn.Module:
        """Of the encoder; `Trainer` asks for them."""
        return self.encoder.get_input_embeddings()

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Of the encoder, under the name by which `Trainer` calls it."""
        self.encoder.gradient_checkpointing_enable(*args, **kwargs)

    @property
    def positions(self) -> int | None:
        """Most tokens in a window, special tokens counted; None where the encoder has no limit."""
        return usable_positions(self.encoder.config)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        second_input_ids: torch.Tensor | None = None,
        second_attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Reads the windows of a batch, those of similar length together.

        A document that fits in one window is its own second window: it is read once, and in training its [CLS] stands
        twice with the same dropout.

        Args:
            input_ids: ``[N, W]`` first windows with their special tokens, padded on the right.
            attention_mask: ``[N, W]``, zero at padding. All ones by default.
            second_input_ids: ``[N, V]`` second windows, where the classifier reads two.
            second_attention_mask: ``[N, V]``.
            labels: ``[N]`` class numbers or values, or ``[N, K]``.

        Returns:
            Logits ``[N, K]``, and the loss where labels are given.

        Raises:
            ValueError: for a second window that is missing or not read, windows that the encoder cannot read or
                that have no token at position 0, or labels that do not fit.
        """
        given = [(input_ids, attention_mask)]
        if self.windows == 2:
            if second_input_ids is None:
                raise ValueError(
                    "second_input_ids is missing: this classifier reads two windows of every document (windows=2). "
                    "Give [N, V] ids made by random_window or textrank_window."
                )
            given.append((second_input_ids, second_attention_mask))
        elif second_input_ids is not None or second_attention_mask is not None:
            raise ValueError(
                "Got a second window, but this classifier reads only the first (windows=1). Leave second_input_ids "
                "and second_attention_mask out, or build the classifier with windows=2."
            )
        ids, mask = self._stack(given)  # [windows * N, max(W, V)]
        row = torch.arange(len(ids), device=ids.device)
        first = row % len(input_ids)
        again = ((ids == ids[first]) | ~mask).all(dim=1) & (mask == mask[first]).all(dim=1)
        source = torch.where(again, first, row)  # the row whose window this one is
        distinct, place = source.unique(return_inverse=True)
        vectors = self._cls(ids[distinct], mask[distinct])[place]  # [windows * N, D]
        vectors = torch.cat(vectors.chunk(self.windows), dim=1)  # [N, windows * D]
        logits = self.classifier(self.dropout(vectors))  # [N, K]
        loss = None
        if labels is not None:
            check_labels(labels, logits, self.problem_type)
            config = PreTrainedConfig(num_labels=self.num_labels, problem_type=self.problem_type)
            loss = ForSequenceClassificationLoss(labels=labels, pooled_logits=logits, config=config)
        return SequenceClassifierOutput(loss, logits)

    def _cls(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The last hidden state at position 0, ``[R, D]``, of windows ``[R, W]``, with little padding in a pass."""
        places = torch.arange(1, mask.shape[1] + 1, device=mask.device)
        lengths = (mask * places).amax(dim=1).cpu().numpy()  # up to the last real token
        found, order = [], []
        for part in micro_batches(lengths, default_tokens_per_batch(ids.device)):
            rows, width = torch.from_numpy(part).to(ids.device), int(lengths[part].max())
            output = self.encoder(input_ids=ids[rows, :width], attention_mask=mask[rows, :width].long())
            found.append(output.last_hidden_state[:, 0])
            order.append(rows)
        return torch.cat(found)[torch.cat(order).argsort()]

    def _stack(self, given: list[tuple[torch.Tensor, torch.Tensor | None]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and masks of all windows, one below the other, padded on the right to the widest."""
        masks = [check_token_ids(ids, mask, self.encoder.config.vocab_size) for ids, mask in given]
        if len(given[0][0]) != len(given[-1][0]):
            raise ValueError(
                f"Got {len(given[0][0])} first windows but {len(given[-1][0])} second ones; give every document both."
            )
        for name, mask in zip(("first", "second"), masks, strict=False):
            without = ~mask[:, :1].any(dim=1)  # [N]
            if without.any():
                raise ValueError(
                    f"The {name} windows of documents {without.nonzero().flatten().tolist()} have no token at "
                    "position 0, where [CLS] is read. Keep the special tokens, and pad on the right."
                )
        width = max(mask.shape[1] for mask in masks)
        if self.positions is not None and width > self.positions:
            raise ValueError(
                f"A window has {width} tokens, but the encoder reads at most {self.positions}. Cut documents by "
                f"first_window, random_window or textrank_window with positions={self.positions}."
            )
        return (  # padding is masked, so any id will do
            torch.cat([nn.functional.pad(ids, (0, width - ids.shape[1])) for ids, _ in given]),
            torch.cat([nn.functional.pad(mask, (0, width - mask.shape[1])) for mask in masks]),
        )
