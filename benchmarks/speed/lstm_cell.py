"""The layer-normalised LSTM of BERT-AL against a loop in Python and against torch's LSTM, which normalises nothing.

The loop is the equations as one writes them down first: a linear layer and a normalisation for each gate and step, the
gradient left to autograd. "fused" is what the model trains with, "plain" its check. All in one run, in turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.common import measuring
from nextlevelbert.models.bert_al_lstm import LayerNormLSTM

SEGMENTS = (8, 16, 128, 256)  # the paper's


class Loop(nn.Module):
    """One step after another, one gate after another."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(4))
        self.recurrents = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        h = c = inputs.new_zeros(inputs.shape[1:])
        outputs = []
        for x in inputs:
            i, f, g, o = (
                norm(own(x) + other(h))
                for norm, own, other in zip(self.norms[:4], self.inputs, self.recurrents, strict=True)
            )
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.norms[4](c).tanh()
            outputs.append(h)
        return torch.stack(outputs)


def backward(run: Callable[..., torch.Tensor], inputs: torch.Tensor) -> None:
    run(inputs).sum().backward()


def kept_mib(run: Callable[[], object]) -> float:
    """MiB that a forward pass keeps for its gradient."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    del output  # until now, so that no storage is given out twice
    return sum(kept.values()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden_size", type=int, default=384, help="D, MiniLM's by default")
    parser.add_argument("--tokens", type=int, default=512, help="of a document")
    parser.add_argument("--documents", type=int, default=8, help="in a batch")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    measuring.print_header("float32", f"forward and backward of {args.documents} documents of {args.tokens} tokens")
    times, sizes = [], []
    for segment in SEGMENTS:
        steps, channels = args.tokens // segment, args.documents * segment
        torch.manual_seed(0)
        inputs = torch.randn(steps, channels, args.hidden_size, requires_grad=True)
        loop, ours = Loop(args.hidden_size), LayerNormLSTM(args.hidden_size)
        torchs = nn.LSTM(args.hidden_size, args.hidden_size)
        forward: dict[str, Callable[..., torch.Tensor]] = {
            "loop": loop,
            "plain": lambda x, ours=ours: ours(x, fused=False)[0],
            "fused": lambda x, ours=ours: ours(x)[0],
            "torch, not normalised": lambda x, torchs=torchs: torchs(x)[0],
        }
        cases = {name: partial(backward, run, inputs) for name, run in forward.items()}
        seconds, _ = measuring.interleaved(cases, args.rounds)
        cpu = [seconds[name].cpu for name in forward]
        times.append([f"{segment}", f"{steps} x {channels:,}", *(f"{value * 1000:.0f}" for value in cpu),
                      f"{cpu[0] / cpu[2]:.2f}", f"{cpu[2] / cpu[3]:.2f}"])  # fmt: skip
        mib = [kept_mib(partial(run, inputs)) for run in forward.values()]
        sizes.append([f"{segment}", f"{steps} x {channels:,}", *(f"{value:.0f}" for value in mib),
                      f"{mib[0] / mib[2]:.2f}", f"{mib[2] / mib[3]:.2f}"])  # fmt: skip
    head = ["segment", "steps x channels", *forward, "loop / fused", "fused / torch"]
    for title, rows in (("CPU-milliseconds, forward and backward", times), ("MiB kept for the gradient", sizes)):
        print(f"\n{title}\n")
        measuring.print_table(head, rows)


if __name__ == "__main__":
    main()
