"""A pretrained encoder that reads one or two windows of a document: BERT, BERT+Random and BERT+TextRank.

The baselines of the ChunkBERT paper (Jaiswal and Milios, 2023, arXiv 2310.20558, section 4.2.1), from Park et al.,
"Efficient Classification of Long Documents Using Transformers", ACL 2022 (arXiv 2203.11258).

Notation for shapes: N documents in a batch, W tokens of the longest first window, V of the longest second one,
D hidden size, K labels.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedConfig
from transformers.modeling_outputs import SequenceClassifierOutput

from ...finetuning.arguments import BaselineArguments, FinetuningArguments
from ...finetuning.task import Sets
from ...finetuning.text_models import TextModelOptions, is_saved_model
from ...models.chunk_encoder import default_tokens_per_batch, micro_batches, weights_fingerprint
from ...models.losses import classification_loss
from ...models.pretrained import hidden_dropout, load_backbone, load_tokenizer, token_mask, usable_positions
from .data import TaskData
from .tokens import TaskTokenDataset, TokenisedTask, check_no_questions, long_documents, tokenise_task
from .train import ExampleDataset, Prepared
from .windows import first_window, random_window, textrank_window

logger = logging.getLogger(__name__)

WINDOW_BASELINES = ("truncated", "random", "textrank")
_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


@dataclass(kw_only=True)
class WindowOptions(TextModelOptions):
    """A baseline: an encoder on one or two windows of each document."""

    arguments = BaselineArguments

    model_type: Literal["truncated", "random", "textrank"] = field(
        metadata={"help": "truncated reads only the first window; random adds a random one, textrank one of key "
                          "sentences."}
    )  # fmt: skip


class WindowClassifier(nn.Module):
    """[CLS] of the first window, concatenated with that of a second one if there are two, dropout and a linear layer.

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
            config = PreTrainedConfig(num_labels=self.num_labels, problem_type=self.problem_type)
            loss = classification_loss(logits, labels, config)
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
        masks = [token_mask(ids, mask) for ids, mask in given]
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


def prepare(options: WindowOptions, args: FinetuningArguments, sets: Sets[TaskData]) -> Prepared:
    """Cuts the first window of each document, and for some baselines a second one.

    Random windows are drawn once, from `args.seed`, set by set in the order of the documents; key sentences are
    ranked once. So all epochs and all seeds read the same windows.

    Args:
        options: which encoder and which windows.
        args: of the whole fine-tuning; `seed` draws the random windows.
        sets: the task.

    Raises:
        ValueError: for a set with questions, or a model that is no encoder or has no maximum length.
    """
    check_no_questions(options, sets.train)
    is_saved_model(options)
    train, kind = sets.train, options.model_type
    count = 1 if kind == "truncated" else 2

    def new_model() -> Any:
        model: Any = WindowClassifier.from_encoder(options.model, train.head_type, train.outputs, count)
        if options.attn_implementation:
            model.encoder.set_attn_implementation(options.attn_implementation)
        return model

    reader, tokenizer = new_model(), load_tokenizer(options.model)
    positions = reader.positions
    if positions is None:
        raise ValueError(
            f"--model {options.model!r} has no maximum input length, so --model_type {kind} has no window to cut; use "
            "--model_type chunkbert, or another encoder."
        )
    whole = {name: tokenise_task(tokenizer, data) for name, data in sets.by_name.items()}
    long, window = long_documents(sets, whole, reader.encoder.config)
    lengths = torch.cat([tokens.lengths for tokens in whole.values()])
    unseen = (lengths - positions).clamp(min=0)
    logger.info(
        "%d of %d documents are longer than the window of %d tokens; the first window leaves out %s of %s tokens.",
        int((unseen > 0).sum()), len(lengths), positions, f"{int(unseen.sum()):,}", f"{int(lengths.sum()):,}",
    )  # fmt: skip
    draw = np.random.default_rng(args.seed)
    datasets: dict[str, ExampleDataset] = {}
    for name, data in sets.by_name.items():
        ids = [document.tolist() for document in whole[name].documents]
        firsts, seconds = [first_window(document, tokenizer, positions) for document in ids], None
        if kind == "random":
            seconds = [random_window(document, tokenizer, positions, draw) for document in ids]
        if kind == "textrank":
            bar = tqdm(data.documents, unit="text", desc=f"ranking sentences of {data.source}", delay=2)
            seconds = [textrank_window(text, tokenizer, positions) for text in bar]
        tokens = TokenisedTask(_tensors(firsts), None if seconds is None else _tensors(seconds))
        datasets[name] = TaskTokenDataset(data, tokens, tokenizer.pad_token_id or 0)
    settings: dict[str, object] = {"weights": weights_fingerprint(reader.encoder)}
    if kind == "random":
        settings["window_seed"] = args.seed
    return Prepared(
        datasets=datasets,
        new_model=new_model,
        settings=settings,
        long=long,
        window=window,
    )


def _tensors(windows: list[list[int]]) -> list[torch.Tensor]:
    return [torch.tensor(ids, dtype=torch.int32) for ids in windows]
