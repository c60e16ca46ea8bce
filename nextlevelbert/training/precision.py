"""Precisions that a processor computes faster in; the others only cost accuracy."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch

logger = logging.getLogger(__name__)

# Names of torch.cpu.get_capabilities(): instructions that multiply matrices in that precision.
_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8", "i8mm"),
}


def lacks_instructions(precision: str) -> bool:
    """Whether the processor is known to have no instructions for ``"bfloat16"`` or ``"int8"``.

    Without them, a pretraining step in bfloat16 took 68 s against 2.8 s in float32 on two cores.
    """
    # Older versions of torch do not tell.
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities) and not any(capabilities.get(name) for name in _INSTRUCTIONS[precision])


def precision_that_pays(precision: str, device: torch.device | str, option: str) -> str:
    """A precision asked for on the command line; float32, with a line in the log, where it could only be slower.

    Args:
        precision: such as ``"bfloat16"``.
        device: where the computation runs; accelerators take any.
        option: the option that asked for it, for the log.
    """
    if precision not in _INSTRUCTIONS or torch.device(device).type != "cpu" or not lacks_instructions(precision):
        return precision
    logger.warning("%s: this processor has no instructions for %s, so float32 is faster and used.", option, precision)
    return "float32"
