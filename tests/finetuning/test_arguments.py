"""Arguments of fine-tuning that are refused."""

import pytest

from ..toys.finetuning import arguments


def test_seeds_twice(tmp_path):
    with pytest.raises(ValueError, match="--seeds"):
        arguments(tmp_path, seeds=[3, 3])
