"""The layer-normalised LSTM: by hand, against torch's own, and its written gradient against autograd."""

from __future__ import annotations

import math

import pytest
import torch

from nextlevelbert.models import bert_al_lstm as layer_norm_lstm
from nextlevelbert.models.bert_al_lstm import LayerNormLSTM


def test_one_step_worked_by_hand():
    """Of two values the layer normalisation gives d and -d, where d is 1 but for its epsilon."""
    lstm = LayerNormLSTM(2)
    with torch.no_grad():
        lstm.input_projection.weight.zero_()
        lstm.cell_weight.copy_(torch.tensor([3.0, 2.0]))
        lstm.cell_bias.copy_(torch.tensor([0.5, 0.0]))
        lstm.input_projection.weight[0::2, 0] = 100.0  # the first value of each gate is 100 x, the second 0
        lstm.gate_weight.copy_(torch.tensor([[1.0, 2.0], [0.5, 0.5], [2.0, 1.0], [1.0, 3.0]]))
        lstm.gate_bias.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 0.5], [0.2, 0.0]]))
    x, c = torch.tensor([[[1.0, -5.0]]]), torch.tensor([[0.4, -0.6]])
    for fused in (True, False):
        outputs, (h, cell) = lstm(x, (torch.zeros(1, 2), c), fused)

        def sigmoid(value):
            return 1 / (1 + math.exp(-value))

        # 100 and 0 are 1 and -1 when normalised.
        first = sigmoid(1.5) * 0.4 + sigmoid(1.0) * math.tanh(2.0)
        second = sigmoid(0.5) * -0.6 + sigmoid(-2.0) * math.tanh(-0.5)
        assert cell[0].tolist() == pytest.approx([first, second], abs=1e-5)
        assert first > second  # so the cell is 1 and -1 when normalised
        read = [sigmoid(1.2) * math.tanh(3.5), sigmoid(-3.0) * math.tanh(-2.0)]
        assert h[0].tolist() == pytest.approx(read, abs=1e-4)
        assert torch.equal(outputs[0], h)


def test_without_normalisation_it_is_the_lstm_of_torch(monkeypatch):
    monkeypatch.setattr(layer_norm_lstm.nn.functional, "layer_norm", lambda values, *rest, **named: values)
    torch.manual_seed(0)
    ours, theirs = LayerNormLSTM(6), torch.nn.LSTM(6, 6, bias=True)
    with torch.no_grad():
        torch.nn.init.normal_(ours.input_projection.weight)
        torch.nn.init.normal_(ours.recurrent_weight)
        torch.nn.init.normal_(ours.gate_bias)
        theirs.weight_ih_l0.copy_(ours.input_projection.weight)
        theirs.weight_hh_l0.copy_(ours.recurrent_weight)
        theirs.bias_ih_l0.copy_(ours.gate_bias.flatten())
        theirs.bias_hh_l0.zero_()
    inputs, state = torch.randn(5, 3, 6), (torch.randn(3, 6), torch.randn(3, 6))
    outputs, (h, c) = ours(inputs, state, fused=False)
    expected, (last_h, last_c) = theirs(inputs, tuple(part[None] for part in state))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close((h, c), (last_h[0], last_c[0]))


def drawn_lstm(dtype):
    torch.manual_seed(0)
    lstm = LayerNormLSTM(6).to(dtype)
    for weight in lstm.parameters():
        torch.nn.init.normal_(weight)
    state = tuple(torch.randn(3, 6, dtype=dtype, requires_grad=True) for _ in range(2))
    return lstm, torch.randn(5, 3, 6, dtype=dtype, requires_grad=True), state


def test_the_written_gradient_is_that_of_autograd():
    lstm, inputs, state = drawn_lstm(torch.float64)
    weights = torch.randn(5, 3, 6, dtype=torch.float64)
    found = []
    for fused in (True, False):
        outputs, (h, c) = lstm(inputs, state, fused)
        loss = (outputs * weights).sum() + (c**2).sum() + h.sum()
        found.append([outputs, c, *torch.autograd.grad(loss, [inputs, *state, *lstm.parameters()])])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(lstm(inputs, state)[0], found[0][0])
    assert torch.autograd.gradcheck(lambda x, h, c: lstm(x, (h, c))[0], (inputs, *state))


def test_the_lstm_under_bfloat16():
    lstm, inputs, state = drawn_lstm(torch.float32)
    exact = lstm(inputs, state)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, (_, cell) = lstm(inputs, state)
    assert (outputs.dtype, cell.dtype) == (torch.bfloat16, torch.float32)
    outputs.float().sum().backward()
    assert lstm.recurrent_weight.grad.dtype == torch.float32
    torch.testing.assert_close(outputs.float(), exact, atol=0.1, rtol=0)
