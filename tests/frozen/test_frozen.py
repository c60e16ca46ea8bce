"""The numbers of commit 628dc2e must not move, whatever becomes of the code.

`python -m tests.frozen.test_frozen` writes them anew.
"""

import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from .cases import CASES, numbers_of

FILE = Path(__file__).with_name("numbers.safetensors")
TOLERANCE = 1e-5
# Chunk vectors are stored as float16. If two processors differ in the last bit of a float32 value,
# it can be rounded to either neighbour. Coordinates of unit vectors are below 1, where neighbours
# in float16 are at most this far apart.
FLOAT16_STEP = 2.0**-11
STORED_AS_FLOAT16 = {"masked": {"0/inputs_embeds", "4/inputs_embeds"}}


def expected_numbers(case: str) -> dict[str, torch.Tensor]:
    """Reads the frozen tensors of one case, by name."""
    numbers = {}
    for key, values in load_file(FILE).items():
        if key.startswith(f"{case}/"):
            numbers[key.removeprefix(f"{case}/")] = values
    return numbers


@pytest.mark.parametrize("case", CASES)
def test_numbers_do_not_move(case, tmp_path):
    expected = expected_numbers(case)
    numbers = numbers_of(case, tmp_path / case)
    assert numbers.keys() == expected.keys()

    for name, values in numbers.items():
        if name in STORED_AS_FLOAT16.get(case, ()):
            tolerance = FLOAT16_STEP
        else:
            tolerance = TOLERANCE
        difference = (values.double() - expected[name].double()).abs()
        allowed = tolerance * (1 + expected[name].double().abs())
        assert (difference <= allowed).all(), f"{name} differs by up to {difference.max():.2g}"


if __name__ == "__main__":
    tensors = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            for name, values in numbers_of(case, Path(folder) / case).items():
                tensors[f"{case}/{name}"] = values.clone()
    save_file(tensors, FILE)
