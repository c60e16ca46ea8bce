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
    """One hidden layer with tanh over [s ; m_i ; m_j ; m_i ∘ m_j] (paper, appendix C.1)."""

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
        left, right = (take_positions(mentions, pairs[..., side]) for side in (0, 1))  # [B, P, D]
        document = take_positions(states, first[:, None]).expand_as(left)
        features = torch.cat([document, left, right, left * right], dim=-1)  # [B, P, 4D]
        return self.projection(self.dense(self.dropout(features)).tanh()).squeeze(-1)


def sum_spans(states: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """Sums ``[B, M, D]`` of states ``[B, L, D]`` over spans ``[B, M, 2]`` (first position, one past the last)."""
    position = torch.arange(states.shape[1], device=states.device)
    inside = (position >= spans[..., :1]) & (position < spans[..., 1:])  # [B, M, L]
    return inside.to(states.dtype) @ states


def take_positions(states: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """States ``[B, S, D]`` at positions ``[B, S]`` of ``[B, L, D]``; position 0 where the index is -1."""
    return states[torch.arange(len(states), device=states.device)[:, None], index.clamp(min=0)]


def check_spans(spans: torch.Tensor, real: torch.Tensor) -> None:
    """Raises a ValueError for the first span ``[B, M, 2]`` that is empty or outside its sequence (-1: padding)."""
    ends = real.long().cumsum(dim=1).argmax(dim=1)[:, None] + 1  # one past the last real position
    bad = (spans[..., 0] < 0) | (spans[..., 1] <= spans[..., 0]) | (spans[..., 1] > ends)
    bad &= (spans != -1).any(dim=-1)  # [B, M]
    if bad.any():
        row, mention = bad.nonzero()[0].tolist()
        raise ValueError(
            f"Mention {mention} of row {row} has the span {spans[row, mention].tolist()}; it must not be empty, and "
            f"must lie between 0 and {int(ends[row])}, the end of its sequence."
        )


def any_of_loss(logits: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Minus the log-probability that any one of several positions is meant (Clark and Gardner, 2018).

    Args:
        logits: ``[B, L]``, minus infinity at padding.
        positions: ``[B, A]``, where the answer is; -1 is padding. Rows without an answer do not count in the mean.
    """
    log_probabilities = logits.float().log_softmax(dim=-1).gather(1, positions.clamp(min=0))
    answered = (positions >= 0).any(dim=1)
    if not answered.any():
        return logits.float().flatten()[:1].sum() * 0.0
    return -log_probabilities.masked_fill(positions < 0, -torch.inf)[answered].logsumexp(dim=1).mean()


def question_loss(heads: dict[str, tuple[torch.Tensor, torch.Tensor | None]]) -> torch.Tensor | None:
    """The sum of the losses of all heads that have labels (Beltagy et al., 2020, appendix D); None without any.

    Args:
        heads: logits and labels under the names of the logits, see `CdlmForMultiHopQuestionAnswering`.
    """
    losses = []
    for name, (logits, labels) in heads.items():
        if labels is None:
            continue
        if name in ("start_logits", "end_logits"):
            losses.append(any_of_loss(logits, labels))
        elif name == "type_logits":
            losses.append(single_label_loss(logits, labels))
        else:
            losses.append(labelled_loss(logits, labels))
    return torch.stack(losses).sum() if losses else None
