"""Checks of inputs and results that torch would reject with a less helpful message, or silently accept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

# A sentence splitter: from a text to the sentences in it, as (start, end) or as texts, in order.
Splitter = Callable[[str], Sequence[str] | Sequence[tuple[int, int]]]

# Above this length the variance in a layer normalisation overflows, and every vector comes out as zero or NaN.
_LONGEST_VECTOR = 1e15


def traced() -> bool:
    """Whether a graph is recorded (`torch.export`, ONNX, `torch.compile`, tracing): values are not known then."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def exported() -> bool:
    """Whether that graph has to hold the whole pass, as an exported one does; a compiled one may have breaks."""
    return torch.jit.is_tracing() or getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def found(bad: torch.Tensor) -> bool:
    """Whether a flag is set anywhere. All checks of values ask here; while a graph is recorded the answer is no."""
    return not traced() and bool(bad.any())


def check_token_ids(input_ids: torch.Tensor, attention_mask: torch.Tensor | None, vocab_size: int) -> torch.Tensor:
    """Checks token ids ``[B, T]``; returns their mask as bool, all true if none is given.

    Raises:
        ValueError: for ids that are not integers ``[B, T]`` of at least one document, a mask of another
            shape, or an id outside the vocabulary.
    """
    if input_ids.ndim != 2 or input_ids.shape[0] == 0 or input_ids.is_floating_point():
        raise ValueError(
            "input_ids must be integers [documents, tokens] of at least one document, "
            f"got {input_ids.dtype} {tuple(input_ids.shape)}."
        )
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"attention_mask must be {tuple(input_ids.shape)} like input_ids, got {tuple(attention_mask.shape)}."
        )
    mask = attention_mask.bool()
    bad = ((input_ids < 0) | (input_ids >= vocab_size)) & mask
    if found(bad):
        raise ValueError(
            f"input_ids must be from 0 to {vocab_size - 1}, the encoder's vocabulary, got "
            f"{int(input_ids[bad][0])}; use the tokenizer that belongs to the model (model.tokenizer)."
        )
    return mask


def check_labels(labels: torch.Tensor, logits: torch.Tensor, problem_type: str | None) -> None:
    """Checks labels before a loss function rejects them with a less helpful message, or misreads them.

    Args:
        labels: ``[N]`` class numbers or values, or ``[N, K]`` zeros and ones.
        logits: ``[N, K]``.
        problem_type: as in transformers; inferred from K and the labels' dtype if None.

    Raises:
        ValueError: naming the rows and the allowed values.
    """
    classes = logits.shape[-1]
    floating = labels.is_floating_point()
    kind = problem_type or (
        "regression"
        if classes == 1
        else "multi_label_classification"
        if floating or labels.ndim == 2
        else "single_label_classification"
    )
    if kind == "regression":
        if labels.numel() != logits.numel():
            raise ValueError(f"Regression wants {tuple(logits.shape)} values as labels, got {tuple(labels.shape)}.")
        bad = ~torch.isfinite(labels.float()).reshape(len(logits), -1).all(dim=1)
        wanted = "finite numbers"
    elif kind == "multi_label_classification":
        if labels.shape != logits.shape or not floating:
            raise ValueError(
                f"Multi-label classification needs float labels {tuple(logits.shape)}, one column per class, got "
                f"{labels.dtype} {tuple(labels.shape)}."
            )
        bad = ((labels < 0) | (labels > 1) | labels.isnan()).any(dim=1)
        wanted = "from 0 to 1"
    else:
        if labels.shape != logits.shape[:1] or labels.dtype != torch.long:
            raise ValueError(
                f"labels must be integers [{len(logits)}] (torch.int64), got {labels.dtype} {tuple(labels.shape)}."
            )
        bad = ((labels < 0) | (labels >= classes)) & (labels != -100)  # -100: ignored, as everywhere in torch
        wanted = f"from 0 to {classes - 1} (or -100: not counted)"
    if found(bad):
        rows = bad.nonzero().flatten().tolist()
        raise ValueError(
            f"labels of rows {rows} must be {wanted}, got {labels[bad].tolist()}; set num_labels to the number of "
            "classes when the model is loaded."
        )


def check_embeds(vectors: torch.Tensor, mask: torch.Tensor | None, what: str) -> None:
    """Checks vectors ``[N, …, D]`` that are given from outside.

    Args:
        vectors: in any floating dtype.
        mask: ``[N, …]`` bool, the vectors that count; all by default.
        what: the vectors and their rows, for the message: ``"inputs_embeds of document(s)"``.

    Raises:
        ValueError: for NaN, infinity, or a vector so long that its squares overflow (rows numbered).
    """
    lengths = torch.linalg.vector_norm(vectors.detach().float(), dim=-1)  # [N, …]
    bad = ~(lengths < _LONGEST_VECTOR)  # NaN, too
    if mask is not None:
        bad = bad & mask
    if found(bad):
        rows = bad.reshape(len(bad), -1).any(dim=1)
        raise ValueError(
            f"{what} {rows.nonzero().flatten().tolist()} contain NaN or infinity, or vectors longer than "
            f"{_LONGEST_VECTOR:g}; encode them again."
        )


def check_result(values: torch.Tensor, model: nn.Module, what: str, first: int = 0) -> None:
    """Checks that a result is finite.

    Args:
        values: ``[N, …]``, a row for each document. A sum over a row says as much as the row, and is faster to check.
        model: what has computed it; if one of its weights is the cause, the message names it.
        what: what the rows are, such as ``"document(s)"``.
        first: number of the first row.

    Raises:
        ValueError: for NaN or infinity (rows numbered).
    """
    finite = torch.isfinite(values)
    if not found(~finite):
        return
    rows = [first + row for row in (~finite).reshape(len(finite), -1).any(dim=1).nonzero().flatten().tolist()]
    cause = (
        f"because the weight {bad} does; load the checkpoint again, or train with a lower learning rate"
        if (bad := _weight_that_is_not_finite(model))
        else f"although every weight is finite: {values.dtype} overflowed; use smaller inputs, a lower learning "
        "rate, or float32 or bfloat16 in place of float16"
    )
    raise ValueError(f"The result for {what} {rows} holds NaN or infinity, {cause}.")


def check_weights(model: nn.Module, source: object) -> None:
    """Checks the weights of a model that has been read: torch's attention takes a NaN for a masked position.

    Raises:
        ValueError: for a weight with NaN or infinity (named).
    """
    if bad := _weight_that_is_not_finite(model):
        raise ValueError(
            f"The weight {bad} of {str(source)!r} holds NaN or infinity: the file is damaged, or its training went "
            "wrong. Get the checkpoint again, or take an earlier one."
        )


def _weight_that_is_not_finite(model: nn.Module) -> str | None:
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not weight.is_meta:
            # A sum is the faster check; where it overflows, every value is looked at.
            if not weight.sum(dtype=torch.float32).isfinite() and not weight.isfinite().all():
                return name
    return None


def splitter_sentences(text: str, splitter: Splitter) -> list[tuple[int, int]]:
    """The sentences that a splitter finds in a text, as the first character of each and one past its last.

    A blank text has none, and is not given to the splitter.

    Raises:
        TypeError: for a splitter that gives neither texts nor pairs of whole numbers.
        ValueError: if it gives nothing for a text that is not blank, a sentence that is not in the text after the one
            before, or a range that is empty, outside the text or overlaps the one before.
    """
    if not text or text.isspace():
        return []
    found: list[tuple[int, int]] = []
    place = 0
    sentences: Sequence[Any] = splitter(text)
    for number, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            start = text.find(sentence, place)
            if start < 0:
                raise ValueError(
                    f"splitter: sentence {number}, {sentence[:60]!r}, is not in the text after character {place}. A "
                    "splitter must give the parts of the text as they are, in order, or their (start, end)."
                )
            end = start + len(sentence)
            if not sentence.strip():
                continue
        else:
            try:
                first, last = sentence
                start, end = operator.index(first), operator.index(last)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"splitter: sentence {number} is {sentence!r}; give a text or (start, end), two whole numbers."
                ) from error
        if not place <= start < end <= len(text):
            raise ValueError(
                f"splitter: sentence {number} is characters {start} to {end}, but must be at least one character, "
                f"begin at {place}, where the sentence before ends, or later, and end at {len(text)} or earlier."
            )
        found.append((start, end))
        place = end
    if not found:
        raise ValueError(f"splitter found no sentence in a text of {len(text)} characters; it must give at least one.")
    return found
