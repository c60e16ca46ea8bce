"""The multi-channel, layer-normalised LSTM that carries information from segment to segment.

Every gate has its own layer normalisation, and so does the cell where the output reads it (Ba et al., "Layer
Normalization", 2016; paper of BERT-AL, section "Multi-channel LSTM").

Notation for shapes: n steps (segments), N channels, C tokens in a segment, D hidden size. A channel is one sequence of
the LSTM: one position within the segments of one document.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .configuration_bert_al import BertAlConfig

_EPSILON = 1e-5
_GATES = 4  # input, forget, cell and output, in torch's order

State = tuple[torch.Tensor, torch.Tensor]


class LayerNormLSTM(nn.Module):
    """One layer, one direction, all channels at once.

    ``[i; f; g; o] = LN_gate(W_x x + W_h h)``, ``c = σ(f) c + σ(i) tanh(g)``, ``h = σ(o) tanh(LN_c(c))``.

    Args:
        hidden_size: D, of input and output.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input_projection = nn.Linear(hidden_size, _GATES * hidden_size, bias=False)
        # Not a layer: it is used step by step within one function, where an adapter on a layer would have no effect.
        self.recurrent_weight = nn.Parameter(torch.empty(_GATES * hidden_size, hidden_size))
        # Each gate has the bias of its normalisation and no other.
        self.gate_weight = nn.Parameter(torch.empty(_GATES, hidden_size))
        self.gate_bias = nn.Parameter(torch.empty(_GATES, hidden_size))
        self.cell_weight = nn.Parameter(torch.empty(hidden_size))
        self.cell_bias = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, std: float = 0.02) -> None:
        """Draws new weights; normalised gates do not notice their scale. The forget gate starts open."""
        nn.init.normal_(self.input_projection.weight, std=std)
        nn.init.normal_(self.recurrent_weight, std=std)
        nn.init.ones_(self.gate_weight)
        if not getattr(self.gate_bias, "_is_hf_initialized", False):  # a slice does not know that it was loaded
            nn.init.zeros_(self.gate_bias)
            nn.init.ones_(self.gate_bias[1])
        nn.init.ones_(self.cell_weight)
        nn.init.zeros_(self.cell_bias)

    def forward(
        self, inputs: torch.Tensor, state: State | None = None, fused: bool = True
    ) -> tuple[torch.Tensor, State]:
        """Runs over the steps.

        Args:
            inputs: ``[n, N, D]``.
            state: h and c ``[N, D]`` after the previous step; zeros by default.
            fused: compute the gradient of all steps in one function; False leaves it to autograd, step by step, which
                gives the same and exists to check it. Without gradients there is no difference.

        Returns:
            h of every step ``[n, N, D]``, and the state after the last one; c at least in float32.

        Raises:
            ValueError: if there is no step.
        """
        if not len(inputs):
            raise ValueError(f"There must be at least one step, got inputs {tuple(inputs.shape)}.")
        # The inputs of all steps in one multiplication; only that with h has to wait for the previous step.
        projected = self.input_projection(inputs)  # [n, N, 4D]
        exact = torch.promote_types(projected.dtype, torch.float32)
        if state is None:
            zeros = projected.new_zeros(projected.shape[1], self.hidden_size)
            state = (zeros, zeros.to(exact))
        weights = (self.gate_weight, self.gate_bias, self.cell_weight, self.cell_bias)
        arguments = (
            projected,
            self.recurrent_weight.to(projected.dtype),
            *(weight.to(exact) for weight in weights),
            state[0].to(projected.dtype),
            state[1].to(exact),
        )
        with torch.autocast(inputs.device.type, enabled=False):  # dtypes are settled above
            if fused and torch.is_grad_enabled():
                outputs, cell = _FusedSteps.apply(*arguments)
            else:
                outputs, cell = _plain_steps(*arguments)
        return outputs, (outputs[-1].clone(), cell)  # a view would keep the outputs of all steps


class RecurrenceProjection(nn.Linear):
    """A linear layer that starts at zero, so that a new model is the pretrained encoder."""


class SegmentRecurrence(nn.Module):
    """The multi-channel LSTM after one layer (paper, section "Multi-channel LSTM").

    Steps are segments, and each position within a segment is a channel of its own.

    Args:
        config: sizes; `recurrence` says whether the output replaces the input or is added to it.
    """

    def __init__(self, config: BertAlConfig) -> None:
        super().__init__()
        self.lstm = LayerNormLSTM(config.hidden_size)
        self.residual: nn.Linear | None = None
        if config.recurrence == "residual":
            self.residual = RecurrenceProjection(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, state: State | None) -> tuple[torch.Tensor, State]:
        """From segments ``[documents, n, C, D]`` to the same shape, and the LSTM's state after the last one."""
        documents, steps, width, size = hidden_states.shape
        channels = hidden_states.transpose(0, 1).reshape(steps, documents * width, size)
        outputs, state = self.lstm(channels, state)
        outputs = outputs.view(steps, documents, width, size).transpose(0, 1)
        if self.residual is None:
            return outputs, state
        return hidden_states + self.residual(outputs), state


def _plain_steps(
    projected: torch.Tensor,
    recurrent: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: torch.Tensor,
    cell_weight: torch.Tensor,
    cell_bias: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The equations as they are written; h of every step ``[n, N, D]`` and the last c ``[N, D]``."""
    size = h.shape[-1:]
    outputs = []
    for step in projected:
        gates = (step + h @ recurrent.T).to(c.dtype).unflatten(-1, (_GATES, *size))  # [N, 4, D]
        gates = nn.functional.layer_norm(gates, size, eps=_EPSILON) * gate_weight + gate_bias
        i, f, g, o = gates.unbind(dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * nn.functional.layer_norm(c, size, cell_weight, cell_bias, _EPSILON).tanh()
        h = h.to(projected.dtype)
        outputs.append(h)
    return torch.stack(outputs), c


class _FusedSteps(torch.autograd.Function):
    """`_plain_steps` with its gradient written out.

    Autograd would compute the gradient of the recurrent weights at every step; here one multiplication does for all.
    Six vectors of size D are kept for each step and channel; the gates are computed again from them.
    """

    @staticmethod
    def forward(ctx: Any, projected: torch.Tensor, recurrent: torch.Tensor, *rest: torch.Tensor) -> Any:
        gate_weight, gate_bias, cell_weight, cell_bias, h, c = rest
        steps, channels, size = len(projected), *h.shape
        outputs = projected.new_empty(steps, channels, size)
        normed = projected.new_empty(steps, channels, _GATES, size)
        scales = c.new_empty(steps, channels, _GATES, 1)
        cells = c.new_empty(steps, channels, size)
        first_h, first_c = h, c
        for t in range(steps):
            gates = torch.addmm(projected[t], h, recurrent.T).to(c.dtype).view(channels, _GATES, size)
            gates, _, scales[t] = torch.native_layer_norm(gates, (size,), None, None, _EPSILON)
            normed[t] = gates
            i, f, g, o = torch.addcmul(gate_bias, gates, gate_weight).unbind(dim=1)
            c = torch.mul(f.sigmoid_(), c, out=cells[t]).addcmul_(i.sigmoid_(), g.tanh_())
            read = nn.functional.layer_norm(c, (size,), cell_weight, cell_bias, _EPSILON).tanh_()
            outputs[t] = o.sigmoid_().mul_(read)
            h = outputs[t]
        ctx.save_for_backward(
            recurrent, gate_weight, gate_bias, cell_weight, cell_bias, first_h, first_c, normed, scales, cells, outputs
        )
        return outputs, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: torch.Tensor, d_c: torch.Tensor) -> Any:
        recurrent, gate_weight, gate_bias, cell_weight, cell_bias, first_h, first_c, normed, scales, cells, outputs = (
            ctx.saved_tensors
        )
        size = first_h.shape[-1]
        d_gates = torch.empty_like(normed, dtype=d_c.dtype)  # [n, N, 4, D], after the normalisation
        d_projected = torch.empty_like(normed)
        d_read = torch.empty_like(cells)
        aten, d_h = torch.ops.aten, torch.zeros_like(first_c)
        ones, zeros = torch.ones_like(scales[0]), torch.zeros_like(scales[0])  # of values that are normalised already
        for t in range(len(outputs) - 1, -1, -1):
            before = cells[t - 1] if t else first_c
            gates = normed[t].to(d_c.dtype)
            i, f, g, o = torch.addcmul(gate_bias, gates, gate_weight).unbind(dim=1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            read, mean, scale = torch.native_layer_norm(cells[t], (size,), cell_weight, cell_bias, _EPSILON)
            read = read.tanh_()
            d_h = d_h + d_outputs[t]
            d_gates[t, :, 3] = aten.sigmoid_backward(d_h * read, o)
            d_read[t] = aten.tanh_backward(o.mul_(d_h), read)
            inner, _, _ = aten.native_layer_norm_backward(
                d_read[t], cells[t], [size], mean, scale, cell_weight, cell_bias, [True, False, False]
            )
            d_c = inner.add_(d_c)
            d_gates[t, :, 0] = aten.sigmoid_backward(d_c * g, i)
            d_gates[t, :, 1] = aten.sigmoid_backward(d_c * before, f)
            d_gates[t, :, 2] = aten.tanh_backward(i.mul_(d_c), g)
            inner, _, _ = aten.native_layer_norm_backward(
                d_gates[t] * gate_weight, gates, [size], zeros, ones, None, None, [True, False, False]
            )
            d_projected[t] = inner.mul_(scales[t])
            d_h = (d_projected[t].flatten(1) @ recurrent).to(d_c.dtype)  # [N, D]
            d_c = f.mul_(d_c)
        read = nn.functional.layer_norm(cells, (size,), eps=_EPSILON)
        before = torch.cat([first_h[None], outputs[:-1]]).flatten(0, 1)  # [nN, D]
        d_projected = d_projected.flatten(2)  # [n, N, 4D]
        return (
            d_projected,
            d_projected.flatten(0, 1).T @ before,
            (d_gates * normed).sum(dim=(0, 1)),
            d_gates.sum(dim=(0, 1)),
            (d_read * read).sum(dim=(0, 1)),
            d_read.sum(dim=(0, 1)),
            d_h.to(first_h.dtype),
            d_c,
        )
