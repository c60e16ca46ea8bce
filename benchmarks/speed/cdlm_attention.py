"""CDLM's attention three ways: seconds of a pass, and of a training step, by length and number of
global tokens.

"eager" is transformers' Longformer, "blocks" this package's default (the same result, to 1e-5,
which is checked in every row), "square" one fused attention over all pairs of tokens with the same
mask, which is exact, too. The last column says how much of a block mask over the whole square would
have to be computed (blocks of 128 by 128, as FlexAttention takes them): global tokens that stand
everywhere, as masked words do, leave no block empty.
"""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask
from transformers.utils import logging

from benchmarks.common.measuring import interleaved, parser_with_encoder, print_header, print_table
from nextlevelbert import CdlmModel
from nextlevelbert.models import modeling_cdlm
from nextlevelbert.models.cdlm_attention import AttentionPlan, plan_attention


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


def kept_blocks(is_global: torch.Tensor, half: int) -> float:
    """Returns the share of blocks of the square in which some pair of tokens sees each other."""
    length = is_global.shape[1]

    def visible(
        row: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return ((query - key).abs() <= half) | is_global[row, key]

    mask = create_block_mask(
        visible, len(is_global), None, length, length, device=str(is_global.device)
    )
    return 1 - mask.sparsity() / 100


def main() -> None:
    parser = parser_with_encoder(__doc__)  # BERT or RoBERTa
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096], help="tokens"
    )
    parser.add_argument(
        "--global_shares", type=float, nargs="+", default=[0.0, 0.02, 0.15], help="of the tokens"
    )
    parser.add_argument("--attention_window", type=int, default=512)
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=["float32", "bfloat16"],
        help="of the passes (autocast)",
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.disable_progress_bar()
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    dtype, window = getattr(torch, options.dtype), options.attention_window
    model = CdlmModel.from_encoder(
        options.encoder, max_length=max(options.lengths), attention_window=window
    )
    model.to(device)
    print_header(
        options.dtype,
        f"window {window}, median of {options.rounds} rounds, seconds of all cores together",
    )
    rows = []
    for length in options.lengths:
        ids = torch.randint(1000, model.config.vocab_size, (1, length), device=device)
        for share in options.global_shares:
            torch.manual_seed(0)
            is_global = (torch.rand(1, length, device=device) < share).long()
            kinds = ("eager", "blocks", "square")
            states_of: dict[str, torch.Tensor] = {}

            def one(
                kind: str, training: bool, ids=ids, is_global=is_global, states_of=states_of
            ) -> None:
                model.set_attn_implementation("eager" if kind == "eager" else "sdpa")
                modeling_cdlm.plan_attention = square_plan if kind == "square" else plan_attention
                with (
                    torch.set_grad_enabled(training),
                    torch.autocast(device.type, dtype, dtype != torch.float32),
                ):
                    states = model(ids, global_attention_mask=is_global).last_hidden_state
                    if training:
                        states.float().square().mean().backward()
                        model.zero_grad(set_to_none=True)
                states_of[kind] = states.detach()

            cases = {
                (kind, training): lambda k=kind, t=training: one(k, t)
                for training in (False, True)
                for kind in kinds
            }
            model.eval()  # no dropout: the three give one result
            seconds, _ = interleaved(cases, options.rounds)
            apart = max(
                float((states_of["eager"] - states_of[kind]).abs().max()) for kind in kinds[1:]
            )
            if dtype == torch.float32 and apart > 1e-5:
                raise RuntimeError(f"The results differ by {apart} at {length} tokens.")
            cells: list[object] = [f"{length:,}", f"{int(is_global.sum()):,}"]
            for training in (False, True):
                times = {kind: seconds[kind, training].cpu for kind in kinds}
                cells += [f"{value:.2f}" for value in times.values()] + [
                    f"{times['eager'] / times['blocks']:.2f}"
                ]
            rows.append([*cells, f"{kept_blocks(is_global.bool(), window // 2):.0%}"])
    phases = [
        f"{phase}: {kind}"
        for phase in ("pass", "step")
        for kind in ("eager", "blocks", "square", "ratio")
    ]
    print_table(["tokens", "global", *phases, "blocks kept"], rows)


if __name__ == "__main__":
    main()
