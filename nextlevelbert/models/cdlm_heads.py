"""What the heads of CDLM compute over token states: pairs of mentions, supporting sentences, answer spans."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput

from .losses import labelled_loss, single_label_loss


@dataclass
class MentionPairOutput(ModelOutput):
    """Scores of pairs of mentions (B sets of documents, P pairs in the set with most).

    Attributes:
        loss: scalar, if labels were given: binary cross-entropy, the mean over sets of the mean over their pairs.
        logits: ``[B, P]``, zero where there is no pair; their sigmoid is the probability that both mean the same.
        pair_mask: ``[B, P]`` bool, true where there is a pair.
        hidden_states, attentions, global_attentions: on request, as transformers' Longformer gives them.
    """

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    pair_mask: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    global_attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class MultiHopQuestionAnsweringOutput(ModelOutput):
    """Answers to a batch of questions (B questions, L positions, S sentences, T titles in the longest).

    Attributes:
        loss: scalar, if labels were given: the sum of the losses of all heads with labels.
        start_logits, end_logits: ``[B, L]``, where the answer begins and at which token it ends.
        type_logits: ``[B, 3]``: the answer is a span, yes, no.
        sentence_logits: ``[B, S]``, whether a sentence supports the answer; zero where there is none.
        paragraph_logits: ``[B, T]``, whether a paragraph does.
        hidden_states, attentions, global_attentions: on request, as transformers' Longformer gives them.
    """

    loss: torch.Tensor | None = None
    start_logits: torch.Tensor | None = None
    end_logits: torch.Tensor | None = None
    type_logits: torch.Tensor | None = None
    sentence_logits: torch.Tensor | None = None
    paragraph_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    global_attentions: tuple[torch.Tensor, ...] | None = None


class PairScorer(nn.Module):
    """One hidden layer with tanh over [s ; m_i ; m_j ; m_i ∘ m_j] (paper, appendix C.1).

    Args:
        hidden_size: D.
        units: of the hidden layer.
        dropout: before it.
    """

    def __init__(self, hidden_size: int, units: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(4 * hidden_size, units)
        self.projection = nn.Linear(units, 1)

    def forward(
        self, states: torch.Tensor, first: torch.Tensor, spans: torch.Tensor, pairs: torch.Tensor
    ) -> torch.Tensor:
        """Scores ``[B, P]`` of pairs.

        Args:
            states: ``[B, L, D]``.
            first: ``[B]``, position of [CLS].
            spans: ``[B, M, 2]``, first position of each mention and one past its last.
            pairs: ``[B, P, 2]``, two numbers of mentions each.
        """
        mentions = sum_spans(states, spans)  # [B, M, D]
        rows = torch.arange(len(states), device=states.device)[:, None]
        one, other = (mentions[rows, pairs[..., side]] for side in (0, 1))  # [B, P, D]
        document = take_positions(states, first[:, None]).expand_as(one)
        features = torch.cat([document, one, other, one * other], dim=-1)  # [B, P, 4D]
        return self.projection(self.dense(self.dropout(features)).tanh()).squeeze(-1)


def sum_spans(states: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """Sums ``[B, M, D]`` of states ``[B, L, D]`` over spans ``[B, M, 2]`` (first position, one past the last)."""
    position = torch.arange(states.shape[1], device=states.device)
    inside = (position >= spans[..., :1]) & (position < spans[..., 1:])  # [B, M, L]
    return inside.to(states.dtype) @ states


def check_mentions(
    spans: torch.Tensor, pairs: torch.Tensor | None, real: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checks the mentions and pairs of a batch.

    Args:
        spans: ``[B, M, 2]``, first position and one past the last; -1 is padding.
        pairs: ``[B, P, 2]``, numbers of mentions; -1 is padding. None for the one pair of two mentions.
        real: ``[B, L]`` bool, false at padding.

    Returns:
        Spans and pairs that can be used as indices (0 for -1), and where there is a pair, ``[B, P]`` bool.

    Raises:
        ValueError: for other shapes, a span outside its sequence, a pair of mentions that do not exist (named), or
            no pair at all.
    """
    if spans.ndim != 3 or spans.shape[-1] != 2 or len(spans) != len(real):
        raise ValueError(f"mention_spans must be [{len(real)}, mentions, 2], got {tuple(spans.shape)}.")
    if pairs is None:
        if spans.shape[1] != 2:
            raise ValueError(
                f"There are {spans.shape[1]} mentions: say with mention_pairs [batch, pairs, 2] which to compare."
            )
        pairs = torch.tensor([0, 1], device=spans.device).expand(len(spans), 1, 2)
    if pairs.ndim != 3 or pairs.shape[-1] != 2 or len(pairs) != len(real):
        raise ValueError(f"mention_pairs must be [{len(real)}, pairs, 2], got {tuple(pairs.shape)}.")
    there = (spans != -1).any(dim=-1)  # [B, M]
    ends = real.long().cumsum(dim=1).argmax(dim=1)[:, None] + 1  # one past the last real position
    bad = there & ((spans[..., 0] < 0) | (spans[..., 1] <= spans[..., 0]) | (spans[..., 1] > ends))
    if bad.any():
        row, mention = bad.nonzero()[0].tolist()
        raise ValueError(
            f"Mention {mention} of row {row} has the span {spans[row, mention].tolist()}; it must not be empty, and "
            f"must lie between 0 and {int(ends[row])}, the end of its sequence."
        )
    wanted = (pairs != -1).any(dim=-1)  # [B, P]
    rows = torch.arange(len(pairs), device=pairs.device)[:, None, None]
    known = (pairs >= 0) & (pairs < spans.shape[1])
    known = known & there[rows, pairs.clamp(0, max(spans.shape[1] - 1, 0))]
    if (lost := wanted & ~known.all(dim=-1)).any():
        row, pair = lost.nonzero()[0].tolist()
        raise ValueError(
            f"Pair {pair} of row {row} is {pairs[row, pair].tolist()}, but that row has the mentions "
            f"{there[row].nonzero().flatten().tolist()}."
        )
    if not wanted.any():
        raise ValueError("No row has a pair of mentions to score (mention_pairs is -1 everywhere).")
    return spans.clamp(min=0), pairs.clamp(min=0), wanted


def check_question(
    input_ids: torch.Tensor,
    context_mask: torch.Tensor | None,
    sentence_index: torch.Tensor,
    paragraph_index: torch.Tensor,
    answers: dict[str, torch.Tensor | None],
) -> None:
    """Checks the positions in a batch of questions.

    Args:
        input_ids: ``[B, L]``.
        context_mask: ``[B, L]``.
        sentence_index, paragraph_index: ``[B, S]`` and ``[B, T]``, -1 is padding.
        answers: start and end positions, ``[B, A]`` each, -1 is padding.

    Raises:
        ValueError: for other shapes, or positions outside the sequence or, of answers, outside the context (named).
    """
    rows, length = input_ids.shape
    if context_mask is not None and context_mask.shape != input_ids.shape:
        raise ValueError(f"context_mask must be {(rows, length)} like input_ids, got {tuple(context_mask.shape)}.")
    indices = {"sentence_index": sentence_index, "paragraph_index": paragraph_index, **answers}
    for name, index in indices.items():
        if index is None:
            continue
        if index.ndim != 2 or len(index) != rows or ((index < -1) | (index >= length)).any():
            raise ValueError(
                f"{name} must be [{rows}, n] with positions from 0 to {length - 1}, and -1 as padding; got "
                f"{tuple(index.shape)} with {index.unique().tolist()[:9]}."
            )
        if name in answers and context_mask is not None:
            outside = (index >= 0) & (context_mask.gather(1, index.clamp(min=0)) == 0)
            if outside.any():
                bad = outside.any(dim=1).nonzero().flatten().tolist()
                raise ValueError(
                    f"{name} of rows {bad} are where context_mask is 0; an answer can only be part of the context."
                )


def take_positions(states: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """States ``[B, S, D]`` at positions ``[B, S]`` of ``[B, L, D]``; position 0 where the index is -1."""
    return states[torch.arange(len(states), device=states.device)[:, None], index.clamp(min=0)]


def check_parts(logits: torch.Tensor, labels: torch.Tensor, there: torch.Tensor, name: str) -> None:
    """Checks the labels of parts of a sequence: pairs of mentions, sentences, paragraphs.

    Args:
        logits: ``[B, P]``.
        labels: ``[B, P]``, 0 or 1, -100 if unknown.
        there: ``[B, P]`` bool, where there is a part that can have a label.
        name: that of the labels, for the message.

    Raises:
        ValueError: for labels of another shape or with other values.
    """
    known = labels != -100
    if labels.shape != logits.shape or (known & ((labels != 0) & (labels != 1) | ~there)).any():
        raise ValueError(
            f"{name} must be {tuple(logits.shape)}: 0 or 1, and -100 where unknown or where there is nothing; got "
            f"{tuple(labels.shape)} with {labels.unique().tolist()[:9]}."
        )


def any_of_loss(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Minus the log-probability that any one of several positions is meant (Clark and Gardner, 2018).

    Args:
        logits: ``[B, L]``, minus infinity at padding.
        positions: ``[B, A]``, where the answer is; -1 is padding. Rows without an answer do not count in the mean.
    """
    log_probabilities = logits.float().log_softmax(dim=-1)
    found = log_probabilities.gather(1, positions.clamp(min=0)).masked_fill(positions < 0, -torch.inf)
    answered = (positions >= 0).any(dim=1)
    if not answered.any():
        return logits.float().flatten()[:1].sum() * 0.0
    return -found[answered].logsumexp(dim=1).mean()


def question_loss(
    logits: dict[str, torch.Tensor], labels: dict[str, torch.Tensor | None], there: dict[str, torch.Tensor]
) -> torch.Tensor | None:
    """The sum of the losses of all heads that have labels (Beltagy et al., 2020, appendix D); None without any.

    Args:
        logits: of ``"start"`` and ``"end"`` ``[B, L]``, ``"type"`` ``[B, 3]``, ``"sentence"`` ``[B, S]`` and
            ``"paragraph"`` ``[B, T]``.
        labels: under the same names, see `CdlmForMultiHopQuestionAnswering`.
        there: where there is a sentence or a paragraph, ``[B, S]`` and ``[B, T]``.
    """
    losses = []
    for name, given in labels.items():
        if given is None:
            continue
        if name in ("start", "end"):
            losses.append(any_of_loss(logits[name], given))
        elif name == "type":
            losses.append(single_label_loss(logits[name], given))
        else:
            check_parts(logits[name], given, there[name], f"{name}_labels")
            losses.append(labelled_loss(logits[name], given))
    return torch.stack(losses).sum() if losses else None
