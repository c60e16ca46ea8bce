"""The numbers that commit 628dc2e gave, to 1e-5: whatever becomes of the code, they do not move.

`python -m tests.frozen.test_frozen` writes them anew.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from .cases import CASES, numbers_of

FILE = Path(__file__).with_name("numbers.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_numbers_do_not_move(name, tmp_path):
    expected = {
        key.removeprefix(f"{name}/"): v
        for key, v in load_file(FILE).items()
        if key.startswith(f"{name}/")
    }
    numbers = numbers_of(name, tmp_path / name)
    assert numbers.keys() == expected.keys()
    for key, values in numbers.items():
        torch.testing.assert_close(
            values, expected[key], atol=1e-5, rtol=1e-5, msg=lambda why, key=key: f"{key}: {why}"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        cases = {name: numbers_of(name, Path(place) / name) for name in CASES}
    save_file(
        {
            f"{name}/{key}": v.clone()
            for name, tensors in cases.items()
            for key, v in tensors.items()
        },
        FILE,
    )
