"""Loads the fixtures of a test run, and gives names to the examples in docstrings."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Nothing is collected while modules are imported: their objects stay for the whole run.
gc.disable()
settings.register_profile("fuzz")  # make fuzz
settings.register_profile("fast", max_examples=50)
settings.load_profile("fast")
PLUGINS = ("tests.support.fixtures", "tests.documentation.runner")
# Programs that build the pages: they have no examples, and some need packages that only `make docs`
# installs.
collect_ignore_glob = ["docs/*.py"]


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Loads the fixtures and the runner of the pages' blocks, which import torch and the package.

    That takes ten seconds, so a process that only hands out the tests (`-n 2`) goes without. The
    package is imported last, so that a measured coverage has its definitions, too.
    """
    only_hands_out = session.config.getoption("dist", default="no") != "no"
    if only_hands_out:
        gc.enable()
        return
    for name in PLUGINS:
        session.config.pluginmanager.import_plugin(name)


class FreshProcessesTogether(LoadScopeScheduling):
    """Gives the modules that start fresh processes to one worker, which then imports for all."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        source = (self.config.rootpath / module).read_text(encoding="utf-8")
        if "fresh_process" in source:
            return "fresh processes"
        return module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: object
) -> FreshProcessesTogether | None:
    """Chooses the order for `--dist loadscope`."""
    if config.option.dist == "loadscope":
        return FreshProcessesTogether(config, log)
    return None


def pytest_collection_finish() -> None:
    """Hides what was imported from the garbage collector, which every training starts."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def metric_caches(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where `evaluate` copies modules: one folder a process, for Python looks for a package in one
    place only.

    The folder comes first, because transformers appends the user's own cache to `sys.path` when it
    opens a model by its code, and modules of `evaluate` may lie there from before.
    """
    import evaluate

    for name in ("HF_MODULES_CACHE", "HF_METRICS_CACHE"):
        setattr(evaluate.config, name, tmp_path_factory.mktemp(name))
    sys.path.insert(0, str(evaluate.config.HF_MODULES_CACHE))


@pytest.fixture(autouse=True)
def _doctest_names(request: pytest.FixtureRequest, doctest_namespace: dict[str, object]) -> None:
    """`np`, and `minilm`, a folder with MiniLM's weights."""
    if isinstance(request.node, pytest.DoctestItem):
        doctest_namespace["np"] = np
        doctest_namespace["minilm"] = request.getfixturevalue("minilm_path")
