"""CDLM's attention three ways: seconds of a pass, and of a training step, by length and number of
global tokens.

"eager" is transformers' Longformer, "blocks" this package's default (the same result, to 1e-5,
which is checked in every row), "square" one fused attention over all pairs of tokens with the same
mask, which is exact, too.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from functools import partial
from typing import Any

import torch
from transformers.utils import logging

from benchmarks.common.measuring import interleaved, parser_with_encoder, print_header, print_table
from nextlevelbert import CdlmModel
from nextlevelbert.models import modeling_cdlm
from nextlevelbert.models.cdlm_attention import AttentionPlan, plan_attention

# transformers' name of the attention, by way.
IMPLEMENTATIONS = {"eager": "eager", "blocks": "sdpa", "square": "sdpa"}


def square_plan(
    real: torch.Tensor, is_global: torch.Tensor, window: int, most: int | None = None
) -> AttentionPlan:
    """Makes a plan without blocks."""
    plan = plan_attention(real, is_global, window, most)
    if plan.block is None:
        return plan
    position = torch.arange(real.shape[1], device=real.device)
    near = (position[:, None] - position).abs() <= window // 2
    allowed = (near & real[:, None, :]) | is_global[:, None, :] | ~real[:, :, None]
    return AttentionPlan(
        real, is_global, plan.global_index, plan.global_real, allowed[:, None], None
    )


class Comparison:
    """One model, whose attention is computed in any of three ways.

    Args:
        options: options of the command.
    """

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.device = torch.accelerator.current_accelerator() or torch.device("cpu")
        self.dtype = getattr(torch, options.dtype)
        model = CdlmModel.from_encoder(
            options.encoder,
            max_length=max(options.lengths),
            attention_window=options.attention_window,
        )
        self.model = model.to(self.device).eval()  # no dropout: all ways give one result

    def read(self, way: str, ids: torch.Tensor, is_global: torch.Tensor, training: bool) -> Any:
        """Computes hidden states ``[1, L, H]``, and with `training` also the gradients."""
        self.model.set_attn_implementation(IMPLEMENTATIONS[way])
        modeling_cdlm.plan_attention = plan_attention
        if way == "square":
            modeling_cdlm.plan_attention = square_plan
        is_half = self.dtype != torch.float32
        with (
            torch.set_grad_enabled(training),
            torch.autocast(self.device.type, self.dtype, enabled=is_half),
        ):
            states = self.model(ids, global_attention_mask=is_global).last_hidden_state
            if training:
                states.float().square().mean().backward()
                self.model.zero_grad(set_to_none=True)
        return states.detach()

    def row(self, length: int, share: float) -> list[object]:
        """Measures a length with a share of global tokens, and checks that all ways agree.

        Raises:
            RuntimeError: if results in float32 differ by more than 1e-5.
        """
        ids = torch.randint(1000, self.model.config.vocab_size, (1, length), device=self.device)
        torch.manual_seed(0)
        is_global = (torch.rand(1, length, device=self.device) < share).long()
        cases = {
            (way, training): partial(self.read, way, ids, is_global, training)
            for training in (False, True)
            for way in IMPLEMENTATIONS
        }
        seconds, states = interleaved(cases, self.options.rounds)
        for way in ("blocks", "square"):
            apart = float((states["eager", True] - states[way, True]).abs().max())
            if self.dtype == torch.float32 and apart > 1e-5:
                raise RuntimeError(f"The results differ by {apart} at {length} tokens.")

        cells: list[object] = [f"{length:,}", f"{int(is_global.sum()):,}"]
        for training in (False, True):
            times = [seconds[way, training].cpu for way in IMPLEMENTATIONS]
            cells += [f"{value:.2f}" for value in times]
            cells.append(f"{times[0] / times[1]:.2f}")
        return cells


def main() -> None:
    parser = parser_with_encoder(__doc__)  # BERT or RoBERTa
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument(
        "--global_shares", type=float, nargs="+", default=[0.0, 0.02, 0.15], help="of the tokens"
    )
    parser.add_argument("--attention_window", type=int, default=512)
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16"], help="of autocast"
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.disable_progress_bar()
    print_header(
        options.dtype,
        f"window {options.attention_window}, median of {options.rounds} rounds, CPU-seconds",
    )
    comparison = Comparison(options)
    pairs = itertools.product(options.lengths, options.global_shares)
    rows = [comparison.row(length, share) for length, share in pairs]
    ways = [*IMPLEMENTATIONS, "ratio"]
    phases = [f"{phase}: {way}" for phase, way in itertools.product(("pass", "step"), ways)]
    print_table(["tokens", "global", *phases], rows)


if __name__ == "__main__":
    main()
