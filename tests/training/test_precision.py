"""bfloat16 and int8 are used where the processor has instructions for them, and a line says where it has none."""

from __future__ import annotations

import logging

import pytest
import torch

from nextlevelbert.training import precision
from nextlevelbert.training.precision import lacks_instructions, precision_that_pays

LAPTOP = {"avx2": True, "avx512_bf16": False, "avx512_vnni": False, "amx_bf16": False}


@pytest.mark.parametrize(
    ("capabilities", "lacking"),
    [
        (LAPTOP, {"bfloat16": True, "int8": True}),
        ({**LAPTOP, "avx512_bf16": True, "avx512_vnni": True}, {"bfloat16": False, "int8": False}),
        ({**LAPTOP, "avx_vnni": True}, {"bfloat16": True, "int8": False}),
        ({"neon": True, "bf16": True, "i8mm": True}, {"bfloat16": False, "int8": False}),
        ({}, {"bfloat16": False, "int8": False}),
    ],
    ids=["avx2", "zen 4", "avx-vnni", "arm", "unknown"],
)
def test_by_what_torch_says_of_the_processor(monkeypatch, capabilities, lacking):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert {name: lacks_instructions(name) for name in lacking} == lacking


def test_the_line(monkeypatch, caplog):
    monkeypatch.setattr(precision, "lacks_instructions", lambda name: True)
    with caplog.at_level(logging.WARNING):
        assert precision_that_pays("bfloat16", "cpu", "--bf16") == "float32"
    assert caplog.messages == [
        "--bf16: this processor has no instructions for bfloat16, so float32 is faster and used."
    ]
    caplog.clear()
    kept = [("bfloat16", "cuda"), ("int8", torch.device("cuda", 1)), ("float16", "cpu"), ("float32", "cpu")]
    assert [precision_that_pays(name, device, "--x") for name, device in kept] == [name for name, _ in kept]
    assert caplog.messages == []
